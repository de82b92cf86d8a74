"""What a check of the doctor is made of: its name, what it judges, and which facts it needs for that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.diagnosis.checks import Check, Finding, skip, warn

Facts = Mapping[type, object]
"""What was gathered, by its type; a `Problem` in its place says why it could not be."""


class Rule(NamedTuple):
    """A check.

    Attributes:
        id: Its stable public name.
        judge: Judges the facts, which it gets in the order of ``needs``.
        needs: Types of the facts.
        may_lack: Those of them without which it judges as well; without another it is skipped, with that reason.
    """

    id: str
    judge: Callable[..., Finding]
    needs: tuple[type, ...]
    may_lack: tuple[type, ...] = ()

    def check(self, facts: Facts) -> Check:
        """The check; all that it needs must be among the facts."""
        for need in self.needs:
            fact = facts[need]
            if isinstance(fact, Problem) and need not in self.may_lack:
                return skip(fact.reason).named(self.id)
        return judged(lambda: self.judge(*(facts[need] for need in self.needs))).named(self.id)


def judged(judge: Callable[[], Finding]) -> Finding:
    """What a check finds; one that fails itself costs itself alone."""
    try:
        return judge()
    except Exception as error:  # noqa: BLE001 - the others are to be made all the same
        return warn(f"The check itself failed: {type(error).__name__}.", "Report it with: gpumon doctor --bundle FILE.")


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that answer."""

    devices: tuple[Device, ...]


def gpus_of(frame: Frame | Problem) -> Gpus | Problem:
    """The GPUs of a frame that answer, or why there is none."""
    if isinstance(frame, Problem):
        return frame
    answering = tuple(device for device in frame.gpus if device.state is DeviceState.OK)
    if answering:
        return Gpus(answering)
    return frame.problems.get("driver") or Problem(ProblemCode.NO_DEVICES, "There is no GPU that answers.")
