"""Cases in which the kernels, or the time between them, cost what they need not."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from model import FEATURES, frames, mlp, sgd, train
from run import Run
from torch import nn
from torch.nn.functional import gelu, mse_loss


def many_items(run: Run) -> None:
    model, batch = mlp(run), frames(run, batch=1024, length=8)
    optimizer = sgd(model)
    total: Any = 0.0
    for _ in run.steps():
        optimizer.zero_grad()
        losses = mse_loss(model(batch), batch, reduction="none").mean(dim=(1, 2))
        losses.mean().backward()
        optimizer.step()
        if run.is_cured:
            total += losses.detach().sum()
        else:
            total += sum(loss.item() for loss in losses.detach().unbind())


def synchronize(run: Run) -> None:
    """Small enough that launches and kernels take about the same time, so that the GPU waits after each layer."""
    model, batch = mlp(run, 1024, 64), frames(run, batch=8)
    optimizer = sgd(model)
    for _ in run.steps():
        optimizer.zero_grad()
        hidden = batch
        for layer in model:
            hidden = layer(hidden)
            if not run.is_cured:
                torch.cuda.synchronize()
        mse_loss(hidden, batch).backward()
        optimizer.step()


def launch_blocking(run: Run) -> None:
    """Kernels that take about as long as their launches."""
    model, batch = mlp(run, 1024, 64), frames(run, batch=8)
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)


def small_kernels(run: Run) -> None:
    model, batch = mlp(run, 64, 60), frames(run, batch=2, length=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=False)
    if not run.is_cured:
        for _ in run.steps():
            train(model, optimizer, batch)
        return
    graph = captured(model, optimizer, batch)
    for _ in run.steps():
        graph.replay()


def captured(model: nn.Module, optimizer: Any, batch: torch.Tensor) -> torch.cuda.CUDAGraph:
    """A complete step as one CUDA graph."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        mse_loss(model(batch), batch).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def fp32_matmul(run: Run) -> None:
    torch.set_float32_matmul_precision("high" if run.is_cured else "highest")
    model, batch = mlp(run, dtype=torch.float32), frames(run, batch=8).float()
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)


def fp32_model(run: Run) -> None:
    torch.set_float32_matmul_precision("high")
    dtype = torch.bfloat16 if run.is_cured else torch.float32
    model, batch = mlp(run, dtype=dtype), frames(run).to(dtype)
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)


class SlowGelu(nn.Module):
    """GELU as it is written in the paper, one operator after the other."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        cubic = values + 0.044715 * values * values * values
        return 0.5 * values * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * cubic))


class FastGelu(nn.Module):
    """The same in one operator."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return gelu(values, approximate="tanh")


def elementwise(run: Run) -> None:
    width = run.choose(256, 32)
    activation = FastGelu if run.is_cured else SlowGelu
    layers: list[nn.Module] = [nn.Linear(FEATURES, width)]
    for _ in range(3):
        layers += [activation() for _ in range(3)]
        layers.append(nn.Linear(width, width))
    model = nn.Sequential(*layers, nn.Linear(width, FEATURES)).to(run.device, run.choose(torch.bfloat16, torch.float32))
    batch = frames(run, batch=run.choose(256, 64), length=run.choose(512, 128))
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)


def benchmarking(run: Run) -> None:
    torch.backends.cudnn.benchmark = not run.is_cured
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3)]
    for _ in range(4):
        layers += [nn.ReLU(), nn.Conv2d(64, 64, 3)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(run.device, torch.bfloat16)
    optimizer = sgd(model)
    images = torch.randn(16, 3, 320, 320, device=run.device, dtype=torch.bfloat16)
    sizes = random.Random(0)
    for _ in run.steps():
        height, width = sizes.randint(160, 320), sizes.randint(160, 320)
        optimizer.zero_grad()
        model(images[:, :, :height, :width]).square().mean().backward()
        optimizer.step()
