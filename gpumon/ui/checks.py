"""Checks of the headless test mode, and how they are told."""

from enum import Enum
from typing import Any, NamedTuple


class Status(str, Enum):
    """How a check ended."""

    OK = "ok"
    FAIL = "fail"
    SKIP = "skip"


class Check(NamedTuple):
    """One check: what it is, how it ended, what was found."""

    id: str
    status: Status
    detail: str


class FailedError(Exception):
    """A check found something wrong."""


class SkippedError(Exception):
    """A check has nothing to look at here."""


def document(checks: list[Check]) -> dict[str, Any]:
    """The checks as ``gpumon selftest --json`` prints them."""
    failed = any(check.status is Status.FAIL for check in checks)
    return {
        "schema": 1,
        "verdict": (Status.FAIL if failed else Status.OK).value,
        "checks": [{"id": check.id, "status": check.status.value, "detail": check.detail} for check in checks],
    }
