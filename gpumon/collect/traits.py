"""What a device is set up as: firmware, modes, what CUDA can do on it. Read once, and not in the first tick."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from gpumon.collect.lanes import NEXT_TICK, retry_after
from gpumon.collect.nvml import Answer, Handle, Nvml, ReadingError
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


_CALLS: Final[tuple[tuple[tuple[str, ...], str, Callable[[Answer], tuple[str, ...]]], ...]] = (
    (("compute_capability",), "nvmlDeviceGetCudaComputeCapability", _capability),
    (("vbios_version",), "nvmlDeviceGetVbiosVersion", _text),
    (("persistence_mode",), "nvmlDeviceGetPersistenceMode", _switch),
    (("compute_mode",), "nvmlDeviceGetComputeMode", _compute_mode),
    (("ecc_mode", "ecc_mode_pending"), "nvmlDeviceGetEccMode", _switches),
    (("mig_mode", "mig_mode_pending"), "nvmlDeviceGetMigMode", _switches),
)


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
        for place, (fields, call, convert) in enumerate(_CALLS):
            if now < self._due[place]:
                continue
            problem = self._read_one(fields, call, convert)
            for field in fields:
                self.problems.pop(field, None)
                if problem is not None:
                    self.problems[field] = problem
            self._due[place] = Lane.STATIC.value if problem is None else now + retry_after(problem, Lane.STATIC)
        self._next = min(self._due)

    def _read_one(
        self, fields: tuple[str, ...], call: str, convert: Callable[[Answer], tuple[str, ...]]
    ) -> Problem | None:
        try:
            answer = self._api.call(call, self._handle)
        except ReadingError as failed:
            return failed.problem
        try:
            values = convert(answer)
        except IndexError:
            return Problem(ProblemCode.INVALID_VALUE, f"The driver answered {answer}, which gpumon does not know.")
        if "" in values:
            return _NO_TEXT
        self.values.update(zip(fields, values, strict=True))
        return None
