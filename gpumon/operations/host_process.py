"""A process with its arguments, its relatives, and what it does on each GPU; and a signal to exactly this process."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpumon.core.model import Process
from gpumon.core.notebook import NotebookTable
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.procfs import find_command, find_stat
from gpumon.core.text import safe_text
from gpumon.operations.signals import SentSignal, SignalRefusal, SignalSender
from gpumon.operations.waterfall import GpuProcess, sample_process

_MAX_ARGUMENT = 4096


@dataclass(frozen=True, slots=True)
class HostProcess(NotebookTable):
    """A process on the GPUs of this host.

    Attributes:
        pid: PID as gpumon sees it.
        argv: Its arguments; None if they are hidden from this user.
        parent: PID of its parent; None if unknown.
        children: PIDs of its children; None if unknown.
        start_ticks: Start time in clock ticks since boot, which with the PID identifies the process; None if unknown.
        gpus: The process on each GPU: memory, parts, allocator, training run.
        problems: Why a field is None, by its name.
    """

    pid: int
    argv: tuple[str, ...] | None
    parent: int | None
    children: tuple[int, ...] | None
    start_ticks: int | None
    gpus: tuple[GpuProcess, ...]
    problems: Mapping[str, Problem]

    def table_rows(self) -> tuple[GpuProcess, ...]:
        """The process on each GPU."""
        return self.gpus

    @property
    def allocated_bytes(self) -> int | None:
        """What PyTorch's tensors hold on all GPUs; None without a probe."""
        return _sum([gpu.torch.allocated_bytes for gpu in self.gpus if gpu.torch is not None])

    @property
    def reserved_bytes(self) -> int | None:
        """What PyTorch's allocator holds on all GPUs; None without a probe."""
        return _sum([gpu.torch.reserved_bytes for gpu in self.gpus if gpu.torch is not None])

    @property
    def step_seconds(self) -> float | None:
        """Median time of the latest steps; None without a probe, or before the second step."""
        return next((gpu.training.step_seconds for gpu in self.gpus if gpu.training is not None), None)


def read_process(pid: int, proc: Path = Path("/proc")) -> HostProcess:
    """A process on the GPUs of this host. Takes about a second.

    Raises:
        CommandError: It uses no GPU, there is no driver, or the collector sent no frame.
    """
    gpus = sample_process(pid)
    folder, problems = proc / str(pid), dict[str, Problem]()
    stat = find_stat(folder)
    argv = children = None
    try:
        raw = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        argv = tuple(safe_text(argument.decode("utf-8", "replace"), _MAX_ARGUMENT) for argument in raw)
        lists = [(task / "children").read_text(encoding="ascii").split() for task in (folder / "task").iterdir()]
        children = tuple(sorted(int(number) for numbers in lists for number in numbers))
    except OSError as error:
        problem = Problem(ProblemCode.NO_PERMISSION, f"/proc/{pid} cannot be read: {error.strerror}.")
        problems = {name: problem for name, value in (("argv", argv), ("children", children)) if value is None}
    if stat is None:
        problems |= dict.fromkeys(("parent", "start_ticks"), Problem(ProblemCode.NOT_FOUND, f"PID {pid} has ended."))
    if not any(gpu.torch for gpu in gpus):
        reason = Problem(ProblemCode.NOT_READ, "The process has no probe.", "Start it with gpumon watch.")
        if any(gpu.training for gpu in gpus):
            reason = Problem(ProblemCode.NOT_READ, "PyTorch has used no GPU in this process.")
        problems |= dict.fromkeys(("allocated_bytes", "reserved_bytes"), reason)
    if not any(gpu.training and gpu.training.step_seconds for gpu in gpus):
        problems["step_seconds"] = Problem(ProblemCode.NOT_READ, "Needs a probe, and two optimizer steps.")
    return HostProcess(
        pid,
        argv,
        None if stat is None else stat.parent,
        children,
        None if stat is None else stat.start_ticks,
        gpus,
        problems,
    )


def signal_process(record: HostProcess, name: str) -> None:
    """Send a signal to exactly the process of a record, never to a later one with its PID.

    The name is ``INT``, ``TERM`` or ``KILL``, with or without ``SIG``.

    Raises:
        CommandError: Nothing was sent; the reason says why.
        ValueError: There is no such signal.
    """
    sent = {member.name: member for member in SentSignal}.get(name.upper().removeprefix("SIG"))
    if sent is None:
        raise ValueError(f"signal must be one of {', '.join(member.name for member in SentSignal)}")
    known = next((gpu.process for gpu in record.gpus if gpu.process is not None), None)
    command = find_command(f"/proc/{record.pid}")
    process = Process(
        pid=record.pid,
        command=command,
        user=None if known is None else known.user,
        start_ticks=record.start_ticks,
        problems=record.problems,
    )
    sender = SignalSender(own_pid=0)  # a script may end the processes that it started
    target = sender.examine(process)
    reason = target.reason if isinstance(target, SignalRefusal) else sender.send(target, sent).refusal
    if reason:
        raise CommandError.failure(ProblemCode.NOT_FOUND, reason)


def _sum(values: list[int]) -> int | None:
    return sum(values) if values else None
