"""Cases in which other processes take what the training run needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from host_loop import word_errors
from model import frames, mlp, sgd, train
from run import Run

BUSY_SHELL = "while kill -0 {parent}; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done"
BUSY_GPU = """
import os, sys, threading, torch
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
device = torch.device("cuda", int(sys.argv[1]))
values = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
ready = False
while True:
    for _ in range(50):
        torch.mm(values, values)
    torch.cuda.synchronize(device)
    if not ready:
        print("ready", flush=True)
        ready = True
"""


def cpu_contention(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    sentence = "the cat sat on the mat and looked at the dog " * 12
    cores = len(os.sched_getaffinity(0))
    with busy_shells(0 if run.is_cured else 3 * cores):
        for _ in run.steps():
            train(model, optimizer, batch)
            word_errors(sentence.split(), sentence.split())


@contextmanager
def busy_shells(count: int) -> Iterator[None]:
    """Processes that compute until the end of the block, or of this process."""
    command = ["sh", "-c", BUSY_SHELL.format(parent=os.getpid())]
    shells = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for shell in shells:
            shell.kill()
        for shell in shells:
            shell.wait()


def shared_gpu(run: Run) -> None:
    with nullcontext() if run.is_cured else busy_gpu(run.device):
        _train(run)


@contextmanager
def busy_gpu(device: torch.device) -> Iterator[None]:
    """A process that computes on this GPU until the end of the block, or of this process."""
    command = [sys.executable, "-c", BUSY_GPU, str(device.index or 0)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield
        finally:
            other.kill()


def too_many_threads(run: Run) -> None:
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(min(cores, 4) if run.is_cured else 16 * cores)
    _train(run)


def _train(run: Run) -> None:
    model, batch = mlp(run), frames(run, batch=64 if run.device.type == "cpu" else 16)
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)
