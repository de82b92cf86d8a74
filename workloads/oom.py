"""Out of memory: provokes the real error under a memory cap, then shows how much memory each recovery returns."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from _kit import HIGHER, LOWER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, integer, number
from _kit.memory import GIBIBYTE, budget_of

if TYPE_CHECKING:
    from _kit.context import Context

MEBIBYTE = 1 << 20
MIN_BUDGET_BYTES = 256 * MEBIBYTE
CHUNKS = 16
_WIDTH = 256
_BLOCKS = 8
_BISECTIONS = 6
_MIN_BATCH = 64
_PARTS = 4
_TOLERANCE = 1e-3
"""Relative to the largest gradient: parts of a batch are summed in another order, which rounds differently."""


@dataclass
class Demonstration:
    """The limits and results of a run.

    Attributes:
        budget: Bytes that this process may reserve.
        chunk: Bytes per allocation.
        baseline: Bytes allocated before the first chunk.
        held_chunks: Number of chunks that fit.
        reserved_at_oom: Bytes reserved at the out-of-memory error.
        driver_free_at_oom: Bytes that the driver reported free at the error.
        failures: Sentences about steps with an unexpected result.
        remarks: Sentences about results that other processes may have influenced.
        values: Bytes or counts by name, for the verdict.
    """

    budget: int
    chunk: int
    baseline: int = 0
    held_chunks: int = 0
    reserved_at_oom: int = 0
    driver_free_at_oom: int = 0
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)


def chunk_of(budget: int) -> int:
    """Returns a sixteenth of the budget, rounded down to a multiple of 2 MiB."""
    return budget // CHUNKS // (2 * MEBIBYTE) * 2 * MEBIBYTE


def full_batch_of(largest: int) -> int:
    """Returns a batch size that does not fit while its half does: 1.5 times the largest, divisible by the parts."""
    return largest * 3 // 2 // (2 * _PARTS) * 2 * _PARTS


def largest_that_fits(fits: Callable[[int], bool], minimum: int) -> int:
    """Returns the largest count that fits, by doubling and then bisection; 0 if the minimum does not fit."""
    low, high = 0, minimum
    while fits(high):
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) // 2
        if low == 0 or high - low <= max(1, low // 32):
            break
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def verdict_of(context: Context, shown: Demonstration) -> Verdict:
    """Returns the verdict: every step must have its expected result."""
    if context.cancelled:
        return context.warn("")
    if shown.failures:
        return context.fail(" ".join(shown.failures))
    end, plain, full = (shown.values[name] for name in ("reserved_at_end", "largest_batch_plain", "full_batch"))
    text = (
        f"Out of memory at {shown.reserved_at_oom / GIBIBYTE:.2f} GiB reserved; {end / GIBIBYTE:.2f} GiB after the "
        f"recovery. A batch of {plain:.0f} fits without changes; {full:.0f} fits with gradient accumulation or "
        "activation checkpointing, with the same gradients."
    )
    return context.warn(" ".join([text, *shown.remarks])) if shown.remarks else context.ok(text)


def _out_of_memory(context: Context) -> Any:
    return getattr(context.torch, "OutOfMemoryError", None) or context.torch.cuda.OutOfMemoryError


def _add_result(context: Context, shown: Demonstration, name: str, value: float, scale: int = GIBIBYTE) -> None:
    """Adds a result, converted from bytes to GiB unless another scale is given."""
    shown.values[name] = value
    context.result(name, value if scale == 1 else value / scale, repetitions=1)


def _expect(context: Context, shown: Demonstration, holds: bool, sentence: str) -> None:
    context.checked += 1
    if not holds:
        shown.failures.append(sentence)


def _expect_of_driver(context: Context, shown: Demonstration, holds: bool, sentence: str) -> None:
    """Checks a value of the driver. Other processes on the GPU change it, so a mismatch is only a remark."""
    context.checked += 1
    if not holds:
        shown.remarks.append(f"{sentence} Another process may have allocated or freed memory in the meantime.")


def _state(context: Context) -> str:
    memory, free = context.memory(), context.free_memory()[0]
    return (
        f"Allocated {memory['allocated_bytes'] / GIBIBYTE:.2f} GiB, reserved {memory['reserved_bytes'] / GIBIBYTE:.2f} "
        f"GiB, free for other processes {free / GIBIBYTE:.2f} GiB."
    )


def _show(context: Context, text: str) -> None:
    """Reports a step and pauses, so that it can be watched."""
    context.step(f"{text} {_state(context)}")
    context.report_memory()
    time.sleep(context.parameters.pause_seconds)


def _fill(context: Context, shown: Demonstration) -> None:
    """Allocates chunks into a local list until torch raises its out-of-memory error."""
    held = []
    for chunk_number in range(1, 4 * CHUNKS):
        if context.stopping:
            return
        held.append(context.torch.empty(shown.chunk, dtype=context.torch.uint8, device=context.device))
        context.progress(2 * min(1.0, chunk_number / CHUNKS), 5)
        _show(context, f"Chunk {chunk_number} of {shown.chunk / MEBIBYTE:.0f} MiB.")


def _provoke_error(context: Context, shown: Demonstration) -> None:
    """Provokes the error and shows why its memory is still held inside the except block."""
    _add_result(context, shown, "driver_free_before", context.free_memory()[0])
    shown.baseline = context.memory()["allocated_bytes"]
    has_failed, inside = False, context.memory()
    try:
        _fill(context, shown)
    except _out_of_memory(context) as error:
        has_failed = True
        context.error(error)
        shown.reserved_at_oom = context.memory()["reserved_bytes"]
        shown.driver_free_at_oom = context.free_memory()[0]
        gc.collect()
        context.torch.cuda.empty_cache()
        inside = context.memory()
        _show(
            context,
            "Inside the except block empty_cache() frees nothing: the traceback references the failed function.",
        )
    gc.collect()
    if context.stopping:
        return
    held = inside["allocated_bytes"] - shown.baseline
    shown.held_chunks = held // shown.chunk
    left = context.memory()["allocated_bytes"] - shown.baseline
    _show(context, "After the except block the exception is deleted, and its tensors are freed.")
    _expect(context, shown, has_failed, "No out-of-memory error occurred under the cap.")
    _expect(context, shown, held >= shown.budget // 2, "The error did not hold the tensors of the failed function.")
    _expect(context, shown, left < shown.chunk, "The tensors were still held after the except block.")
    _add_result(context, shown, "reserved_at_oom", shown.reserved_at_oom)
    _add_result(context, shown, "driver_free_at_oom", shown.driver_free_at_oom)
    _add_result(context, shown, "held_by_exception", held)


def _delete_and_empty(context: Context, shown: Demonstration) -> None:
    """Shows what ``del`` frees and what ``empty_cache()`` frees."""
    torch, count = context.torch, shown.held_chunks
    held = [torch.empty(shown.chunk, dtype=torch.uint8, device=context.device) for _ in range(count)]
    _show(context, "The same tensors again, allocated from the cache of torch, without a call to the driver.")
    before, free_before = context.memory(), context.free_memory()[0]
    del held
    after, free_after = context.memory(), context.free_memory()[0]
    _show(context, "After del, torch can reuse the memory; other processes cannot.")
    _expect(context, shown, after["allocated_bytes"] - shown.baseline < shown.chunk, "del did not free the tensors.")
    same = after["reserved_bytes"] == before["reserved_bytes"]
    _expect(context, shown, same, "del alone changed the reserved memory.")
    moved = abs(free_after - free_before) < shown.chunk
    _expect_of_driver(context, shown, moved, "del alone changed the free memory of the driver.")
    _add_result(context, shown, "reserved_after_del", after["reserved_bytes"])
    torch.cuda.empty_cache()
    emptied, free_emptied = context.memory(), context.free_memory()[0]
    _show(context, "After empty_cache(), unused memory is returned to the driver, and other processes can use it.")
    returned = after["reserved_bytes"] - emptied["reserved_bytes"]
    _expect(context, shown, returned >= count * shown.chunk, "empty_cache() did not return the unused memory.")
    rose = free_emptied - free_after >= returned // 2
    _expect_of_driver(context, shown, rose, "empty_cache() did not increase the free memory of the driver.")
    _add_result(context, shown, "reserved_after_empty_cache", emptied["reserved_bytes"])
    _add_result(context, shown, "driver_free_after", free_emptied)


def _model(context: Context) -> Any:
    """Returns linear blocks without bias, whose activations are much larger than their weights."""
    nn = context.torch.nn
    blocks = [
        nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH, bias=False), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH, bias=False))
        for _ in range(_BLOCKS)
    ]
    return nn.ModuleList(blocks).to(context.device)


def _batch(context: Context, count: int) -> Any:
    generator = context.torch.Generator().manual_seed(count)  # on the host: the same numbers on every GPU
    return context.torch.randn(count, _WIDTH, generator=generator).to(context.device)


def _backward(model: Any, batch: Any, total: int, *, checkpointed: bool) -> float:
    """Adds the gradients of a batch, or of a part of ``total`` samples; returns its share of the loss."""
    from torch.utils.checkpoint import checkpoint

    values = batch
    for block in model:
        values = values + (checkpoint(block, values, use_reentrant=False) if checkpointed else block(values))
    loss = (values * values).sum() / (total * _WIDTH)
    loss.backward()
    return float(loss.detach())


def _gradients(context: Context, model: Any, count: int, *, parts: int = 1, checkpointed: bool = False) -> list[Any]:
    """Returns the gradients of a batch, on the host, accumulated over ``parts`` parts."""
    model.zero_grad(set_to_none=True)
    batch = _batch(context, count)
    for part in batch.chunk(parts):
        _backward(model, part, count, checkpointed=checkpointed)
    return [parameter.grad.cpu() for parameter in model.parameters()]


def _fits(context: Context, model: Any, count: int, *, report: bool = False, **how: Any) -> bool:
    """Returns whether forward and backward of a batch fit; frees the memory of a failed one."""
    fits = True
    try:
        _gradients(context, model, count, **how)
    except _out_of_memory(context) as error:
        fits = False
        if report:
            context.error(error)
    model.zero_grad(set_to_none=True)
    gc.collect()
    context.torch.cuda.empty_cache()
    return fits


def _difference(first: list[Any], second: list[Any]) -> float:
    """Returns the largest difference, relative to the largest gradient."""
    largest = max(float(gradient.abs().max()) for gradient in first)
    return max(float((a - b).abs().max()) for a, b in zip(first, second)) / largest


def _smaller_batches(context: Context, shown: Demonstration, model: Any) -> None:
    """Shows that the full batch fails, while half of it fits, and all of it with accumulation or checkpointing."""
    _gradients(context, model, _MIN_BATCH)  # the libraries allocate their workspaces now and keep them
    model.zero_grad(set_to_none=True)
    context.step("Searching for the largest batch that fits under the cap.")
    largest = largest_that_fits(lambda count: not context.stopping and _fits(context, model, count), _MIN_BATCH)
    if context.stopping:
        return
    _expect(context, shown, largest >= _MIN_BATCH, f"A batch of {_MIN_BATCH} does not fit under the cap.")
    if shown.failures:
        return
    full = full_batch_of(largest)
    _add_result(context, shown, "largest_batch_plain", largest, scale=1)
    _add_result(context, shown, "full_batch", full, scale=1)
    _expect(context, shown, not _fits(context, model, full, report=True), f"A batch of {full} fits unexpectedly.")
    _show(context, f"A batch of {full} does not fit: the step failed.")
    half = full // 2
    plain, peak = _measured(context, model, half)
    _add_result(context, shown, "half_batch_peak", peak)
    _show(context, f"Half the batch, {half}, fits.")
    for name, how in (("accumulation", {"parts": _PARTS}), ("checkpointing", {"checkpointed": True})):
        difference = _difference(plain, _measured(context, model, half, **how)[0])
        _expect(
            context, shown, difference < _TOLERANCE, f"With {name} the gradients of {half} differ: {difference:.1e}."
        )
    accumulated, peak = _measured(context, model, full, parts=_PARTS)
    _add_result(context, shown, "with_accumulation_peak", peak)
    _show(context, f"All {full} in {_PARTS} parts with gradient accumulation: the batch fits, with the same gradients.")
    checkpointed, peak = _measured(context, model, full, checkpointed=True)
    _add_result(context, shown, "with_checkpointing_peak", peak)
    _show(
        context,
        f"All {full} at once with activation checkpointing: the batch fits, and some activations are computed twice.",
    )
    difference = _difference(accumulated, checkpointed)
    _expect(
        context,
        shown,
        difference < _TOLERANCE,
        f"Accumulation and checkpointing give different gradients for {full}: {difference:.1e}.",
    )


def _measured(context: Context, model: Any, count: int, **how: Any) -> tuple[list[Any], int]:
    """Returns the gradients of a batch and the peak of allocated bytes."""
    cuda = context.torch.cuda
    cuda.empty_cache()
    cuda.reset_peak_memory_stats(context.device)
    gradients = _gradients(context, model, count, **how)
    return gradients, context.memory()["peak_allocated_bytes"]


def _train(context: Context, shown: Demonstration, model: Any) -> None:
    """Runs a training step that succeeds with less reserved memory than at the error."""
    torch, count = context.torch, max(_MIN_BATCH, int(shown.values.get("full_batch", 0)) // 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    before = [parameter.detach().cpu().clone() for parameter in model.parameters()]
    loss = _backward(model, _batch(context, count), count, checkpointed=False)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    changed = any(not torch.equal(a, b.detach().cpu()) for a, b in zip(before, model.parameters()))
    torch.cuda.empty_cache()
    reserved = context.memory()["reserved_bytes"]
    _show(context, f"A training step with {count} samples succeeds: loss {loss:.3f}.")
    _expect(context, shown, loss == loss and abs(loss) != float("inf"), "The loss of the last step is not finite.")  # noqa: PLR0124
    _expect(context, shown, changed, "The last training step changed no parameter.")
    _expect(
        context,
        shown,
        reserved < shown.reserved_at_oom,
        "The reserved memory at the end is not less than at the error.",
    )
    _add_result(context, shown, "reserved_at_end", reserved)


def _uses(context: Context) -> Uses:
    limit = context.parameters.limit_mebibytes * MEBIBYTE
    return Uses(min(limit, context.free_memory()[0] // 4), 8 + 30 * context.parameters.pause_seconds)


def _run(context: Context) -> Verdict:
    cuda = context.torch.cuda
    if cuda.get_allocator_backend() != "native":
        raise UnsupportedError(
            "The workload needs the native allocator of torch, and PYTORCH_ALLOC_CONF selects another backend."
        )
    budget = budget_of(context.parameters.limit_mebibytes * MEBIBYTE, context.free_memory()[0], MIN_BUDGET_BYTES)
    shown = Demonstration(budget, chunk_of(budget))
    context.cap_memory(context.memory()["reserved_bytes"] + budget)
    context.step(f"This process limits itself to {budget / GIBIBYTE:.2f} GiB; other processes are not affected.")
    _provoke_error(context, shown)
    context.progress(2, 5)
    if not context.stopping and not shown.failures:
        _delete_and_empty(context, shown)
        context.progress(3, 5)
    if not context.stopping and not shown.failures:
        model = _model(context)
        _smaller_batches(context, shown, model)
        context.progress(4, 5)
        if not context.stopping:
            _train(context, shown, model)
        context.progress(5, 5)
    return verdict_of(context, shown)


WORKLOAD = Workload(
    name="oom",
    purpose="Causes a real out-of-memory error under a cap, and shows how much memory each recovery returns.",
    needs="A GPU with CUDA and 1 GiB of free memory; uses at most a quarter of free memory, 1 GiB by default.",
    why_not_cpu="oom shows GPU memory and the CUDA allocator, which need a GPU.",
    uses=_uses,
    run=_run,
    code=(_fill, _provoke_error, _delete_and_empty, _backward, _gradients),
    metrics=(
        DeclaredMetric("*_batch*_peak", "GiB", LOWER),
        DeclaredMetric("*_batch*", "samples", HIGHER, format="count"),
        DeclaredMetric("driver_free_*", "GiB", HIGHER),
        DeclaredMetric("*", "GiB", LOWER),
    ),
    parameters=(
        integer("limit_mebibytes", 1024, 256, 16384, "Upper limit of the memory used.", unit="MiB"),
        number("pause_seconds", 0.3, 0.0, 5.0, "Pause after each step.", unit="s"),
    ),
)
