"""What a device is set up as: firmware, modes, what CUDA can do on it. Most is read once, and not in the first tick."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from gpumon.collect.lanes import NEXT_TICK, retry_after
from gpumon.collect.nvml import Answer, Handle, Nvml, ReadingError
from gpumon.collect.patience import Patience
from gpumon.collect.readers import Lane
from gpumon.core.model import TRAITS, ComputeMode, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_SWITCHES: Final = (Switch.DISABLED, Switch.ENABLED)
_COMPUTE_MODES: Final = tuple(ComputeMode)
_NO_TEXT: Final = Problem(ProblemCode.INVALID_VALUE, "The driver answers with an empty text.")


def _capability(answer: Sequence[int]) -> tuple[str]:
    major, minor = answer
    return (f"{major}.{minor}",)


def _text(answer: Answer) -> tuple[str]:
    return (safe_text(answer, 64),)


def _switch(answer: int) -> tuple[Switch]:
    return (_SWITCHES[_index(answer)],)


def _switches(answer: Sequence[int]) -> tuple[Switch, Switch]:
    current, pending = answer
    return _SWITCHES[_index(current)], _SWITCHES[_index(pending)]


def _compute_mode(answer: int) -> tuple[ComputeMode]:
    return (_COMPUTE_MODES[_index(answer)],)


def _index(answer: int) -> int:
    """A number of NVML's as a position; a negative one would count from the end."""
    if answer < 0:
        raise IndexError(answer)
    return answer


class _Call(NamedTuple):
    """A call that tells one or more traits, how often it is made, and what makes them of its answer."""

    fields: tuple[str, ...]
    name: str
    convert: Callable[[Answer], tuple[str, ...]]
    lane: Lane = Lane.STATIC


_CALLS: Final = (
    _Call(("compute_capability",), "nvmlDeviceGetCudaComputeCapability", _capability),
    _Call(("vbios_version",), "nvmlDeviceGetVbiosVersion", _text),
    _Call(("persistence_mode",), "nvmlDeviceGetPersistenceMode", _switch),
    _Call(("compute_mode",), "nvmlDeviceGetComputeMode", _compute_mode),
    _Call(("ecc_mode", "ecc_mode_pending"), "nvmlDeviceGetEccMode", _switches),
    _Call(("mig_mode", "mig_mode_pending"), "nvmlDeviceGetMigMode", _switches, Lane.MEDIUM),
)
"""Since Hopper, a GPU is split without a reset, while the driver runs."""


class TraitReadings:
    """The traits of one device.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.

    Attributes:
        values: Fields of `gpumon.core.model.Device` that are known.
        problems: Why the others are not, by field.
    """

    def __init__(self, api: Nvml, handle: Handle) -> None:
        self._api = api
        self._handle = handle
        self._due = [0.0] * len(_CALLS)
        self._patience = [Patience() for _ in _CALLS]
        self._next: float | None = None
        self.values: dict[str, Any] = {}
        self.problems: dict[str, Problem] = dict.fromkeys(TRAITS, NEXT_TICK)

    def read(self, now: float) -> None:
        """Reads at ``now`` (monotonic seconds) what is not known yet.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if self._next is None:
            self._next = 0.0
            return
        if now < self._next:
            return
        for place, call in enumerate(_CALLS):
            if now < self._due[place]:
                continue
            problem = self._read_one(call)
            self._settle(place, problem)
            self._due[place] = now + (call.lane.value if problem is None else retry_after(problem, call.lane))
        self._next = min(self._due)

    def _settle(self, place: int, problem: Problem | None) -> None:
        """Notes why a call brought nothing, and whether what it brought before is still told; or that it is well."""
        patience = self._patience[place]
        excuse = None
        if problem is None:
            patience.succeeded()
        else:
            excuse = patience.excuse(problem)
        for field in _CALLS[place].fields:
            self.problems.pop(field, None)
            if problem is not None:
                if excuse is None:
                    self.values.pop(field, None)
                self.problems[field] = excuse if excuse is not None and field in self.values else problem

    def _read_one(self, call: _Call) -> Problem | None:
        try:
            answer = self._api.call(call.name, self._handle)
        except ReadingError as failed:
            return failed.problem
        try:
            values = call.convert(answer)
        except IndexError:
            return Problem(ProblemCode.INVALID_VALUE, f"The driver answered {answer}, which gpumon does not know.")
        if "" in values:
            return _NO_TEXT
        self.values.update(zip(call.fields, values, strict=True))
        return None
