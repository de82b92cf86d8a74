"""Loads a GPU as a training job does, within limits, for some seconds: ``python load.py ROLE DEVICE SECONDS [UID]``.

The script stands for programs of other users: gpumon starts it only in tests and for recordings. Each role uses a
limited amount of memory, and no setting of the host or the GPU is changed.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator

if len(sys.argv) > 4:  # run as another user, so that a recording shows several users
    os.setuid(int(sys.argv[4]))

import torch

GIBIBYTE = 1 << 30
Step = Callable[[], None]


def matmul(device: torch.device) -> Iterator[None]:
    """Dense bf16 matrix products, which reach the power limit."""
    a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    b = torch.randn_like(a)
    while True:
        for _ in range(20):
            torch.mm(a, b)
        torch.cuda.synchronize(device)
        yield


def training(device: torch.device) -> Iterator[None]:
    """A small transformer: forward, backward, optimizer step, and pauses as of a slow data loader."""
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device=device)
    model = torch.nn.TransformerEncoder(layer, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(32, 256, 1024, device=device)
    for number in itertools.count():
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize(device)
        if number % 50 == 49:
            time.sleep(0.6)
        yield


def copies(device: torch.device) -> Iterator[None]:
    """Copies from pinned memory to the device: utilization 100 % without computation."""
    host = torch.empty(GIBIBYTE, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(GIBIBYTE, dtype=torch.uint8, device=device)
    while True:
        target.copy_(host, non_blocking=True)
        torch.cuda.synchronize(device)
        yield


def peers(device: torch.device) -> Iterator[None]:
    """Copies to the next GPU; prints the rate in bytes per second once per second."""
    source = torch.empty(GIBIBYTE, dtype=torch.uint8, device=device)
    target = torch.empty(GIBIBYTE, dtype=torch.uint8, device=torch.device("cuda", (device.index or 0) + 1))
    while True:
        copied = 0
        started = time.monotonic()
        while time.monotonic() - started < 1:
            for _ in range(20):
                target.copy_(source, non_blocking=True)
                copied += GIBIBYTE
            torch.cuda.synchronize(device)
        print("rate", copied / (time.monotonic() - started), flush=True)
        yield


def bursts(device: torch.device) -> Iterator[None]:
    """Seconds of work, then seconds of idling, as in an evaluation loop."""
    work = matmul(device)
    while True:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            next(work)
        time.sleep(4)
        yield


def growing(device: torch.device) -> Iterator[None]:
    """Memory that grows and is then freed, as in a leak followed by a restart. At most 96 GiB."""
    held: list[torch.Tensor] = []
    work = training(device)
    while True:
        if len(held) >= 48:
            held.clear()
            torch.cuda.empty_cache()
        held.append(torch.empty(2 * GIBIBYTE, dtype=torch.uint8, device=device))
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            next(work)
        yield


def serving(device: torch.device) -> Iterator[None]:
    """Much memory and little work, as in an inference server that waits for requests."""
    weights = torch.empty(70 * GIBIBYTE, dtype=torch.uint8, device=device)
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    while True:
        for _ in range(40):
            torch.mm(a, a)
        torch.cuda.synchronize(device)
        weights[:1].zero_()
        time.sleep(0.03)
        yield


def holding(device: torch.device) -> Iterator[None]:
    """One GiB of memory and no work, as in a forgotten notebook."""
    held = torch.ones(GIBIBYTE, dtype=torch.uint8, device=device)
    while True:
        held[:1].zero_()
        time.sleep(0.5)
        yield


ROLES: dict[str, Callable[[torch.device], Iterator[None]]] = {
    role.__name__: role for role in (matmul, training, copies, peers, bursts, growing, serving, holding)
}


def main() -> None:
    """Run a role for the given time."""
    role, index, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    until = time.monotonic() + seconds
    steps = ROLES[role](device)
    next(steps)
    print("ready", flush=True)
    while time.monotonic() < until:
        next(steps)


if __name__ == "__main__":
    main()
