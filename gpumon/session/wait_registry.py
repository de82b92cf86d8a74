"""What the user wants to be notified of: a GPU that becomes free or busy with memory, and a process that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.units import age_text
from gpumon.health.alerts import Alert, Severity
from gpumon.session.process_registry import Identity, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.core.model import Device, Frame, Process
    from gpumon.operations.wait import Condition

_UTILIZATION_PERCENT: Final = 5
_UTILIZATION_SECONDS: Final = 300.0
"""A pause between two epochs is shorter."""


class WaitChoice(NamedTuple):
    """Something that can be waited for.

    Attributes:
        id: Identifies it.
        label: What must come true, in a few words.
        is_true: Returns the rest of a sentence if it is true in a frame, else None.
        seconds: How long it must be true without a break.
        device_key: The device it is about, None for a process.
    """

    id: str
    label: str
    is_true: Callable[[Frame], str | None]
    seconds: float = 0.0
    device_key: str | None = None


def wait_choices(device: Device | None, process: Process | None) -> list[WaitChoice]:
    """What can be waited for of a GPU and of a process; None if there is none."""
    from gpumon.operations.wait import is_free, memory_above, utilization_below  # late: the first values do not need it

    choices = [] if process is None else [_process_choice(process)]
    if device is not None:
        choices.append(_device_choice(device, "free", "is free", is_free()))
        for percent in (50, 90):
            label = f"uses more than {percent} % of its memory"
            choices.append(_device_choice(device, f"memory-{percent}", label, memory_above(percent)))
        label = f"is utilized below {_UTILIZATION_PERCENT} % for {age_text(_UTILIZATION_SECONDS)}"
        condition = utilization_below(_UTILIZATION_PERCENT)
        choices.append(_device_choice(device, "idle", label, condition, _UTILIZATION_SECONDS))
    return choices


def _device_choice(device: Device, name: str, label: str, condition: Condition, seconds: float = 0.0) -> WaitChoice:
    key = device.key

    def is_true(frame: Frame) -> str | None:
        current = next((device for device in frame.devices if device.key == key), None)
        if current is None or not frame.is_fresh(current) or not condition.holds(current):
            return None
        return f"GPU {current.label} {condition.text(current)}"

    return WaitChoice(f"{key}/{name}", f"GPU {device.label} {label}", is_true, seconds, key)


def _process_choice(process: Process) -> WaitChoice:
    from gpumon.operations.pick_reservations import ProcessStart  # late, as above

    identity = identity_of(process)

    def has_ended(frame: Frame) -> str | None:
        if any(device.processes is None for device in frame.devices) or _is_listed(identity, frame):
            return None
        pid, start_ticks = identity
        if not start_ticks:  # nothing in /proc is known to be this process
            return f"PID {pid} no longer uses a GPU"
        return None if ProcessStart(pid, start_ticks).is_alive else f"PID {pid} has ended"

    return WaitChoice(f"pid/{identity[0]}/{identity[1]}", f"PID {process.pid} has ended", has_ended)


def _is_listed(identity: Identity, frame: Frame) -> bool:
    return any(identity_of(process) == identity for device in frame.devices for process in device.processes or ())


class _Armed:
    """A choice that is waited for, and since when it is true, in monotonic seconds."""

    def __init__(self, choice: WaitChoice) -> None:
        self.choice = choice
        self.since: float | None = None

    def observe(self, frame: Frame) -> str | None:
        """The sentence once it has been true for long enough."""
        fact = self.choice.is_true(frame)
        if fact is None:
            self.since = None
            return None
        if self.since is None:
            self.since = frame.monotonic_seconds
        seconds = self.choice.seconds
        if frame.monotonic_seconds - self.since < seconds:
            return None
        return f"{fact}, for {age_text(seconds)}." if seconds else f"{fact}."


class WaitRegistry:
    """What the user waits for; each notifies once.

    Args:
        run_command: Called with what came true, for the command that the user configured.

    Attributes:
        report: Called with the sentence of what came true.
    """

    def __init__(self, run_command: Callable[[Sequence[Alert], Frame], object]) -> None:
        self.report: Callable[[str], object] = lambda _: None
        self._run_command = run_command
        self._armed: dict[str, _Armed] = {}

    @property
    def armed(self) -> Sequence[WaitChoice]:
        """What is waited for, the oldest first."""
        return [armed.choice for armed in self._armed.values()]

    def arm(self, choices: Sequence[WaitChoice]) -> None:
        """Wait for exactly these choices; those that were waited for before go on."""
        self._armed = {choice.id: self._armed.get(choice.id) or _Armed(choice) for choice in choices}

    def observe(self, frame: Frame) -> None:
        """Report what has come true with a frame of this host."""
        for armed in list(self._armed.values()):
            sentence = armed.observe(frame)
            if sentence is not None:
                choice = armed.choice
                del self._armed[choice.id]
                self.report(sentence)
                index = next((device.index for device in frame.devices if device.key == choice.device_key), None)
                event = Alert("came_true", Severity.INFO, sentence, "", frame.time_seconds, choice.device_key, index)
                self._run_command([event], frame)
