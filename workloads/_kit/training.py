"""One step of training: precision, timed parts, and a check that training really happened.

`models.build` makes a model, `prepare` moves it to the device, and `Trainer` trains it; `Trainer.problem` reports
steps that did not train. All of it runs inside `float32_mode`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
PARTS = ("data", "forward", "backward", "optimizer")
"""The parts of a step, in order."""
_HALF_TYPES = {"fp16": "float16", "bf16": "bfloat16"}
_MIN_CAPABILITY = {"tf32": (8, 0), "fp16": (7, 0)}
"""Lowest compute capability with tensor cores for the type; bf16 depends on torch, too, which reports it."""
_LEARNING_RATE = 1e-4


@dataclass(frozen=True)
class StepOptions:
    """How a step is computed.

    Attributes:
        precision: One of `PRECISIONS`. fp16 and bf16 are autocast, with weights in float32.
        compile: Whether ``torch.compile`` compiles the module.
        channels_last: Whether images and weights of convolutions store their channels last.
        fused: Whether the optimizer updates all weights in one kernel.
        initial_scale: First loss scale of fp16.
    """

    precision: str = "fp32"
    compile: bool = False
    channels_last: bool = False
    fused: bool = False
    initial_scale: float = 2.0**16


def training_step(
    torch: Any,
    batch: tuple[Any, Any],
    module: Any,
    loss_function: Callable[[Any, Any], Any],
    optimizer: Any,
    scaler: Any,
    device: Any,
    half_type: Any,
    mark: Callable[[str], None],
) -> Any:
    """Trains one step and returns the loss, which stays on the device.

    Args:
        torch: The torch module.
        batch: Inputs and targets, on the CPU.
        module: The module, on the device.
        loss_function: Returns the loss of outputs and targets.
        optimizer: The optimizer.
        scaler: The ``GradScaler``, disabled for every precision except fp16.
        device: Where to train.
        half_type: Type of autocast, or None to compute in float32.
        mark: Called at the end of each part with its name; see `PARTS`.
    """
    inputs, targets = (tensor.to(device, non_blocking=True) for tensor in batch)
    mark("data")
    with torch.autocast(device.type, dtype=half_type, enabled=half_type is not None):
        loss = loss_function(module(inputs), targets)
    mark("forward")
    scaler.scale(loss).backward()
    mark("backward")
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    mark("optimizer")
    return loss.detach()


def half_type(torch: Any, precision: str) -> Any:
    """Returns the type of autocast for a precision; None for fp32 and tf32, which need no autocast."""
    return getattr(torch, _HALF_TYPES[precision]) if precision in _HALF_TYPES else None


def prepare(torch: Any, module: Any, device: Any, options: StepOptions) -> Any:
    """Returns the module on the device, with the memory format and compilation of the options."""
    module = module.to(device)
    if options.channels_last:
        module = module.to(memory_format=torch.channels_last)
    return torch.compile(module) if options.compile else module


class Trainer:
    """A module with its optimizer, which is Adam: it counts its steps, so that skipped ones are detected.

    Args:
        torch: The torch module.
        device: The device of the module, such as ``torch.device("cuda:0")``.
        module: The module, as `prepare` returns it, or wrapped for several GPUs.
        loss_function: Returns the loss of outputs and targets.
        options: How to compute a step.

    Attributes:
        steps: Number of steps so far.
        has_overflowed: Whether the latest `problem` was that numbers became too large for the precision.
    """

    def __init__(
        self, torch: Any, device: Any, module: Any, loss_function: Callable[[Any, Any], Any], options: StepOptions
    ) -> None:
        self.module, self.steps, self.has_overflowed = module, 0, False
        self._torch, self._device, self._loss_function, self._options = torch, device, loss_function, options
        self._half_type = half_type(torch, options.precision)
        fused = {"fused": True} if options.fused else {}
        self.optimizer = torch.optim.Adam(module.parameters(), lr=_LEARNING_RATE, **fused)
        self._scaler = _scaler(torch, device, options)
        self._initial = [_values(parameter) for parameter in module.parameters()]

    def step(self, batch: tuple[Any, Any], mark: Callable[[str], None] = lambda _: None) -> Any:
        """Trains one step; see `training_step`."""
        self.steps += 1
        return training_step(
            self._torch, batch, self.module, self._loss_function, self.optimizer, self._scaler, self._device,
            self._half_type, mark,
        )  # fmt: skip

    @property
    def overflows(self) -> int:
        """Number of steps that the GradScaler skipped, each of which halved the scale."""
        if not self._scaler.is_enabled():
            return 0
        return round(math.log2(self._options.initial_scale / self.scale))

    @property
    def scale(self) -> float:
        """The loss scale now; 1 without a GradScaler."""
        return float(self._scaler.get_scale())

    def problem(self, loss: Any) -> str:
        """Returns what shows that the steps so far did not train the module, in a sentence; empty if they did.

        Args:
            loss: The loss of the latest step.
        """
        expected = self.steps - self.overflows
        self.has_overflowed = not math.isfinite(float(loss)) or not expected
        if not math.isfinite(float(loss)):
            return f"The loss is {float(loss)} after {self.steps} steps."
        if not expected:
            return f"None of {self.steps} steps was applied: the gradients overflowed each time."
        parameters = list(self.module.parameters())
        states = [self.optimizer.state.get(parameter, {}) for parameter in parameters]
        counted = {int(state["step"]) if "step" in state else 0 for state in states}
        if counted != {expected}:
            return f"The optimizer counted {min(counted)} of {expected} steps."
        # Of a small parameter that is split between GPUs, the local part may be empty.
        pairs = [(_values(new), old) for new, old in zip(parameters, self._initial) if old.numel()]
        unchanged = sum(self._torch.equal(new, old) for new, old in pairs)
        if unchanged:
            return f"{unchanged} of {len(parameters)} parameter tensors did not change in {expected} steps."
        return ""


def _values(parameter: Any) -> Any:
    """Returns a copy of a parameter on the CPU; of a parameter that is split between GPUs, the local part."""
    parameter = parameter.detach()
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return local.to("cpu", copy=True)


def _scaler(torch: Any, device: Any, options: StepOptions) -> Any:
    """Returns the GradScaler, whose scale never grows, so that each halving is one overflow."""
    settings = {
        "init_scale": options.initial_scale,
        "growth_interval": 2**31 - 1,
        "enabled": options.precision == "fp16",
    }
    if hasattr(torch.amp, "GradScaler"):  # torch 2.3
        return torch.amp.GradScaler(device.type, **settings)
    return torch.cuda.amp.GradScaler(**settings)


@contextmanager
def float32_mode(torch: Any, precision: str) -> Iterator[None]:
    """Computes float32 products with TF32 only for ``tf32``, and restores the settings.

    torch has newer settings with other names, which must not be mixed with these; these exist in every version.
    """
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def why_not(torch: Any, capability: Optional[tuple[int, int]], precision: str) -> str:
    """Returns why a device cannot train in a precision, in a sentence; empty if nothing is known against it.

    Args:
        torch: The torch module.
        capability: Compute capability of a GPU, or None on the CPU.
        precision: One of `PRECISIONS`.
    """
    if capability is None:
        if precision == "tf32":
            return "TF32 is a format of GPUs; the CPU computes float32."
        if precision == "fp16" and not hasattr(torch.amp, "GradScaler"):
            return f"torch {torch.__version__} has no GradScaler for the CPU, which torch 2.3 added."
        return ""
    least = _MIN_CAPABILITY.get(precision, (0, 0))
    if capability < least:
        actual, required = (".".join(map(str, version)) for version in (capability, least))
        return f"This GPU has compute capability {actual}; {precision} needs {required}."
    if precision == "bf16" and not torch.cuda.is_bf16_supported():
        return "This GPU does not support bf16."
    return ""


class PartTimer:
    """Measures the parts of steps: with CUDA events on a GPU, with the clock on the CPU.

    Args:
        torch: The torch module.
        device: Where the steps run.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._is_gpu = torch, device.type == "cuda"
        self._marks: list[tuple[str, Any]] = []

    def mark(self, name: str) -> None:
        """Ends a part; a first part has no length and starts the next one."""
        now: Any = time.perf_counter()
        if self._is_gpu:
            now = self._torch.cuda.Event(enable_timing=True)
            now.record()
        self._marks.append((name, now))

    def seconds(self) -> dict[str, list[float]]:
        """Waits for the device and returns the durations of each part in seconds."""
        if self._is_gpu:
            self._marks[-1][1].synchronize()
        durations: dict[str, list[float]] = {}
        for (_, start), (name, end) in zip(self._marks, self._marks[1:]):
            taken = start.elapsed_time(end) / 1e3 if self._is_gpu else end - start
            durations.setdefault(name, []).append(taken)
        return durations
