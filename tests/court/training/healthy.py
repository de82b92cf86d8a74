"""Training runs in which nothing costs much that could be saved."""

from __future__ import annotations

import importlib.util
import random
import tempfile
from typing import Any

import torch
from kernels import captured
from loading import BATCH, Recordings
from model import FEATURES, frames, mlp, sgd, train
from ranks import join, replicated
from run import Run
from torch import nn
from torch.nn.functional import mse_loss, scaled_dot_product_attention
from torch.utils.data import DataLoader


def good_loader(run: Run) -> None:
    loader = DataLoader(
        Recordings(run), BATCH, num_workers=2, persistent_workers=True, pin_memory=run.device.type == "cuda"
    )
    model = mlp(run, depth=run.choose(6, 8))
    optimizer = sgd(model)
    for batch in run.steps(loader):
        train(model, optimizer, batch.to(run.device, non_blocking=True))


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        batch, length, width = values.shape
        parts = self.inputs(self.first(values)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.output(attended.transpose(1, 2).reshape(batch, length, width))
        result: torch.Tensor = values + self.feed_forward(self.second(values))
        return result


def bf16_transformer(run: Run) -> None:
    width = 4096
    blocks = [Block(width, 32) for _ in range(2)]
    model = nn.Sequential(nn.Linear(FEATURES, width), *blocks, nn.Linear(width, FEATURES))
    model.to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batch = frames(run, batch=8, length=1024)
    for _ in run.steps():
        train(model, optimizer, batch)


def channels_last(run: Run) -> None:
    torch.backends.cudnn.benchmark = True
    layers: list[nn.Module] = [nn.Conv2d(64, 512, 3, padding=1)]
    for _ in range(4):
        layers += [nn.ReLU(inplace=True), nn.Conv2d(512, 512, 3, padding=1)]
    network: Any = nn.Sequential(*layers)
    model = network.to(run.device, memory_format=torch.channels_last)
    optimizer = sgd(model)
    images = torch.randn(64, 64, 32, 32, device=run.device).to(memory_format=torch.channels_last)
    for _ in run.steps():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(images).square().mean()
        loss.backward()
        optimizer.step()


def cuda_graph(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    graph = captured(model, sgd(model), batch)
    for _ in run.steps():
        graph.replay()


def compiled(run: Run) -> None:
    if importlib.util.find_spec("triton") is None:
        run.skip("needs triton")
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    faster = torch.compile(model)
    for _ in run.steps():
        train(faster, optimizer, batch)


def default_ddp(run: Run) -> None:
    join(run)
    model, batch = replicated(run, mlp(run)), frames(run, batch=32)
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)


def preloaded_mlp(run: Run) -> None:
    batches = list(torch.randn(50, 64, 16, FEATURES))
    model = mlp(run, 256)
    optimizer = sgd(model)
    for batch in run.steps(batches):
        train(model, optimizer, batch)


def preloaded_convolutions(run: Run) -> None:
    batches = list(torch.randn(20, 16, 3, 32, 32))
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    optimizer = sgd(model)
    for batch in run.steps(batches):
        optimizer.zero_grad()
        mse_loss(model(batch), batch.mean(dim=(2, 3)).mean(dim=1, keepdim=True).expand(-1, 32)).backward()
        optimizer.step()


def accumulation(run: Run) -> None:
    model, batch = mlp(run), frames(run)
    optimizer = sgd(model)
    for _ in run.steps():
        optimizer.zero_grad()
        for _ in range(4):
            (mse_loss(model(batch), batch) / 4).backward()
        optimizer.step()


def variable_lengths(run: Run) -> None:
    lengths = random.Random(0)
    longest = run.choose(1024, 64)
    model, batch = mlp(run), frames(run, length=longest)
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch[:, : lengths.randrange(longest // 2, longest + 1, 8)])


def trainer(run: Run) -> None:
    if not all(map(importlib.util.find_spec, ("transformers", "accelerate"))):
        run.skip("needs transformers and accelerate")
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Reconstruction(nn.Module):
        """Returns its loss, as the Trainer expects."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = mlp(run, dtype=torch.float32)

        def forward(self, values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            result = self.layers(values)
            return {"loss": mse_loss(result.float(), labels), "logits": result}

    class Clock(TrainerCallback):  # type: ignore[misc,unused-ignore]
        """Advances the steps, and ends the Trainer after the last one."""

        def __init__(self) -> None:
            self.steps = run.steps()
            next(self.steps)

        def on_step_end(self, _arguments: Any, _state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = next(self.steps, None) is None

    values = torch.randn(run.choose(512, 16), FEATURES)
    data = [{"values": values, "labels": values}] * 100_000
    on_gpu = run.device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            max_steps=10**6,
            bf16=on_gpu,
            use_cpu=not on_gpu,
            dataloader_num_workers=2,
            logging_steps=1000,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        Trainer(model=Reconstruction(), args=arguments, train_dataset=data, callbacks=[Clock()]).train()
