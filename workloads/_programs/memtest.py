"""Memory is written with patterns and their inverses, and read again."""

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
size = torch.cuda.mem_get_info()[0] - (1 << 30) if device == "cuda" else 64 << 20  # a gibibyte stays free
words = torch.empty(size // 8, dtype=torch.int64, device=device)
patterns = {"zeros": 0, "checkerboard": 0x5555555555555555, "walking bit": 1 << 40}
for name, pattern in patterns.items():
    for value in (pattern, ~pattern):
        words.fill_(value)
        wrong = sum(int(block.ne(value).sum()) for block in words.split(1 << 24))  # a block needs little more memory
        print(f"{name} {value & 0xFFFFFFFFFFFFFFFF:016x}: {wrong} of {len(words):,} words are wrong")
