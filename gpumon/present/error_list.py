"""The errors that can be explained without a text: those of this host, an example, and all known ones."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.core.units import age_text
from gpumon.present.paint.columns import Cells, columns
from gpumon.present.paint.line import Role, Span, clipped
from gpumon.present.paint.table import Column
from gpumon.session.view_state import ViewState

EXAMPLE: Final = "example"
FREQUENT: Final = ("oom", "device-assert", "no-kernel-image", "illegal-address", "nccl-timeout", "shape", "xid-79")
_HERE: Final = "this host"
_XID: Final = re.compile(r"xid-\d+")
_MAX_RECENT: Final = 5


class ErrorRow(NamedTuple):
    """An error that can be explained.

    Attributes:
        key: Id of the entry; the path of a report with a slash before it; `EXAMPLE` for the example.
        origin: Where it was found, or the section of the catalogue.
        title: What happened.
        age: How long ago.
    """

    key: str
    origin: str
    title: str
    age: str = ""


def recent_rows(state: ViewState) -> tuple[ErrorRow, ...]:
    """The latest deaths of processes that ran out of memory and the latest Xids of this host, then an example."""
    now = state.frame.time_seconds
    ooms = [
        ErrorRow(f"/{oom.path}", _HERE, f"PID {oom.pid} ran out of memory", age_text(max(0.0, now - oom.time_seconds)))
        for oom in reversed(state.probes.ooms)
    ]
    ended = (item.alert for item in reversed(state.alerts_over))
    xids = {alert.id: alert for alert in (*state.alerts, *ended) if _XID.fullmatch(alert.id)}
    rows = [
        ErrorRow(
            alert.id, _HERE, alert.title, "" if alert.since_seconds is None else age_text(now - alert.since_seconds)
        )
        for alert in xids.values()
    ]
    return (*ooms[:_MAX_RECENT], *rows[:_MAX_RECENT], ErrorRow(EXAMPLE, "example", "A traceback of a training run"))


def _cells(value: Callable[[ErrorRow], str], role: Role = Role.DIM) -> Cells[ErrorRow]:
    """Texts, which sort and are searched as they are shown."""

    def cell(row: ErrorRow, width: int) -> Span:
        return Span(clipped(value(row), width), Role.ACCENT if row.origin == _HERE else role)

    return Cells(cell, lambda row: value(row) or None, value)


ERROR_COLUMNS: Final[tuple[Column[ErrorRow], ...]] = columns(
    "errors",
    {
        "origin": _cells(lambda row: row.origin),
        "error": _cells(lambda row: row.title, Role.PLAIN),
        "ago": _cells(lambda row: row.age),
        "id": _cells(lambda row: row.key),
    },
)
"""The columns of the list of errors that can be explained."""
