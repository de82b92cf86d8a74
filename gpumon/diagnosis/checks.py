"""Checks, as the doctor and the headless test mode make them, and how they are told."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple


class Status(str, Enum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class Check(NamedTuple):
    """One check.

    Attributes:
        id: Stable public name.
        status: How it ended.
        detail: What was found; of a check that was skipped, why.
        fix: What to do about it; empty where nothing is to be done.
    """

    id: str
    status: Status
    detail: str
    fix: str = ""


class Finding(NamedTuple):
    """What a check found, without its name; see `Check`."""

    status: Status
    detail: str
    fix: str = ""

    def named(self, check_id: str) -> Check:
        """The check of that name with this finding."""
        return Check(check_id, *self)


class FailedError(Exception):
    """A check found something wrong."""


class SkippedError(Exception):
    """A check has nothing to look at here."""


def ok(detail: str) -> Finding:
    """All is well."""
    return Finding(Status.OK, detail)


def warn(detail: str, fix: str) -> Finding:
    """It works, but not as well as it could, or not for long."""
    return Finding(Status.WARN, detail, fix)


def fail(detail: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(Status.FAIL, detail, fix)


def skip(why: str) -> Finding:
    """There is nothing to look at here, or no way to find out."""
    return Finding(Status.SKIP, why)


def verdict(checks: Iterable[Check]) -> Status:
    """The worst that was found."""
    found = {check.status for check in checks}
    return next((status for status in (Status.FAIL, Status.WARN) if status in found), Status.OK)


def document(checks: Iterable[Check]) -> dict[str, Any]:
    """The checks as ``--json`` prints them."""
    listed = list(checks)
    return {
        "schema": 1,
        "verdict": verdict(listed).value,
        "checks": [{**check._asdict(), "status": check.status.value} for check in listed],
    }
