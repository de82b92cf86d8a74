"""Measures how much faster matrix products become in TF32: ``python -m tests.gpu.precision_ratios``, 20 s on one GPU.

Prints for each size the time in fp32 and the ratio. The least and the most of the sizes whose time is 1 ms or more,
0.1 ms or more, and less are the rows of `gpumon.traces.what_if`.
"""

import subprocess
import sys

from tests.workloads.conftest import TORCH_PYTHON

_PROGRAM = """
import torch

def milliseconds(size, depth, is_tf32):
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    a, b = torch.randn(size, depth, device="cuda"), torch.randn(depth, size, device="cuda")
    times = []
    for _ in range(15):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(4):
            a @ b
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 4)
    return sorted(times)[len(times) // 2]

print(torch.cuda.get_device_name())
for size in (256, 512, 1024, 2048, 4096, 8192):
    for depth in (size // 4, size, 4 * size if size < 8192 else size):
        slow = milliseconds(size, depth, False)
        ratio = slow / milliseconds(size, depth, True)
        print(f"{size:5} x {depth:5}: fp32 {slow:8.3f} ms, TF32 {ratio:5.2f} times faster")
"""


def main() -> None:
    """Run the products with the interpreter that has torch."""
    subprocess.run([TORCH_PYTHON or sys.executable, "-c", _PROGRAM], check=True)


if __name__ == "__main__":
    main()
