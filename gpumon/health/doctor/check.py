"""What a check of the doctor is: its name, its judgment, and the facts it needs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.alerts import ranges_text
from gpumon.health.checks import Check, CheckResult, skip, warn

Facts = Mapping[type, object]
"""The gathered facts by type; a `Problem` in place of a fact says why it is missing."""


class DoctorCheck(NamedTuple):
    """A check.

    Attributes:
        id: Its stable public name.
        judge: Judges the facts, which are passed in the order of ``needs``.
        needs: The types of the facts.
        may_lack: Needs without which the check can still judge. If another need is missing, the check is skipped with
            the reason for that.
    """

    id: str
    judge: Callable[..., CheckResult]
    needs: tuple[type, ...]
    may_lack: tuple[type, ...] = ()

    def run(self, facts: Facts) -> Check:
        """The result of the check; every need must be in ``facts``, as a fact or a `Problem`."""
        for need in self.needs:
            fact = facts[need]
            if isinstance(fact, Problem) and need not in self.may_lack:
                return skip(fact.reason).named(self.id)
        return guarded(lambda: self.judge(*(facts[need] for need in self.needs))).named(self.id)


def guarded(judge: Callable[[], CheckResult]) -> CheckResult:
    """The finding of a check. A check that raises an exception costs only itself."""
    try:
        return judge()
    except Exception as error:  # noqa: BLE001 - the other checks must still run
        return warn(f"The check itself failed: {type(error).__name__}.", "Report it with: gpumon doctor --bundle FILE.")


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that respond."""

    devices: tuple[Device, ...]


def gpus_of(frame: Frame | Problem) -> Gpus | Problem:
    """The GPUs of a frame that respond, or why there are none."""
    if isinstance(frame, Problem):
        return frame
    responding = tuple(device for device in frame.gpus if device.state is DeviceState.OK)
    if responding:
        return Gpus(responding)
    return frame.problems.get("driver") or Problem(ProblemCode.NO_DEVICES, "No GPU responds.")


def gpus_text(devices: Iterable[Device]) -> str:
    """Devices by NVML's index, consecutive ones joined: ``GPU 3``, ``GPUs 0-3, 6``."""
    indices = [device.index for device in devices]
    return f"GPU{'s' if len(indices) > 1 else ''} {ranges_text(indices)}"


def joined(sentences: Iterable[str]) -> str:
    """Sentences as one text, without empty and repeated ones."""
    return " ".join(dict.fromkeys(sentence for sentence in sentences if sentence))
