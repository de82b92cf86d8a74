"""Records of training jobs: the processes of this host that belong together."""

from collections.abc import Mapping
from typing import NamedTuple

from gpumon.distributed.environment import RankVariables

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
