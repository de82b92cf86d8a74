"""NVML's field values: many figures from one call, each with a return code and a type of its own."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.collect import nvml
from gpumon.collect.nvml import Answer, Handle, Nvml, ReadingError
from gpumon.core.problems import Problem, ProblemCode

Value = float | Problem
"""A reading, or why there is none."""

_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of NVML's union in which a value lies, by its ``valueType``."""


class Field(NamedTuple):
    """A field of NVML's list, and which link or sensor of it is meant."""

    id: int
    scope: int = 0


def read_fields(api: Nvml, handle: Handle, fields: Sequence[Field]) -> list[Value]:
    """The values of ``fields``, in their order, from one call.

    One more is asked for than is wanted: drivers are known to write behind the last one.

    Raises:
        DeviceLostError: The device is gone.
        DriverGoneError: The driver is gone.
        ReadingError: The call failed as a whole.
    """
    answers = api.call("nvmlDeviceGetFieldValues", handle, [*fields, fields[-1]])
    return [_value(answers[place]) for place in range(len(fields))]


def _value(answer: Answer) -> Value:
    if answer.nvmlReturn != nvml.SUCCESS:
        failed = nvml.failure(answer.nvmlReturn)
        if not isinstance(failed, ReadingError):
            raise failed
        return failed.problem
    if not 0 <= answer.valueType < len(_MEMBERS):
        reason = f"The driver answered with a value of an unknown type ({answer.valueType})."
        return Problem(ProblemCode.INVALID_VALUE, reason)
    value: float = getattr(answer.value, _MEMBERS[answer.valueType])
    return value
