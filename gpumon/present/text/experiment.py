"""The output of ``gpumon try``: which command is faster, and what its runs have measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpumon.core.paired import RelativeChange
from gpumon.operations.run_report.experiment import TriedRun
from gpumon.present.report.sections import table
from gpumon.present.text.compare import table_lines


def experiment_lines(runs: Sequence[TriedRun], change: RelativeChange) -> Iterator[str]:
    """The lines.

    Args:
        runs: The runs, in order.
        change: The change of the step time from A to B.
    """
    factors = sorted(1.0 + value for value in (change.low, change.high))
    if not change.is_shown:
        yield f"No difference can be shown: a step of B takes {factors[0]:.2f} to {factors[1]:.2f} times as long."
    elif change.change < 0:
        ends = f"{1 / factors[1]:.2f} to {1 / factors[0]:.2f}"
        yield f"B is {1 / (1 + change.change):.2f} x faster ({ends})."
    else:
        yield f"A is {1 + change.change:.2f} x faster ({factors[0]:.2f} to {factors[1]:.2f})."
    yield ""
    yield from table_lines(table("tried", map(_row, runs)))
    others = dict.fromkeys(other for run in runs for other in run.others)
    for other in others:
        yield f"Another program used {other}."


def _row(run: TriedRun) -> Mapping[str, Any]:
    """A run; of several GPUs, the lowest clock and the highest temperature."""
    clocks = [gpu["mean_clock_sm_hertz"] for gpu in run.gpus if gpu["mean_clock_sm_hertz"]]
    heats = [gpu["peak_temperature_celsius"] for gpu in run.gpus if gpu["peak_temperature_celsius"]]
    reasons = {reason: held for gpu in run.gpus for reason, held in gpu["throttled_seconds"].items()}
    return {
        **run._asdict(),
        "clock": min(clocks, default=None),
        "temperature": max(heats, default=None),
        "throttled": reasons or None,
    }
