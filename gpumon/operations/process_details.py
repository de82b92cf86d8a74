"""What /proc shows of one process that a user has opened: its state, folder, threads, device files and environment."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.collect.cuda_order import CudaOrder
from gpumon.core.model import Device
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import find_stat, nvidia_files, read_same_stat
from gpumon.core.text import safe_bytes, safe_text
from gpumon.distributed.environment import read_environment
from gpumon.operations.doctor.redaction import SECRET, is_secret_name, without_secrets

_MAX_DEVICE_FILES: Final = 32
_MAX_VARIABLES: Final = 100
_PATH_LENGTH: Final = 400
_RELEVANT: Final = re.compile(
    r"(?:CUDA|NCCL|NVIDIA|PYTORCH|TORCH|TORCHELASTIC|TRITON|CUDNN|CUBLAS|OMP|MKL|SLURM|UCX|OMPI|GLOO|HF|ACCELERATE|DS|RAY"
    r"|KUBERNETES|CONDA|GPUMON)_.*|(?:(?:LOCAL_|GROUP_|NODE_|ROLE_)?RANK|(?:LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_ADDR"
    r"|MASTER_PORT|VIRTUAL_ENV|PYTHONPATH|LD_LIBRARY_PATH|LD_PRELOAD)"
)
_HIDDEN: Final = Problem(ProblemCode.NO_PERMISSION, "Only its user and root can read this.")
_GONE: Final = Problem(ProblemCode.PROCESS_NOT_VISIBLE, "The process has ended.")


class ProcessDetails(NamedTuple):
    """What /proc shows of a process now. A field is None for the reason in ``problems``.

    Attributes:
        state: The letter of its state in /proc/PID/stat, such as ``S``.
        parent: PID of its parent.
        threads: Number of threads.
        wait_channel: The kernel function in which it waits; empty if it does not wait.
        folder: Its working directory.
        device_files: The NVIDIA device files that it has open, each once.
        variables: Names and values of the environment that concern GPUs and jobs; secrets are replaced.
        environment: The complete environment, which may contain secrets: for computations, never to be shown.
        problems: Why a field is None, by its name.
    """

    state: str | None = None
    parent: int | None = None
    threads: int | None = None
    wait_channel: str | None = None
    folder: str | None = None
    device_files: tuple[str, ...] | None = None
    variables: tuple[tuple[str, str], ...] | None = None
    environment: Mapping[str, str] | None = None
    problems: Mapping[str, Problem] = {}


def stop_problem(pid: int, proc: Path = Path("/proc")) -> Problem | None:
    """Why a process cannot respond until it is continued; None if it is not stopped."""
    stat = find_stat(proc / str(pid))
    if stat is not None and stat.state == "T":
        return Problem(ProblemCode.UNRESPONSIVE, f"Process {pid} is stopped.", f"Let it continue: kill -CONT {pid}")
    if stat is not None and stat.state == "t":
        remedy = f"Continue or detach in the debugger; if it is gone: kill -CONT {pid}"
        return Problem(ProblemCode.UNRESPONSIVE, f"A debugger has stopped process {pid}.", remedy)
    return None


def read_details(pid: int, start_ticks: int, proc: Path = Path("/proc")) -> ProcessDetails:
    """Read what /proc shows. The kernel can block meanwhile, so this belongs in a thread.

    ``start_ticks`` distinguishes the process from a later one with its PID.
    """
    folder = proc / str(pid)
    try:
        stat = read_same_stat(folder, start_ticks)
        problems: dict[str, Problem] = {}
        environment, problem = read_environment(folder)
        if problem is not None:
            problems["variables"] = problem
        details = ProcessDetails(
            state=stat.state,
            parent=stat.parent,
            threads=stat.threads,
            wait_channel=_wait_channel(folder, problems),
            folder=_link(folder / "cwd", "folder", problems),
            device_files=_device_files(folder, problems),
            variables=None if problem is not None else _relevant(environment),
            environment=None if problem is not None else environment,
            problems=problems,
        )
        read_same_stat(folder, start_ticks)
    except OSError:
        return ProcessDetails(problems=dict.fromkeys(ProcessDetails._fields[:-1], _GONE))
    return details


def cuda_numbering(details: ProcessDetails, devices: Sequence[Device]) -> list[tuple[int, Device]]:
    """The devices that CUDA shows to a process, by the index that they have in it."""
    if details.environment is None:
        return []
    numbered = CudaOrder(details.environment).number(devices)
    return sorted(
        ((device.cuda_index, device) for device in numbered if device.cuda_index is not None), key=lambda item: item[0]
    )


def _wait_channel(folder: Path, problems: dict[str, Problem]) -> str | None:
    try:
        channel = safe_bytes((folder / "wchan").read_bytes())
    except PermissionError:
        problems["wait_channel"] = _HIDDEN
        return None
    return "" if channel == "0" else channel


def _link(path: Path, field: str, problems: dict[str, Problem]) -> str | None:
    try:
        return safe_text(str(path.readlink()), _PATH_LENGTH)
    except PermissionError:
        problems[field] = _HIDDEN
        return None


def _device_files(folder: Path, problems: dict[str, Problem]) -> tuple[str, ...] | None:
    try:
        files = {safe_text(file, _PATH_LENGTH) for file in nvidia_files(folder)}
    except PermissionError:
        problems["device_files"] = _HIDDEN
        return None
    return tuple(sorted(files)[:_MAX_DEVICE_FILES])


def _relevant(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that concern GPUs and jobs, without secrets."""
    names = sorted(name for name in environment if _RELEVANT.fullmatch(name))[:_MAX_VARIABLES]
    return tuple(
        (name, f"<{SECRET}>" if is_secret_name(name) else without_secrets(environment[name])) for name in names
    )
