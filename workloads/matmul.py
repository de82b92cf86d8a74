"""Matrix multiplication stress test: every result is compared bit by bit with a checked reference."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from _kit import UnsupportedError, Uses, Verdict, Workload, choice, flag, integer, number, peaks, timing

if TYPE_CHECKING:
    from _kit.context import Context

_SEED = 20260
_CHECKED_ROWS = 8
_BATCH_SECONDS, _MAX_IN_BATCH, _WARM_UP_SECONDS = 0.2, 2048, 0.5
_MAX_RESULTS, _MAX_RESULTS_CPU = 16384, 4
_CHUNK_BYTES = 32 << 20
_SPARE_BYTES = 192 << 20  # 64 MiB for cuBLAS workspaces, the rest for chunks
_MAX_SHARE_OF_FREE = 0.95
_MIN_SIZE_TO_JUDGE = 4096
_MAX_SLOWDOWN, _MIN_SECONDS_FOR_SLOWDOWN = 0.1, 3.0


class _Format(NamedTuple):
    """How a type is multiplied, and how accurate and fast the result must be.

    Attributes:
        operand: torch dtype of the operands.
        result: torch dtype of the result.
        min_capability: Lowest compute capability.
        operand_error: Relative rounding error of an operand in a tensor core.
        sum_error: Relative rounding error of an addition.
        function: Function of torch.
        unit: Unit of the throughput.
        min_share: Share of the peak that a healthy GPU reaches; torch's int8 product reaches 42 % on H200.
    """

    operand: str
    result: str
    min_capability: tuple[int, int]
    operand_error: float
    sum_error: float
    function: str = "mm"
    unit: str = "TFLOP/s"
    min_share: float = 0.5


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
    """Measurements of a run.

    Attributes:
        batches: Start and end of each batch in seconds since the start of the first, and operations per second.
        results: Number of compared results.
        wrong_elements: Number of wrong elements in them.
        first_wrong: Row and column of the first wrong element.
    """

    batches: list[tuple[float, float, float]] = field(default_factory=list)
    results: int = 0
    wrong_elements: int = 0
    first_wrong: Optional[tuple[int, int]] = None


class _Products:
    """Operands, their product as a reference, and the results that are compared with it."""

    def __init__(self, context: Context, count: int) -> None:
        torch, size, dtype = context.torch, context.parameters.size, context.parameters.dtype
        kind = getattr(torch, _FORMATS[dtype].result)
        self._context, self._size, self._next = context, size, 0
        self._left, self._right = _random_matrix(context, _SEED), _random_matrix(context, _SEED + 1)
        if dtype in ("fp8", "int8"):
            self._right = self._right.t()  # these functions require a column-major second operand
        self._multiply = multiplier(context, self._left, self._right)
        self._reference = torch.empty(size, size, dtype=kind, device=context.device)
        # One allocation: cuBLAS picks another algorithm when alignment differs, which rounds differently.
        self._results = torch.empty(count, size, size, dtype=kind, device=context.device).unbind(0)
        self._bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[kind.itemsize]
        self._mask = torch.empty(min(size, _rows(size, 2)), size, dtype=torch.float16, device=context.device)
        self._first_product()

    def fill_next(self) -> None:
        """Computes the product into the next result."""
        self._multiply(self._results[self._next])
        self._next = (self._next + 1) % len(self._results)

    def flip_one(self) -> None:
        """Flips one bit of the latest result, in row size / 2 and column size / 3."""
        self._results[self._next - 1].view(self._bits)[self._size // 2, self._size // 3].bitwise_xor_(1)

    def wrong_reference_rows(self) -> int:
        """Returns how many of some random rows of the reference differ from a float64 product on the CPU."""
        torch, size, form = self._context.torch, self._size, _FORMATS[self._context.parameters.dtype]
        rows = random.Random(_SEED).sample(range(size), min(_CHECKED_ROWS, size))  # noqa: S311 - reproducible
        left = torch.stack([self._left[row].cpu().to(torch.float64) for row in rows])
        expected = torch.zeros(len(rows), size, dtype=torch.float64)
        step = _rows(size, 8)
        for first in range(0, size, step):
            if self._context.stopping:
                return 0
            expected += left[:, first : first + step] @ self._right[first : first + step].cpu().to(torch.float64)
        actual = torch.stack([self._reference[row].cpu().to(torch.float64) for row in rows])
        storage_error = torch.finfo(self._reference.dtype).eps if form.sum_error else 0.0
        # The sum of `size` products of numbers with variance 1 is about size ** 0.5, and so is the sum of their errors.
        accumulated_error = 8 * form.sum_error * size + 8 * form.operand_error * size**0.5
        is_close = (actual - expected).abs() <= 2 * (
            storage_error + form.operand_error
        ) * expected.abs() + accumulated_error
        return int((~is_close).any(dim=1).sum())  # NaN is never close

    def _first_product(self) -> None:
        """Computes the reference.

        Raises:
            UnsupportedError: This version of torch cannot multiply the type; its private functions differ by version.
        """
        torch, dtype = self._context.torch, self._context.parameters.dtype
        try:
            self._multiply(self._reference)
            self._context.synchronize()
        except (TypeError, RuntimeError) as error:
            if _FORMATS[dtype].function == "mm" or type(error) not in (TypeError, RuntimeError, NotImplementedError):
                raise
            reason = f"torch {torch.__version__} cannot multiply {dtype}: {str(error).strip().splitlines()[0]}"
            raise UnsupportedError(f"{reason} Use a newer torch, or choose bf16.") from error

    def compare(self, latest: int, measured: _Measured) -> int:
        """Counts the elements of the latest results that differ from the reference; returns the number of results."""
        results = [self._results[self._next - 1 - back] for back in range(min(latest, len(self._results)))]
        step, right = len(self._mask), self._reference.view(self._bits)
        pieces = [(result.view(self._bits), first) for result in results for first in range(0, self._size, step)]
        counts = []
        for bits, first in pieces:
            mask = self._mask[: min(step, self._size - first)]
            self._context.torch.ne(bits[first : first + step], right[first : first + step], out=mask)
            # A sum of float16 in float32 needs no temporary and is exact up to 2**24; a Boolean mask would be copied.
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
    """Returns the function that writes the product of two operands of the chosen type into its argument."""
    torch, dtype = context.torch, context.parameters.dtype
    one = torch.ones((), dtype=torch.float32, device=context.device)
    options = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16} if dtype == "fp8" else {}
    function = getattr(torch, _FORMATS[dtype].function)
    return lambda out: function(left, right, out=out, **options)


def _rows(size: int, element_bytes: int) -> int:
    return max(1, _CHUNK_BYTES // (size * element_bytes))


def _random_matrix(context: Context, seed: int) -> Any:
    """Returns random numbers, generated in chunks as float: a GPU that multiplies zeros draws less power."""
    torch, size, form = context.torch, context.parameters.size, _FORMATS[context.parameters.dtype]
    generator = torch.Generator(device=context.device).manual_seed(seed)
    matrix = torch.empty(size, size, dtype=getattr(torch, form.operand), device=context.device)
    kind = torch.float64 if form.operand == "float64" else torch.float32
    piece = torch.empty(min(size, _rows(size, kind.itemsize)), size, dtype=kind, device=context.device)
    for first in range(0, size, len(piece)):
        part = piece[: size - first].normal_(generator=generator)
        matrix[first : first + len(part)] = part.mul_(40).clamp_(-127, 127) if form.operand == "int8" else part
    return matrix


@contextmanager
def _fp32_precision(context: Context) -> Iterator[None]:
    """Sets float32 precision to IEEE or TF32 and restores it; the two settings of torch must not be mixed."""
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
    """Returns the number of results and the resources of the run.

    Raises:
        UnsupportedError: The type or size is not supported or does not fit.
    """
    parameters, torch, chip, form = context.parameters, context.torch, context.chip, _FORMATS[context.parameters.dtype]
    dtype, size = parameters.dtype, parameters.size
    if size % 16:
        raise UnsupportedError(
            f"The size must be a multiple of 16 for fast kernels; {size} is not. Choose {size // 16 * 16}."
        )
    if chip is None and dtype not in _ON_CPU:
        raise UnsupportedError(f"{dtype} needs a GPU. On the CPU choose {', '.join(_ON_CPU)}.")
    if chip is not None and chip.capability < form.min_capability:
        actual, required = (".".join(map(str, version)) for version in (chip.capability, form.min_capability))
        raise UnsupportedError(
            f"{chip.name} has compute capability {actual}; {dtype} needs {required}. Choose fp16 or fp32."
        )
    if not hasattr(torch, form.operand) or not hasattr(torch, form.function):
        raise UnsupportedError(
            f"torch {torch.__version__} does not support {dtype}. Use torch 2.5 or later, or choose bf16."
        )
    result = getattr(torch, form.result).itemsize * size**2
    fixed = 2 * getattr(torch, form.operand).itemsize * size**2 + result + _SPARE_BYTES
    if not context.on_gpu:
        return _MAX_RESULTS_CPU, Uses(0, parameters.duration + 3, fixed + _MAX_RESULTS_CPU * result)
    free = context.free_memory()[0]
    fitting = (int(free * _MAX_SHARE_OF_FREE) - fixed) // result
    if fitting < 1:
        required, available = (f"{size_bytes / 2**30:.1f} GiB" for size_bytes in (fixed + result, free))
        raise UnsupportedError(
            f"{dtype} {size} x {size} needs {required}; {available} are free. Choose a smaller size."
        )
    results = min(fitting, max(1, int(free * parameters.memory_percent / 100) // result), _MAX_RESULTS)
    return results, Uses(fixed + results * result, parameters.duration + 3)


def _run(context: Context) -> Verdict:
    results, uses = _plan(context)
    if context.on_gpu:
        context.cap_memory(uses.memory_bytes)
    with _fp32_precision(context):
        context.step("Random operands are multiplied once; rows of this reference are checked with float64 on the CPU.")
        products = _Products(context, results)
        if wrong_rows := products.wrong_reference_rows():
            return context.fail(f"{wrong_rows} of {_CHECKED_ROWS} rows checked with float64 on the CPU are wrong.")
        length = _warm_up(context, products)
        context.step(f"The product is repeated; each of {results} results must equal the reference bit by bit.")
        measured = _measure(context, products, length)
    return _judge(context, measured) if measured.batches else context.fail("No batch was computed.")


def _warm_up(context: Context, products: _Products) -> int:
    """Runs until the clocks have risen; returns the number of products per batch."""
    length, until = 1, time.monotonic() + _WARM_UP_SECONDS
    while True:
        seconds = max(timing.batch_seconds(context, products.fill_next, length), 1e-9)
        rate = 2 * context.parameters.size**3 * length / seconds
        context.metric("throughput", rate / 1e12, _FORMATS[context.parameters.dtype].unit)
        length = max(1, min(_MAX_IN_BATCH, round(_BATCH_SECONDS * length / seconds)))
        if context.stopping or time.monotonic() >= until:
            return length


def _measure(context: Context, products: _Products, length: int) -> _Measured:
    measured, parameters, run_start = _Measured(), context.parameters, time.monotonic()
    context.deadline = run_start + parameters.duration
    while not (context.cancelled or (measured.batches and context.stopping)):
        start = time.monotonic() - run_start
        rate = 2 * parameters.size**3 * length / timing.batch_seconds(context, products.fill_next, length)
        if parameters.inject_error and not measured.batches:
            products.flip_one()
        context.checked += products.compare(length, measured)
        elapsed = time.monotonic() - run_start
        measured.batches.append((start, elapsed, rate))
        context.metric("throughput", rate / 1e12, _FORMATS[parameters.dtype].unit)
        context.progress(min(elapsed, parameters.duration), parameters.duration)
    return measured


def _judge(context: Context, measured: _Measured) -> Verdict:
    parameters, rates = context.parameters, [rate for _, _, rate in measured.batches]
    what = f"{parameters.dtype} {parameters.size} x {parameters.size}"
    share, slowdown = _add_results(context, measured, rates)
    if measured.wrong_elements:
        row, column = measured.first_wrong or (0, 0)
        why = f"{what}: {measured.wrong_elements} elements of {measured.results} results are wrong, the first in "
        why += f"row {row}, column {column} (counted from 0)."
        return context.fail(why + (" One was flipped on purpose (inject_error)." if parameters.inject_error else ""))
    rate = f"{what}: {timing.median(rates) / 1e12:.4g} {_FORMATS[parameters.dtype].unit}"
    rate += "" if share is None else f", {share:.0%} of the peak at the maximum clock"
    right = f"All {measured.results} results equal the reference, which was checked with float64."
    min_share = _FORMATS[parameters.dtype].min_share
    if share is not None and share < min_share and parameters.size >= _MIN_SIZE_TO_JUDGE:
        return context.warn(f"{rate}, while a healthy GPU reaches at least {min_share:.0%}. {right}")
    if context.on_gpu and slowdown > _MAX_SLOWDOWN and measured.batches[-1][1] >= _MIN_SECONDS_FOR_SLOWDOWN:
        return context.warn(f"{rate}; the last second was {slowdown:.0%} slower than the first. {right}")
    return context.ok(f"{rate}. {right}")


def _add_results(context: Context, measured: _Measured, rates: list[float]) -> tuple[Optional[float], float]:
    """Adds the results; returns the share of the peak, or None, and the slowdown from the first to the last second."""
    unit, end = _FORMATS[context.parameters.dtype].unit, measured.batches[-1][1]
    median, count, peak, source = timing.median(rates) / 1e12, len(rates), None, ""
    if context.chip is not None and (peak := peaks.peak_operations(context.chip, context.parameters.dtype)):
        per_sm = (peaks.operations_per_clock(context.chip, context.parameters.dtype) or 0) // context.chip.sm_count
        megahertz = (context.chip.clock_hertz or 0) / 1e6
        source = f"{context.chip.sm_count} SMs x {per_sm} operations per clock x {megahertz:.0f} MHz"
    context.result("throughput", median, unit, count, limit=peak and peak / 1e12, limit_source=source)
    first = [rate for _, end_seconds, rate in measured.batches if end_seconds <= 1] or rates[:1]
    last = [rate for start_seconds, _, rate in measured.batches if start_seconds >= end - 1] or rates[-1:]
    context.result("throughput_first_second", timing.median(first) / 1e12, unit, len(first))
    context.result("throughput_last_second", timing.median(last) / 1e12, unit, len(last))
    context.result("results_checked", measured.results, "matrices", count)
    context.result("wrong_elements", measured.wrong_elements, "elements", measured.results)
    return peak and median * 1e12 / peak, 1 - timing.median(last) / timing.median(first)


WORKLOAD = Workload(
    name="matmul",
    purpose="Multiplies matrices at full load, measures the throughput, and compares every result bit by bit.",
    needs="A GPU or the CPU, and a share of free memory.",
    uses=lambda context: _plan(context)[1],
    run=_run,
    parameters=(
        choice("dtype", "bf16", tuple(_FORMATS), "Data type of the matrices.", default_cpu="fp32"),
        integer(
            "size", 8192, 64, 32768, "Rows and columns of the square matrices, a multiple of 16.", default_cpu=1024
        ),
        number("duration", 20, 0.1, 86400, "Duration of the load.", unit="s", default_cpu=5),
        number("memory_percent", 10, 0.1, 95, "Maximum share of free GPU memory for the results.", unit="%"),
        flag("inject_error", False, "Flip one bit of one result, to verify the check."),
    ),
)
