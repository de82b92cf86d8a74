"""Who uses a GPU: the user, the program, the number of its ranks, other users, and since when the GPU is idle."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.idle import IdleSince
from gpumon.core.model import Device, DeviceState, Process, ProcessKind
from gpumon.core.units import MISSING, duration_text
from gpumon.diagnosis.alerts import is_unattributed

MIN_IDLE_SECONDS: Final = 60.0
"""A shorter pause is a step of the program, not an idle GPU."""

_MAX_PROGRAMS: Final = 4096
_PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*t?")
_OPTIONS_WITH_VALUE: Final = frozenset({"-X", "-W", "--check-hash-based-pycs"})
_LAUNCHERS: Final = frozenset(
    {"torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch", "horovodrun"}
)
_GENERIC_NAMES: Final = frozenset({"__main__", "main", "cli", "run", "launch", "app", "server", "api_server"})
"""Names that mean something only together with what contains them."""
_NOTEBOOKS: Final = ("ipykernel", "ipykernel_launcher", "colab_kernel_launcher", "jupyter", "ipython")
_SERVERS: Final = (
    "vllm",
    "sglang",
    "tritonserver",
    "tgi",
    "text-generation-server",
    "ollama",
    "llama-server",
    "lmdeploy",
)


class IdleDuration(NamedTuple):
    """For how long a GPU has had no work.

    Attributes:
        seconds: The time; 0 while the GPU works, and where nothing is known.
        is_at_least: Whether the history does not reach back to the last work.
    """

    seconds: float = 0.0
    is_at_least: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether the time is long enough to call the GPU idle."""
        return self.seconds >= MIN_IDLE_SECONDS

    @property
    def text(self) -> str:
        """The time, coarse: ``41m``, ``>5m``; empty while the GPU is not idle."""
        return f"{'>' if self.is_at_least else ''}{duration_text(self.seconds)}" if self.is_idle else ""


class DeviceOwner(NamedTuple):
    """Who uses a GPU.

    Attributes:
        user: Login name of the owner of the largest process; empty if no process is known.
        program: Short name of its program; for a GPU without a process, what stands in its place, such as ``free``.
        ranks: Number of processes on this host with the same user and command line.
        others: Number of processes of other users on the GPU.
        idle: For how long the GPU has had no work.
        is_free: Whether no process uses the GPU.
    """

    user: str = ""
    program: str = MISSING
    ranks: int = 1
    others: int = 0
    idle: IdleDuration = IdleDuration()
    is_free: bool = False


Jobs = Mapping[tuple[str | None, str | None], int]
"""Number of processes by user and command line."""


def idle_duration(since: IdleSince | None, now_seconds: float) -> IdleDuration:
    """For how long a GPU has been idle.

    Args:
        since: The beginning of the idle time, or None for a GPU that works.
        now_seconds: The moment that is shown, on the same clock.
    """
    if since is None:
        return IdleDuration()
    return IdleDuration(max(0.0, now_seconds - since.seconds), since.is_at_least)


def jobs_of(devices: Iterable[Device]) -> Jobs:
    """The processes of the host by user and command line: the ranks of a job have both in common."""
    processes = {process.pid: process for device in devices for process in device.processes or ()}
    return Counter((process.user, process.command) for process in processes.values())


def owner_of(device: Device, jobs: Jobs, idle: IdleDuration, instances: int = 0) -> DeviceOwner:
    """Who uses a GPU or a MIG instance.

    Args:
        device: The device.
        jobs: The processes of the host, by `jobs_of`.
        idle: For how long the device has had no work.
        instances: Number of MIG instances of the device.
    """
    if instances:
        return DeviceOwner(program=f"MIG ×{instances}")
    if device.state is not DeviceState.OK or device.processes is None:
        return DeviceOwner()
    if not device.processes:
        if is_unattributed(device):
            return DeviceOwner(program="unattributed", idle=idle)
        return DeviceOwner(program="free", idle=idle, is_free=True)
    main = max(device.processes, key=_importance)
    others = sum(process.user != main.user for process in device.processes)
    program = f"PID {main.pid}" if main.command is None else program_name(main.command)
    ranks = 1 if main.command is None else jobs.get((main.user, main.command), 1)
    return DeviceOwner(main.user or MISSING, program, ranks, others, idle)


def _importance(process: Process) -> tuple[bool, int, int]:
    """Compute before graphics, then the memory, then the PID, so that equal processes do not take turns."""
    is_compute = process.kinds != (ProcessKind.GRAPHICS,)
    return is_compute, process.memory_bytes or 0, -process.pid


@lru_cache(maxsize=_MAX_PROGRAMS)
def program_name(command: str) -> str:
    """The short name of what a command runs: the script, the module, ``notebook``, or ``vllm serve``.

    Args:
        command: A command line, its arguments separated by spaces.
    """
    words = command.split()
    if not words:
        return MISSING
    program = _base_name(words[0])
    if _PYTHON.fullmatch(program):
        target, rest = _python_target(words[1:])
        if target is None:
            return program
        program = _base_name(target)
        if program not in _LAUNCHERS:
            return _named(target)
        words = [target, *rest]
    if program in _LAUNCHERS:
        return _named(_launched(words[1:]) or program)
    if "::" in program:  # the title that a process of Ray or vLLM gives itself
        return _named(program.partition("::")[0].lower()) if program.startswith("VLLM") else program.replace("::", " ")
    return _named(program.rstrip(":") or program)


def _base_name(path: str) -> str:
    return path.rpartition("/")[2] or path


def _python_target(arguments: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The script or module that Python runs, and its arguments; None for an interactive Python."""
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word == "-m" and index + 1 < len(arguments):
            return arguments[index + 1], arguments[index + 2 :]
        if word == "-c" or not word.startswith("-"):
            return word, arguments[index + 1 :]
        index += 2 if word in _OPTIONS_WITH_VALUE else 1
    return None, ()


def _launched(arguments: Sequence[str]) -> str | None:
    """The script or module that a launcher runs; the launcher's own options come first, some with a value."""
    for word, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if word == "-m" and following:
            return following
        if word.endswith(".py"):
            return word
    return None


def _named(target: str) -> str:
    """The last meaningful part of a path or a module, or what a well-known program does."""
    if target == "-c":
        return "python -c"
    path = [part for part in target.removesuffix(".py").split("/") if part]
    parts = path if "/" in target else target.removesuffix(".py").split(".")
    known = {part.lower() for part in parts}
    if not known.isdisjoint(_NOTEBOOKS):
        return "notebook"
    server = next((server for server in _SERVERS if server in known), None)
    if server is not None:
        return f"{server.partition('-server')[0]} serve"
    name = parts[-1] if parts else target
    if name in _GENERIC_NAMES and len(parts) > 1:
        return parts[-2] if name == "__main__" else f"{parts[-2]}/{name}"
    return name or target
