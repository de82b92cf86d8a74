"""Fragmentation: an allocation fails although enough memory is free; do expandable segments fix it?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from _kit import LOWER, DeclaredMetric, Uses, Verdict, Workload, integer, number
from _kit.memory import GIBIBYTE, budget_of

if TYPE_CHECKING:
    from _kit.context import Context

MEBIBYTE = 1 << 20
MIN_BUDGET_BYTES = 256 * MEBIBYTE
GROWTH_BYTES = 8 * MEBIBYTE
KEPT_BYTES = 3 * MEBIBYTE
GAP_BYTES = 4 * MEBIBYTE
"""Difference between two batch sizes: the kept result fits into it, and the remainder is too small to split."""
HOLE_BYTES = 16 * MEBIBYTE
PAGE_BYTES = 20 * MEBIBYTE
"""Granularity at which an expandable segment of the large pool is mapped and unmapped."""
HOLES_REQUEST_BYTES = 64 * MEBIBYTE
_SPARE_BYTES = 24 * MEBIBYTE
"""Rest of the budget next to the tensors: small tensors must fit, and the request must not."""
MODES = {"default": "expandable_segments:False", "expandable": "expandable_segments:True"}
PATTERNS = {
    "growing": "each batch is larger than the last and leaves a small result allocated",
    "holes": "every second one of many 16 MiB tensors is freed",
}
_GIB_RESULTS = ("reserved", "allocated", "idle", "inactive_split", "largest_hole", "requested")


def growing_sizes(budget: int) -> list[int]:
    """Returns sizes in bytes of growing batches, whose sum exceeds the budget only with the last one.

    The first has at least two pages of an expandable segment (20 MiB each), so that a hole contains a complete page.
    """
    size = max(40 * MEBIBYTE, budget // 16 // (2 * MEBIBYTE) * 2 * MEBIBYTE)
    sizes = [size]
    while sum(sizes) <= budget:
        sizes.append(sizes[-1] + GROWTH_BYTES)
    return sizes


def hole_tensor_count(budget: int) -> int:
    """Returns the number of 16 MiB tensors, an even number; the rest of the budget is smaller than the request."""
    return (budget - _SPARE_BYTES) // (2 * HOLE_BYTES) * 2


def outcome(default: dict[str, Any], expandable: dict[str, Any]) -> str:
    """Returns ``fixed``, ``not fixed``, ``no failure``, or ``worse`` (failed only with expandable segments)."""
    if default["failed"]:
        return "not fixed" if expandable["failed"] else "fixed"
    return "worse" if expandable["failed"] else "no failure"


def sentence(pattern: str, default: dict[str, Any], expandable: dict[str, Any]) -> str:
    """Returns the result of a pattern in a sentence."""
    result = outcome(default, expandable)
    text = f"When {PATTERNS[pattern]}, "
    if result == "no failure":
        return text + "no allocation failed."
    failed = default if default["failed"] else expandable
    text += (
        f"an allocation of {failed['requested'] / MEBIBYTE:.0f} MiB fails although {failed['idle'] / MEBIBYTE:.0f} MiB "
        f"of the reserved memory are free (largest hole {failed['largest_hole'] / MEBIBYTE:.0f} MiB)"
    )
    small = default["failed"] and expandable["largest_hole"] < PAGE_BYTES
    because = ": they release memory in pages of 20 MiB, and no hole contains a complete page" if small else ""
    endings = {
        "fixed": "; with expandable segments it succeeds.",
        "not fixed": f"; expandable segments do not fix this{because}.",
        "worse": ", and only with expandable segments.",
    }
    return text + endings[result]


def verdict_of(context: Context, answers: dict[str, dict[str, dict[str, Any]]]) -> Verdict:
    """Returns the verdict: corrupted tensors fail; an unusual result of this torch or driver warns."""
    if context.cancelled or any(len(answers.get(pattern, {})) < len(MODES) for pattern in PATTERNS):
        return context.warn("Stopped before all patterns were measured.")
    corrupted = [name for name, modes in answers.items() if any(answer["corrupted"] for answer in modes.values())]
    if corrupted:
        return context.fail(f"Tensors lost their contents: {', '.join(corrupted)}.")
    text = " ".join(sentence(name, modes["default"], modes["expandable"]) for name, modes in answers.items())
    if not all(modes["expandable"]["expandable"] for modes in answers.values()):
        return context.warn(f"{text} This torch or driver did not enable expandable segments.")
    growing = answers["growing"]
    if outcome(growing["default"], growing["expandable"]) == "fixed":
        return context.ok(text)
    return context.warn(
        f"{text} Expandable segments normally fix growing batches; this torch or driver behaves differently."
    )


def _take(context: Context, size: int) -> Any:
    return context.torch.empty(size, dtype=context.torch.uint8, device=context.device)


def _show(context: Context, text: str) -> None:
    memory = context.memory()
    idle = memory["reserved_bytes"] - memory["allocated_bytes"]
    context.step(
        f"{text} Reserved {memory['reserved_bytes'] / GIBIBYTE:.2f} GiB, of which {idle / GIBIBYTE:.2f} GiB are free."
    )
    context.metric("reserved", memory["reserved_bytes"] / GIBIBYTE)
    context.metric("reserved but unallocated", idle / GIBIBYTE)
    context.report_memory()
    time.sleep(context.parameters.pause_seconds)


def _state(context: Context, requested: int, text: str) -> dict[str, Any]:
    """Returns the state of the allocator after the last request, in bytes and counts."""
    memory, largest, expandable = context.memory(), 0, False
    for segment in context.torch.cuda.memory_snapshot():
        expandable = expandable or bool(segment.get("is_expandable"))
        holes = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
        largest = max([largest, *holes])
    return {
        "reserved": memory["reserved_bytes"],
        "allocated": memory["allocated_bytes"],
        "idle": memory["reserved_bytes"] - memory["allocated_bytes"],
        "inactive_split": memory["inactive_split_bytes"],
        "largest_hole": largest,
        "alloc_retries": memory["alloc_retries"],
        "requested": requested,
        "failed": bool(text),
        "text": text,
        "expandable": expandable,
    }


def _request(context: Context, size: int) -> tuple[Any, str]:
    """Returns a tensor, or the text of the error: the exception itself would hold memory."""
    expected = getattr(context.torch, "OutOfMemoryError", None) or context.torch.cuda.OutOfMemoryError
    try:
        return _take(context, size), ""
    except expected as error:
        context.error(error)
        return None, str(error)


def _answer(state: dict[str, Any], kept: list[Any]) -> dict[str, Any]:
    """Returns the state with the number of kept tensors whose contents changed."""
    corrupted = sum(not bool((tensor == index % 251).all()) for index, tensor in enumerate(kept))
    return {**state, "corrupted": corrupted, "checked": len(kept)}


def _cap(context: Context) -> tuple[int, Any]:
    """Caps the memory of this process and allocates the page of the small pool now, while there is room for it."""
    budget = context.parameters.limit_mebibytes * MEBIBYTE
    context.cap_memory(budget)
    return budget, _take(context, 1)


def growing(context: Context) -> dict[str, Any]:
    """Allocates growing batches; a small result inside each batch keeps its memory from being reused."""
    budget, first = _cap(context)
    kept: list[Any] = []
    work, text, size = None, "", 0
    for size in growing_sizes(budget):
        if context.stopping:
            break
        work, text = _request(context, size)
        if text:
            _show(
                context, f"A batch of {size // MEBIBYTE} MiB fails, although more than that is free in several holes."
            )
            break
        del work  # the slightly smaller batch reuses this memory, followed by the kept result
        work = _take(context, size - GAP_BYTES)
        kept.append(_take(context, KEPT_BYTES).fill_(len(kept) % 251))
        del work
        _show(context, f"A batch of {size // MEBIBYTE} MiB was used and freed; {KEPT_BYTES // MEBIBYTE} MiB are kept.")
    answer = _answer(_state(context, size, text), kept)
    del first
    return answer


def holes(context: Context) -> dict[str, Any]:
    """Splits one large block into 16 MiB tensors and frees every second one."""
    budget, first = _cap(context)
    count = hole_tensor_count(budget)
    block = _take(context, count * HOLE_BYTES)
    del block
    tensors = [_take(context, HOLE_BYTES) for _ in range(count)]
    _show(context, f"{count} tensors of 16 MiB, split from one block.")
    kept = tensors[1::2]
    del tensors
    for index, tensor in enumerate(kept):
        tensor.fill_(index % 251)
    _show(context, "Every second tensor is freed.")
    result, text = _request(context, HOLES_REQUEST_BYTES)
    ending = "fails: no hole is large enough" if text else "succeeds"
    _show(context, f"An allocation of {HOLES_REQUEST_BYTES // MEBIBYTE} MiB {ending}.")
    state = _state(context, HOLES_REQUEST_BYTES, text)
    del result
    answer = _answer(state, kept)
    del first
    return answer


def _add_results(context: Context, pattern: str, mode: str, answer: dict[str, Any]) -> None:
    for name in _GIB_RESULTS:
        context.result(f"{pattern}_{name}_{mode}", answer[name] / GIBIBYTE, repetitions=1)
    context.result(f"{pattern}_alloc_retries_{mode}", answer["alloc_retries"], repetitions=1)
    context.checked += answer["checked"]


def _uses(context: Context) -> Uses:
    limit = context.parameters.limit_mebibytes * MEBIBYTE
    seconds = 4 * (5 + 12 * context.parameters.pause_seconds)
    return Uses(min(limit, context.free_memory()[0] // 4), seconds)


def _run(context: Context) -> Verdict:
    budget = budget_of(context.parameters.limit_mebibytes * MEBIBYTE, context.free_memory()[0], MIN_BUDGET_BYTES)
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    total = len(PATTERNS) * len(MODES)
    for pattern, description in PATTERNS.items():
        modes: dict[str, dict[str, Any]] = {}
        answers[pattern] = modes
        for mode, setting in MODES.items():
            if context.stopping:
                return verdict_of(context, answers)
            context.step(f"In a new process with {setting}: {description}.")
            # Older versions of torch read only the second name.
            environment = {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}
            try:
                answer = context.fresh(pattern, environment, limit_mebibytes=budget // MEBIBYTE)
            except RuntimeError:
                if context.cancelled:  # the same signal ended the new process before its answer
                    return verdict_of(context, answers)
                raise
            modes[mode] = answer
            _add_results(context, pattern, mode, answer)
            context.progress(sum(map(len, answers.values())), total)
    return verdict_of(context, answers)


WORKLOAD = Workload(
    name="fragmentation",
    purpose="Shows an allocation that fails although enough memory is free, and whether expandable segments fix it.",
    needs="A GPU with CUDA and 1 GiB of free memory; uses at most a quarter of free memory, 1 GiB by default.",
    why_not_cpu="fragmentation shows GPU memory and the CUDA allocator, which need a GPU.",
    uses=_uses,
    run=_run,
    code=(growing, holes),
    parts={"growing": growing, "holes": holes},
    metrics=(DeclaredMetric("*_alloc_retries_*", "count", LOWER, format="count"), DeclaredMetric("*", "GiB", LOWER)),
    parameters=(
        integer("limit_mebibytes", 1024, 256, 16384, "Upper limit of the memory used.", unit="MiB"),
        number("pause_seconds", 0.1, 0.0, 5.0, "Pause after each step.", unit="s"),
    ),
)
