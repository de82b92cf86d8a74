"""What a device is: its identity, which is queried once, and its attributes (firmware, modes, compute capability)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from gpumon.collect.nvml import Answer, Handle, Nvml, ReadingError
from gpumon.collect.schedule import NEXT_FRAME, Period, PolledValue
from gpumon.core.model import DEVICE_ATTRIBUTES, ComputeMode, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

T = TypeVar("T", str, int)

_SWITCHES: Final = (Switch.DISABLED, Switch.ENABLED)
_EMPTY_TEXT: Final = Problem(ProblemCode.INVALID_VALUE, "The driver returned an empty text.")


class IdentityQueries:
    """Queries of one device for values that never change.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.

    Attributes:
        problems: Why a value is missing, by field.
    """

    def __init__(self, api: Nvml, handle: Handle) -> None:
        self._api = api
        self._handle = handle
        self.problems: dict[str, Problem] = {}

    def query(self, field: str, call: str, convert: Callable[[Any], T], *arguments: int) -> T | None:
        """The converted result of a call with the handle and ``arguments``, or None with an entry in `problems`.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        try:
            value = convert(self._api.call(call, self._handle, *arguments))
        except ReadingError as error:
            self.problems[field] = error.problem
            return None
        if value == "":
            self.problems[field] = _EMPTY_TEXT
            return None
        return value


def _capability(answer: Sequence[int]) -> tuple[str]:
    major, minor = answer
    return (f"{major}.{minor}",)


def _members(members: Sequence[str], *numbers: int) -> tuple[str, ...]:
    """NVML's enumeration values by their numbers; a negative one would count from the end."""
    if min(numbers) < 0:
        raise IndexError(numbers)
    return tuple(members[number] for number in numbers)


def _switches(modes: Sequence[int]) -> tuple[str, ...]:
    return _members(_SWITCHES, *modes)


class _AttributeCall(NamedTuple):
    """A call that returns one or more attributes.

    Attributes:
        fields: Fields of `gpumon.core.model.Device`.
        name: The NVML function.
        convert: Converts its result to one value for each field; raises IndexError for an unknown enumeration value.
        period: How often it is called.
    """

    fields: tuple[str, ...]
    name: str
    convert: Callable[[Answer], tuple[str, ...]]
    period: Period = Period.ONCE

    def read(self, api: Nvml, handle: Handle) -> tuple[str, ...]:
        """The values of the fields; raises what `Nvml.call` raises."""
        answer = api.call(self.name, handle)
        try:
            values = self.convert(answer)
        except IndexError:
            reason = f"The driver returned {answer}, which gpumon does not know."
            raise ReadingError(Problem(ProblemCode.INVALID_VALUE, reason)) from None
        if "" in values:
            raise ReadingError(_EMPTY_TEXT)
        return values


_CALLS: Final = (
    _AttributeCall(("compute_capability",), "nvmlDeviceGetCudaComputeCapability", _capability),
    _AttributeCall(("vbios_version",), "nvmlDeviceGetVbiosVersion", lambda text: (safe_text(text, 64),)),
    _AttributeCall(("persistence_mode",), "nvmlDeviceGetPersistenceMode", partial(_members, _SWITCHES)),
    _AttributeCall(("compute_mode",), "nvmlDeviceGetComputeMode", partial(_members, tuple(ComputeMode))),
    _AttributeCall(("ecc_mode", "ecc_mode_pending"), "nvmlDeviceGetEccMode", _switches),
    _AttributeCall(("mig_mode", "mig_mode_pending"), "nvmlDeviceGetMigMode", _switches, Period.TEN_SECONDS),
)
"""The MIG mode is read again, because since Hopper it can change without a GPU reset while the driver is loaded."""
_MIG_MODE: Final = len(_CALLS) - 1


class AttributesReader:
    """The attributes of one device. The first sweep reads only the MIG mode, so that the first frame is not delayed.

    Without the MIG mode, a GPU whose instances compute would look free in the first frame, by which commands decide.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.

    Attributes:
        values: The known fields of `gpumon.core.model.Device`.
        problems: Why the other fields are missing, or why a value is stale.
    """

    def __init__(self, api: Nvml, handle: Handle) -> None:
        self._api = api
        self._handle = handle
        self._polled = [(call, PolledValue[tuple[str, ...]](call.period)) for call in _CALLS]
        self._due: float | None = None
        self.values: dict[str, Any] = {}
        self.problems: dict[str, Problem] = dict.fromkeys(DEVICE_ATTRIBUTES, NEXT_FRAME)

    def read(self, now: float) -> None:
        """Read the attributes that are due at ``now`` (monotonic seconds).

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if self._due is None:
            self._due = now
            self._poll(*self._polled[_MIG_MODE], now)
        elif now >= self._due:
            for call, polled in self._polled:
                self._poll(call, polled, now)
            self._due = min(polled.due for _, polled in self._polled)

    def _poll(self, call: _AttributeCall, polled: PolledValue[tuple[str, ...]], now: float) -> None:
        values = polled.poll(now, lambda: call.read(self._api, self._handle))
        for index, field in enumerate(call.fields):
            self.values.pop(field, None)
            self.problems.pop(field, None)
            if values is not None:
                self.values[field] = values[index]
            if polled.problem is not None:
                self.problems[field] = polled.problem
