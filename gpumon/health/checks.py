"""Checks of the doctor and the self-test, and their JSON document."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple


class Status(str, Enum):
    """The outcome of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class Check(NamedTuple):
    """A check with its outcome.

    Attributes:
        id: Stable public name.
        status: The outcome.
        detail: The result; for a skipped check, the reason.
        fix: What to do; empty if nothing needs to be done.
    """

    id: str
    status: Status
    detail: str
    fix: str = ""


class CheckResult(NamedTuple):
    """The outcome of a check without its id; see `Check`."""

    status: Status
    detail: str
    fix: str = ""

    def named(self, check_id: str) -> Check:
        """The check with this id and this outcome."""
        return Check(check_id, *self)


class FailedError(Exception):
    """A check failed."""


class SkippedError(Exception):
    """A check does not apply here."""


def ok(detail: str) -> CheckResult:
    """The check passed."""
    return CheckResult(Status.OK, detail)


def warn(detail: str, fix: str) -> CheckResult:
    """The checked feature works, but not as well as it could, or not for long."""
    return CheckResult(Status.WARN, detail, fix)


def fail(detail: str, fix: str) -> CheckResult:
    """The checked feature does not work."""
    return CheckResult(Status.FAIL, detail, fix)


def skip(why: str) -> CheckResult:
    """The check does not apply here, or its result cannot be determined."""
    return CheckResult(Status.SKIP, why)


def verdict(checks: Iterable[Check]) -> Status:
    """The worst status of the checks; skipped checks do not count."""
    statuses = {check.status for check in checks}
    return next((status for status in (Status.FAIL, Status.WARN) if status in statuses), Status.OK)


def document(checks: Iterable[Check]) -> dict[str, Any]:
    """The document that ``--json`` prints."""
    listed = list(checks)
    return {
        "schema": 1,
        "verdict": verdict(listed).value,
        "checks": [{**check._asdict(), "status": check.status.value} for check in listed],
    }
