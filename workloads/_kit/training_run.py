"""One variant of a training run, measured: speed, parts of the step, peak memory, and what can prevent it."""

from __future__ import annotations

import copy
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from _kit import HIGHER, LOWER, DeclaredMetric, peaks
from _kit.memory import peak_resident_bytes, reset_peak_resident
from _kit.models import Model
from _kit.paired import RelativeChange, paired_change
from _kit.timing import median
from _kit.training import PartTimer, StepOptions, Trainer, float32_mode, prepare, why_not

if TYPE_CHECKING:
    from _kit.context import Context

_Result = TypeVar("_Result")

TRAINING_METRICS = (
    DeclaredMetric("samples", "samples/s", HIGHER),
    DeclaredMetric("throughput", "TFLOP/s", HIGHER),
    DeclaredMetric("step", "ms", LOWER),
    DeclaredMetric("peak_*memory", "MiB", LOWER),
)
"""What workloads that train measure."""

_BATCHES = 2
"""Different batches, used in turn."""
_DIFFERENT_SAMPLES = 64
"""More than these take long to make and train no slower or faster."""
_ROUNDS = 2
"""Rounds of A B B A of variants that are compared."""
RUNS = 2 * _ROUNDS
_WARM_UP_STEPS = 3
_WARM_UP_SECONDS = 0.5
_BLOCKS = 5
"""A measurement is the median of this many blocks of steps."""
_TIMED_STEPS = 5
_PRODUCT_SIZE = 1024
_PRODUCTS = 5


class VariantError(Exception):
    """A variant that cannot run here; the text is one sentence, with what to do.

    Args:
        text: The sentence.
        is_memory: Whether memory ran out.
    """

    def __init__(self, text: str, *, is_memory: bool = False) -> None:
        super().__init__(text)
        self.is_memory = is_memory


class NotTrainedError(Exception):
    """Steps that did not train the model: work was skipped or is wrong."""


@dataclass(frozen=True)
class Measured:
    """What was measured of a variant.

    Attributes:
        options: How its steps were computed.
        batch_size: Samples per step.
        step_seconds: Duration of a step, the median of several blocks.
        step_flops: Floating-point operations of a step.
        repetitions: Number of measured steps.
        first_seconds: Duration of the first step, which compiles the module if that was requested.
        part_seconds: Duration of each part of a step; see ``training.PARTS``.
        peak_bytes: Peak of allocated device memory; on the CPU, of the process's resident memory; None if unknown.
        overflows: Steps that the GradScaler skipped.
        runs: Of variants that ran in turns: number of each run, and the seconds of one floating-point operation.
    """

    options: StepOptions
    batch_size: int
    step_seconds: float
    step_flops: float
    repetitions: int
    first_seconds: float
    part_seconds: dict[str, float]
    peak_bytes: Optional[int]
    overflows: int
    runs: tuple[tuple[int, float], ...] = ()

    @property
    def samples_per_second(self) -> float:
        """Samples per second."""
        return self.batch_size / self.step_seconds

    @property
    def flops_per_second(self) -> float:
        """Floating-point operations per second."""
        return self.step_flops / self.step_seconds


def in_turns(context: Context, rows: list[Measured], again: Callable[[int], Measured]) -> list[Measured]:
    """Repeats the measurements of variants, so that each pair of them ran in rounds of A B B A.

    Args:
        context: The run. If it is to stop, the first measurements are returned.
        rows: The first measurements, in order.
        again: Measures the variant with this number again.
    """
    count = len(rows)
    order = [*range(count), *reversed(range(count))] * _ROUNDS
    runs: list[list[Measured]] = [[row] for row in rows]
    numbers = [[number for number, row in enumerate(order) if row == chosen] for chosen in range(count)]
    for done, row in enumerate(order[count:], count):
        context.progress(done, len(order))
        if context.stopping:
            return rows
        runs[row].append(again(row))
    return [
        replace(
            of_row[0],
            step_seconds=median([run.step_seconds for run in of_row]),
            repetitions=sum(run.repetitions for run in of_row),
            overflows=sum(run.overflows for run in of_row),
            runs=tuple((number, 1 / run.flops_per_second) for number, run in zip(numbers[row], of_row)),
        )
        for row, of_row in enumerate(runs)
    ]


def change_of(base: Measured, new: Measured) -> Optional[RelativeChange]:
    """The change of the time of an operation from one variant to another; None if they did not run in turns."""
    runs = sorted((number, log(seconds), row is new) for row in (base, new) for number, seconds in row.runs)
    return paired_change([run[1] for run in runs], [run[2] for run in runs]) if runs else None


def is_faster(new: Measured, base: Measured) -> bool:
    """Whether a variant is faster than another, and its difference is shown."""
    change = change_of(base, new)
    return new.flops_per_second > base.flops_per_second and (change is None or change.is_shown)


def measure(
    context: Context, model: Model, options: StepOptions, batch_size: int, seconds: float, device: Any = None
) -> Measured:
    """Trains a copy of the model and measures its steps; frees all its memory.

    Args:
        context: The run. A step that trained is counted as a check.
        model: The model; its own weights do not change.
        options: How to compute a step.
        batch_size: Samples per step.
        seconds: Approximate duration of the measurement.
        device: Where to train, if not on the device of the run.

    Raises:
        VariantError: It cannot run here.
        NotTrainedError: It ran and did not train.
    """
    device = device or context.device
    capability = context.chip.capability if context.chip is not None and device.type == "cuda" else None
    if reason := why_not(context.torch, capability, options.precision):
        raise VariantError(reason)

    def train() -> Measured:
        with float32_mode(context.torch, options.precision):
            return _measure(context, model, options, batch_size, seconds, device)

    return guarded(context, options, batch_size, train)


def guarded(context: Context, options: StepOptions, batch_size: int, train: Callable[[], _Result]) -> _Result:
    """Runs a function that trains, and frees all memory that it has used, even after an error.

    Raises:
        VariantError: It raised an error that is expected of a variant: no memory, no compiler, no kernel.
    """
    failure: Optional[VariantError] = None
    result: list[_Result] = []
    try:
        result.append(train())
    except VariantError as error:
        failure = VariantError(str(error))
    except Exception as error:
        failure = _failure(error, options, batch_size)
        if failure is None:
            raise
        context.error(error)
    # Outside the handlers: the exception holds the frames, and they hold the tensors.
    free_memory(context.torch)
    if failure is not None:
        raise failure
    return result[0]


def _measure(
    context: Context, model: Model, options: StepOptions, batch_size: int, seconds: float, device: Any
) -> Measured:
    torch, is_gpu = context.torch, device.type == "cuda"
    batches = make_batches(model, batch_size, is_pinned=is_gpu)
    has_peak = is_gpu or reset_peak_resident()
    if is_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    module = prepare(torch, copy.deepcopy(model.module), device, options)
    trainer = Trainer(torch, device, module, model.loss, options)
    first, loss = _block(torch, device, trainer, batches, 1)
    length = _warm_up(context, device, trainer, batches, seconds / _BLOCKS)
    times: list[float] = []
    until = time.monotonic() + seconds
    while not times or (len(times) < _BLOCKS and time.monotonic() < until and not context.stopping):
        taken, loss = _block(torch, device, trainer, batches, length)
        times.append(taken / length)
        context.metric("throughput", model.step_flops * batch_size / times[-1] / 1e12)
    timer = PartTimer(torch, device)
    timer.mark("start")
    for number in range(max(1, min(_TIMED_STEPS, int(seconds / _BLOCKS / times[-1])))):
        loss = trainer.step(batches[number % _BATCHES], timer.mark)
    parts = {name: median(values) for name, values in timer.seconds().items() if name != "start"}
    if problem := trainer.problem(loss):
        if trainer.has_overflowed and options.precision == "fp16":
            raise VariantError(f"{options.precision}: {problem} Use bf16, which has the range of fp32.")
        raise NotTrainedError(problem)
    context.checked += 1
    peak = torch.cuda.max_memory_allocated(device) if is_gpu else peak_resident_bytes()
    return Measured(
        options, batch_size, median(times), model.step_flops * batch_size, length * len(times), first, parts,
        peak if has_peak else None, trainer.overflows,
    )  # fmt: skip


def make_batches(model: Model, batch_size: int, *, is_pinned: bool) -> list[tuple[Any, Any]]:
    """Returns some batches on the CPU, in pinned memory for copies to a GPU; a large batch repeats its samples."""
    batches = []
    for seed in range(_BATCHES):
        tensors = model.make_batch(min(batch_size, _DIFFERENT_SAMPLES), seed)
        inputs, targets = (
            tensor.repeat(-(-batch_size // len(tensor)), *[1] * (tensor.dim() - 1))[:batch_size] for tensor in tensors
        )
        batches.append((inputs.pin_memory(), targets.pin_memory()) if is_pinned else (inputs, targets))
    return batches


def _block(torch: Any, device: Any, trainer: Trainer, batches: list[tuple[Any, Any]], steps: int) -> tuple[float, Any]:
    """Trains some steps; returns the seconds until the device has finished them, and the last loss."""
    loss = None
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for number in range(steps):
        loss = trainer.step(batches[number % _BATCHES])
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, loss


def _warm_up(
    context: Context, device: Any, trainer: Trainer, batches: list[tuple[Any, Any]], block_seconds: float
) -> int:
    """Trains until kernels are chosen and clocks have risen; returns the number of steps per block."""
    until, steps, taken = time.monotonic() + min(_WARM_UP_SECONDS, block_seconds * _BLOCKS), 0, 0.0
    while steps < _WARM_UP_STEPS or time.monotonic() < until:
        taken, _ = _block(context.torch, device, trainer, batches, 1)
        steps += 1
        if context.stopping or taken > block_seconds * _BLOCKS:  # a slow step needs no warm-up
            break
    return max(1, round(block_seconds / max(taken, 1e-9)))


def _failure(error: Exception, options: StepOptions, batch_size: int) -> Optional[VariantError]:
    """Returns what an exception means for a variant; None if it is not an expected one."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if "out of memory" in text or "DefaultCPUAllocator: can't allocate memory" in text:
        return VariantError(f"A batch of {batch_size} does not fit into the memory of this run.", is_memory=True)
    if text.startswith("CUDA error"):
        return None
    if options.compile:
        advice = " Install a C++ compiler, such as g++." if "compiler" in first.lower() else ""
        return VariantError(f"torch.compile failed with {type(error).__name__}: {first.rstrip('.')}.{advice}")
    is_special = options.precision in ("fp16", "bf16") or options.fused or options.channels_last
    if is_special and type(error) in (RuntimeError, NotImplementedError):
        return VariantError(f"This device or this torch cannot train so ({options_text(options)}): {first}")
    return None


def options_text(options: StepOptions) -> str:
    """Returns the options in words, such as ``bf16, compiled``."""
    words = [options.precision]
    words += [name for name, is_on in (("compiled", options.compile), ("channels last", options.channels_last),
                                       ("fused optimizer", options.fused)) if is_on]  # fmt: skip
    return ", ".join(words)


def free_memory(torch: Any) -> None:
    """Returns unused memory to the driver."""
    gc.collect()
    if "torch._dynamo" in sys.modules and hasattr(torch, "compiler"):  # an import would take seconds
        torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def limit_of(context: Context, precision: str) -> tuple[Optional[float], str]:
    """Returns the peak of the GPU in a precision in operations per second, and its formula; None if unknown."""
    chip = context.chip
    peak = None if chip is None else peaks.peak_operations(chip, precision)
    if chip is None or peak is None:
        return None, ""
    per_sm = (peaks.operations_per_clock(chip, precision) or 0) // chip.sm_count
    return peak, f"{chip.sm_count} SMs x {per_sm} operations per clock x {(chip.clock_hertz or 0) / 1e6:.0f} MHz"


def product_rate(torch: Any) -> float:
    """Returns the operations per second of a large product of matrices in float32 on the CPU."""
    a = torch.randn(_PRODUCT_SIZE, _PRODUCT_SIZE)
    times = []
    for _ in range(_PRODUCTS + 1):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    return 2 * _PRODUCT_SIZE**3 / min(times)
