"""One product in float32, TF32, float16 and bfloat16: speed and distance from float64."""

import time

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
size = 4096 if device == "cuda" else 256
a, b = (torch.randn(size, size, device=device) for _ in range(2))
exact = a.double() @ b.double()
for name, dtype, tf32 in (
    ("fp32", torch.float32, False), ("tf32", torch.float32, True),
    ("fp16", torch.float16, False), ("bf16", torch.bfloat16, False),
):  # fmt: skip
    torch.backends.cuda.matmul.allow_tf32 = tf32
    x, y = a.to(dtype), b.to(dtype)
    product = x @ y
    distance = ((product.double() - exact).norm() / exact.norm()).item()  # .item() waits for the GPU
    start = time.perf_counter()
    for _ in range(10):
        product = x @ y
    product[0, 0].item()
    print(f"{name}: {(time.perf_counter() - start) * 100:.3f} ms, relative distance {distance:.1e}")
