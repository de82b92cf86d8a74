"""Out of memory and back: meets the real error under a cap, then shows each way out and what it gives back."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from _kit import NotHereError, Uses, Verdict, Workload, integer, number
from _kit.memory import GIBIBYTE, budget_of

if TYPE_CHECKING:
    from _kit.context import Context

MEBIBYTE = 1 << 20
LEAST_BUDGET_BYTES = 256 * MEBIBYTE
CHUNKS = 16
_WIDTH = 256
_BLOCKS = 8
_LEAST_BATCH = 64
_PARTS = 4
_TOLERANCE = 1e-3
"""Of the largest gradient: sums over parts of a batch are added in another order."""


@dataclass
class Demonstration:
    """What the run stands on, and what it has found.

    Attributes:
        budget: Bytes that this process may reserve.
        chunk: Bytes of one step of the filling.
        baseline: Bytes allocated before it.
        held_chunks: Chunks that fitted.
        reserved_at_oom: Bytes reserved when memory was out.
        driver_free_at_oom: Bytes free for everybody when memory was out.
        failures: Sentences on steps that did not come out as they must.
        remarks: Sentences on what others on the GPU may have disturbed.
        found: Bytes or counts by name, for the verdict.
    """

    budget: int
    chunk: int
    baseline: int = 0
    held_chunks: int = 0
    reserved_at_oom: int = 0
    driver_free_at_oom: int = 0
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    found: dict[str, float] = field(default_factory=dict)


def chunk_of(budget: int) -> int:
    """A sixteenth of the budget, rounded down to whole pages of 2 MiB."""
    return budget // CHUNKS // (2 * MEBIBYTE) * 2 * MEBIBYTE


def full_batch_of(largest: int) -> int:
    """A batch that does not fit, though its half does: half as much again as the largest, divisible by the parts."""
    return largest * 3 // 2 // (2 * _PARTS) * 2 * _PARTS


def largest_that_fits(fits: Callable[[int], bool], least: int, tries: int = 6) -> int:
    """The largest count that fits, by doubling and then halving the interval; 0 if not even the least does."""
    low, high = 0, least
    while fits(high):
        low, high = high, 2 * high
    for _ in range(tries):
        middle = (low + high) // 2
        if low == 0 or high - low <= max(1, low // 32):
            break
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def verdict_of(context: Context, shown: Demonstration) -> Verdict:
    """The verdict: each step had to come out as it must."""
    if context.cancelled:
        return context.warn("")
    if shown.failures:
        return context.fail(" ".join(shown.failures))
    end, plain, full = (shown.found[name] for name in ("reserved_at_end", "largest_batch_plain", "full_batch"))
    text = (
        f"Out of memory at {shown.reserved_at_oom / GIBIBYTE:.2f} GiB reserved, and back to {end / GIBIBYTE:.2f} GiB. "
        f"A batch of {plain:.0f} fits as it is; {full:.0f} fits with gradient accumulation or checkpointing, with the "
        "same gradients."
    )
    return context.warn(" ".join([text, *shown.remarks])) if shown.remarks else context.ok(text)


def _out_of_memory(context: Context) -> Any:
    return getattr(context.torch, "OutOfMemoryError", None) or context.torch.cuda.OutOfMemoryError


def _tell(context: Context, shown: Demonstration, name: str, value: float, unit: str = "GiB") -> None:
    """A figure from bytes, or from a count where the unit says so."""
    shown.found[name] = value
    context.figure(name, value / GIBIBYTE if unit == "GiB" else value, unit, 1)


def _expect(context: Context, shown: Demonstration, holds: bool, sentence: str) -> None:
    context.checked += 1
    if not holds:
        shown.failures.append(sentence)


def _expect_of_driver(context: Context, shown: Demonstration, holds: bool, sentence: str) -> None:
    """What the driver says is free changes with everybody on the GPU, so it may disturb and not condemn."""
    context.checked += 1
    if not holds:
        shown.remarks.append(f"{sentence} Another process may have taken or freed memory meanwhile.")


def _state(context: Context) -> str:
    memory, free = context.memory(), context.free_memory()[0]
    return (
        f"Allocated {memory['allocated_bytes'] / GIBIBYTE:.2f} GiB, reserved {memory['reserved_bytes'] / GIBIBYTE:.2f} "
        f"GiB, free for others {free / GIBIBYTE:.2f} GiB."
    )


def _show(context: Context, text: str) -> None:
    """Says what is seen now, and leaves time to look at it."""
    context.step(f"{text} {_state(context)}")
    context.report_memory()
    time.sleep(context.parameters.pause_seconds)


def _fill(context: Context, shown: Demonstration) -> None:
    """Takes chunks into a local list until there are no more. It always ends with the error of torch."""
    held = []
    for number_of in range(1, 4 * CHUNKS):
        if context.stopping:
            return
        held.append(context.torch.empty(shown.chunk, dtype=context.torch.uint8, device=context.device))
        context.progress(2 * min(1.0, number_of / CHUNKS), 5)
        _show(context, f"Chunk {number_of} of {shown.chunk / MEBIBYTE:.0f} MiB.")


def _meet_the_error(context: Context, shown: Demonstration) -> None:
    """The error, and why its memory stays held inside the except block."""
    _tell(context, shown, "driver_free_before", context.free_memory()[0])
    shown.baseline = context.memory()["allocated_bytes"]
    met, inside = False, context.memory()
    try:
        _fill(context, shown)
    except _out_of_memory(context) as error:
        met = True
        context.error(error)
        shown.reserved_at_oom = context.memory()["reserved_bytes"]
        shown.driver_free_at_oom = context.free_memory()[0]
        gc.collect()
        context.torch.cuda.empty_cache()
        inside = context.memory()
        _show(context, "Inside the except block even empty_cache() frees nothing: the error holds the failed function.")
    gc.collect()
    if context.stopping:
        return
    held = inside["allocated_bytes"] - shown.baseline
    shown.held_chunks = held // shown.chunk
    left = context.memory()["allocated_bytes"] - shown.baseline
    _show(context, "The except block is left, the error is gone, and the tensors with it.")
    _expect(context, shown, met, "Memory never ran out, though it was capped.")
    _expect(context, shown, held >= shown.budget // 2, "The error did not hold the tensors of the failed function.")
    _expect(context, shown, left < shown.chunk, "The tensors were still held after the except block.")
    _tell(context, shown, "reserved_at_oom", shown.reserved_at_oom)
    _tell(context, shown, "driver_free_at_oom", shown.driver_free_at_oom)
    _tell(context, shown, "held_by_exception", held)


def _delete_and_empty(context: Context, shown: Demonstration) -> None:
    """What ``del`` gives back, and what ``empty_cache()`` does."""
    torch, count = context.torch, shown.held_chunks
    held = [torch.empty(shown.chunk, dtype=torch.uint8, device=context.device) for _ in range(count)]
    _show(context, "The same tensors once more; they come from what torch had kept, without asking the driver.")
    before, free_before = context.memory(), context.free_memory()[0]
    del held
    after, free_after = context.memory(), context.free_memory()[0]
    _show(context, "del alone: torch may use the memory again, and nobody else.")
    _expect(context, shown, after["allocated_bytes"] - shown.baseline < shown.chunk, "del did not free the tensors.")
    same = after["reserved_bytes"] == before["reserved_bytes"]
    _expect(context, shown, same, "del alone changed what torch has reserved.")
    moved = abs(free_after - free_before) < shown.chunk
    _expect_of_driver(context, shown, moved, "del alone changed what the driver has free.")
    _tell(context, shown, "reserved_after_del", after["reserved_bytes"])
    torch.cuda.empty_cache()
    emptied, free_emptied = context.memory(), context.free_memory()[0]
    _show(context, "empty_cache(): what no tensor uses goes back to the driver, and others can have it.")
    gone = after["reserved_bytes"] - emptied["reserved_bytes"]
    _expect(context, shown, gone >= count * shown.chunk, "empty_cache() did not give back what was free.")
    rose = free_emptied - free_after >= gone // 2
    _expect_of_driver(context, shown, rose, "empty_cache() did not raise what the driver has free.")
    _tell(context, shown, "reserved_after_empty_cache", emptied["reserved_bytes"])
    _tell(context, shown, "driver_free_after", free_emptied)


def _model(context: Context) -> Any:
    """Blocks without bias, whose activations outweigh their weights by far."""
    nn = context.torch.nn
    blocks = [
        nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH, bias=False), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH, bias=False))
        for _ in range(_BLOCKS)
    ]
    return nn.ModuleList(blocks).to(context.device)


def _batch(context: Context, count: int) -> Any:
    generator = context.torch.Generator().manual_seed(count)  # on the host: the same numbers on every chip
    return context.torch.randn(count, _WIDTH, generator=generator).to(context.device)


def _backward(model: Any, batch: Any, whole: int, *, checkpointed: bool) -> float:
    """Adds the gradients of a batch, or of a part of ``whole`` samples, and returns its share of the loss."""
    from torch.utils.checkpoint import checkpoint

    values = batch
    for block in model:
        values = values + (checkpoint(block, values, use_reentrant=False) if checkpointed else block(values))
    loss = (values * values).sum() / (whole * _WIDTH)
    loss.backward()
    return float(loss.detach())


def _gradients(context: Context, model: Any, count: int, *, parts: int = 1, checkpointed: bool = False) -> list[Any]:
    """The gradients of a batch on the host, from so many parts of it one after the other."""
    model.zero_grad(set_to_none=True)
    batch = _batch(context, count)
    for part in batch.chunk(parts):
        _backward(model, part, count, checkpointed=checkpointed)
    return [each.grad.cpu() for each in model.parameters()]


def _fits(context: Context, model: Any, count: int, *, tell: bool = False, **how: Any) -> bool:
    """Whether a batch goes through; what a failed one held is let go."""
    fits = True
    try:
        _gradients(context, model, count, **how)
    except _out_of_memory(context) as error:
        fits = False
        if tell:
            context.error(error)
    model.zero_grad(set_to_none=True)
    gc.collect()
    context.torch.cuda.empty_cache()
    return fits


def _difference(first: list[Any], second: list[Any]) -> float:
    """The largest difference, as a share of the largest gradient."""
    most = max(float(each.abs().max()) for each in first)
    return max(float((a - b).abs().max()) for a, b in zip(first, second)) / most


def _smaller_batches(context: Context, shown: Demonstration, model: Any) -> None:
    """The full batch fails; half of it, and the whole in parts or with checkpointing, goes through."""
    _gradients(context, model, _LEAST_BATCH)  # the libraries take their workspaces now, and keep them
    model.zero_grad(set_to_none=True)
    context.step("Trying how large a batch fits under the cap.")
    largest = largest_that_fits(lambda count: not context.stopping and _fits(context, model, count), _LEAST_BATCH)
    if context.stopping:
        return
    _expect(context, shown, largest >= _LEAST_BATCH, "Not even a small batch fits under the cap.")
    if shown.failures:
        return
    full = full_batch_of(largest)
    _tell(context, shown, "largest_batch_plain", largest, "samples")
    _tell(context, shown, "full_batch", full, "samples")
    _expect(context, shown, not _fits(context, model, full, tell=True), f"A batch of {full} fits after all.")
    _show(context, f"A batch of {full} does not fit, and the step failed.")
    half = full // 2
    plain, peak = _measured(context, model, half)
    _tell(context, shown, "half_batch_peak", peak)
    _show(context, f"Half the batch, {half}, fits.")
    for name, how in (("accumulation", {"parts": _PARTS}), ("checkpointing", {"checkpointed": True})):
        difference = _difference(plain, _measured(context, model, half, **how)[0])
        _expect(
            context, shown, difference < _TOLERANCE, f"With {name} the gradients of {half} differ: {difference:.1e}."
        )
    accumulated, peak = _measured(context, model, full, parts=_PARTS)
    _tell(context, shown, "with_accumulation_peak", peak)
    _show(context, f"All {full} in {_PARTS} parts, gradients accumulated: it fits, and the gradients are the same.")
    checkpointed, peak = _measured(context, model, full, checkpointed=True)
    _tell(context, shown, "with_checkpointing_peak", peak)
    _show(context, f"All {full} at once with activation checkpointing: it fits, for some computing done twice.")
    difference = _difference(accumulated, checkpointed)
    _expect(context, shown, difference < _TOLERANCE, f"The two ways give other gradients for {full}: {difference:.1e}.")


def _measured(context: Context, model: Any, count: int, **how: Any) -> tuple[list[Any], int]:
    """Gradients of a batch, and the most that was allocated meanwhile."""
    cuda = context.torch.cuda
    cuda.empty_cache()
    cuda.reset_peak_memory_stats(context.device)
    gradients = _gradients(context, model, count, **how)
    return gradients, context.memory()["peak_allocated_bytes"]


def _train(context: Context, shown: Demonstration, model: Any) -> None:
    """A training step that works, with less reserved than when memory was out."""
    torch, count = context.torch, max(_LEAST_BATCH, int(shown.found.get("full_batch", 0)) // 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    before = [each.detach().cpu().clone() for each in model.parameters()]
    loss = _backward(model, _batch(context, count), count, checkpointed=False)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    changed = any(not torch.equal(a, b.detach().cpu()) for a, b in zip(before, model.parameters()))
    torch.cuda.empty_cache()
    reserved = context.memory()["reserved_bytes"]
    _show(context, f"A training step with {count} samples works again: loss {loss:.3f}.")
    _expect(context, shown, loss == loss and abs(loss) != float("inf"), "The loss of the last step is not finite.")  # noqa: PLR0124
    _expect(context, shown, changed, "The last training step changed no parameter.")
    _expect(
        context, shown, reserved < shown.reserved_at_oom, "No less is reserved at the end than when memory was out."
    )
    _tell(context, shown, "reserved_at_end", reserved)


def _uses(context: Context) -> Uses:
    limit = context.parameters.limit_mebibytes * MEBIBYTE
    return Uses(min(limit, context.free_memory()[0] // 4), 8 + 30 * context.parameters.pause_seconds)


def _run(context: Context) -> Verdict:
    cuda = context.torch.cuda
    if cuda.get_allocator_backend() != "native":
        raise NotHereError("This shows torch's own allocator, and PYTORCH_ALLOC_CONF has chosen another backend.")
    budget = budget_of(context.parameters.limit_mebibytes * MEBIBYTE, context.free_memory()[0], LEAST_BUDGET_BYTES)
    shown = Demonstration(budget, chunk_of(budget))
    context.cap_memory(context.memory()["reserved_bytes"] + budget)
    context.step(f"This process caps itself at {budget / GIBIBYTE:.2f} GiB; what others use is not touched.")
    _meet_the_error(context, shown)
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
    purpose="Out of memory and back: the real error under a cap, then each way out and what it gives back.",
    needs="A GPU with CUDA and 1 GiB of free memory; it takes a quarter of what is free at most, 1 GiB by default.",
    why_not_cpu="It shows the memory of a GPU and torch's allocator for it, and the CPU has neither.",
    uses=_uses,
    run=_run,
    parameters=(
        integer("limit_mebibytes", 1024, 256, 16384, "The most it takes, however much is free.", unit="MiB"),
        number("pause_seconds", 0.3, 0.0, 5.0, "How long each step stays on the screen.", unit="s"),
    ),
)
