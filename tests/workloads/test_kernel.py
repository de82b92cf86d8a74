"""The kernel workload needs a GPU; tests/gpu runs it."""

from tests.workloads.conftest import RunWorkload, load_workload, needs_torch


@needs_torch
def test_the_cpu_is_refused_in_a_sentence(run_workload: RunWorkload) -> None:
    ran = run_workload("kernel", device="cpu")
    assert ran.exit_code == 3
    assert ran.of("error")[0]["text"] == "kernel compiles and launches CUDA kernels, which need a GPU."


def test_the_source_has_every_kernel() -> None:
    kernel = load_workload("kernel")
    source = kernel.kernel_source()
    assert all(f"void {name}(" in source for name in ("add", "reverse_with_sync", "reverse_without_sync", *kernel.SUMS))
