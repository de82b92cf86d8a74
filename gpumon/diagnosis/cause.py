"""Decides which of several errors came first, and which ones follow from it."""

from collections.abc import Sequence
from typing import Final

from gpumon.diagnosis.explanation import Match
from gpumon.diagnosis.prefixes import ClockKind

_TAKEDOWN: Final = "nccl-takedown"
_RCCL: Final = "rccl"
_TIMEOUT: Final = "nccl-timeout"
_DEVICE_ASSERT: Final = "device-assert"
_FOLLOWS_ASSERT: Final = frozenset(
    {
        "cublas-exec",
        "cublas-init",
        "cuda-unknown",
        "cudnn-engine",
        "cudnn-init",
        "cufft",
        "illegal-address",
        "init-error-3",
        "launch-failure",
        "nccl-cuda",
        "pin-memory",
    }
)
"""Errors that other calls report after a device-side assert killed the context, possibly earlier in the log than it."""
INITIALIZATION: Final = frozenset(
    {"driver-old", "compat-803-804", "fabric-802", "init-unknown", "init-error-2", "init-error-3", "no-driver"}
)
"""Why CUDA cannot start. PyTorch prints it as a warning, and continues without a GPU."""
_FOLLOWS_INITIALIZATION: Final = frozenset(
    {
        "bad-ordinal",
        "bf16-unsupported",
        "cuda-unavailable",
        "fsdp-no-accelerator",
        "load-map",
        "mixed-precision-cpu",
        "nccl-no-gpu",
        "no-gpus",
        "trainer-no-gpu",
        "type-unsupported",
        "vllm-no-device",
    }
)
"""Errors of programs that need a GPU and see none."""
_MODULE: Final = "module-load"
_PROBE: Final = "driver-probe"
_MISMATCH: Final = "nvml-mismatch"
_FOLLOWS_MISMATCH: Final = frozenset({"cuda-unknown", "ptx", *INITIALIZATION, *_FOLLOWS_INITIALIZATION})
"""Errors of a driver whose module and libraries differ; nvidia-smi, which names it, is mostly run after them."""
_HEADERS: Final = {
    "state-dict-mismatch": frozenset({"zero3-empty-weights", "meta-tensor"}),
    "tgi-shard": frozenset({"tgi-signal"}),
    "oom": frozenset({"vllm-warmup-oom"}),
    "oom-raw": frozenset({"llama-memory"}),
    "nvlink-inactive": frozenset({"xid-74", *(f"xid-{number}" for number in range(144, 151))}),
}
"""Errors whose first line is a header, and the errors that a line below it names more exactly."""
_MAX_LINES_TO_DETAIL: Final = 64
_ENGINE_DEAD: Final = frozenset({"vllm-engine-dead", "sglang-scheduler"})
_HOST_MEMORY: Final = "host-oom"
_KILLED: Final = "Killed"
_DAY_SECONDS: Final = 24 * 3600.0
_PERIOD_SECONDS: Final = {ClockKind.TIME_OF_DAY: _DAY_SECONDS, ClockKind.WITHOUT_YEAR: 366 * _DAY_SECONDS}
"""The period after which a clock restarts: two errors may be on both sides of midnight or of a new year."""


def first_cause(matches: Sequence[Match]) -> Match:
    """The error from which the others follow.

    An echo is chosen only if every match is an echo, and a warning only if no error occurred.

    Args:
        matches: The known errors of a log, at least one.
    """
    grade = min(_grade(match) for match in matches)
    candidates = sorted((match for match in matches if _grade(match) == grade), key=lambda match: match.line)
    first = candidates[0]
    for other in candidates[1:]:
        if _is_earlier(other, first):
            first = other
    if first.error.id.startswith("nccl-"):  # RCCL prints the same messages, and needs other advice
        first = next((match for match in matches if match.error.id == _RCCL), first)
    if first.error.id in _FOLLOWS_ASSERT:
        asserts = (match for match in matches if match.error.id == _DEVICE_ASSERT and _share_rank(match, first))
        return next(asserts, first)
    if first.error.id in _FOLLOWS_MISMATCH:
        mismatch = next((match for match in matches if match.error.id == _MISMATCH), None)
        if mismatch is not None:
            return mismatch
    if first.error.id == _MODULE and first.values.get("reason") == "No such device":  # the driver says why
        return next((match for match in matches if match.error.id == _PROBE), first)
    if first.error.id == _TAKEDOWN:  # PyTorch announces the end of the process before it prints the reason
        timeouts = (match for match in matches if match.error.id == _TIMEOUT and _share_rank(match, first))
        return next(timeouts, first)
    if first.error.id in _FOLLOWS_INITIALIZATION:
        failures = (match for match in matches if match.error.id in INITIALIZATION and match.line < first.line)
        return next((match for match in failures if _share_rank(match, first)), first)
    return next((match for match in matches if _is_detail(match, first)), first)


def without_own_kill(matches: Sequence[Match]) -> list[Match]:
    """The errors without the last line of a vLLM or SGLang that kills its own processes once its engine has failed.

    Args:
        matches: The known errors of a log, by their lines.
    """
    ends = [match.line for match in matches if match.error.id in _ENGINE_DEAD]
    return [
        match
        for match in matches
        if match.error.id != _HOST_MEMORY or match.text.strip() != _KILLED or not ends or match.line < ends[0]
    ]


def _is_detail(match: Match, header: Match) -> bool:
    is_below = 0 < match.line - header.line <= _MAX_LINES_TO_DETAIL and _share_rank(match, header)
    return is_below and match.error.id in _HEADERS.get(header.error.id, ())


def _grade(match: Match) -> tuple[bool, bool, bool]:
    """An echo, a warning, and a line of the code that would raise an error are causes only if nothing else is."""
    return (match.error.is_echo, match.is_warning, match.is_code)


def _is_earlier(match: Match, other: Match) -> bool:
    """Whether the timestamps prove it; without comparable timestamps the order of the lines decides."""
    if match.timestamp is None or other.timestamp is None or match.timestamp.clock is not other.timestamp.clock:
        return False
    seconds = other.timestamp.seconds - match.timestamp.seconds
    period = _PERIOD_SECONDS.get(match.timestamp.clock)
    return seconds > 0 if period is None else 0 < seconds % period < period / 2


def _share_rank(one: Match, other: Match) -> bool:
    return not one.ranks or not other.ranks or not set(one.ranks).isdisjoint(other.ranks)
