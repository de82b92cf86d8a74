"""Tests nearly all free memory: patterns are written, compared, inverted and compared again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from _kit import HIGHER, LOWER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, flag, integer, number
from _kit.host import host_free_bytes
from _kit.memory import GIBIBYTE, size_text
from _kit.memory_test import (
    BLOCK_BYTES,
    PATTERNS,
    MemoryTest,
    address,
    checkerboard,
    expected_compared_bytes,
    random_words,
    walking_bit,
    zeros,
)

if TYPE_CHECKING:
    from _kit.context import Context

_SPARE_BYTES = BLOCK_BYTES + (128 << 20)
"""Memory for the comparison: the scratch block, the Boolean mask of a count, and workspaces of torch."""
_MIN_TEST_BYTES = 64 << 20
_MAX_SHARE_OF_HOST = 0.25
_FLIPPED_BIT = 37
_PLANTED = "One bit was flipped on purpose (inject_error)."
_ADVICE = (
    "Do not train on this memory: check the ECC counters and the kernel log for Xids, reset the GPU, test again, and "
    "have it replaced if errors return."
)


def _test_bytes(context: Context) -> int:
    """Returns the memory to test in bytes.

    Raises:
        UnsupportedError: Too little memory is free.
    """
    requested, reserve = context.parameters.size_mebibytes << 20, context.parameters.reserve_mebibytes
    if not context.on_gpu:
        size, available = requested or _MIN_TEST_BYTES, host_free_bytes()
        if available is not None and 2 * size > available * _MAX_SHARE_OF_HOST:
            raise UnsupportedError("The host has too little free memory. Choose a smaller size_mebibytes.")
        return int(size)
    free = context.free_memory()[0]
    size = free - (reserve << 20) - _SPARE_BYTES
    if requested:
        size = min(size, requested)
    if size < _MIN_TEST_BYTES:
        raise UnsupportedError(
            f"{size_text(free)} is free on this GPU, and the test leaves {reserve} MiB. "
            "Choose a smaller reserve_mebibytes, or end other processes on the GPU."
        )
    return int(size // BLOCK_BYTES * BLOCK_BYTES or size)


def _uses(context: Context) -> Uses:
    size, seconds = _test_bytes(context), context.parameters.duration + 5
    return Uses(size + _SPARE_BYTES, seconds) if context.on_gpu else Uses(0, seconds, host_memory_bytes=2 * size)


def _run(context: Context) -> Verdict:
    size = _test_bytes(context)
    context.cap_memory(context.memory().get("reserved_bytes", 0) + size + _SPARE_BYTES)
    names = ", ".join(name.replace("_", " ") for name in PATTERNS)
    context.step(f"{size_text(size)} of memory is written and read with the patterns {names}, and their inverses.")
    test = MemoryTest(context, size)
    started = time.monotonic()
    deadline = started + context.parameters.duration
    number_of_round = 0
    # The first round is completed even if it takes longer: only then was every pattern tested everywhere.
    while not context.stopping and (number_of_round == 0 or time.monotonic() < deadline):
        _round(context, test, number_of_round, deadline)
        number_of_round += 1
    context.synchronize()
    return _judge(context, test, time.monotonic() - started)


def _round(context: Context, test: MemoryTest, number_of_round: int, deadline: float) -> None:
    """Runs one round; ends early if the run is stopped, or at the deadline after the first round."""
    started, moved = time.monotonic(), test.tally.moved_bytes
    for done, _ in enumerate(test.round(number_of_round), 1):
        if done == test.block_count and number_of_round == 0 and context.parameters.inject_error:
            test.flip_bit(test.size_bytes // 2 // 8 * 8, _FLIPPED_BIT)
        seconds = time.monotonic() - started
        context.metric("tested", (test.tally.moved_bytes - moved) / max(seconds, 1e-9) / 1e9)
        context.progress(*_progress(context, test, number_of_round, done, deadline))
        if context.stopping or (number_of_round and time.monotonic() >= deadline):
            return


def _progress(
    context: Context, test: MemoryTest, number_of_round: int, done: int, deadline: float
) -> tuple[float, float]:
    """Returns what is done and the total: of the duration, or of the first round if that takes longer."""
    duration = context.parameters.duration
    elapsed = (duration - (deadline - time.monotonic())) / duration
    first_round = done / test.steps_per_round if number_of_round == 0 else 1.0
    return max(0.0, min(elapsed, first_round)), 1.0


def _judge(context: Context, test: MemoryTest, seconds: float) -> Verdict:
    tally, size = test.tally, test.size_bytes
    if not tally.compared_bytes:
        return context.fail("Nothing was compared.")
    steps = max(1, tally.compared_bytes // max(1, size))
    context.result("memory_tested", size / GIBIBYTE, repetitions=steps)
    if context.on_gpu:
        context.result("share_of_memory", size / context.free_memory()[1] * 100, repetitions=1)
    context.result("rounds", tally.rounds, repetitions=max(1, tally.rounds))
    context.result("compared", tally.compared_bytes / 1e9, repetitions=steps)
    context.result("rate", tally.moved_bytes / seconds / 1e9, repetitions=steps)
    context.result("wrong_words", tally.wrong_words, repetitions=steps)
    if tally.wrong_words:
        advice = _PLANTED if context.parameters.inject_error else _ADVICE
        return context.fail(f"{tally.wrong_words} words are wrong, the first {tally.faults[0].text}. {advice}")
    if not tally.rounds:
        return context.warn("Stopped before all patterns were tested.")
    if tally.compared_bytes < expected_compared_bytes(test):
        return context.fail("Some blocks were never compared.")
    rounds = f"{tally.rounds} round{'s' * (tally.rounds != 1)}"
    return context.ok(
        f"{size_text(size)} kept {len(PATTERNS)} patterns and their inverses in {rounds}: no wrong bit. "
        "Memory errors are not the cause of wrong results or crashes here; to test under load, run burn."
    )


WORKLOAD = Workload(
    name="memtest",
    purpose="Tests nearly all free memory with bit patterns and their inverses; reports the address of an error.",
    needs="A GPU with little in use, or the CPU with host memory.",
    uses=_uses,
    run=_run,
    main_metric="rate",
    metrics=(
        DeclaredMetric("memory_tested", "GiB", HIGHER),
        DeclaredMetric("share_of_memory", "%", HIGHER),
        DeclaredMetric("rounds", "rounds", HIGHER, format="count"),
        DeclaredMetric("compared", "GB", HIGHER),
        DeclaredMetric("wrong_words", "words", LOWER, format="count"),
        DeclaredMetric("*", "GB/s", HIGHER),
    ),
    parameters=(
        number("duration", 20, 0.1, 86400, "Duration; the first round is always completed.", unit="s", default_cpu=3),
        integer("size_mebibytes", 0, 0, 500_000, "Memory to test; 0 is all free memory.", unit="MiB", default_cpu=64),
        integer("reserve_mebibytes", 1024, 64, 500_000, "Free GPU memory to leave.", unit="MiB"),
        flag("inject_error", False, "Flip one bit, to verify the test."),
    ),
    code=(zeros, checkerboard, walking_bit, address, random_words, MemoryTest),
)
