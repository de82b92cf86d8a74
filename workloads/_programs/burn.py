"""Full load for some seconds, in which every product must have the same bits as the first one."""

import time

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
size, dtype = (8192, torch.bfloat16) if device == "cuda" else (512, torch.float32)
a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
expected = a @ b
start, products, wrong = time.perf_counter(), 0, 0
while time.perf_counter() - start < 5:
    for _ in range(20):
        product = a @ b
    products += 20
    wrong += not torch.equal(product, expected)  # waits for the GPU
seconds = time.perf_counter() - start
print(f"{products * 2 * size**3 / seconds / 1e12:.3g} TFLOP/s, {wrong} of {products // 20} compared products are wrong")
