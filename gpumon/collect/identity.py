"""What a device says it is."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from gpumon.collect.nvml import Handle, Nvml, ReadingError
from gpumon.core.problems import Problem, ProblemCode

T = TypeVar("T", str, int)

_NO_TEXT: Final = Problem(ProblemCode.INVALID_VALUE, "The driver answers with an empty text.")


class Questions:
    """Asks one device what does not change.

    Args:
        api: The choke point.
        handle: NVML's handle of the device.

    Attributes:
        problems: Why there is no answer, by field.
    """

    def __init__(self, api: Nvml, handle: Handle) -> None:
        self._api = api
        self._handle = handle
        self.problems: dict[str, Problem] = {}

    def ask(self, field: str, call: str, convert: Callable[[Any], T]) -> T | None:
        """What a call answers; None if it says nothing, and the reason is among the `problems`.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        try:
            answer = convert(self._api.call(call, self._handle))
        except ReadingError as failed:
            self.problems[field] = failed.problem
            return None
        if answer == "":
            self.problems[field] = _NO_TEXT
            return None
        return answer
