"""What /proc shows of one process: what started it, and of one that a user has opened, its state and environment.

The environment is that with which the process was started, and only its user and root can read it. It can contain
secrets, so it never leaves this process: neither frames nor recordings contain it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from gpumon.collect.cuda_order import CudaOrder
from gpumon.core.control_groups import read_groups
from gpumon.core.model import Device
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import find_command, find_stat, nvidia_files, read_same_stat
from gpumon.core.text import safe_bytes, safe_text
from gpumon.core.text_table import table
from gpumon.distributed.environment import GONE, rank_variables, read_environment
from gpumon.operations.doctor.redaction import SECRET, is_secret_name, without_secrets
from gpumon.probe.attach import attachability

T = TypeVar("T")

_ID_LENGTH: Final = 12
"""Characters of a container id that tools show."""
_TEXT_LENGTH: Final = 80

_SLURM_CGROUP: Final = re.compile(r"/job_(\d+)(?:/step_(\w+))?")
_POD_CGROUP: Final = re.compile(r"kubepods.*?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})", re.IGNORECASE)
_CONTAINER_CGROUP: Final = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
_FRAMEWORKS: Final = [
    (name, re.compile(regex)) for name, regex in (row.split(" | ") for row in table("gpumon.operations", "frameworks"))
]
_FRAMEWORK_VARIABLES: Final = [row.split() for row in table("gpumon.operations", "framework_variables")]


class ProcessOrigin(NamedTuple):
    """What started a process. A field is None if it does not apply, or for the reason ``problem``.

    Attributes:
        parent: PID of its parent.
        parent_command: The command line of its parent, as safe text.
        job: Job of a scheduler, such as ``4711`` or ``4711.0`` with the step.
        scheduler: Which one, such as ``slurm``.
        pod: Kubernetes pod, as ``namespace/name`` where both are known.
        container: First characters of the id of its container.
        rank: Its rank in a distributed job.
        local_rank: Its rank on this host.
        world_size: Number of ranks.
        framework: Launcher or framework, recognized by command line and environment.
        problem: Why the environment is unknown, or None.
        probe_word: Whether the probe can be loaded, or why not, in a few words; the process was not touched.
    """

    parent: int | None = None
    parent_command: str = ""
    job: str | None = None
    scheduler: str | None = None
    pod: str | None = None
    container: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    framework: str | None = None
    problem: Problem | None = None
    probe_word: str = ""


def read_origin(pid: int, start_ticks: int, command: str, proc: Path = Path("/proc")) -> ProcessOrigin:
    """Read what started a process. The kernel can block while it reads the environment, so this belongs in a thread.

    ``start_ticks`` distinguishes the process from a later one with its PID.
    """
    folder = proc / str(pid)
    try:
        parent = read_same_stat(folder, start_ticks).parent
        variables, problem = read_environment(folder)
        cgroup = read_groups(folder)
        read_same_stat(folder, start_ticks)
    except OSError:
        return ProcessOrigin(problem=GONE)
    scheduler, job = _job(variables, cgroup)
    ranks = rank_variables(variables)
    container = _CONTAINER_CGROUP.search(cgroup)
    return ProcessOrigin(
        parent=parent,
        parent_command=find_command(proc / str(parent), _TEXT_LENGTH),
        job=job,
        scheduler=scheduler,
        pod=_pod(variables, cgroup),
        container=None if container is None else container[1][:_ID_LENGTH],
        rank=ranks.rank,
        local_rank=ranks.local_rank,
        world_size=ranks.world_size,
        framework=_framework(variables, command),
        problem=problem,
        probe_word=attachability(pid, proc).word,
    )


def _job(variables: Mapping[str, str], cgroup: str) -> tuple[str | None, str | None]:
    """The scheduler and the job. Slurm names the job in the cgroup too, which every user can read."""
    match = _SLURM_CGROUP.search(cgroup) if "slurm" in cgroup else None
    if match is not None:
        step = match[2]
        return "slurm", f"{match[1]}.{step}" if step else match[1]
    for scheduler, name in (("slurm", "SLURM_JOB_ID"), ("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID"), ("sge", "JOB_ID")):
        job = variables.get(name)
        if job:
            step = variables.get("SLURM_STEP_ID") if scheduler == "slurm" else None
            return scheduler, safe_text(f"{job}.{step}" if step else job, _TEXT_LENGTH)
    return None, None


def _pod(variables: Mapping[str, str], cgroup: str) -> str | None:
    """The pod. Its name is the host name of its containers; other users see its UID alone."""
    if "KUBERNETES_SERVICE_HOST" in variables and variables.get("HOSTNAME"):
        name, namespace = variables["HOSTNAME"], variables.get("POD_NAMESPACE") or variables.get("NAMESPACE")
        return safe_text(f"{namespace}/{name}" if namespace else name, _TEXT_LENGTH)
    match = _POD_CGROUP.search(cgroup)
    return None if match is None else match[1].replace("_", "-")


def _framework(variables: Mapping[str, str], command: str) -> str | None:
    for name, pattern in _FRAMEWORKS:
        if pattern.search(command):
            return name
    return next((name for name, variable in _FRAMEWORK_VARIABLES if variable in variables), None)


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
            wait_channel=_permitted("wait_channel", _wait_channel, folder, problems),
            folder=_permitted("folder", _working_folder, folder, problems),
            device_files=_permitted("device_files", _device_files, folder, problems),
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


def _wait_channel(folder: Path) -> str:
    channel = safe_bytes((folder / "wchan").read_bytes())
    return "" if channel == "0" else channel


def _working_folder(folder: Path) -> str:
    return safe_text(str((folder / "cwd").readlink()), _PATH_LENGTH)


def _device_files(folder: Path) -> tuple[str, ...]:
    files = {safe_text(file, _PATH_LENGTH) for file in nvidia_files(folder)}
    return tuple(sorted(files)[:_MAX_DEVICE_FILES])


def _permitted(field: str, read: Callable[[Path], T], folder: Path, problems: dict[str, Problem]) -> T | None:
    """What a function reads, or None with the reason where this user may not read it."""
    try:
        return read(folder)
    except PermissionError:
        problems[field] = _HIDDEN
        return None


def _relevant(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that concern GPUs and jobs, without secrets."""
    names = sorted(name for name in environment if _RELEVANT.fullmatch(name))[:_MAX_VARIABLES]
    return tuple(
        (name, f"<{SECRET}>" if is_secret_name(name) else without_secrets(environment[name])) for name in names
    )
