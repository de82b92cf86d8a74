"""What a step would take without a cause: the changes to its graph, by their names."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.core.gpu_models import capabilities
from gpumon.core.step_classes import COMMUNICATION, COPIES, DATA, GPU_CLASSES, MEMORY, SIMT, SYNC, TENSOR
from gpumon.traces.critical_path import Change, step_time
from gpumon.traces.step_graph import COLLECTING, GAP_NS, DeviceWork, StepGraph
from gpumon.traces.table import EventTable


class Speedup(NamedTuple):
    """The least and the largest ratio of a class of products."""

    least: float
    most: float


_BY_DURATION: Final = ((1_000_000, Speedup(6.4, 7.5)), (100_000, Speedup(3.6, 6.0)), (0, Speedup(1.0, 2.8)))
"""From a duration of the product in fp32 on, in nanoseconds."""
_MEASURED_RATIO: Final = 8.0
"""Of the rates of the GPU that was measured."""


def tensor_speedup(compute_capability: str, nanoseconds: int) -> Speedup:
    """The ratio for a product that takes a time in fp32.

    The compute capability is empty if it is unknown.
    """
    known = capabilities().get(compute_capability)
    rates = known.rates if known else None
    ratio = rates.get("tf32", rates["fp32"]) / rates["fp32"] if rates else _MEASURED_RATIO
    if not rates or ratio != _MEASURED_RATIO:
        return Speedup(1.0, ratio)
    return next(speedup for least, speedup in _BY_DURATION if nanoseconds >= least)


ELEMENTWISE: Final = "elementwise"
TF32: Final = "tf32"
LAUNCHES: Final = "launches"
AS_IT_IS: Final = ""
LEAST: Final = "least "
"""Before the name of a change: the least that a cure removes, where cures differ."""
_ELEMENTWISE: Final = re.compile(r"elementwise_kernel|Memcpy DtoD|CatArray|copy_kernel", re.IGNORECASE)
_MAX_WORK: Final = 50_000
"""With more kernels, the trace is no step."""
_NO_HOST: Final = {"": 0.0, DATA: 1.0}
_BF16_SPEEDUP: Final = Speedup(2.0, 2.6)
"""Of a product in bf16 over TF32. By the data sheets 2; measured on H200: 785 and 406 TFLOP/s; of all products of a
model, on an H100 at its power limit: 780 and 300."""
_MIN_MODELED: Final = 0.8
"""Part of the step of the GPU that the longest path must have; otherwise the graph does not explain the step."""
_BF16_BYTES: Final = 0.5
"""Of the bytes of fp32: memory-bound kernels take this part of their time if the whole model is in bf16."""


def without(table: EventTable, graph: StepGraph, device: str) -> dict[str, tuple[int, int, int]]:
    """How long the step takes with each change, how much of it is work of the GPU, and how much the GPU has to do.

    All are nanoseconds.

    ``device`` is the compute capability of the GPU; empty if it is unknown.
    """
    if not graph.parts or len(graph.work) > _MAX_WORK:
        return {}
    changes = {AS_IT_IS: Change()}
    tags = {tag for part in graph.parts for tag in part.times}
    changes |= {tag: Change(host={tag: 0.0}, ignored_waits=(tag,)) for tag in tags if tag}
    if any(part.waits for part in graph.parts):
        changes[SYNC] = Change(ignored_waits=("", COPIES, DATA, COLLECTING))
    if graph.work:  # between two kernels of a CUDA graph is less time than between two that were launched
        changes[LAUNCHES] = Change(host=_NO_HOST, gap_ns=0)
        changes[LEAST + LAUNCHES] = Change(host=_NO_HOST, gap_ns=GAP_NS)
    is_tf32 = ["tf32" in text.lower() for text in table.texts]

    def is_product_in_tf32(item: DeviceWork) -> bool:
        return item.share == tensor and is_tf32[table.names[item.event]]

    tensor, memory = GPU_CLASSES.index(TENSOR), GPU_CLASSES.index(MEMORY)
    ratios: dict[str, tuple[str, Callable[[DeviceWork], float]]] = {
        COMMUNICATION: (COMMUNICATION, lambda _: float("inf")),
        COPIES: (COPIES, lambda _: float("inf")),
        SIMT: (SIMT, lambda item: tensor_speedup(device, item.time).most),
        LEAST + SIMT: (SIMT, lambda item: tensor_speedup(device, item.time).least),
        LEAST + TF32: (TENSOR, lambda item: _BF16_SPEEDUP.least if is_product_in_tf32(item) else 1.0),
    }
    shares = {item.share for item in graph.work}
    for name, (class_name, ratio) in ratios.items():
        share = GPU_CLASSES.index(class_name)
        if share in shares:
            times = [round(item.time / ratio(item)) if item.share == share else item.time for item in graph.work]
            changes[name] = changes.get(name, Change())._replace(device=times)
    if any(map(is_product_in_tf32, graph.work)):
        factors = {tensor: 1 / _BF16_SPEEDUP.most, memory: _BF16_BYTES}
        changed = [item.share == memory or is_product_in_tf32(item) for item in graph.work]
        times = [
            round(item.time * factors[item.share]) if is_faster else item.time
            for item, is_faster in zip(graph.work, changed, strict=True)
        ]
        changes[TF32] = Change(device=times)
    if memory in shares:
        times = _fused(table, graph)
        changes[ELEMENTWISE] = Change(device=times, removed=_only_for(times, graph))
    steps = {name: (*step_time(graph, change)[:2], _busiest(graph, change)) for name, change in changes.items()}
    span, busy = graph.end - graph.begin, sum(item.time for item in graph.work)
    if steps[AS_IT_IS][0] >= _MIN_MODELED * span or busy < _MIN_MODELED * span:
        return steps
    # The host ran ahead in this step, as after a pause, so its calls do not show what it waits for: the GPU decides.
    parts = {name: sum(change.device) / busy if change.device else 1.0 for name, change in changes.items()}
    return {name: (round(span * part),) * 3 for name, part in parts.items()}


def _busiest(graph: StepGraph, change: Change) -> int:
    """The work of the stream that has the most."""
    times = Counter[int]()
    for number, item in enumerate(graph.work):
        times[item.stream] += item.time if change.device is None else change.device[number]
    return max(times.values(), default=0)


def is_elementwise(name: str) -> bool:
    """Whether torch.compile fuses a kernel with others."""
    return _ELEMENTWISE.search(name) is not None


def _only_for(times: Sequence[int], graph: StepGraph) -> set[int]:
    """The parts of the host that launch only work that takes no time, and those that prepare these launches."""
    parts = [
        number
        for number, part in enumerate(graph.parts)
        if part.launches and not any(times[work] for work, _ in part.launches)
    ]
    return {number - before for number in parts for before in (0, 1)}


def _fused(table: EventTable, graph: StepGraph) -> list[int]:
    """The durations if elementwise kernels that follow each other become one, which takes as long as the longest."""
    are_elementwise = [is_elementwise(text) for text in table.texts]
    memory = GPU_CLASSES.index(MEMORY)
    times = [item.time for item in graph.work]
    longest: dict[int, int] = {}
    for index, item in enumerate(graph.work):
        before = longest.pop(item.stream, None)
        if item.share == memory and are_elementwise[table.names[item.event]]:
            first, last = sorted((index, index if before is None else before), key=lambda number: times[number])
            if before is not None:
                times[first] = 0
            longest[item.stream] = last
    return times
