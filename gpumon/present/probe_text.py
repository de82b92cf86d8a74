"""Text about probes and their processes: which process it is, the state of PyTorch in it, and the age of the values."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpumon.core.allocator import AllocatorStatistics, ProbeReading, ProbeState
from gpumon.core.units import age_text, bytes_text, counted
from gpumon.operations.gpu_processes import Owner
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.probe.messages import Probe

MAX_FRESH_SECONDS: Final = 2.5
"""An older reading is marked: a long call in the program holds the GIL, so that the probe cannot run."""
OTHER_HOST: Final = "PyTorch's memory statistics require gpumon on the same host."
NONE_ON_THIS_GPU: Final = "No process with a probe holds memory of this GPU."
HOW_TO: Final[tuple[tuple[str, str], ...]] = (
    ("gpumon watch -- python train.py", "start a program with a probe; also torchrun"),
    ("import gpumon.probe; gpumon.probe.start()", "in the program"),
    ("enter, or gpumon attach PID", "add one to a running process"),
)
_STATE_TEXTS: Final[Mapping[ProbeState, str]] = {
    ProbeState.WAITING_FOR_TORCH: "has not imported PyTorch yet",
    ProbeState.CPU_ONLY: "uses a CPU-only build of PyTorch",
    ProbeState.WAITING_FOR_CUDA: "has imported PyTorch, but not used a GPU yet",
    ProbeState.LIVE: "uses no GPU now",
    ProbeState.FAILED: "uses a PyTorch that the probe cannot read",
}
_STATE_NOTES: Final[Mapping[ProbeState, str]] = {
    ProbeState.WAITING_FOR_TORCH: "The probe waits for the import and never imports PyTorch itself.",
    ProbeState.CPU_ONLY: "It can hold no GPU memory; PyTorch with CUDA is a different package.",
    ProbeState.WAITING_FOR_CUDA: "The probe waits until the program has a CUDA context, and never creates one itself.",
    ProbeState.LIVE: "",
    ProbeState.FAILED: "",
}
_NO_READING: Final = "has not reported anything yet"


def process_text(probe: Probe) -> str:
    """The process, and its rank in a distributed job if it has one."""
    rank = probe.process.rank
    return f"PID {probe.pid}" if rank is None else f"PID {probe.pid} rank {rank}"


def who_text(owner: Owner) -> str:
    """The process that holds memory, for a title."""
    return f"PID {owner.pid}" if owner.probe is None else process_text(owner.probe)


def probe_state_line(probe: Probe, now: float) -> Line:
    """The state of PyTorch in the process, and its command line."""
    reading = probe.reading
    text = _NO_READING if reading is None else _STATE_TEXTS[reading.state]
    is_failed = reading is not None and reading.state is ProbeState.FAILED
    return line(
        Span(text, Role.WARNING if is_failed else Role.PLAIN),
        *_age(probe, now),
        Span(f"  {probe.process.command}", Role.DIM),
    )


def probe_state_note(probe: Probe) -> str:
    """The state of PyTorch in the process, in full."""
    reading = probe.reading
    if reading is None:
        return f"{process_text(probe)}: its probe is connected, but {_NO_READING}."
    reason = reading.problem or _STATE_NOTES[reading.state]
    note = f"{process_text(probe)} {_STATE_TEXTS[reading.state]}. {reason} {_versions(probe, reading)}"
    return note.replace("  ", " ")


def owner_line(owner: Owner, now: float) -> Line:
    """The age of a process's values if they are old, and its command line."""
    command = owner.probe.process.command if owner.probe is not None else ""
    if owner.process is not None:
        command = owner.process.command or command
    age = () if owner.probe is None else _age(owner.probe, now)
    return line(*age, Span("  " if age else ""), command)


def owner_note(owner: Owner, now: float) -> str:
    """A process and its allocator, in a few sentences."""
    probe, statistics = owner.probe, owner.statistics
    if probe is None or probe.reading is None or statistics is None:
        return f"PID {owner.pid}."
    sentences = [f"{process_text(probe)}: {_versions(probe, probe.reading)}", *_allocator_sentences(statistics)]
    if probe.age_seconds(now) > MAX_FRESH_SECONDS:
        sentences.insert(1, "The values are old because a call in the program holds the GIL.")
    pinned = probe.reading.pinned
    if pinned is not None and pinned.allocated_bytes:
        sentences.append(f"{bytes_text(pinned.allocated_bytes)} of pinned host memory.")
    if probe.process.settings:
        sentences.append(", ".join(f"{name}={value}" for name, value in sorted(probe.process.settings.items())) + ".")
    return " ".join(sentences)


def _versions(probe: Probe, reading: ProbeReading) -> str:
    parts = [f"Python {probe.process.python_version}"] if probe.process.python_version else []
    if reading.torch_version:
        parts.append(f"torch {reading.torch_version}")
    if reading.backend:
        parts.append(f"{reading.backend} allocator")
    if reading.expandable_segments:
        parts.append("expandable segments")
    return f"{', '.join(parts)}." if parts else ""


def _allocator_sentences(statistics: AllocatorStatistics) -> Iterator[str]:
    if statistics.allocated_peak_bytes is not None and statistics.reserved_peak_bytes is not None:
        allocated, reserved = bytes_text(statistics.allocated_peak_bytes), bytes_text(statistics.reserved_peak_bytes)
        yield f"Peak {allocated} allocated, {reserved} reserved."
    if statistics.requested_bytes is not None and statistics.allocated_bytes > statistics.requested_bytes:
        yield f"{bytes_text(statistics.allocated_bytes - statistics.requested_bytes)} of the allocated is rounding."
    failures = [
        counted(count, noun)
        for count, noun in (
            (statistics.alloc_retries_count, "retried allocation"),
            (statistics.ooms_count, "out-of-memory error"),
        )
        if count
    ]
    if failures:
        yield f"{', '.join(failures)} so far."


def _age(probe: Probe, now: float) -> tuple[Span, ...]:
    """The age of the reading if it is old."""
    if probe.reading is None or probe.age_seconds(now) <= MAX_FRESH_SECONDS:
        return ()
    return (Span(f"! {age_text(probe.age_seconds(now))} old", Role.WARNING),)


def hint_lines(width: int, probes: Mapping[int, Probe], *, is_this_host: bool) -> list[Line]:
    """Why there are no values of PyTorch, and how to add a probe where there is none."""
    if probes or not is_this_host:
        return [line(Span(clipped(f" {NONE_ON_THIS_GPU if probes else OTHER_HOST}", width), Role.DIM))]
    lines = [line(clipped(" A probe in a process shows what PyTorch does with its memory. To add one:", width))]
    for command, purpose in HOW_TO:
        label = f"   {command:<42} "
        lines.append(line(Span(label, Role.ACCENT), Span(clipped(purpose, width - len(label)), Role.DIM)))
    return lines


def waiting_text(seconds: float) -> str:
    """A process was sent a request; a process in a long call responds when the call returns."""
    if seconds < MAX_FRESH_SECONDS:
        return "Waiting for the response."
    return f"No response after {age_text(seconds)}: the process responds when no call in the program holds the GIL."
