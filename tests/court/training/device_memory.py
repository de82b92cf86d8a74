"""Cases that copy, or that allocate memory of the GPU."""

from __future__ import annotations

import torch
from model import FEATURES, frames, mlp, sgd, train
from run import Run
from torch import nn
from torch.nn.functional import mse_loss

WIDE = 4096
ROWS = 16_384


def pageable_copies(run: Run) -> None:
    model, optimizer = _wide_model(run)
    if run.is_cured:
        _train_prefetched(run, model, optimizer)
        return
    batches = _host_batches(is_pinned=False)
    for batch in run.steps(batches):
        train_wide(model, optimizer, batch.to(run.device))


def no_overlap(run: Run) -> None:
    model, optimizer = _wide_model(run)
    if run.is_cured:
        _train_prefetched(run, model, optimizer)
        return
    batches = _host_batches(is_pinned=True)
    for batch in run.steps(batches):
        train_wide(model, optimizer, batch.to(run.device, non_blocking=True))


def _wide_model(run: Run) -> tuple[nn.Module, torch.optim.Optimizer]:
    layers = [nn.Linear(WIDE, WIDE), nn.GELU(), nn.Linear(WIDE, WIDE), nn.GELU(), nn.Linear(WIDE, FEATURES)]
    model = nn.Sequential(*layers).to(run.device, torch.bfloat16)
    return model, sgd(model)


def _host_batches(*, is_pinned: bool) -> list[torch.Tensor]:
    batches = [torch.ones(ROWS, WIDE, dtype=torch.bfloat16) for _ in range(2)]
    return [batch.pin_memory() for batch in batches] if is_pinned else batches


def train_wide(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    mse_loss(model(batch), batch[:, :FEATURES]).backward()
    optimizer.step()


def _train_prefetched(run: Run, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Copy the next batch from pinned memory on a second stream, into the buffer that is not in use."""
    batches = _host_batches(is_pinned=True)
    buffers = [batch.to(run.device) for batch in batches]
    copying, computing = torch.cuda.Stream(), torch.cuda.current_stream()
    copying.wait_stream(computing)
    for step in run.steps():
        computing.wait_stream(copying)  # the batch of this step has arrived
        following = (step + 1) % 2
        with torch.cuda.stream(copying):  # its buffer was free at the end of the last step
            buffers[following].copy_(batches[following], non_blocking=True)
        train_wide(model, optimizer, buffers[step % 2])
        copying.wait_stream(computing)


def tiny_copies(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    weights = [number / 600 for number in range(600)]
    prepared = torch.tensor(weights, device=run.device).sum()
    for _ in run.steps():
        if run.is_cured:
            scale = prepared
        else:
            scale = torch.stack([torch.tensor(weight, device=run.device) for weight in weights]).sum()
        optimizer.zero_grad()
        (mse_loss(model(batch), batch) * scale).backward()
        optimizer.step()


def empty_cache(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)
        if not run.is_cured:
            torch.cuda.empty_cache()


def allocator_retries(run: Run) -> None:
    """Training and sampling use two streams, and so two pools of memory that do not fit at the same time."""
    total = torch.cuda.get_device_properties(run.device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (16 << 30 if run.is_cured else 3 << 30) / total), run.device)
    model = mlp(run, 1024, 6)  # needs about 2 GiB on each stream
    optimizer = sgd(model)
    batch = frames(run, batch=128)
    sampling, training = torch.cuda.Stream(), torch.cuda.current_stream()
    for _ in run.steps():
        train(model, optimizer, batch)
        sampling.wait_stream(training)
        with torch.cuda.stream(sampling):
            train(model, optimizer, batch)
        training.wait_stream(sampling)
