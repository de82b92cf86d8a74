"""A matrix product on the CPU and on the GPU, without and with copies, by size."""

import time

import torch


def milliseconds(work, matrix: torch.Tensor) -> str:
    """The fastest of five calls."""
    times = []
    for _ in range(6):  # the first one warms up
        start = time.perf_counter()
        work(matrix)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return f"{1e3 * min(times[1:]):.3f} ms"


def product(matrix: torch.Tensor) -> torch.Tensor:
    """The product, where the matrix is."""
    return matrix @ matrix


def copied_product(matrix: torch.Tensor) -> torch.Tensor:
    """The product on the GPU of a matrix on the host."""
    return product(matrix.to("cuda")).cpu()


for size in (16, 64, 256, 1024):
    matrix = torch.randn(size, size)
    text = f"{size} x {size}: CPU {milliseconds(product, matrix)}"
    if torch.cuda.is_available():
        text += f", GPU {milliseconds(product, matrix.to('cuda'))}"
        text += f", GPU with both copies {milliseconds(copied_product, matrix)}"
    print(text)
