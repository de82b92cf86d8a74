"""The dialog that sends signals: the processes, what each signal does, and who else is affected."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.units import age_text, counted, local_time_text
from gpumon.operations.signals import SentSignal, SignalRefusal, SignalTarget
from gpumon.present.paint.line import clipped

SIGNAL_ORDER: Final = (SentSignal.TERM, SentSignal.INT, SentSignal.KILL)
"""The signals in the order of their buttons; the first one is what a user usually wants."""
_EFFECTS: Final = {
    SentSignal.TERM: "asks the program to end; Slurm and Kubernetes do the same",
    SentSignal.INT: "as Ctrl-C: Python raises KeyboardInterrupt",
    SentSignal.KILL: "ends the process at once: no checkpoint, no cleanup",
}
_MAX_COMMAND: Final = 220


def signal_question(targets: Sequence[SignalTarget], refusals: Sequence[SignalRefusal]) -> str:
    """The processes with their identity, those that get no signal, and the effect of each signal."""
    lines = [f"Send a signal to {counted(len(targets), 'process')}?", ""]
    for target in targets:
        lines += _target_lines(target)
    lines += [f"No signal: {refusal.reason}" for refusal in refusals]
    lines += [""] if refusals else []
    lines += [f"{sent.title:<8} {_EFFECTS[sent]}" for sent in SIGNAL_ORDER]
    return "\n".join([*lines, ""])


def foreign_question(targets: Sequence[SignalTarget], sent: SentSignal) -> str:
    """The second question to root, about processes of other users."""
    users = sorted({target.user for target in targets if target.is_foreign})
    lines = [f"{sent.title} goes to processes of other users: {', '.join(users)}. Send it anyway?", ""]
    for target in targets:
        if target.is_foreign:
            lines += _target_lines(target)
    return "\n".join(lines)


def _target_lines(target: SignalTarget) -> Iterator[str]:
    age = age_text(max(0.0, time.time() - target.started_seconds))
    started = local_time_text(target.started_seconds)
    yield f"PID {target.pid}  user {target.user}  started {started} ({age} ago)"
    yield f"  {clipped(target.command, _MAX_COMMAND)}"
    yield ""
