"""Ordinary logs, failing and healthy ones, without any error of CUDA, PyTorch, NCCL or the driver.

The tracebacks are real: the snippets are executed. The rest imitates the output of tools, including misleading text:
other resources that run out of memory, working CUDA and NCCL, and words of the errors in prose.
"""

import io
import random
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Final

from tests.errors.texts import DATA, named_texts

_WORDS: Final = (
    *("loading", "shard", "epoch", "step", "loss", "tokens", "checkpoint", "saved", "resumed", "evaluating", "rate"),
    *("warmup", "dataset", "worker", "finished", "device", "memory", "GPU", "cuda:0", "allocated", "bfloat16", "cache"),
)
_ODD: Final = {
    "empty lines": "\n" * 40,
    "dots": "." * 5000,
    "unusual characters": "训练完成 ✅ потери 0.12 العربية \u202e\x00\x9b mixed",
}


def logs() -> dict[str, str]:
    """Every ordinary log by name."""
    texts = {f"traceback {number}": text for number, text in enumerate(_tracebacks())}
    texts |= {f"training {number}": _training(number) for number in range(40)}
    texts |= {f"progress {number}": _progress(number) for number in range(12)}
    texts |= {f"NCCL at {ranks} ranks": _nccl(ranks) for ranks in (2, 4, 8, 16)}
    texts |= {f"requests {number}": _requests(number) for number in range(12)}
    texts |= {f"tests {number}": _tests(number) for number in range(12)}
    return texts | _ODD | dict(named_texts(DATA / "ordinary_logs.txt"))


def noise(count: int, seed: int) -> list[str]:
    """Lines of a busy, healthy training run."""
    chance = random.Random(seed)
    return [_noisy_line(chance, number) for number in range(count)]


def _noisy_line(chance: random.Random, number: int) -> str:
    clock = f"2026-03-0{1 + number // 50_000 % 9} {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
    words = " ".join(chance.choices(_WORDS, k=chance.randint(3, 12)))
    return chance.choice(
        (
            f"{clock},{chance.randrange(1000):03} INFO trainer.py:88 {words} {chance.random():.4f}",
            f"step {number}: loss={chance.random() * 3:.4f} lr=3.0e-04 mem={chance.random() * 80:.1f}GiB {words}",
            f"[rank{number % 8}]: {words}",
            f"{clock} WARNING data.py:12 skipped {chance.randrange(9)} of {words}",
            f" {number % 100:3}%|{'#' * (number % 10):<10}| {number}/10000 [00:{number % 60:02}<12:30, 3.2it/s]",
            words,
        )
    )


def _tracebacks() -> Iterator[str]:
    for _, snippet in named_texts(DATA / "failing_snippets.txt"):
        printed = io.StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                exec(compile(snippet, "train.py", "exec"), {"__name__": "train"})
        except BaseException:  # noqa: BLE001 - some snippets exit the interpreter
            yield printed.getvalue() + traceback.format_exc()
        else:
            raise AssertionError(f"the snippet must fail: {snippet}")


def _training(seed: int) -> str:
    chance = random.Random(seed)
    head = chance.choice(
        (
            "CUDA available: True, devices: 8, NVIDIA H100 80GB HBM3",
            "Using CUDA device cuda:0 (NVIDIA A100-SXM4-80GB), cuDNN 9.1.0, NCCL 2.21.5",
            "No CUDA requested, training on CPU",
            "GPU available: True (cuda), used: True\nTPU available: False, using: 0 TPU cores",
            "torch.cuda.is_available() = False, falling back to cpu",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True CUDA_LAUNCH_BLOCKING=0 NCCL_DEBUG=WARN",
        )
    )
    end = chance.choice(
        ("Training finished.", "Early stopping.", "Interrupted", "Terminated", "Saved model.safetensors", "")
    )
    return "\n".join([head, *noise(chance.randint(20, 60), seed), end])


def _progress(seed: int) -> str:
    bars = (
        f"\rEpoch {seed}: {step}%|{'█' * (step // 10):<10}| {step}/100 [00:{step % 60:02}<00:10]" for step in range(99)
    )
    return f"Map: {seed} examples\n" + "".join(bars) + "\ndone\n"


def _nccl(ranks: int) -> str:
    lines = []
    for rank in range(ranks):
        at = f"node1:{4000 + rank}:{5000 + rank} [{rank}] NCCL INFO"
        lines += [
            f"{at} Bootstrap : Using eth0:10.0.0.1<0>",
            f"{at} NET/Plugin: No plugin texts (libnccl-net.so)",
            f"{at} cudaDriverVersion 12040",
            f"{at} NCCL_SOCKET_IFNAME set by environment to eth0",
            f"{at} Failed to open libibverbs.so[.1]",
            f"{at} NET/Socket : Using [0]eth0:10.0.0.1<0>",
            f"{at} comm 0x55d rank {rank} nranks {ranks} cudaDev {rank} nvmlDev {rank} busId {rank}b000 - Init START",
            f"{at} Channel 00/0 : {rank}[{rank}] -> {(rank + 1) % ranks}[{(rank + 1) % ranks}] via P2P/CUMEM",
            f"{at} Connected all rings",
            f"{at} 24 coll channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer",
            f"{at} comm 0x55d rank {rank} nranks {ranks} cudaDev {rank} busId {rank}b000 - Init COMPLETE",
        ]
    return "\n".join(lines)


def _requests(seed: int) -> str:
    chance = random.Random(seed)
    codes = ("200 OK", "404 Missing", "500 Server Error", "403 Insufficient Permissions", "405 Not Supported")
    return "\n".join(
        f'10.0.{seed}.{chance.randrange(99)} - - [20/Nov/2026:12:00:{second:02} +0000] "POST /v1/completions HTTP/1.1" '
        f"{chance.choice(codes)} {chance.randrange(9999)}"
        for second in range(40)
    )


def _tests(seed: int) -> str:
    names = ("cuda", "nccl", "oom", "memory", "driver", "assert", "shape", "timeout")
    lines = [f"tests/test_{name}_{seed}.py ......F..s..                       [{seed}%]" for name in names]
    error = ("KeyError: 'gpu'", "assert 3 == 4", "TimeoutError: waited 5 s", "ValueError: no such shape")[seed % 4]
    return "\n".join(
        [
            "============================= test session starts ==============================",
            "collecting ... collected 80 items",
            *lines,
            "=================================== FAILURES ===================================",
            f"E   {error}",
            f"FAILED tests/test_oom_{seed}.py::test_out_of_memory_is_reported - {error}",
            "==================== 8 failed, 72 passed, 8 skipped in 12.3s ====================",
        ]
    )
