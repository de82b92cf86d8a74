"""What the counters of memory errors (ECC, remapped rows) add to the result of a workload: their change in the run."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.units import counted
from gpumon.core.workload_metrics import Better, Measurement, MetricFormat, WorkloadMetric

CORRECTED: Final = "ecc_corrected_volatile_count"
UNCORRECTED: Final = "ecc_uncorrected_volatile_count"
_REMAPPED: Final = ("remapped_rows_correctable_count", "remapped_rows_uncorrectable_count")
_PENDING: Final = "remapped_rows_pending"
_FAILURE: Final = "remapped_rows_failure"
COUNTERS: Final = (CORRECTED, UNCORRECTED, *_REMAPPED, _PENDING, _FAILURE)
"""The metrics that are compared."""
TESTS_MEMORY: Final = "wrong_words"
"""The measurement of a workload that tests memory: its result also names the counters that did not change."""
_METRICS: Final = tuple(
    WorkloadMetric(name, unit, Better.LOWER, MetricFormat.COUNT)
    for name, unit in (("ecc_corrected", "errors"), ("ecc_uncorrected", "errors"), ("remapped_rows", "rows"))
)
_RESET: Final = "Reset the GPU and run the test again; if errors return, have the board replaced."


class MemoryErrors(NamedTuple):
    """The memory errors of a run.

    Attributes:
        sentences: Sentences to add to the verdict.
        metrics: Metrics to add to the result.
        is_bad: Whether results of the run cannot be trusted, or the board must be replaced.
        is_suspect: Whether the memory needs attention.
    """

    sentences: tuple[str, ...] = ()
    metrics: tuple[Measurement, ...] = ()
    is_bad: bool = False
    is_suspect: bool = False


def memory_errors(counters: Sequence[Mapping[str, float]], *, tests_memory: bool) -> MemoryErrors:
    """Compares the counters of a GPU before and after a run.

    The readings of `COUNTERS` are in order; a metric that was not read is missing.
    """
    corrected, uncorrected = _rise(counters, CORRECTED), _rise(counters, UNCORRECTED)
    rises = [rise for rise in (_rise(counters, name) for name in _REMAPPED) if rise is not None]
    remapped = sum(rises) if rises else None
    sentences = []
    if uncorrected:
        sentences.append(f"ECC found {counted(uncorrected, 'uncorrectable memory error')} during the run. {_RESET}")
    if corrected:
        sentences.append(
            f"ECC corrected {counted(corrected, 'memory error')} during the run; results are not affected."
        )
    if remapped:
        sentences.append(f"The driver remapped {counted(remapped, 'memory row')} during the run. {_RESET}")
    has_failed, is_pending = _rise(counters, _FAILURE), _rise(counters, _PENDING)
    if has_failed:
        sentences.append("A bad memory row could not be remapped: have the board replaced.")
    if is_pending:
        sentences.append("A memory row waits to be remapped: reset the GPU.")
    metrics = tuple(
        Measurement(metric, rise, len(counters))
        for metric, rise in zip(_METRICS, (corrected, uncorrected, remapped), strict=True)
        if rise is not None and (rise or tests_memory)
    )
    if tests_memory and not sentences:
        sentences.append(_quiet_sentence(corrected, uncorrected, remapped))
    is_suspect = bool(remapped or is_pending or (tests_memory and corrected))
    return MemoryErrors(tuple(sentences), metrics, bool(uncorrected or has_failed), is_suspect)


def _quiet_sentence(corrected: int | None, uncorrected: int | None, remapped: int | None) -> str:
    """What a run without a change reports about the counters."""
    ecc = None if corrected is None or uncorrected is None else "ECC reported no error"
    rows = None if remapped is None else "no memory row was remapped"
    known = [text for text in (ecc, rows) if text is not None]
    if not known:
        return "This GPU reports neither ECC errors nor remapped rows."
    text = " and ".join(known)
    return f"{text[0].upper()}{text[1:]} during the run."


def _rise(counters: Sequence[Mapping[str, float]], name: str) -> int | None:
    """How far a counter rose; None if it was not read twice. A counter that fell was reset, and counts from zero."""
    values = [sample[name] for sample in counters if name in sample]
    if len(values) < 2:
        return None
    return int(values[-1] - values[0] if values[-1] >= values[0] else values[-1])
