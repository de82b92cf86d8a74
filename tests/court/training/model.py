"""The model that most cases train: frames of audio with 16 features pass linear layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from run import Run
from torch import nn

FEATURES = 16


def mlp(run: Run, width: int = 0, depth: int = 0, dtype: torch.dtype | None = None) -> nn.Sequential:
    """Linear layers, by default large enough for bf16 to keep a GPU busy for some milliseconds."""
    width = width or run.choose(4096, 128)
    layers: list[nn.Module] = [nn.Linear(FEATURES, width), nn.GELU()]
    for _ in range(depth or run.choose(4, 3)):
        layers += [nn.Linear(width, width), nn.GELU()]
    layers.append(nn.Linear(width, FEATURES))
    return nn.Sequential(*layers).to(run.device, dtype or run.choose(torch.bfloat16, torch.float32))


def frames(run: Run, batch: int = 16, length: int = 0) -> torch.Tensor:
    """A batch on the device: its shape is (batch, length, features)."""
    dtype = run.choose(torch.bfloat16, torch.float32)
    return torch.randn(batch, length or run.choose(512, 16), FEATURES, device=run.device, dtype=dtype)


def sgd(model: nn.Module) -> Any:
    """The optimizer of most cases."""
    return torch.optim.SGD(model.parameters(), lr=1e-4)


def train(model: Callable[[torch.Tensor], torch.Tensor], optimizer: Any, batch: torch.Tensor) -> torch.Tensor:
    """One step; the model reproduces its input."""
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch), batch)
    loss.backward()
    optimizer.step()
    return loss
