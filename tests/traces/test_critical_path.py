"""The critical path, and steps without a cause, of programs whose execution is computed here in another way."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pytest

from gpumon.core.step_classes import DATA, GPU_CLASSES, HOST, MEMORY, SIMT, SYNC, TENSOR
from gpumon.traces.columns import CRITICAL_PATH
from gpumon.traces.model import Trace
from gpumon.traces.step_graph import LAST, After, DeviceWork, HostPart, StepGraph
from gpumon.traces.table import EventTable
from gpumon.traces.what_if import tensor_speedup, without
from tests.traces.maker import ELEMENTWISE, GEMM, NCCL, SGEMM, TraceMaker, training

CALL, DELAY, GAP, RETURN = 6, 9, 2, 7
"""Microseconds of a launch, from it to its kernel, between kernels, and from the end of a kernel to that of a wait."""
STEPS: Final = 6


@dataclass(frozen=True)
class Do:
    """What the host does: computes, waits for data, launches work, waits for the GPU, or makes a stream wait."""

    kind: str
    time: float = 0
    name: str = ""
    stream: int = 7
    other: int = 7


class Machine:
    """A host and two streams that execute a program, perhaps into a trace."""

    def __init__(self, maker: TraceMaker | None) -> None:
        self.maker = maker or TraceMaker()
        self.host = 0.0
        self.ends = {7: 0.0, 20: 0.0}
        self._correlation = 1000

    def do(self, item: Do) -> None:
        start = self.host
        getattr(self, item.kind)(item, start)

    def compute(self, item: Do, start: float) -> None:
        self.host += item.time
        if item.name:
            self.maker.operator(item.name, start, item.time)

    def data(self, item: Do, start: float) -> None:
        self.host += item.time
        self.maker.data(start, item.time)

    def launch(self, item: Do, start: float) -> None:
        first = max(start + DELAY, self.ends[item.stream] + GAP)
        self.ends[item.stream] = first + item.time
        self.host += CALL
        category = "gpu_memcpy" if item.name.startswith("Memcpy") else "kernel"
        self.maker.work(item.name, first, item.time, start, item.stream, category)

    def sync(self, item: Do, start: float) -> None:
        self.host = max(start + CALL, self.ends[item.stream] + RETURN)
        self.maker.call("cudaStreamSynchronize", start, self.host - start)

    def wait(self, item: Do, start: float) -> None:
        """A stream waits for what another one has been given until now."""
        self._correlation += 2
        self.ends[item.stream] = max(self.ends[item.stream], self.ends[item.other])
        self.maker.call("cudaEventRecord", start, 0.5, correlation=self._correlation)
        self.maker.call("cudaStreamWaitEvent", start + 0.5, 0.5, correlation=self._correlation + 1)
        self.maker.add("cuda_sync", "Stream Wait Event", start + 0.5, 0.5, item.stream)
        self.maker.events[-1] |= {
            "pid": 0,
            "args": {
                "cuda_sync_kind": "Stream Wait Event",
                "wait_on_stream": item.other,
                "wait_on_cuda_event_record_corr_id": self._correlation,
            },
        }
        self.host += 1


def executed(program: Sequence[Do], maker: TraceMaker | None = None) -> float:
    """Execute a program in `STEPS` steps, perhaps into a trace; how long the last step takes."""
    machine, last = Machine(maker), 0.0
    for number in range(STEPS):
        begin, before = machine.host, max(machine.host, *machine.ends.values())
        for item in program:
            machine.do(item)
        last = max(machine.host, *machine.ends.values()) - before
        machine.maker.step(number, begin, machine.host - begin)
    return last


def traced(program: Sequence[Do]) -> Trace:
    maker = TraceMaker()
    executed(program, maker)
    return maker.trace()


def random_program(seed: int) -> list[Do]:
    """Computation, kernels on two streams that wait for each other, copies, and waits for the GPU and for data."""
    source = random.Random(seed)
    is_host_bound, has_waits, has_data = source.random() < 0.4, source.random() < 0.5, source.random() < 0.4
    program = [Do("data", source.randint(50, 800))] if has_data else []
    for _ in range(source.randint(8, 30)):
        program.append(Do("compute", source.randint(2, 60 if is_host_bound else 8), source.choice(["", "aten::mm"])))
        name = source.choice([GEMM, SGEMM, ELEMENTWISE, "Memcpy HtoD (Pinned -> Device)"])
        program.append(Do("launch", source.randint(2, 40 if is_host_bound else 200), name))
        if source.random() < 0.2:
            program += [
                Do("wait", stream=20, other=7),
                Do("launch", source.randint(10, 150), NCCL, 20),
                Do("wait", stream=7, other=20),
                Do("launch", source.randint(2, 40), ELEMENTWISE),
            ]
        if has_waits and source.random() < 0.15:
            program.append(Do("sync"))
    return program


def named(names: Sequence[str], program: Sequence[Do]) -> list[Do]:
    """The program, in which work with these names takes no time."""
    return [replace(item, time=0) if item.name in names and item.kind == "launch" else item for item in program]


CURES: dict[str, Callable[[Sequence[Do]], list[Do]]] = {
    "data": lambda program: [item for item in program if item.kind != "data"],
    "synchronization": lambda program: [Do("compute", CALL) if item.kind == "sync" else item for item in program],
    "communication": lambda program: named([NCCL], program),
    "copies": lambda program: named(["Memcpy HtoD (Pinned -> Device)"], program),
}
"""The program without a cause, by the name of the change that predicts it."""


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 100), marks=pytest.mark.long)])
def test_programs_without_a_cause_take_as_long_as_predicted(seeds: range) -> None:
    """Programs on two streams with known dependencies: the prediction and the execution of the cured one."""
    errors, tested = [], 0
    for seed in seeds:
        program = random_program(seed)
        trace = traced(program)
        step = executed(program)
        assert trace.without[""][0] / 1000 == pytest.approx(step, rel=0.02), seed
        for name, cure in CURES.items():
            cured = cure(program)
            if cured != program and abs(executed(cured) / step - 1) > 0.02:
                tested += 1
                error = trace.without.get(name, trace.without[""])[0] / 1000 / executed(cured) - 1
                errors += [(seed, name, error)] if abs(error) > 0.03 else []
    print(f"{tested - len(errors)} of {tested} within 3 %")
    assert tested > len(seeds)
    assert len(errors) <= 0.05 * tested, errors


def test_the_path_is_as_long_as_the_step_and_not_shorter_than_any_thread_or_stream() -> None:
    for trace in (*(traced(random_program(seed)) for seed in range(3)), training().trace()):
        length = sum(item.time_ns for item in trace.critical)
        assert length == trace.step_ns
        lane = trace.lanes[0]
        assert (lane.label, lane.is_device) == (CRITICAL_PATH, True)
        assert lane.count > 0


def path_of(program: Sequence[Do]) -> dict[str, float]:
    trace = traced(program)
    return {item.name: item.time_ns / trace.step_ns for item in trace.critical if item.time_ns}


def test_what_the_path_consists_of() -> None:
    """The account has the kernels that run meanwhile; the path has the host, which the step waits for."""
    hidden = [Do("compute", 20, "aten::add"), Do("launch", 15, GEMM)] * 40
    assert path_of(hidden)[HOST] > 0.97
    assert traced(hidden).class_time(TENSOR).time_ns > 0.5 * traced(hidden).step_ns
    busy = [Do("compute", 5, "aten::add"), Do("launch", 100, GEMM)] * 40
    assert path_of(busy)[TENSOR] > 0.97
    waiting = path_of([Do("data", 900), Do("launch", 300, GEMM), Do("sync")])
    assert waiting[DATA] == pytest.approx(900 / 1220, abs=0.03)
    assert waiting[TENSOR] == pytest.approx(300 / 1220, abs=0.03)
    assert set(waiting) <= {DATA, TENSOR, HOST, SYNC}


def test_work_of_autograd_continues_the_chain_of_the_main_thread() -> None:
    maker = TraceMaker()
    for number in range(4):
        at = 1000 * number
        maker.step(number, at, 1000)
        maker.operator("aten::linear", at, 300)
        maker.operator("autograd::engine::evaluate_function: MulBackward0", at + 320, 600, thread=102)
        maker.work(GEMM, at + 905, 50, launched=at + 900)
    trace = maker.trace()
    host = next(item for item in trace.critical if item.name == HOST)
    assert [part.name[:16] for part in host.top[:2]] == ["autograd::engine", "aten::linear"]
    assert host.top[0].time_ns >= 575_000


def test_elementwise_kernels_in_a_row_are_fused() -> None:
    program = [*[Do("launch", 100, GEMM)], *[Do("launch", 80, ELEMENTWISE)] * 5] * 10
    trace = traced(program)
    assert trace.class_time(MEMORY).time_ns > 0.75 * trace.step_ns
    assert trace.without["elementwise"][0] / 1000 == pytest.approx(10 * (102 + 82), rel=0.02)


def test_the_launches_of_a_graph_leave_a_gap_between_kernels() -> None:
    trace = traced([Do("compute", 20), Do("launch", 3, ELEMENTWISE)] * 100)
    assert trace.without["launches"][0] / 1000 == pytest.approx(100 * 3, rel=0.05)
    assert trace.without["least launches"][0] / 1000 == pytest.approx(100 * (3 + 1), rel=0.05)
    assert trace.without[""][0] / 1000 == pytest.approx(100 * 26, rel=0.02)


def test_small_copies_from_pageable_memory_take_the_time_of_the_host_that_prepares_them() -> None:
    send = [Do("compute", 5, "aten::empty"), Do("launch", 2, "Memcpy HtoD (Pageable -> Device)"), Do("sync")]
    trace = traced([*send * 50, Do("compute", 20), Do("launch", 100, GEMM)])
    assert trace.without[""][0] / 1000 > 50 * 10
    assert trace.without["copies"][0] / 1000 == pytest.approx(20 + 100, abs=15)


def test_products_on_tensor_cores_become_faster_by_the_ratio_of_the_gpu() -> None:
    program = [Do("launch", 2_000, SGEMM), Do("launch", 200, GEMM)] * 4
    for header, most, least in (
        ({"deviceProperties": [{"id": 0, "computeMajor": 9, "computeMinor": 0}]}, 7.5, 6.4),
        ({"deviceProperties": [{"id": 0, "computeMajor": 8, "computeMinor": 9}]}, 2, 1),
        ({"deviceProperties": [{"id": 0, "computeMajor": 7, "computeMinor": 0}]}, 1, 1),
        ({}, 8, 1),
    ):
        maker = TraceMaker(**header)
        executed(program, maker)
        without = maker.trace().without
        for name, ratio in (("without_tensor_cores", most), ("least without_tensor_cores", least)):
            assert without[name][0] / 1000 == pytest.approx(4 * (2_000 / ratio + 200), rel=0.02)


def test_the_gpu_alone_decides_where_the_host_ran_ahead_of_it() -> None:
    """As after a pause: in the step of the trace, the host fills the queue, and waits for nothing."""
    table, simt = EventTable(), GPU_CLASSES.index(SIMT)
    table.names.append(table.number_of(SGEMM))
    work = [DeviceWork(0, 0, simt, 1_000_000, 5_000, (After(0, LAST, 1_000),)) for _ in range(10)]
    graph = StepGraph([HostPart([], {"": 2_000_000})], work, [0], 0, 10_000_000, is_repeated=True)
    times = without(table, graph, "9.0")
    least, most = tensor_speedup("9.0", 1_000_000)
    assert times[""] == (10_000_000,) * 3
    assert times[SIMT][0] == pytest.approx(10_000_000 / most, rel=1e-3)
    assert times[f"least {SIMT}"][0] == pytest.approx(10_000_000 / least, rel=1e-3)


def test_a_call_that_waits_for_nothing_takes_its_own_time() -> None:
    maker = TraceMaker()
    for number in range(3):
        maker.step(number, 1000 * number, 1000)
        maker.work(GEMM, 1000 * number + 10, 50, launched=1000 * number)
        maker.call("cudaFree", 1000 * number + 100, 800)
    assert sum(item.time_ns for item in maker.trace().critical) == 1_000_000
    assert maker.trace().without[""][0] == 1_000_000
