"""Why a GPU did nothing: the wait for data, a call that waited for the GPU, a late launch, or none of these."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.step_classes import DATA, GPU_CLASSES, HOST, IDLE, SYNC
from gpumon.traces.host_work import HostWork
from gpumon.traces.pieces import NO_EVENT, Interval, TimePiece, TimePieces, remainder
from gpumon.traces.table import EventTable

_DATA: Final = GPU_CLASSES.index(DATA)
_SYNC: Final = GPU_CLASSES.index(SYNC)
_HOST: Final = GPU_CLASSES.index(HOST)
_IDLE: Final = GPU_CLASSES.index(IDLE)
_RETURN_NS: Final = 5_000
"""A call that waits for the GPU returns a little after the GPU has finished."""
_START_NS: Final = 30_000
"""Work that starts this soon after its launch was waited for by the GPU; a longer time means that it was queued."""
_MIN_ACTIVE_SHARE: Final = 0.5
BETWEEN_OPERATORS: Final = "Python and other code between operators"
QUEUED: Final = "between kernels that were queued already"
NO_WORK: Final = "no further work in the trace"
UNKNOWN: Final = "no launch was recorded"


class IdleGap(NamedTuple):
    """A time in which the GPU did nothing; ``pieces`` divide it."""

    begin: int
    end: int
    next_event: int | None
    pieces: tuple[TimePiece, ...]


class IdleReasons:
    """Divides the times without work on the GPU into classes, by their reasons.

    Args:
        table: The events.
        host: What the threads of the host did.
    """

    def __init__(self, table: EventTable, host: HostWork) -> None:
        self._table = table
        self._host = host

    def divide(self, begin: int, end: int, next_event: int | None) -> IdleGap:
        """Divide a time without work; the pieces cover it completely.

        Args:
            begin: Its begin.
            end: Its end.
            next_event: The event on the GPU that ends it; None after the last one.
        """
        pieces: list[TimePiece] = []
        data = list(self._host.data.overlapping(begin, end))
        pieces += self._named(data, _DATA)
        launch = None if next_event is None else self._host.launches.get(self._table.correlations[next_event])
        lane = self._host.main_lane if launch is None else self._table.lanes[launch]
        share, reason = self._share(begin, end, next_event, launch)
        for first, last in remainder(begin, end, data):
            waits = self._sync_waits(begin, first, last)
            pieces += self._named(waits, _SYNC)
            for left, right in remainder(first, last, waits):
                pieces += self._rest(left, right, share, reason, lane)
        return IdleGap(begin, end, next_event, tuple(sorted(pieces)))

    def _sync_waits(self, gap_begin: int, begin: int, end: int) -> list[Interval]:
        """The parts of a time that calls which wait for the GPU take.

        A call that waited until the GPU had finished kept the host from launching ahead. Without it, the host would be
        ahead by the duration of the call, so as much of the gap after it belongs to it.
        """
        waits = []
        cause = self._host.blocking.at(gap_begin, _RETURN_NS)
        if cause is not None and cause.begin < gap_begin:
            last = min(end, gap_begin + cause.end - cause.begin)
            if last > begin:
                waits.append(Interval(begin, last, cause.event))
        start = waits[0].end if waits else begin
        return waits + [item for item in self._host.blocking.overlapping(start, end) if item.end > item.begin]

    def _share(self, begin: int, end: int, next_event: int | None, launch: int | None) -> tuple[int, str]:
        """The class of what neither data nor synchronization explains, and its name if it has one."""
        if launch is not None:
            called = self._table.begins[launch]
            is_late = called >= begin or end - called <= _START_NS
            return (_HOST, "") if is_late else (_IDLE, QUEUED)
        lane = self._host.main_lane
        if next_event is None:
            return _IDLE, NO_WORK
        if lane is not None:
            operators = self._host.outer_operators(lane).overlapping(begin, end)
            if sum(item.end - item.begin for item in operators) >= _MIN_ACTIVE_SHARE * (end - begin):
                return _HOST, ""
        return _IDLE, UNKNOWN

    def _rest(self, begin: int, end: int, share: int, reason: str, lane: int | None) -> list[TimePiece]:
        if share == _IDLE or lane is None:
            number = self._table.number_of(reason or BETWEEN_OPERATORS)
            return [TimePiece(begin, end, share, number, NO_EVENT)]
        interruptions = list(self._host.interruptions.overlapping(begin, end))
        pieces = self._named(interruptions, _HOST)
        between = self._table.number_of(BETWEEN_OPERATORS)
        for first, last in remainder(begin, end, interruptions):
            operators = list(self._host.outer_operators(lane).overlapping(first, last))
            pieces += self._named(operators, _HOST)
            pieces += [
                TimePiece(left, right, _HOST, between, NO_EVENT) for left, right in remainder(first, last, operators)
            ]
        return pieces

    def _named(self, intervals: Sequence[Interval], share: int) -> list[TimePiece]:
        names = self._table.names
        return [TimePiece(item.begin, item.end, share, names[item.event], item.event) for item in intervals]


def add_gap(pieces: TimePieces, gap: IdleGap) -> None:
    """Add the pieces of a gap to a timeline."""
    for piece in gap.pieces:
        pieces.add(*piece)
