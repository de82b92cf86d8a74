"""A host with a GPU that is split into MIG instances."""

from typing import Any

from gpumon.core.model import Device, Frame, MigInstance, Switch
from gpumon.core.problems import Problem, ProblemCode
from tests import builders

GIB = 1 << 30
TOTAL = 18 * GIB
NOT_REPORTED = Problem(ProblemCode.NOT_SUPPORTED, "NVML does not report it for a MIG instance.")


def instance(position: int, used: int = GIB) -> Device:
    """An instance of GPU 1."""
    memory = {"memory_total_bytes": TOTAL, "memory_used_bytes": used, "memory_free_bytes": TOTAL - used}
    return builders.device(
        1,
        uuid=f"MIG-a500000{position}-4d6f-5b6b-8c01-000000000000",
        instance=MigInstance(builders.device(1).key, position, 7 + position, 0),
        name="NVIDIA H200 MIG 1g.18gb",
        readings={**dict.fromkeys(builders.READINGS), **memory},
        throttle_reasons=None,
        processes=(builders.process(5000 + position, memory_bytes=used),),
        problems={"utilization_gpu_percent": NOT_REPORTED},
    )


def split_frame(**changes: Any) -> Frame:  # noqa: ANN401
    """Two GPUs, the second of which is split into two instances."""
    rates = {"utilization_gpu_percent": None, "utilization_memory_percent": None}
    parent = builders.device(1, mig_mode=Switch.ENABLED, readings=rates, processes=(), **changes)
    return builders.frame(devices=(builders.device(0), parent, instance(0), instance(1, 2 * GIB)))
