"""What is said about probes and the processes that they run in: who it is, how far PyTorch is, how old that is."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpumon.core.allocator import AllocatorStatistics, ProbeReading, ProbeState
from gpumon.core.units import age_text, bytes_text
from gpumon.operations.probed import Owner
from gpumon.probe.news import Probe
from gpumon.ui.paint.line import Line, Role, Span, clipped, line

OLD_SECONDS: Final = 2.5
"""A reading that is older is not of this moment: one long call keeps the interpreter's lock."""
ONLY_HERE: Final = "PyTorch's own books are only read on the machine itself: gpumon has to run there."
NONE_ON_THIS_GPU: Final = "No process with a probe holds memory of this GPU."
HOW_TO: Final[tuple[tuple[str, str], ...]] = (
    ("gpumon watch -- python train.py", "starts it with one; torchrun too"),
    ("import gpumon.probe; gpumon.probe.start()", "in the program itself"),
    ("gpumon attach PID", "one that runs, on Python 3.14"),
)
_INVITATION: Final = "What PyTorch does with its memory, a probe in its process tells. To have one:"
_STATE_WORDS: Final[Mapping[ProbeState, str]] = {
    ProbeState.WAITING_FOR_TORCH: "has not imported PyTorch yet",
    ProbeState.CPU_ONLY: "its PyTorch is built for the CPU only",
    ProbeState.WAITING_FOR_CUDA: "PyTorch is there, and has not begun to use a GPU yet",
    ProbeState.LIVE: "uses no GPU now",
    ProbeState.FAILED: "its PyTorch cannot be read",
}
_STATE_NOTES: Final[Mapping[ProbeState, str]] = {
    ProbeState.WAITING_FOR_TORCH: "The probe waits for it and never imports it by itself.",
    ProbeState.CPU_ONLY: "It can hold no memory of a GPU; a build for CUDA is another package.",
    ProbeState.WAITING_FOR_CUDA: "The probe waits until the program has made its CUDA context, and makes none.",
    ProbeState.LIVE: "",
    ProbeState.FAILED: "",
}


def process_words(probe: Probe) -> str:
    """Which process it is, and its place in the training if it has one."""
    rank = probe.process.rank
    return f"PID {probe.pid}" if rank is None else f"PID {probe.pid} rank {rank}"


def state_words(probe: Probe, now: float) -> Line:
    """How far PyTorch is in it, and its command line."""
    reading = probe.reading
    words = "has told nothing yet" if reading is None else _STATE_WORDS[reading.state]
    is_bad = reading is not None and reading.state is ProbeState.FAILED
    return line(
        Span(words, Role.WARNING if is_bad else Role.PLAIN),
        *_age(probe, now),
        Span(f"  {probe.process.command}", Role.DIM),
    )


def waiting_note(probe: Probe) -> str:
    """The same in full."""
    reading = probe.reading
    if reading is None:
        return f"{process_words(probe)}: its probe is there, and has told nothing yet."
    why = reading.problem or _STATE_NOTES[reading.state]
    return f"{process_words(probe)} {_STATE_WORDS[reading.state]}. {why} {_versions(probe, reading)}".replace("  ", " ")


def owner_words(owner: Owner, now: float) -> Line:
    """Behind a process's figures: that they are old, and its command line."""
    command = owner.probe.process.command if owner.probe is not None else ""
    if owner.process is not None:
        command = owner.process.command or command
    age = () if owner.probe is None else _age(owner.probe, now)
    return line(*age, Span("  " if age else ""), command)


def owner_note(owner: Owner, now: float) -> str:
    """What is known of a process and its allocator, in a few sentences."""
    probe, told = owner.probe, owner.statistics
    if probe is None or probe.reading is None or told is None:
        return f"PID {owner.pid}."
    found = [f"{process_words(probe)}: {_versions(probe, probe.reading)}", *_books(told)]
    if probe.age_seconds(now) > OLD_SECONDS:
        found.insert(1, "Its figures grow old while a call of the program keeps Python's lock.")
    pinned = probe.reading.pinned
    if pinned is not None and pinned.allocated_bytes:
        found.append(f"{bytes_text(pinned.allocated_bytes)} of host memory pinned.")
    if probe.process.settings:
        found.append(", ".join(f"{name}={value}" for name, value in sorted(probe.process.settings.items())) + ".")
    return " ".join(found)


def _versions(probe: Probe, reading: ProbeReading) -> str:
    parts = [f"Python {probe.process.python_version}"] if probe.process.python_version else []
    if reading.torch_version:
        parts.append(f"torch {reading.torch_version}")
    if reading.backend:
        parts.append(f"{reading.backend} allocator")
    if reading.expandable_segments:
        parts.append("expandable segments")
    return f"{', '.join(parts)}." if parts else ""


def _books(told: AllocatorStatistics) -> Iterator[str]:
    if told.allocated_peak_bytes is not None and told.reserved_peak_bytes is not None:
        peaks = bytes_text(told.allocated_peak_bytes), bytes_text(told.reserved_peak_bytes)
        yield f"Peak {peaks[0]} allocated, {peaks[1]} reserved."
    if told.requested_bytes is not None and told.allocated_bytes > told.requested_bytes:
        yield f"{bytes_text(told.allocated_bytes - told.requested_bytes)} of the tensors is rounding."
    counts = [
        f"{count} {word}"
        for count, word in ((told.alloc_retries_count, "retries"), (told.ooms_count, "out of memory"))
        if count
    ]
    if counts:
        yield f"{', '.join(counts)} so far."


def _age(probe: Probe, now: float) -> tuple[Span, ...]:
    """How old its reading is, where that is worth a word."""
    if probe.reading is None or probe.age_seconds(now) <= OLD_SECONDS:
        return ()
    return (Span(f"! {age_text(probe.age_seconds(now))} old", Role.WARNING),)


def hint_lines(width: int, probes: Mapping[int, Probe], *, is_this_machine: bool) -> list[Line]:
    """Why nothing of PyTorch is seen here, and how to have a probe where there is none."""
    if probes or not is_this_machine:
        return [line(Span(clipped(f" {NONE_ON_THIS_GPU if probes else ONLY_HERE}", width), Role.DIM))]
    lines = [line(clipped(f" {_INVITATION}", width))]
    for command, words in HOW_TO:
        shown = f"   {command:<42} "
        lines.append(line(Span(shown, Role.ACCENT), Span(clipped(words, width - len(shown)), Role.DIM)))
    return lines


def who_text(owner: Owner) -> str:
    """Which process it is, for a title."""
    return f"PID {owner.pid}" if owner.probe is None else process_words(owner.probe)


def waiting_words(seconds: float) -> str:
    """That a process was asked for something; one that is in a long call answers when it is out of it."""
    if seconds < OLD_SECONDS:
        return "Asked."
    return f"Asked {age_text(seconds)} ago: no answer yet. It answers when no call of the program keeps Python's lock."
