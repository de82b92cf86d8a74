"""The GPUs of many hosts at one moment. Values are stored by metric, one per GPU, since there may be thousands."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Final, NamedTuple

from gpumon.core.problems import Problem

LAST_XID: Final = "last_xid"
"""Number of the last Xid of a GPU that had one. DCGM reports no more than that."""
BUSIEST: Final = "utilization_gpu_max_percent"
"""Highest utilization during the last `IDLE_SECONDS`, if it is below `IDLE_PERCENT`."""
AGE: Final = "age_seconds"
"""Age of the oldest of a host's newest samples."""
IDLE_SECONDS: Final = 1800.0


class FleetGpu(NamedTuple):
    """The identity of a GPU, and who uses it as far as labels name them.

    Attributes:
        host: Name of its host.
        label: Its index on the host, as the exporter names it; for a MIG device with the id of the GPU instance.
        uuid: UUID, or empty.
        model: Product name, or empty.
        exporter: Which exporter reports it.
        user: User of the process with the most memory, or empty.
        job: Job of a scheduler, or empty.
        pod: Kubernetes pod as ``namespace/name``, or empty.
    """

    host: str
    label: str
    uuid: str = ""
    model: str = ""
    exporter: str = ""
    user: str = ""
    job: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All GPUs at one moment.

    Attributes:
        time_seconds: Unix time of the query.
        gpus: Sorted by host and label.
        values: One value per GPU by metric id; NaN where there is none.
        silent_hosts: Hosts that reported GPUs within the last hour, and report nothing now.
        lost_gpus: How many GPUs reported within the last hour and report nothing now, by host; of other hosts.
        exporters: Number of GPUs by exporter.
        missing: What an exporter does not report, by exporter: metric ids.
        host_problems: Why a host reports nothing, where that is known.
        seconds: How long the query took, and reading its answer.
        answer_bytes: Size of the answer.
    """

    time_seconds: float
    gpus: tuple[FleetGpu, ...]
    values: Mapping[str, "array[float]"]
    silent_hosts: tuple[str, ...] = ()
    lost_gpus: Mapping[str, int] = field(default_factory=dict)
    exporters: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    host_problems: Mapping[str, Problem] = field(default_factory=dict)
    seconds: float = 0.0
    answer_bytes: int = 0

    def value(self, metric_id: str, position: int) -> float | None:
        """The value of the GPU at a position of `gpus`, or None."""
        column = self.values.get(metric_id)
        number = nan if column is None else column[position]
        return None if isnan(number) else number


class FleetError(Exception):
    """Prometheus cannot be read.

    Attributes:
        problem: The reason, and the remedy.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem
