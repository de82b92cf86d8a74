"""CPU against GPU: the crossover, and the operations."""

import subprocess

from tests.workloads.conftest import WORKLOADS, load_workload, needs_torch, torch_python

PROBE = """
import importlib.util, runpy, sys
runpy.run_path(sys.argv[1] + "/_run.py")["_provide_kit"]()
spec = importlib.util.spec_from_file_location("probed", sys.argv[1] + "/compare.py")
compare = sys.modules["probed"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)
import torch
torch.set_num_threads(1)
for name, (make, compute) in compare.operations(torch).items():
    for size in (256, 4096):
        assert compute(make(size)).isfinite().all(), name
print(len(compare.operations(torch)))
"""


def test_the_crossover_is_the_size_from_which_the_gpu_stays_faster() -> None:
    crossover = load_workload("compare").crossover
    assert crossover([1, 2, 4], [3.0, 3.0, 3.0], [4.0, 2.0, 1.0]) == 2
    assert crossover([1, 2, 4], [3.0, 3.0, 3.0], [1.0, 4.0, 1.0]) == 4
    assert crossover([1, 2, 4], [3.0, 3.0, 3.0], [1.0, 1.0, 4.0]) is None


@needs_torch
def test_the_operations_compute() -> None:
    command = [torch_python(), "-c", PROBE, str(WORKLOADS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "12\n"
