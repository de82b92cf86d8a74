"""Cases in which the loop itself takes the time, on the CPU."""

from __future__ import annotations

import copy
import gc
import os
import tempfile
import threading
import time
from typing import Any

import torch
from model import frames, mlp, sgd, train
from run import Run
from torch import nn

LOG_SECONDS = 0.03


def slow_log(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    with tempfile.TemporaryFile("w") as log:
        lines = 0 if run.is_cured else _lines_until(log, LOG_SECONDS)
        for step in run.steps():
            train(model, optimizer, batch)
            for line in range(lines):
                write_durably(log, f"step {step} layer {line}\n")


def _lines_until(log: Any, seconds: float) -> int:
    """How many lines this disk writes in that time."""
    start, lines = time.perf_counter(), 0
    while time.perf_counter() - start < 4 * seconds:
        write_durably(log, "start\n")
        lines += 1
    return max(1, lines // 4)


def write_durably(log: Any, line: str) -> None:
    log.write(line)
    log.flush()
    os.fsync(log.fileno())


def python_metrics(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    hypothesis = "the cat sat on the mat and looked at the dog " * 12
    reference = "a cat sat on a mat and it looked at this dog " * 12
    errors = 0
    for _ in run.steps():
        train(model, optimizer, batch)
        if not run.is_cured:
            errors += sum(word_errors(hypothesis.split(), reference.split()) for _ in range(10))


def word_errors(hypothesis: list[str], reference: list[str]) -> int:
    """The edit distance of two sentences."""
    previous = list(range(len(reference) + 1))
    for row, word in enumerate(hypothesis, 1):
        current = [row]
        for column, other in enumerate(reference, 1):
            current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (word != other)))
        previous = current
    return previous[-1]


def rate_limit(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)
        if not run.is_cured:
            time.sleep(0.02)


def lock(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    history: list[int] = []
    guard = threading.Lock()

    def upload() -> None:
        while True:
            with guard:
                history.clear()
                if not run.is_cured:
                    time.sleep(0.02)  # the network
            time.sleep(0.02 if run.is_cured else 0.0005)

    threading.Thread(target=upload, daemon=True).start()
    for step in run.steps():
        train(model, optimizer, batch)
        with guard:
            history.append(step)


def collections(run: Run) -> None:
    index = [{"path": f"{number}.wav", "words": [number]} for number in range(20_000)]
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    for step in run.steps():
        index[step % len(index)]["words"].append(step)
        train(model, optimizer, batch)
        if not run.is_cured:
            gc.collect()


def checkpoints(run: Run) -> None:
    model, batch = mlp(run, run.choose(4096, 768)), frames(run, batch=run.choose(16, 1))
    optimizer = sgd(model)
    every = 10**9 if run.is_cured else 3
    with tempfile.TemporaryDirectory() as folder:
        for step in run.steps():
            train(model, optimizer, batch)
            if step % every == every - 1:
                torch.save({"model": model.state_dict(), "step": step}, f"{folder}/checkpoint.pt")


def state_copies(run: Run) -> None:
    model, batch = mlp(run, run.choose(4096, 768)), frames(run, batch=run.choose(16, 1))
    optimizer = sgd(model)
    best: dict[str, torch.Tensor] = {}
    for _ in run.steps():
        train(model, optimizer, batch)
        if not run.is_cured:
            best = copy.deepcopy({name: value.cpu() for name, value in model.state_dict().items()})
    assert run.is_cured or best


def evaluation(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    samples = frames(run, batch=100, length=8)
    for _ in run.steps():
        train(model, optimizer, batch)
        if not run.is_cured:
            evaluate(model, samples)


def evaluate(model: nn.Module, samples: torch.Tensor) -> float:
    """The mean loss of the samples."""
    losses = []
    with torch.no_grad():
        for sample in samples:
            losses.append(nn.functional.mse_loss(model(sample), sample).item())
    return sum(losses) / len(losses)


def anomaly_mode(run: Run) -> None:
    model, batch = mlp(run, run.choose(1024, 32), 24), frames(run)
    optimizer = sgd(model)
    torch.autograd.set_detect_anomaly(not run.is_cured)
    for _ in run.steps():
        train(model, optimizer, batch)


def recompiles(run: Run) -> None:
    import torch._dynamo.config as limits

    limits.cache_size_limit = limits.accumulated_cache_size_limit = 10_000
    model = mlp(run)
    optimizer = sgd(model)
    compiled = torch.compile(model, backend="aot_eager", dynamic=run.is_cured)
    batch = frames(run, batch=1, length=run.choose(8192, 256) + 10_000)
    for step in run.steps():
        train(compiled, optimizer, batch[:, : run.choose(8192, 256) + step % 10_000])


def tiny_batch(run: Run) -> None:
    run.samples_per_step = 128 if run.is_cured else 2
    model = mlp(run, run.choose(512, 32), 16)
    batch = frames(run, batch=run.samples_per_step, length=16)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in run.steps():
        train(model, optimizer, batch)
