"""What a step would take without a cause: the changes to its graph, by their names."""

import re
from collections.abc import Callable
from typing import Final

from gpumon.core.step_classes import COMMUNICATION, COPIES, DATA, GPU_CLASSES, MEMORY, SIMT, SYNC, TENSOR
from gpumon.traces.critical_path import Change, step_time
from gpumon.traces.step_graph import COLLECTING, FREEING, DeviceWork, StepGraph
from gpumon.traces.table import EventTable
from gpumon.traces.tensor_speedup import tensor_speedup

ELEMENTWISE: Final = "elementwise"
TF32: Final = "tf32"
LAUNCHES: Final = "launches"
AS_IT_IS: Final = ""
LEAST: Final = "least "
"""Before the name of a change: the least that a cure removes, where cures differ."""
_ELEMENTWISE: Final = re.compile(r"elementwise_kernel|Memcpy DtoD|CatArray|copy_kernel", re.IGNORECASE)
"""Kernels that torch.compile fuses with other kernels."""
_NO_HOST: Final = {"": 0.0, DATA: 1.0}
_GRAPH_GAP_NS: Final = 1_000
_MAX_GRAPH_GAP_NS: Final = 2_000
"""Time between two dependent kernels of a CUDA graph, which is what is left of a launch."""
_BF16_SPEEDUP: Final = 2.0
"""A product in bf16 takes half the time of one in TF32, by the data sheets; measured on H200: 785 and 406 TFLOP/s."""


def without(table: EventTable, graph: StepGraph, device: str) -> dict[str, tuple[int, int]]:
    """How long the step takes with each change, and how much of that is work of the GPU, in nanoseconds.

    Args:
        table: The events.
        graph: The step.
        device: The product name of the GPU.
    """
    changes = {
        AS_IT_IS: Change(),
        DATA: Change(host={DATA: 0.0}),
        COLLECTING: Change(host={COLLECTING: 0.0}),
        SYNC: Change(ignored_waits=("", DATA, COLLECTING)),
        FREEING: Change(host={FREEING: 0.0}, ignored_waits=(FREEING,)),
    }
    if graph.work:
        is_tf32 = ["tf32" in text.lower() for text in table.texts]

        def scaled(name: str, ratio: Callable[[DeviceWork], float]) -> Change:
            share = GPU_CLASSES.index(name)
            return Change(
                device=[round(item.time / ratio(item)) if item.share == share else item.time for item in graph.work]
            )

        changes |= {
            LAUNCHES: Change(host=_NO_HOST, gap_ns=_GRAPH_GAP_NS),
            LEAST + LAUNCHES: Change(host=_NO_HOST, gap_ns=_MAX_GRAPH_GAP_NS),
            COMMUNICATION: scaled(COMMUNICATION, lambda _: float("inf")),
            COPIES: scaled(COPIES, lambda _: float("inf")),
            SIMT: scaled(SIMT, lambda item: tensor_speedup(device, item.time).most),
            LEAST + SIMT: scaled(SIMT, lambda item: tensor_speedup(device, item.time).least),
            TF32: scaled(TENSOR, lambda item: _BF16_SPEEDUP if is_tf32[table.names[item.event]] else 1.0),
            ELEMENTWISE: Change(device=_fused(table, graph)),
        }
    return {name: step_time(graph, change)[:2] for name, change in changes.items()}


def _fused(table: EventTable, graph: StepGraph) -> list[int]:
    """The durations if elementwise kernels that follow each other become one, which takes as long as the longest."""
    is_elementwise = [_ELEMENTWISE.search(text) is not None for text in table.texts]
    memory = GPU_CLASSES.index(MEMORY)
    times = [item.time for item in graph.work]
    longest: dict[int, int] = {}
    for index, item in enumerate(graph.work):
        before = longest.pop(item.stream, None)
        if item.share == memory and is_elementwise[table.names[item.event]]:
            first, last = sorted((index, index if before is None else before), key=lambda number: times[number])
            if before is not None:
                times[first] = 0
            longest[item.stream] = last
    return times
