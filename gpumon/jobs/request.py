"""What is asked for when a workload is started."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpumon.jobs.catalogue import WorkloadInfo
from gpumon.jobs.parameters import Value


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One workload on one device.

    Attributes:
        workload: Which.
        device: As CUDA numbers it for the child, such as ``cuda:0``, or ``cpu``.
        parameters: Every parameter's value.
        python: The interpreter.
        environment: Variables that differ from gpumon's own.
        limit_seconds: The run is ended after this time, whatever it does; None for a limit made from its own plan.
    """

    workload: WorkloadInfo
    device: str
    parameters: Mapping[str, Value]
    python: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_seconds: float | None = None
