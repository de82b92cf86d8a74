"""Memory in pieces: a request fails though enough is free, and whether expandable segments cure that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from _kit import Uses, Verdict, Workload, integer, number
from _kit.memory import GIBIBYTE, budget_of

if TYPE_CHECKING:
    from _kit.context import Context

MEBIBYTE = 1 << 20
LEAST_BUDGET_BYTES = 256 * MEBIBYTE
GROWTH_BYTES = 8 * MEBIBYTE
KEPT_BYTES = 3 * MEBIBYTE
GAP_BYTES = 4 * MEBIBYTE
"""Between a batch and the next smaller one; the kept result fits there, and what is left is too little to be split."""
HOLE_BYTES = 16 * MEBIBYTE
PAGE_BYTES = 20 * MEBIBYTE
"""What an expandable segment of the pool for large tensors is mapped and unmapped by."""
CHEESE_REQUEST_BYTES = 64 * MEBIBYTE
_SPARE_BYTES = 24 * MEBIBYTE
"""Left of the budget when the cheese is cut: small tensors must fit, and the request must not."""
MODES = {"default": "expandable_segments:False", "expandable": "expandable_segments:True"}
PATTERNS = {
    "growing": "each batch is larger than the last and leaves a small result behind",
    "cheese": "every second one of many tensors of 16 MiB is let go",
}
_GIB_FIGURES = ("reserved", "allocated", "idle", "inactive_split", "largest_hole", "requested")


def growing_sizes(budget: int) -> list[int]:
    """Sizes in bytes of growing batches that together pass the budget with the last one only.

    The first is no smaller than two pages of an expandable segment (20 MiB each), so that a hole holds a whole page.
    """
    size = max(40 * MEBIBYTE, budget // 16 // (2 * MEBIBYTE) * 2 * MEBIBYTE)
    sizes = [size]
    while sum(sizes) <= budget:
        sizes.append(sizes[-1] + GROWTH_BYTES)
    return sizes


def cheese_count(budget: int) -> int:
    """How many tensors of 16 MiB are cut, an even number; what is left of the budget is less than the request."""
    return (budget - _SPARE_BYTES) // (2 * HOLE_BYTES) * 2


def outcome(default: dict[str, Any], expandable: dict[str, Any]) -> str:
    """``cured``, ``not cured``, ``no failure`` without them, or ``worse``: it failed only with them."""
    if default["failed"]:
        return "not cured" if expandable["failed"] else "cured"
    return "worse" if expandable["failed"] else "no failure"


def sentence(pattern: str, default: dict[str, Any], expandable: dict[str, Any]) -> str:
    """What came out for a pattern, in a sentence."""
    found = outcome(default, expandable)
    said = f"When {PATTERNS[pattern]}, "
    if found == "no failure":
        return said + "no request failed here."
    failed = default if default["failed"] else expandable
    said += (
        f"a request for {failed['requested'] / MEBIBYTE:.0f} MiB fails though {failed['idle'] / MEBIBYTE:.0f} MiB of "
        f"what torch holds are free (largest hole {failed['largest_hole'] / MEBIBYTE:.0f} MiB)"
    )
    small = default["failed"] and expandable["largest_hole"] < PAGE_BYTES
    because = ": they give memory back in pages of 20 MiB, and no hole holds a whole one" if small else ""
    endings = {
        "cured": "; with expandable segments it succeeds.",
        "not cured": f"; expandable segments do not cure it{because}.",
        "worse": ", and only with expandable segments.",
    }
    return said + endings[found]


def verdict_of(context: Context, answers: dict[str, dict[str, dict[str, Any]]]) -> Verdict:
    """The verdict: memory that lost its contents fails; what this torch or driver does otherwise warns."""
    if context.cancelled or any(len(answers.get(pattern, {})) < len(MODES) for pattern in PATTERNS):
        return context.warn("It ended before all patterns were tried.")
    harmed = [name for name, modes in answers.items() if any(each["harmed"] for each in modes.values())]
    if harmed:
        return context.fail(f"Tensors that were kept lost their contents: {', '.join(harmed)}.")
    text = " ".join(sentence(name, modes["default"], modes["expandable"]) for name, modes in answers.items())
    if not all(modes["expandable"]["expandable"] for modes in answers.values()):
        return context.warn(f"{text} This torch or driver did not switch expandable segments on.")
    growing = answers["growing"]
    if outcome(growing["default"], growing["expandable"]) == "cured":
        return context.ok(text)
    return context.warn(
        f"{text} Elsewhere expandable segments cure growing batches; this torch or driver is different."
    )


def _take(context: Context, size: int) -> Any:
    return context.torch.empty(size, dtype=context.torch.uint8, device=context.device)


def _show(context: Context, text: str) -> None:
    memory = context.memory()
    idle = memory["reserved_bytes"] - memory["allocated_bytes"]
    context.step(
        f"{text} Reserved {memory['reserved_bytes'] / GIBIBYTE:.2f} GiB, of which {idle / GIBIBYTE:.2f} GiB are free."
    )
    context.metric("reserved", memory["reserved_bytes"] / GIBIBYTE, "GiB")
    context.metric("reserved but unallocated", idle / GIBIBYTE, "GiB")
    context.report_memory()
    time.sleep(context.parameters.pause_seconds)


def _state(context: Context, requested: int, text: str) -> dict[str, Any]:
    """The allocator's state after the last request; bytes and counts."""
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
    """A tensor, or the text of the error: the error itself would hold memory."""
    expected = getattr(context.torch, "OutOfMemoryError", None) or context.torch.cuda.OutOfMemoryError
    try:
        return _take(context, size), ""
    except expected as error:
        context.error(error)
        return None, str(error)


def _answer(state: dict[str, Any], kept: list[Any]) -> dict[str, Any]:
    """The state, and whether the tensors that were kept still hold the number that each was given."""
    harmed = sum(not bool((tensor == number_in % 251).all()) for number_in, tensor in enumerate(kept))
    return {**state, "harmed": harmed, "checked": len(kept)}


def _begin(context: Context) -> tuple[int, Any]:
    """Caps this process; takes the page of the small tensors now, since there may be no room for it later."""
    budget = context.parameters.limit_mebibytes * MEBIBYTE
    context.cap_memory(budget)
    return budget, _take(context, 1)


def growing(context: Context) -> dict[str, Any]:
    """Batches that grow, each of which pins the memory that it had by a small result in it."""
    budget, first = _begin(context)
    kept: list[Any] = []
    work, text, size = None, "", 0
    for size in growing_sizes(budget):
        if context.stopping:
            break
        work, text = _request(context, size)
        if text:
            _show(context, f"A batch of {size // MEBIBYTE} MiB fails, though more than that is free, in pieces.")
            break
        del work  # its place is free, so the next smaller batch goes there, and the kept result behind that
        work = _take(context, size - GAP_BYTES)
        kept.append(_take(context, KEPT_BYTES).fill_(len(kept) % 251))
        del work
        _show(
            context, f"A batch of {size // MEBIBYTE} MiB was used and let go; {KEPT_BYTES // MEBIBYTE} MiB were kept."
        )
    answer = _answer(_state(context, size, text), kept)
    del first
    return answer


def cheese(context: Context) -> dict[str, Any]:
    """One large piece cut into tensors of 16 MiB, of which every second one is let go."""
    budget, first = _begin(context)
    count = cheese_count(budget)
    whole = _take(context, count * HOLE_BYTES)
    del whole
    tensors = [_take(context, HOLE_BYTES) for _ in range(count)]
    _show(context, f"{count} tensors of 16 MiB, cut from one piece.")
    kept = tensors[1::2]
    del tensors
    for number_in, tensor in enumerate(kept):
        tensor.fill_(number_in % 251)
    _show(context, "Every second one is let go.")
    result, text = _request(context, CHEESE_REQUEST_BYTES)
    ending = "fails: no hole is large enough" if text else "succeeds"
    _show(context, f"A request for {CHEESE_REQUEST_BYTES // MEBIBYTE} MiB {ending}.")
    state = _state(context, CHEESE_REQUEST_BYTES, text)
    del result
    answer = _answer(state, kept)
    del first
    return answer


def _figures(context: Context, pattern: str, mode: str, answer: dict[str, Any]) -> None:
    for name in _GIB_FIGURES:
        context.figure(f"{pattern}_{name}_{mode}", answer[name] / GIBIBYTE, "GiB", 1)
    context.figure(f"{pattern}_alloc_retries_{mode}", answer["alloc_retries"], "count", 1)
    context.checked += answer["checked"]


def _uses(context: Context) -> Uses:
    limit = context.parameters.limit_mebibytes * MEBIBYTE
    seconds = 4 * (5 + 12 * context.parameters.pause_seconds)
    return Uses(min(limit, context.free_memory()[0] // 4), seconds)


def _run(context: Context) -> Verdict:
    budget = budget_of(context.parameters.limit_mebibytes * MEBIBYTE, context.free_memory()[0], LEAST_BUDGET_BYTES)
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    total = len(PATTERNS) * len(MODES)
    for pattern, words in PATTERNS.items():
        tried: dict[str, dict[str, Any]] = {}
        answers[pattern] = tried
        for mode, setting in MODES.items():
            if context.stopping:
                return verdict_of(context, answers)
            context.step(f"In a fresh process with {setting}: {words}.")
            # Both names: the older torch knows only the second.
            environment = {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}
            try:
                answer = context.fresh(pattern, environment, limit_mebibytes=budget // MEBIBYTE)
            except RuntimeError:
                if context.cancelled:  # the same signal ended the fresh process before it could answer
                    return verdict_of(context, answers)
                raise
            tried[mode] = answer
            _figures(context, pattern, mode, answer)
            context.progress(sum(map(len, answers.values())), total)
    return verdict_of(context, answers)


WORKLOAD = Workload(
    name="fragmentation",
    purpose="Memory in pieces: a request fails though enough is free, and whether expandable segments cure that.",
    needs="A GPU with CUDA and 1 GiB of free memory; it takes a quarter of what is free at most, 1 GiB by default.",
    why_not_cpu="It shows the memory of a GPU and torch's allocator for it, and the CPU has neither.",
    uses=_uses,
    run=_run,
    parts={"growing": growing, "cheese": cheese},
    parameters=(
        integer("limit_mebibytes", 1024, 256, 16384, "The most it takes, however much is free.", unit="MiB"),
        number("pause_seconds", 0.1, 0.0, 5.0, "How long each step stays on the screen.", unit="s"),
    ),
)
