"""Stress by matrix products: the same product over and over, every result compared bit by bit with a checked one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from _kit import NotHereError, Uses, Verdict, Workload, choice, flag, integer, number, peaks, timing

if TYPE_CHECKING:
    from _kit.context import Context

_SEED = 20260
_CHECKED_ROWS = 8
_BATCH_SECONDS, _MOST_IN_BATCH, _WARM_UP_SECONDS = 0.2, 2048, 0.5
_MOST_RESULTS, _MOST_RESULTS_CPU = 16384, 4
_CHUNK_BYTES = 32 << 20
_SPARE_BYTES = 192 << 20  # 64 MiB for the workspaces of cuBLAS, the rest for chunks that are made and compared
_LARGEST_SHARE_OF_FREE = 0.95
_LEAST_SIZE_TO_JUDGE = 4096
_LARGEST_SAG, _LEAST_SECONDS_FOR_SAG = 0.1, 3.0


class _Format(NamedTuple):
    """``operand_error`` is what a tensor core drops of a product, relatively; ``sum_error`` that of an addition.

    A healthy chip comes to ``least_share`` of its peak: torch's integer product reaches 42 % on an H200.
    """

    operand: str
    result: str
    least_capability: tuple[int, int]
    operand_error: float
    sum_error: float
    function: str = "mm"
    unit: str = "TFLOP/s"
    least_share: float = 0.5


_FORMATS = {
    "fp64": _Format("float64", "float64", (0, 0), 0.0, 2.0**-52),
    "fp32": _Format("float32", "float32", (0, 0), 0.0, 2.0**-23),
    "tf32": _Format("float32", "float32", (8, 0), 2.0**-10, 2.0**-23),
    "fp16": _Format("float16", "float16", (5, 3), 0.0, 2.0**-23),
    "bf16": _Format("bfloat16", "bfloat16", (8, 0), 0.0, 2.0**-23),
    "fp8": _Format("float8_e4m3fn", "bfloat16", (8, 9), 2.0**-9, 2.0**-23, "_scaled_mm"),
    "int8": _Format("int8", "int32", (7, 5), 0.0, 0.0, "_int_mm", "TOP/s", 0.25),
}
_ON_CPU = ("fp32", "fp64", "bf16")


@dataclass
class _Measured:
    """Of each batch its start and end in seconds after the first's start, and its operations a second."""

    batches: list[tuple[float, float, float]] = field(default_factory=list)
    results: int = 0
    wrong_elements: int = 0
    first_wrong: Optional[tuple[int, int]] = None


class _Products:
    """Operands, their product as the reference, and the results that are compared with it."""

    def __init__(self, context: Context, count: int) -> None:
        torch, size, dtype = context.torch, context.parameters.size, context.parameters.dtype
        kind = getattr(torch, _FORMATS[dtype].result)
        self._context, self._size, self._next = context, size, 0
        self._left, self._right = _random_matrix(context, _SEED), _random_matrix(context, _SEED + 1)
        if dtype in ("fp8", "int8"):
            self._right = self._right.t()  # these functions want the columns of the second operand in one piece
        self._multiply = multiplier(context, self._left, self._right)
        self._reference = torch.empty(size, size, dtype=kind, device=context.device)
        # One block: cuBLAS may choose another algorithm, which rounds otherwise, for a result aligned in another way.
        self._results = torch.empty(count, size, size, dtype=kind, device=context.device).unbind(0)
        self._bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[kind.itemsize]
        self._mask = torch.empty(min(size, _rows(size, 2)), size, dtype=torch.float16, device=context.device)
        self._first_product()

    def fill_next(self) -> None:
        """Computes the product into the result whose turn it is."""
        self._multiply(self._results[self._next])
        self._next = (self._next + 1) % len(self._results)

    def flip_one(self) -> None:
        """Makes one element of the latest result wrong by one bit, in row size / 2 and column size / 3."""
        self._results[self._next - 1].view(self._bits)[self._size // 2, self._size // 3].bitwise_xor_(1)

    def wrong_reference_rows(self) -> int:
        """How many of some random rows of the reference are not what float64 on the CPU makes of the operands."""
        torch, size, form = self._context.torch, self._size, _FORMATS[self._context.parameters.dtype]
        rows = random.Random(_SEED).sample(range(size), min(_CHECKED_ROWS, size))  # noqa: S311 - the same every time
        left = torch.stack([self._left[row].cpu().to(torch.float64) for row in rows])
        expected = torch.zeros(len(rows), size, dtype=torch.float64)
        step = _rows(size, 8)
        for first in range(0, size, step):
            if self._context.stopping:
                return 0
            expected += left[:, first : first + step] @ self._right[first : first + step].cpu().to(torch.float64)
        got = torch.stack([self._reference[row].cpu().to(torch.float64) for row in rows])
        stored = torch.finfo(self._reference.dtype).eps if form.sum_error else 0.0
        # Products of numbers of variance 1 are added: the sum is about size ** 0.5, and so are the errors' sums.
        adding = 8 * form.sum_error * size + 8 * form.operand_error * size**0.5
        near = (got - expected).abs() <= 2 * (stored + form.operand_error) * expected.abs() + adding
        return int((~near).any(dim=1).sum())  # a NaN is near to nothing

    def _first_product(self) -> None:
        """Finds out whether torch multiplies this type at all; its own functions differ between versions."""
        torch, dtype = self._context.torch, self._context.parameters.dtype
        try:
            self._multiply(self._reference)
            self._context.synchronize()
        except (TypeError, RuntimeError) as error:
            if _FORMATS[dtype].function == "mm" or type(error) not in (TypeError, RuntimeError, NotImplementedError):
                raise
            said = f"torch {torch.__version__} cannot multiply {dtype}: {str(error).strip().splitlines()[0]}"
            raise NotHereError(f"{said} Use a newer torch, or choose bf16.") from error

    def compare(self, latest: int, measured: _Measured) -> int:
        """Counts elements of the latest results whose bits differ from the reference's; returns how many results."""
        results = [self._results[self._next - 1 - back] for back in range(min(latest, len(self._results)))]
        step, right = len(self._mask), self._reference.view(self._bits)
        pieces = [(each.view(self._bits), first) for each in results for first in range(0, self._size, step)]
        counts = []
        for bits, first in pieces:
            mask = self._mask[: min(step, self._size - first)]
            self._context.torch.ne(bits[first : first + step], right[first : first + step], out=mask)
            # Half numbers are summed in float without a temporary, and exactly up to 2**24; bools would be copied.
            counts.append(mask.sum(dtype=self._context.torch.float32))
        wrong = self._context.torch.stack(counts).tolist()
        measured.results += len(results)
        measured.wrong_elements += int(sum(wrong))
        if measured.wrong_elements and measured.first_wrong is None:
            bits, first = next(piece for piece, count in zip(pieces, wrong) if count)
            differing = (bits[first : first + step] != right[first : first + step]).flatten()
            row, column = divmod(int(differing.to(self._context.torch.uint8).argmax()), self._size)
            measured.first_wrong = (first + row, column)
        return len(results)


def multiplier(context: Context, left: Any, right: Any) -> Callable[[Any], object]:
    """The function that writes the product of two operands into its argument, in the way of the chosen type."""
    torch, dtype = context.torch, context.parameters.dtype
    one = torch.ones((), dtype=torch.float32, device=context.device)
    how = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16} if dtype == "fp8" else {}
    function = getattr(torch, _FORMATS[dtype].function)
    return lambda out: function(left, right, out=out, **how)


def _rows(size: int, element_bytes: int) -> int:
    return max(1, _CHUNK_BYTES // (size * element_bytes))


def _random_matrix(context: Context, seed: int) -> Any:
    """Random numbers, because a chip that multiplies zeros draws less power; made in chunks, as float."""
    torch, size, form = context.torch, context.parameters.size, _FORMATS[context.parameters.dtype]
    generator = torch.Generator(device=context.device).manual_seed(seed)
    made = torch.empty(size, size, dtype=getattr(torch, form.operand), device=context.device)
    kind = torch.float64 if form.operand == "float64" else torch.float32
    piece = torch.empty(min(size, _rows(size, kind.itemsize)), size, dtype=kind, device=context.device)
    for first in range(0, size, len(piece)):
        part = piece[: size - first].normal_(generator=generator)
        made[first : first + len(part)] = part.mul_(40).clamp_(-127, 127) if form.operand == "int8" else part
    return made


@contextmanager
def _fp32_precision(context: Context) -> Iterator[None]:
    """Says whether float32 is multiplied as such or as tf32, and puts it back; the two ways to say so never mix."""
    dtype, settings = context.parameters.dtype, context.torch.backends.cuda.matmul
    name = "fp32_precision" if hasattr(settings, "fp32_precision") else "allow_tf32"
    before = getattr(settings, name)
    if context.on_gpu and dtype in ("fp32", "tf32"):
        setattr(settings, name, dtype.replace("fp32", "ieee") if name == "fp32_precision" else dtype == "tf32")
    try:
        yield
    finally:
        setattr(settings, name, before)


def _plan(context: Context) -> tuple[int, Uses]:
    """How many results there will be, and what all takes; refuses what does not go or fit."""
    given, torch, chip, form = context.parameters, context.torch, context.chip, _FORMATS[context.parameters.dtype]
    dtype, size = given.dtype, given.size
    if size % 16:
        raise NotHereError(f"A size of {size} is no multiple of 16, as fast products need. Choose {size // 16 * 16}.")
    if chip is None and dtype not in _ON_CPU:
        raise NotHereError(f"{dtype} is multiplied on a GPU only. On the CPU choose {', '.join(_ON_CPU)}.")
    if chip is not None and chip.capability < form.least_capability:
        has, wants = (".".join(map(str, each)) for each in (chip.capability, form.least_capability))
        raise NotHereError(f"{chip.name} has compute capability {has}; {dtype} needs {wants}. Choose fp16 or fp32.")
    if not hasattr(torch, form.operand) or not hasattr(torch, form.function):
        raise NotHereError(f"torch {torch.__version__} knows no {dtype}. Use torch 2.5 or later, or choose bf16.")
    result = getattr(torch, form.result).itemsize * size**2
    fixed = 2 * getattr(torch, form.operand).itemsize * size**2 + result + _SPARE_BYTES
    if not context.on_gpu:
        return _MOST_RESULTS_CPU, Uses(0, given.duration + 3, fixed + _MOST_RESULTS_CPU * result)
    free = context.free_memory()[0]
    fitting = (int(free * _LARGEST_SHARE_OF_FREE) - fixed) // result
    if fitting < 1:
        needs, has = (f"{each / 2**30:.1f} GiB" for each in (fixed + result, free))
        raise NotHereError(f"{dtype} {size} x {size} needs {needs}; {has} are free. Choose a smaller size.")
    results = min(fitting, max(1, int(free * given.memory_percent / 100) // result), _MOST_RESULTS)
    return results, Uses(fixed + results * result, given.duration + 3)


def _run(context: Context) -> Verdict:
    results, uses = _plan(context)
    if context.on_gpu:
        context.cap_memory(uses.memory_bytes)
    with _fp32_precision(context):
        context.step("Random operands are multiplied once; float64 on the CPU checks rows of this reference.")
        products = _Products(context, results)
        if wrong_rows := products.wrong_reference_rows():
            return context.fail(f"{wrong_rows} of {_CHECKED_ROWS} rows that float64 on the CPU checked are wrong.")
        length = _warm_up(context, products)
        context.step(f"The product is computed again and again; each of {results} results must be equal bit by bit.")
        measured = _measure(context, products, length)
    return _judge(context, measured) if measured.batches else context.fail("Not one batch was computed.")


def _warm_up(context: Context, products: _Products) -> int:
    """Lets the clocks rise; returns how many products make a batch."""
    length, until = 1, time.monotonic() + _WARM_UP_SECONDS
    while True:
        seconds = max(timing.batch_seconds(context, products.fill_next, length), 1e-9)
        rate = 2 * context.parameters.size**3 * length / seconds
        context.metric("throughput", rate / 1e12, _FORMATS[context.parameters.dtype].unit)
        length = max(1, min(_MOST_IN_BATCH, round(_BATCH_SECONDS * length / seconds)))
        if context.stopping or time.monotonic() >= until:
            return length


def _measure(context: Context, products: _Products, length: int) -> _Measured:
    measured, given, began = _Measured(), context.parameters, time.monotonic()
    context.deadline = began + given.duration
    while not (context.cancelled or (measured.batches and context.stopping)):
        start = time.monotonic() - began
        rate = 2 * given.size**3 * length / timing.batch_seconds(context, products.fill_next, length)
        if given.inject_error and not measured.batches:
            products.flip_one()
        context.checked += products.compare(length, measured)
        elapsed = time.monotonic() - began
        measured.batches.append((start, elapsed, rate))
        context.metric("throughput", rate / 1e12, _FORMATS[given.dtype].unit)
        context.progress(min(elapsed, given.duration), given.duration)
    return measured


def _judge(context: Context, measured: _Measured) -> Verdict:
    given, rates = context.parameters, [rate for _, _, rate in measured.batches]
    what = f"{given.dtype} {given.size} x {given.size}"
    share, sag = _tell_figures(context, measured, rates)
    if measured.wrong_elements:
        row, column = measured.first_wrong or (0, 0)
        why = f"{what}: {measured.wrong_elements} elements of {measured.results} results are wrong, the first in "
        why += f"row {row}, column {column} (counted from 0)."
        return context.fail(why + (" One was flipped on purpose (inject_error)." if given.inject_error else ""))
    rate = f"{what}: {timing.median(rates) / 1e12:.4g} {_FORMATS[given.dtype].unit}"
    rate += "" if share is None else f", {share:.0%} of what the chip can do at its highest clock"
    right = f"All {measured.results} results equal a reference that float64 confirms."
    least = _FORMATS[given.dtype].least_share
    if share is not None and share < least and given.size >= _LEAST_SIZE_TO_JUDGE:
        return context.warn(f"{rate}, where a healthy one comes to {least:.0%} at least. {right}")
    if context.on_gpu and sag > _LARGEST_SAG and measured.batches[-1][1] >= _LEAST_SECONDS_FOR_SAG:
        return context.warn(f"{rate}; the last second was {sag:.0%} slower than the first. {right}")
    return context.ok(f"{rate}. {right}")


def _tell_figures(context: Context, measured: _Measured, rates: list[float]) -> tuple[Optional[float], float]:
    """Adds the figures; returns the share of the peak, None where that is not known, and by how much the rate sank."""
    unit, end = _FORMATS[context.parameters.dtype].unit, measured.batches[-1][1]
    median, count, peak, source = timing.median(rates) / 1e12, len(rates), None, ""
    if context.chip is not None and (peak := peaks.peak_operations(context.chip, context.parameters.dtype)):
        each = (peaks.operations_per_clock(context.chip, context.parameters.dtype) or 0) // context.chip.sm_count
        source = (
            f"{context.chip.sm_count} SMs x {each} operations a clock x {(context.chip.clock_hertz or 0) / 1e6:.0f} MHz"
        )
    context.figure("throughput", median, unit, count, limit=peak and peak / 1e12, limit_source=source)
    first = [rate for _, ended, rate in measured.batches if ended <= 1] or rates[:1]
    last = [rate for began, _, rate in measured.batches if began >= end - 1] or rates[-1:]
    context.figure("throughput_first_second", timing.median(first) / 1e12, unit, len(first))
    context.figure("throughput_last_second", timing.median(last) / 1e12, unit, len(last))
    context.figure("results_checked", measured.results, "matrices", count)
    context.figure("wrong_elements", measured.wrong_elements, "elements", measured.results)
    return peak and median * 1e12 / peak, 1 - timing.median(last) / timing.median(first)


WORKLOAD = Workload(
    name="matmul",
    purpose="Multiplies matrices at full load and compares every result: is the arithmetic right, and how fast is it?",
    needs="One GPU or the CPU, and a share of the free memory.",
    uses=lambda context: _plan(context)[1],
    run=_run,
    parameters=(
        choice("dtype", "bf16", tuple(_FORMATS), "Type of the numbers that are multiplied.", default_cpu="fp32"),
        integer(
            "size", 8192, 64, 32768, "Rows and columns of the square matrices, a multiple of 16.", default_cpu=1024
        ),
        number("duration", 20, 0.1, 86400, "How long the load lasts.", unit="s", default_cpu=5),
        number("memory_percent", 10, 0.1, 95, "Share of the free GPU memory that the results take at most.", unit="%"),
        flag("inject_error", False, "Flips one bit of one result, to see that the check finds it."),
    ),
)
