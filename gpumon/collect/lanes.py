"""The readings of one device, each taken when its lane is due, and held until the next time.

Readings of the medium lane share a period, but not their turns: a tick has one or two of them, not all.
"""

from collections.abc import Sequence
from typing import Final

from gpumon.collect import nvml
from gpumon.collect.fields import Value, read_fields
from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.collect.patience import Patience
from gpumon.collect.readers import READERS, AnyReader, FieldReader, Lane, Reader
from gpumon.core.metrics import METRICS
from gpumon.core.problems import Problem, ProblemCode

NEXT_TICK: Final = Problem(ProblemCode.NOT_READ, "It is read in the next frame.")

RETRY_SECONDS: Final = 300.0
"""A reading that the chip does not support is asked for again this seldom."""

_PERMANENT: Final = frozenset({ProblemCode.NOT_SUPPORTED, ProblemCode.DRIVER_TOO_OLD, ProblemCode.NO_PERMISSION})


def retry_after(problem: Problem, lane: Lane) -> float:
    """Seconds after which a reading that failed is tried again."""
    if problem.code in _PERMANENT:
        return RETRY_SECONDS
    return Lane.MEDIUM.value if lane is Lane.STATIC else lane.value


class LaneReadings:
    """The readings of one device.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.
        readers: What to read.
    """

    def __init__(self, api: Nvml, handle: Handle, readers: Sequence[AnyReader] = READERS) -> None:
        self._api = api
        self._handle = handle
        self._readers = readers
        self._due = [0.0] * len(readers)
        self._first_pause = _first_pauses(readers)
        self._every = range(len(readers))
        self._fast = [place for place, reader in enumerate(readers) if reader.lane is Lane.FAST]
        self._next_slow = 0.0
        self._held: dict[str, float] = {}
        self._problems: dict[str, Problem] = {}
        self._patience = [Patience() for _ in readers]
        self._begun = False

    def read(self, now: float) -> tuple[dict[str, float], dict[str, Problem]]:
        """Readings and problems at ``now``, monotonic seconds.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
            ReadingError: Not one call knows the handle.
        """
        asked = refused = 0
        batch: list[int] = []
        for place in self._fast if now < self._next_slow else self._every:
            if now < self._due[place]:
                continue
            reader = self._readers[place]
            if reader.waits and not self._begun:
                self._miss(reader, NEXT_TICK)
            elif isinstance(reader, FieldReader):
                batch.append(place)
            else:
                asked += 1
                refused += self._read_one(place, reader, now)
        if batch:
            asked += 1
            refused += self._read_batch(batch, now)
        if now >= self._next_slow and self._begun:
            slow = (self._due[place] for place in self._every if place not in self._fast)
            self._next_slow = min(slow, default=Lane.STATIC.value)
        self._begun = True
        if 0 < asked == refused:
            raise nvml.failure(nvml.ERROR_INVALID_ARGUMENT)
        return self._held.copy(), self._problems.copy()

    def _read_one(self, place: int, reader: Reader, now: float) -> bool:
        """Reads one reader; returns whether its call does not know the handle."""
        try:
            values = reader.read(self._api, self._handle)
        except ReadingError as failed:
            self._failed(place, failed.problem, now)
            return _is_void_handle(failed)
        self._take(place, values)
        if reader.lane is not Lane.FAST:  # that is always due
            self._due[place] = now + self._pause(place)
        return False

    def _read_batch(self, places: list[int], now: float) -> bool:
        """Reads several field readers with one call; returns whether it does not know the handle."""
        readers = [reader for place in places if isinstance(reader := self._readers[place], FieldReader)]
        fields = [field for reader in readers for field in reader.fields]
        try:
            values = read_fields(self._api, self._handle, fields)
        except ReadingError as failed:
            for place in places:
                self._failed(place, failed.problem, now)
            return _is_void_handle(failed)
        for place, reader in zip(places, readers, strict=True):
            own, values = values[: len(reader.fields)], values[len(reader.fields) :]
            combined = reader.combine(own)
            problem = combined[0]
            if isinstance(problem, Problem):
                self._failed(place, problem, now)
            else:
                self._take(place, combined)
                self._due[place] = now + self._pause(place)
        return False

    # When a reader is due again is noted after its call, never before: after a call that hung it is still to be read.

    def _failed(self, place: int, problem: Problem, now: float) -> None:
        reader = self._readers[place]
        self._miss(reader, problem, self._patience[place].excuse(problem))
        pause = retry_after(problem, reader.lane)
        self._due[place] = now + (self._pause(place) if pause == reader.lane.value else pause)

    def _pause(self, place: int) -> float:
        """Seconds until a reader's next turn. After its first one it is shorter, so that the turns do not coincide."""
        period = self._readers[place].lane.value
        return period if self._due[place] else self._first_pause[place]

    def _take(self, place: int, values: Sequence[Value]) -> None:
        self._patience[place].succeeded()
        for metric, value in zip(self._readers[place].metrics, values, strict=True):
            if isinstance(value, Problem):
                self._held.pop(metric, None)
                self._problems[metric] = value
            elif METRICS[metric].admits(value):
                self._held[metric] = value
                if self._problems:
                    self._problems.pop(metric, None)
            else:
                self._held.pop(metric, None)
                self._problems[metric] = untrue(value)

    def _miss(self, reader: AnyReader, problem: Problem, excuse: Problem | None = None) -> None:
        for metric in reader.metrics:
            if excuse is None:
                self._held.pop(metric, None)
            self._problems[metric] = excuse if excuse is not None and metric in self._held else problem


def _is_void_handle(failed: ReadingError) -> bool:
    return bool(failed.code == nvml.ERROR_INVALID_ARGUMENT)


def untrue(value: float) -> Problem:
    """What is said of a value outside its metric's bounds."""
    return Problem(ProblemCode.INVALID_VALUE, f"The driver answered {value:g}, which cannot be true.")


def _first_pauses(readers: Sequence[AnyReader]) -> list[float]:
    """Seconds from each reader's first turn to its second: those of the medium lane are spread over its period."""
    calls = [reader for reader in readers if reader.lane is Lane.MEDIUM and isinstance(reader, Reader)]
    parts = len(calls) + 1  # and the field readers, which share a call
    turn = {id(reader): place for place, reader in enumerate(calls, 1)}
    return [
        Lane.MEDIUM.value * turn.get(id(reader), parts) / parts if reader.lane is Lane.MEDIUM else reader.lane.value
        for reader in readers
    ]
