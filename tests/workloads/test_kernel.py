"""The kernel workload needs a GPU; tests/gpu runs it."""

import pytest

from tests.workloads.conftest import RunWorkload, load_workload, needs_torch


@needs_torch
@pytest.mark.parametrize("workload", ["kernel", "launch", "oom", "transfer"])
def test_the_cpu_is_refused_in_a_sentence(run_workload: RunWorkload, workload: str) -> None:
    ran = run_workload(workload, device="cpu")
    (error,) = ran.of("error")
    assert ran.exit_code == 3
    assert error["class"] == "UnsupportedError"
    assert error["text"].endswith(".")
    assert not ran.of("result")


def test_the_source_has_every_kernel() -> None:
    kernel = load_workload("kernel")
    source = kernel.kernel_source()
    assert all(f"void {name}(" in source for name in ("add", "reverse_with_sync", "reverse_without_sync", *kernel.SUMS))
