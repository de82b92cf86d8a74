"""The report of NCCL's RAS service: the ranks of each communicator, and how many collectives each rank has entered.

The service answers in text, and in JSON since NCCL 2.28.7 (``src/ras/client_support.cc``). The text that arrives is not
trusted: any process of this host may listen on the port.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.core.json_fields import Json, as_count, as_flag, as_integer, as_list, as_object, as_text, as_tuple, required
from gpumon.core.text import safe_text

MAX_REPORT_BYTES: Final = 64 << 20
_MAX_CONTAINERS: Final = 1_000_000
_MAX_COMMUNICATORS: Final = 4096
_MAX_RANKS: Final = 1 << 17
_MAX_COUNTS: Final = 32
_MISSING_COMMA: Final = re.compile(r'("nvml_dev": -?\d{1,9})(\s+"status")')
"""NCCL 2.28.7 to 2.28.9 leave out a comma in the entry of a missing rank."""
IN_PROGRESS: Final = 7
"""``ncclInProgress`` in ``init_state``: the communicator is being created."""


class RasRank(NamedTuple):
    """A rank of a communicator.

    Attributes:
        rank: Its rank in the communicator, which is the global rank in the communicator of all ranks.
        host: Address of its host.
        pid: Its PID on that host; None if unknown.
        nvml_index: Index of its GPU on that host.
        counts: Number of collectives that it has entered, by NCCL's name, such as ``AllReduce``.
        init_state: ``ncclResult_t`` of the creation of the communicator; 0 when it has succeeded.
        is_aborted: Whether the program has aborted the communicator.
    """

    rank: int
    host: str
    pid: int | None
    nvml_index: int | None
    counts: Mapping[str, int]
    init_state: int = 0
    is_aborted: bool = False


class RasMissingRank(NamedTuple):
    """A rank of a communicator that the service got no answer from.

    Attributes:
        rank: Its rank in the communicator.
        host: Address of its host.
        pid: Its PID on that host; None if unknown.
        is_dead: Whether NCCL considers its process dead.
    """

    rank: int
    host: str
    pid: int | None
    is_dead: bool


class RasCommunicator(NamedTuple):
    """A communicator of NCCL.

    Attributes:
        name: Identifies it in the job.
        size: Number of its ranks.
        ranks: The ranks that have answered.
        missing: The other ones, as far as they are known.
    """

    name: str
    size: int
    ranks: tuple[RasRank, ...]
    missing: tuple[RasMissingRank, ...] = ()

    @property
    def is_initializing(self) -> bool:
        """Whether a rank still creates it."""
        return any(rank.init_state == IN_PROGRESS for rank in self.ranks)


class RasReport(NamedTuple):
    """One answer of the service.

    Attributes:
        version: Version of NCCL, such as ``2.28.9+cuda13.0``.
        communicators: The communicators of the job.
    """

    version: str
    communicators: tuple[RasCommunicator, ...]

    @property
    def is_initializing(self) -> bool:
        """Whether a communicator is being created."""
        return any(communicator.is_initializing for communicator in self.communicators)

    def counts_of(self, pids: Mapping[int, int]) -> Mapping[int, Mapping[str, int]]:
        """The collectives that the ranks of this host have entered, in all communicators, by PID.

        A PID alone does not name a process, because it may exist on another host too: this host is the one on which
        most PIDs of a communicator are those of the job.
        """
        result: dict[int, dict[str, int]] = {}
        host = self._host_of(pids)
        for communicator in self.communicators:
            for rank in communicator.ranks:
                if rank.host == host and rank.pid is not None and rank.pid in pids:
                    counts = result.setdefault(rank.pid, {})
                    for name, count in rank.counts.items():
                        counts[name] = counts.get(name, 0) + count
        return result

    def includes(self, pids: Mapping[int, int]) -> bool:
        """Whether the report is about a job."""
        return bool(self._host_of(pids))

    def _host_of(self, pids: Mapping[int, int]) -> str:
        """The address of this host in the report; empty if no rank of the job is in it."""
        ranks = (rank for communicator in self.communicators for rank in communicator.ranks)
        counts = Counter(rank.host for rank in ranks if rank.pid in pids)
        return max(counts, key=lambda host: counts[host], default="")


def parse_report(data: bytes) -> RasReport:
    """Parse the service's JSON.

    Raises:
        ValueError: The data is not a report.
    """
    if len(data) > MAX_REPORT_BYTES or data.count(b"{") + data.count(b"[") > _MAX_CONTAINERS:
        raise ValueError("the report is too large")
    try:
        raw = as_object(json.loads(_MISSING_COMMA.sub(r"\1,\2", data.decode("utf-8", "replace"))))
        communicators = as_list(raw["communicators"])
        if len(communicators) > _MAX_COMMUNICATORS:
            raise ValueError("the report has too many communicators")
        return RasReport(
            version=safe_text(as_text(raw.get("nccl_version")) or "", 64),
            communicators=as_tuple(communicators, _parse_communicator),
        )
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(safe_text(f"the report is damaged: {error}", 200)) from None


def _parse_communicator(raw: Json) -> RasCommunicator:
    ranks, missing = as_list(raw["ranks"]), as_list(raw.get("missing_ranks"))
    if len(ranks) + len(missing) > _MAX_RANKS:
        raise ValueError("a communicator has too many ranks")
    return RasCommunicator(
        name=f"{as_text(raw.get('hash')) or ''} {as_text(raw.get('secondary_hash')) or ''}".strip(),
        size=required(as_count(raw.get("size"))),
        ranks=as_tuple(ranks, _parse_rank),
        missing=as_tuple(missing, _parse_missing),
    )


def _parse_rank(raw: Json) -> RasRank:
    status = as_object(raw.get("status"))
    counts = as_object(raw.get("collective_counts"))
    if len(counts) > _MAX_COUNTS:
        raise ValueError("a rank has too many counts")
    return RasRank(
        rank=required(as_count(raw.get("rank"))),
        host=as_text(raw.get("host")) or "",
        pid=_positive(raw.get("pid")),
        nvml_index=_positive(raw.get("nvml_dev"), at_least=0),
        counts={safe_text(name, 40): required(as_count(count)) for name, count in counts.items()},
        init_state=as_integer(status.get("init_state")) or 0,
        is_aborted=as_flag(status.get("abort_flag")) or False,
    )


def _parse_missing(raw: Json) -> RasMissingRank:
    return RasMissingRank(
        rank=required(as_count(raw.get("rank"))),
        host=as_text(raw.get("host")) or "",
        pid=_positive(raw.get("pid")),
        is_dead=as_flag(as_object(raw.get("status")).get("considered_dead")) or False,
    )


def _positive(raw: object, at_least: int = 1) -> int | None:
    """A number; None for one that stands for an unknown one."""
    number = as_integer(raw)
    return None if number is None or number < at_least else number
