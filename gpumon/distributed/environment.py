"""Training jobs: what the environment of a process says about its job, and the records of jobs.

Only the user of a process and root can read the environment. It can contain secrets, so it never leaves this process:
neither frames nor recordings contain it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

MAX_ENVIRONMENT_BYTES: Final = 256 << 10
_NAME_LENGTH: Final = 80
_VALUE_LENGTH: Final = 4096
_ID_LENGTH: Final = 80
_MAX_DIGITS: Final = 8

HIDDEN: Final = Problem(ProblemCode.NO_PERMISSION, "Only its user and root can read the environment of this process.")
GONE: Final = Problem(ProblemCode.PROCESS_NOT_VISIBLE, "The process has ended.")

_RANKS: Final = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Variables of launchers: the first pair that is set counts. Slurm sets its own in every step, also for torchrun."""
_LOCAL_RANKS: Final = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_STATIC_RUN_ID: Final = "none"
"""The run id of torchrun without ``--rdzv-id``: the same for every job."""
_LAUNCHER_VARIABLES: Final = (
    ("accelerate", "ACCELERATE_MIXED_PRECISION"),
    ("accelerate", "ACCELERATE_USE_FSDP"),
    ("deepspeed", "CROSS_RANK"),
    ("torchrun", "TORCHELASTIC_RUN_ID"),
    ("mpirun", "OMPI_COMM_WORLD_RANK"),
    ("mpirun", "PMI_RANK"),
    ("ray", "RAY_JOB_ID"),
    ("srun", "SLURM_PROCID"),
)


class RankVariables(NamedTuple):
    """The place of a process in a distributed job.

    Attributes:
        rank: Rank among all processes of the job.
        world_size: Number of ranks.
        local_rank: Rank among those on this host.
        names_rendezvous: Whether the launcher named the rendezvous of PyTorch, so that the process is certainly meant
            to be a rank; variables of Slurm and MPI alone are also set for shells and scripts.
    """

    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    names_rendezvous: bool = False


class JobVariables(NamedTuple):
    """What the environment of a process says about its job.

    Attributes:
        id: What the ranks of the job have in common on all hosts, such as ``127.0.0.1:29500``.
        ranks: The place of the process in it.
        launcher: What started it, such as ``torchrun``.
        ras_address: ``NCCL_RAS_ADDR``; empty if it is not set.
        has_ras: Whether NCCL's RAS service was left on.
    """

    id: str
    ranks: RankVariables
    launcher: str = ""
    ras_address: str = ""
    has_ras: bool = True


def read_environment(folder: Path) -> tuple[Mapping[str, str], Problem | None]:
    """The environment with which a process was started, made safe, and why it is unknown."""
    raw, problem = read_raw_environment(folder)
    pairs = (text.partition("=") for text in os.fsdecode(raw).split("\0"))
    return {safe_text(name, _NAME_LENGTH): safe_text(value, _VALUE_LENGTH) for name, sign, value in pairs if sign}, (
        problem
    )


def read_raw_environment(folder: Path) -> tuple[bytes, Problem | None]:
    """The bytes of ``environ``, at most `MAX_ENVIRONMENT_BYTES`, and why they are unknown."""
    try:
        with (folder / "environ").open("rb") as file:
            return file.read(MAX_ENVIRONMENT_BYTES), None
    except PermissionError:
        return b"", HIDDEN
    except OSError:
        return b"", GONE


def rank_variables(variables: Mapping[str, str]) -> RankVariables:
    """The rank of a process by the variables of its launcher."""
    local_rank = next((rank for name in _LOCAL_RANKS if (rank := _number(variables, name)) is not None), None)
    for rank_name, size_name in _RANKS:
        rank, size = _number(variables, rank_name), _number(variables, size_name)
        if rank is not None and size is not None:
            named = rank_name == "RANK" and bool(variables.get("MASTER_ADDR"))
            return RankVariables(rank, size, local_rank, named)
    return RankVariables(local_rank=local_rank)


def job_variables(variables: Mapping[str, str]) -> JobVariables | None:
    """The job of a process by its environment; None if the environment names none."""
    ranks = rank_variables(variables)
    job_id = _job_id(variables, ranks)
    if job_id is None:
        return None
    launcher = next((name for name, variable in _LAUNCHER_VARIABLES if variable in variables), "")
    has_ras = variables.get("NCCL_RAS_ENABLE", "1") != "0"
    address = safe_text(variables.get("NCCL_RAS_ADDR", ""), _ID_LENGTH)
    return JobVariables(safe_text(job_id, _ID_LENGTH), ranks, launcher, address, has_ras)


def _job_id(variables: Mapping[str, str], ranks: RankVariables) -> str | None:
    """What the ranks of a job have in common; torchrun's rendezvous stands above the scheduler that started it."""
    run_id = variables.get("TORCHELASTIC_RUN_ID", "")
    if ranks.names_rendezvous and run_id not in {"", _STATIC_RUN_ID}:
        return run_id
    if ranks.names_rendezvous:
        return f"{variables['MASTER_ADDR']}:{variables.get('MASTER_PORT', '')}"
    if ranks.rank is None:
        return f"ray {variables['RAY_JOB_ID']}" if variables.get("RAY_JOB_ID") else None
    if "OMPI_COMM_WORLD_RANK" in variables or "PMI_RANK" in variables:
        names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")
        return f"mpi {next((variables[name] for name in names if variables.get(name)), '')}".rstrip()
    job, step = variables.get("SLURM_JOB_ID"), variables.get("SLURM_STEP_ID")
    return f"slurm {job}.{step}" if job and step else None


def _number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS else None


Workers = Mapping[int, RankVariables]
"""Processes that use a GPU or have a probe, by PID; with the rank that the probe reports."""


class JobRank(NamedTuple):
    """A process of a job.

    Attributes:
        pid: PID in the PID namespace of gpumon.
        start_ticks: Start time in clock ticks since boot, which distinguishes it from a later process with its PID.
        rank: Rank among all processes of the job; None if unknown.
        local_rank: Rank among those on this host; None if unknown.
        command: Command line, made safe.
    """

    pid: int
    start_ticks: int
    rank: int | None = None
    local_rank: int | None = None
    command: str = ""


class TrainingJob(NamedTuple):
    """The processes of one job on this host.

    Attributes:
        id: Identifies the job: the same on all its hosts where the ranks were started by a launcher.
        uid: The user ID that it runs as.
        user: Login name, or the user ID as text.
        launcher: What started its ranks, such as ``torchrun``; empty for a process that was started by itself.
        world_size: Number of ranks on all hosts; None if unknown.
        ranks: Its processes on this host, by rank.
        exited: Processes that were ranks of it and have ended while others run; all of them when the job is over.
        start_ticks: Start time of its oldest rank.
        ras_address: ``NCCL_RAS_ADDR`` of the ranks; empty for NCCL's default.
        has_ras: Whether NCCL's RAS service was left on.
    """

    id: str
    uid: int
    user: str
    launcher: str
    world_size: int | None
    ranks: tuple[JobRank, ...]
    exited: tuple[JobRank, ...] = ()
    start_ticks: int = 0
    ras_address: str = ""
    has_ras: bool = True

    @property
    def key(self) -> str:
        """Identifies the job on this host."""
        return f"{self.uid}/{self.id}"

    @property
    def total_ranks(self) -> int:
        """Number of ranks on all hosts, as far as known."""
        return max(self.world_size or 0, len(self.ranks))

    @property
    def command(self) -> str:
        """The command line of its first rank."""
        return next((rank.command for rank in (*self.ranks, *self.exited)), "")
