"""Matrix products for load tests: random operands, a checked reference, and results compared with it bit by bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from _kit.events import UnsupportedError

if TYPE_CHECKING:
    from _kit.context import Context

CHECKED_ROWS = 8
SPARE_BYTES = 192 << 20
"""64 MiB for cuBLAS workspaces, the rest for chunks."""
_SEED = 20260
_CHUNK_BYTES = 32 << 20


class ProductFormat(NamedTuple):
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


FORMATS = {
    "fp64": ProductFormat("float64", "float64", (0, 0), 0.0, 2.0**-52),
    "fp32": ProductFormat("float32", "float32", (0, 0), 0.0, 2.0**-23),
    "tf32": ProductFormat("float32", "float32", (8, 0), 2.0**-10, 2.0**-23),
    "fp16": ProductFormat("float16", "float16", (5, 3), 0.0, 2.0**-23),
    "bf16": ProductFormat("bfloat16", "bfloat16", (8, 0), 0.0, 2.0**-23),
    "fp8": ProductFormat("float8_e4m3fn", "bfloat16", (8, 9), 2.0**-9, 2.0**-23, "_scaled_mm"),
    "int8": ProductFormat("int8", "int32", (7, 5), 0.0, 0.0, "_int_mm", "TOP/s", 0.25),
}
_ON_CPU = ("fp32", "fp64", "bf16")


@dataclass
class ResultTally:
    """The compared results of a run.

    Attributes:
        results: Number of compared results.
        wrong_elements: Number of wrong elements in them.
        first_wrong: Row and column of the first wrong element.
    """

    results: int = 0
    wrong_elements: int = 0
    first_wrong: Optional[tuple[int, int]] = None


class Products:
    """Operands, their product as a reference, and the results that are compared with it."""

    def __init__(self, context: Context, count: int) -> None:
        torch, size, dtype = context.torch, context.parameters.size, context.parameters.dtype
        kind = getattr(torch, FORMATS[dtype].result)
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
        torch, size, form = self._context.torch, self._size, FORMATS[self._context.parameters.dtype]
        rows = random.Random(_SEED).sample(range(size), min(CHECKED_ROWS, size))  # noqa: S311 - reproducible
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
            if FORMATS[dtype].function == "mm" or type(error) not in (TypeError, RuntimeError, NotImplementedError):
                raise
            reason = f"torch {torch.__version__} cannot multiply {dtype}: {str(error).strip().splitlines()[0]}"
            raise UnsupportedError(f"{reason} Use a newer torch, or choose bf16.") from error

    def compare(self, latest: int, tally: ResultTally) -> int:
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
        tally.results += len(results)
        tally.wrong_elements += int(sum(wrong))
        if tally.wrong_elements and tally.first_wrong is None:
            bits, first = next(piece for piece, count in zip(pieces, wrong) if count)
            differing = (bits[first : first + step] != right[first : first + step]).flatten()
            row, column = divmod(int(differing.to(self._context.torch.uint8).argmax()), self._size)
            tally.first_wrong = (first + row, column)
        return len(results)


def multiplier(context: Context, left: Any, right: Any) -> Callable[[Any], object]:
    """Returns the function that writes the product of two operands of the chosen type into its argument."""
    torch, dtype = context.torch, context.parameters.dtype
    one = torch.ones((), dtype=torch.float32, device=context.device)
    options = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16} if dtype == "fp8" else {}
    function = getattr(torch, FORMATS[dtype].function)
    return lambda out: function(left, right, out=out, **options)


def product_bytes(context: Context) -> tuple[int, int]:
    """Returns the bytes of everything but the results, and the bytes of one result.

    Raises:
        UnsupportedError: The device or this torch does not support the type or the size.
    """
    torch, chip, form = context.torch, context.chip, FORMATS[context.parameters.dtype]
    dtype, size = context.parameters.dtype, context.parameters.size
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
    return 2 * getattr(torch, form.operand).itemsize * size**2 + result + SPARE_BYTES, result


def _rows(size: int, element_bytes: int) -> int:
    return max(1, _CHUNK_BYTES // (size * element_bytes))


def _random_matrix(context: Context, seed: int) -> Any:
    """Returns random numbers, generated in chunks as float: a GPU that multiplies zeros draws less power."""
    torch, size, form = context.torch, context.parameters.size, FORMATS[context.parameters.dtype]
    generator = torch.Generator(device=context.device).manual_seed(seed)
    matrix = torch.empty(size, size, dtype=getattr(torch, form.operand), device=context.device)
    kind = torch.float64 if form.operand == "float64" else torch.float32
    piece = torch.empty(min(size, _rows(size, kind.itemsize)), size, dtype=kind, device=context.device)
    for first in range(0, size, len(piece)):
        part = piece[: size - first].normal_(generator=generator)
        matrix[first : first + len(part)] = part.mul_(40).clamp_(-127, 127) if form.operand == "int8" else part
    return matrix


@contextmanager
def fp32_precision(context: Context) -> Iterator[None]:
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
