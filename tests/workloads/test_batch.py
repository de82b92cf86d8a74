"""The batch workload: a sweep with its end, out of memory, the knee, and the recommendation."""

from pathlib import Path

import pytest

from tests.workloads.conftest import RunWorkload, load_workload, needs_torch, with_step

_TINY = {"model": "mlp", "model_size": "tiny", "max_batch": 8, "duration": 0.02, "precision": "fp32"}


def no_memory_above(size: int) -> str:
    """A step that runs out of memory with larger batches."""
    return (
        f"if len(batch[0]) > {size}:\n"
        """    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")\n"""
        "return super().step(batch, mark)"
    )


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 11, 64, 100, 1000, 4095])
def test_a_sweep_ends_at_the_largest_size_that_fits(capacity: int) -> None:
    next_size = load_workload("batch").next_size
    largest, too_large = 0, 1 << 20
    is_bounded = False
    tried = []
    while (size := next_size(largest, too_large if is_bounded else None, 4096)) is not None:
        tried.append(size)
        if size <= capacity:
            largest = size
        else:
            too_large, is_bounded = size, True
    assert largest <= capacity < too_large
    assert capacity - largest <= max(1, largest // 16) - 1
    assert len(tried) == len(set(tried)) <= 20


def test_a_sweep_ends_at_its_maximum() -> None:
    next_size = load_workload("batch").next_size
    assert [next_size(size, None, 100) for size in (0, 1, 64, 100)] == [1, 2, 100, None]


@needs_torch
def test_a_curve_with_its_knee(run_workload: RunWorkload) -> None:
    ran = run_workload("batch", **_TINY)
    assert ran.result["verdict"] == "ok", ran.result
    samples = [result for result in ran.result["figures"] if result["name"] == "samples"]
    assert [(result["case"], result["position"]) for result in samples] == [
        ("batch 1", 1), ("batch 2", 2), ("batch 4", 4), ("batch 8", 8)
    ]  # fmt: skip
    best = max(result["value"] for result in samples)
    knee = min(result["position"] for result in samples if result["value"] >= 0.9 * best)
    assert ran.metric("knee")["value"] == knee
    assert ran.metric("largest")["value"] == 8
    assert ran.metric("out_of_memory")["value"] == 0
    assert ran.result["why"].startswith(f"Use a batch of {knee}: ")
    assert "Batches above 8 were not tried" in ran.result["why"]


@needs_torch
def test_the_sweep_recovers_from_out_of_memory(run_workload: RunWorkload, tmp_path: Path) -> None:
    ran = run_workload(with_step("batch", tmp_path, no_memory_above(11)), **_TINY | {"max_batch": 64})
    assert ran.result["verdict"] == "ok", ran.result
    assert ran.metric("largest")["value"] == 11
    assert ran.metric("out_of_memory")["value"] == len(ran.of("error")) == 2, "16 and 12"
    positions = [result["position"] for result in ran.result["figures"] if result["name"] == "samples"]
    assert positions == [1, 2, 4, 8, 10, 11] or positions == [1, 2, 4, 8, 9, 10, 11]
    assert "GiB is 11 (12 does not; recovered from 2 out-of-memory errors)" in ran.result["why"]
