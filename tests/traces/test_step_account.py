"""The account of a step: each moment belongs to one class, and the classes add up to the step."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core import step_classes
from gpumon.core.step_classes import GPU_CLASSES
from gpumon.traces.kinds import kernel_class
from gpumon.traces.model import Trace, decode, encode
from tests.traces.maker import (
    ACCOUNT,
    ELEMENTWISE,
    GEMM,
    MAIN,
    NCCL,
    PAGEABLE,
    SGEMM,
    TraceMaker,
    built,
    times,
    training,
)


def test_every_class_of_a_step() -> None:
    trace = training().trace()
    assert times(trace) == ACCOUNT
    assert sum(ACCOUNT.values()) == trace.step_ns / 1000 == 1000
    assert trace.problems == ()
    assert trace.kernels == 5


def test_each_class_names_what_it_consists_of() -> None:
    trace = training().trace()
    top = {item.name: item.top[0].name for item in trace.classes}
    assert top["tensor_cores"] == GEMM
    assert top["communication"] == NCCL
    assert (top["copies"], trace.class_time("copies").top[0].size_bytes) == (PAGEABLE, 1 << 20)
    assert top["data"].startswith("enumerate(DataLoader)")
    assert top["synchronization"] == "cudaStreamSynchronize"
    assert {part.name for part in trace.class_time("host").top} >= {
        "aten::mm",
        "Python and other code between operators",
    }
    assert top["idle"] == "between kernels that were queued already"


def test_a_call_that_waits_costs_no_more_than_its_own_duration() -> None:
    maker = TraceMaker()
    maker.step(0, 0, 1000)
    maker.work(GEMM, 0, 100, launched=0)
    maker.operator("aten::item", 80, 22)
    maker.work(GEMM, 800, 200, launched=795)
    assert times(maker.trace()) == {"tensor_cores": 300, "synchronization": 22, "host": 678}


def test_a_copy_to_pageable_memory_waits_for_the_gpu() -> None:
    maker = TraceMaker()
    maker.step(0, 0, 1000)
    maker.work(GEMM, 0, 500, launched=0)
    maker.call("cudaMemcpyAsync", 10, 495, correlation=77)
    maker.copy("Memcpy DtoH (Device -> Pageable)", 500, 2, 4)
    maker.events[-1]["args"]["correlation"] = 77
    maker.work(GEMM, 700, 300, launched=695)
    assert times(maker.trace()) == {"tensor_cores": 800, "copies": 2, "synchronization": 198}


def test_a_call_that_waits_while_the_gpu_has_more_work_costs_nothing() -> None:
    maker = TraceMaker()
    maker.step(0, 0, 300)
    maker.work(GEMM, 0, 100, launched=0)
    maker.call("cudaEventSynchronize", 50, 52)
    maker.work(GEMM, 100, 200, launched=0)
    assert times(maker.trace()) == {"tensor_cores": 300}


def test_small_kernels_that_wait_for_their_launch_are_host_bound() -> None:
    maker = TraceMaker()
    maker.step(0, 0, 100)
    for at in range(0, 100, 10):
        maker.work(ELEMENTWISE, at + 6, 3, launched=at)
    account = times(maker.trace())
    assert account == {"memory_bound": 30, "host": 69, "idle": 1}


def test_kernels_of_a_graph_wait_for_each_other() -> None:
    maker = TraceMaker()
    for number in range(4):
        at = 1000 * number
        maker.call("cudaGraphLaunch", at, 20, correlation=number + 1)
        for kernel in range(9):
            maker.work(GEMM, at + 100 + 100 * kernel, 98)
            maker.events[-1]["args"]["correlation"] = number + 1
    trace = maker.trace()
    assert trace.step_source == "the time from one launch of a CUDA graph to the next"
    assert times(trace) == {"tensor_cores": 882, "host": 102, "idle": 16}


def test_garbage_collection_and_allocations_have_names() -> None:
    maker = TraceMaker()
    maker.step(0, 0, 1000)
    maker.work(GEMM, 0, 100, launched=0)
    maker.add("python_function", "gc", 200, 300)
    maker.operator("aten::empty", 600, 100)
    maker.call("cudaMalloc", 610, 80)
    maker.work(GEMM, 800, 200, launched=795)
    trace = maker.trace()
    assert times(trace) == {"tensor_cores": 300, "host": 700}
    parts = {part.name: part.time_ns / 1000 for part in trace.class_time("host").top}
    assert (parts["gc"], parts["cudaMalloc"], parts["aten::empty"]) == (300, 80, 20)


def test_the_line_of_the_program() -> None:
    maker = training(3)
    maker.add("python_function", "train.py(10): main", 0, 3000)
    maker.add("python_function", "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py(1): _call", 0, 3000)
    for at in (0, 1000, 2000):
        maker.add("python_function", "train.py(42): log_loss", at + 290, 220)
    trace = maker.trace()
    assert trace.class_time("synchronization").top[0].line == "train.py(42): log_loss"
    assert trace.class_time("without_tensor_cores").top[0].line == "train.py(10): main"


def test_the_line_from_the_stack_of_an_operator() -> None:
    maker = training(3)
    stack = "torch/_tensor.py(5): item;/home/me/train.py(7): step;/home/me/train.py(9): main"
    for at in (0, 1000, 2000):
        maker.operator("aten::item", at + 295, 210, more={"Call stack": stack})
    assert maker.trace().class_time("synchronization").top[0].line == "/home/me/train.py(7): step"


def test_the_range_over_all_steps() -> None:
    maker = training(4)
    maker.work(GEMM, 3300, 30, launched=3290)
    tensor = maker.trace().class_time("tensor_cores")
    assert (tensor.min_ns, tensor.time_ns, tensor.max_ns) == (200_000, 200_000, 230_000)


def test_classes_of_kernels() -> None:
    for row in Path(__file__).with_name("kernels.txt").read_text().splitlines():
        expected, _, name = row.partition(" ")
        assert kernel_class(name) == getattr(step_classes, expected), name


def test_steps_of_the_optimizer() -> None:
    maker = TraceMaker()
    for number in range(4):
        maker.work(GEMM, 100 * number, 80, launched=100 * number)
        maker.add("user_annotation", "Optimizer.step#AdamW.step", 100 * number + 85, 10)
    trace = maker.trace()
    assert trace.step_source == "the time from one optimizer step to the next"
    assert [(step.begin_ns, step.end_ns) for step in trace.steps] == [
        (95_000, 195_000),
        (195_000, 295_000),
        (295_000, 395_000),
    ]


def test_a_trace_without_steps_is_one_step() -> None:
    maker = TraceMaker()
    maker.work(GEMM, 50, 80, launched=30)
    trace = maker.trace()
    assert "complete trace" in trace.step_source
    assert sum(times(trace).values()) == 100
    assert trace.step_ns == trace.duration_ns == 100_000


def test_of_several_gpus_the_one_with_the_most_work() -> None:
    maker = training()
    maker.work(GEMM, 0, 5000, launched=0)
    maker.events[-1] |= {"pid": 1}
    trace = maker.trace()
    assert trace.device == "GPU 1"
    assert "also has GPU 0" in trace.notes[0]


def test_without_a_gpu_the_account_is_one_of_operators() -> None:
    maker = TraceMaker()
    maker.step(0, 0, 100)
    maker.data(0, 30)
    maker.operator("aten::stack", 5, 10)
    maker.operator("aten::linear", 30, 40)
    maker.operator("aten::addmm", 35, 30)
    maker.operator("aten::relu", 80, 10)
    trace = maker.trace()
    assert times(trace) == {"data": 30, "cpu_matmul": 40, "cpu_operators": 10, "cpu_outside": 20}
    own = {total.name: total.time_ns / 1000 for total in trace.totals}
    assert (own["aten::linear"], own["aten::addmm"]) == (10, 30)
    assert "no work on a GPU" in trace.problems[0]


def test_what_the_child_sends_is_what_was_built() -> None:
    trace = training().trace()
    assert decode(json.loads(json.dumps(encode(trace)))) == trace


_MOMENT = st.integers(0, 60)
_LENGTH = st.integers(0, 25)
_WORK = st.tuples(
    st.sampled_from([GEMM, SGEMM, ELEMENTWISE, NCCL, "custom", PAGEABLE]), _MOMENT, _LENGTH, st.integers(7, 9)
)
_HOST = st.tuples(
    st.sampled_from(["data", "aten::item", "aten::add", "cudaStreamSynchronize", "cudaMalloc", "gc"]),
    _MOMENT,
    _LENGTH,
    st.sampled_from([MAIN, MAIN + 1]),
)


def made(work: list[Any], host: list[Any], bounds: list[int]) -> TraceMaker:
    maker = TraceMaker()
    maker.operator("aten::zeros", 0, 1)
    for name, begin, length, stream in work:
        category = "gpu_memcpy" if name == PAGEABLE else "kernel"
        maker.work(name, begin, length, max(0, begin - length), stream, category)
    add: dict[str, Callable[..., None]] = {"data": lambda _, begin, length, __: maker.data(begin, length)}
    for name, begin, length, thread in host:
        if name.startswith("aten"):
            maker.operator(name, begin, length, thread)
        elif name.startswith("cuda"):
            maker.call(name, begin, length, thread)
        elif name == "gc":
            maker.add("python_function", name, begin, length, thread)
        else:
            add[name](name, begin, length, thread)
    for number, (begin, end) in enumerate(pairwise(bounds)):
        maker.step(number, begin, end - begin)
    return maker


def expected_work(work: list[Any], begin: int, end: int) -> dict[str, int]:
    """The time of each class of work, counted microsecond by microsecond."""
    result: dict[str, int] = {}
    for moment in range(begin, end):
        active = [
            GPU_CLASSES.index("copies" if name == PAGEABLE else kernel_class(name))
            for name, first, length, _ in work
            if first <= moment < first + length
        ]
        if active:
            name = GPU_CLASSES[min(active)]
            result[name] = result.get(name, 0) + 1
    return result


@given(
    st.lists(_WORK, min_size=1, max_size=12),
    st.lists(_HOST, max_size=12),
    st.lists(_MOMENT, min_size=2, max_size=5, unique=True).map(sorted),
)
def test_the_classes_add_up_to_every_step(work: list[Any], host: list[Any], bounds: list[int]) -> None:
    trace = made(work, host, bounds).trace()
    check_sums(trace)
    if "ProfilerStep" in trace.step_source:
        start = min(0, *bounds)
        begin, end = trace.step.begin_ns // 1000 + start, trace.step.end_ns // 1000 + start
        got = {
            name: time for name, time in times(trace).items() if GPU_CLASSES.index(name) <= GPU_CLASSES.index("copies")
        }
        assert got == expected_work(work, begin, end)


@given(st.lists(_HOST, min_size=1, max_size=12), st.lists(_MOMENT, min_size=2, max_size=5, unique=True).map(sorted))
def test_the_operators_add_up_to_every_step(host: list[Any], bounds: list[int]) -> None:
    check_sums(made([], host, bounds).trace())


def check_sums(trace: Trace) -> None:
    assert sum(item.time_ns for item in trace.classes) == trace.step_ns
    assert all(0 <= item.min_ns <= item.time_ns <= item.max_ns for item in trace.classes)
    for item in trace.classes:
        assert sum(part.time_ns for part in item.top) == item.time_ns


def test_times_since_1970_lose_no_nanosecond_of_the_sum() -> None:
    maker = training()
    for event in maker.events:
        event["ts"] += 1.7e15
    trace = built(json.dumps(maker.document).encode())
    assert sum(item.time_ns for item in trace.classes) == trace.step_ns
