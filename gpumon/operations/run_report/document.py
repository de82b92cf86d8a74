"""The report of a run as one document: what its values mean, what drifted, and how two runs compare."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from statistics import median
from typing import Any, Final, NamedTuple

from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text
from gpumon.core.units import counted, duration_text, short_time_text, signal_name
from gpumon.health.alerts import ranges_text
from gpumon.operations.run_report.run_data import RunData
from gpumon.operations.run_report.statistics import difference

SCHEMA: Final = 1
_MIN_DRIFT: Final = 0.03
_MIN_LAG: Final = 0.05
_MIN_THROTTLED: Final = 0.05
_MIN_CAUSE: Final = 0.05
_MIN_IDLE: Final = 0.5
_WARM_UP: Final = 0.1
"""The first part of a run, which compiles and fills caches, is not compared with the rest."""


def report_document(data: RunData) -> dict[str, Any]:
    """The report of a run, complete at any moment of it."""
    document = data.document()
    document["drift"] = _drift(document["steps"])
    document["totals"] = _totals(document)
    document["stragglers"] = _stragglers(document["ranks"])
    document["verdict"] = list(_verdict(document))
    return {"schema": SCHEMA, "kind": "gpumon_report", **document}


def _totals(document: Mapping[str, Any]) -> dict[str, Any]:
    gpus = document["gpus"]
    known = [gpu for gpu in gpus if gpu["energy_joules"] is not None]
    busy = [gpu for gpu in gpus if gpu["busy_share"] is not None and gpu["measured_seconds"]]
    span = sum(gpu["measured_seconds"] for gpu in busy)
    return {
        "gpu_hours": sum(gpu["measured_seconds"] for gpu in gpus) / 3600 if gpus else None,
        "useful_share": sum(gpu["busy_share"] * gpu["measured_seconds"] for gpu in busy) / span if span else None,
        "energy_kwh": sum(gpu["energy_joules"] for gpu in known) / 3.6e6 if known else None,
        "energy_error_kwh": sum(gpu["energy_error_joules"] for gpu in known) / 3.6e6 if known else None,
        "peak_memory_bytes": max((gpu["peak_memory_bytes"] or 0 for gpu in gpus), default=0) or None,
        "step_seconds": document["ranks"][0]["step_seconds"] if document["ranks"] else None,
    }


def _drift(steps: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The last third of the steps compared with the first, after the warm-up; None for too few."""
    points = step_points(steps)
    third = len(points) // 3
    change = difference(points[:third], points[-third:]) if third else None
    if change is None:
        return None
    return {"change": change.change, "low": change.low, "high": change.high, "is_shown": change.is_shown}


def step_points(steps: Mapping[str, Any] | None) -> list[tuple[float, float]]:
    """The mean duration of steps over time, with their number, in order, without the warm-up."""
    if not steps:
        return []
    pairs = zip(steps["values"], steps["counts"], strict=True)
    points = [(float(value), float(count)) for value, count in pairs if value is not None]
    return points[int(_WARM_UP * len(points)) :]


def _stragglers(ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Ranks whose data takes longer than that of the others: in a job that waits for all, only they differ."""
    shares = {rank["rank"]: rank["data_share"] for rank in ranks if rank["data_share"] is not None}
    usual = median(shares.values()) if len(shares) > 1 else 1.0
    late = [(rank, share) for rank, share in shares.items() if share - usual >= _MIN_LAG]
    return [{"rank": rank, "data_share": share, "others_share": usual} for rank, share in late]


def _verdict(document: Mapping[str, Any]) -> Iterator[str]:
    """The paragraph, sentence by sentence."""
    yield _duration_sentence(document)
    yield from _account_sentences(document)
    for rank in document["stragglers"]:
        own, others = rank["data_share"], rank["others_share"]
        yield f"Rank {rank['rank']} waits for data in {own:.0%} of its time, the others in {others:.0%}."
    yield from _gpu_sentences(document["gpus"])
    drift = document["drift"]
    if drift is not None and drift["is_shown"] and abs(drift["change"]) >= _MIN_DRIFT:
        verb = "slower" if drift["change"] > 0 else "faster"
        yield f"Steps became {abs(drift['change']):.0%} {verb} from the first third to the last."
    yield from _energy_sentences(document["totals"])
    if document["command"]:
        yield _end_sentence(document)


def _duration_sentence(document: Mapping[str, Any]) -> str:
    ranks = document["ranks"]
    parts = [duration_text(document["seconds"])]
    if document["gpus"]:
        parts.append(f"on {counted(len(document['gpus']), 'GPU')}")
    if ranks:
        duration = ranks[0]["step_seconds"]
        text = "" if duration is None else f" of {short_time_text(duration)}"
        parts.append(f"{counted(ranks[0]['steps_count'], 'step')}{text}")
    return f"{', '.join(parts)}."


def _account_sentences(document: Mapping[str, Any]) -> Iterator[str]:
    """The cause that was found most often, and how much time it cost at most."""
    accounts = document["accounts"]
    firsts = [account["causes"][0] for account in accounts if account.get("causes")]
    if not firsts:
        if accounts:
            yield f"{accounts[-1]['summary']}"
        return
    label = Counter(cause["label"] for cause in firsts).most_common(1)[0][0]
    causes = [cause for cause in firsts if cause["label"] == label]
    share = median(cause["share"] for cause in causes)
    if share < _MIN_CAUSE:
        return
    saved = median(1 - cause["bound_seconds"] / cause["base_seconds"] for cause in causes if cause["base_seconds"])
    seconds = saved * document["seconds"] * len(causes) / len(accounts)
    line = next((f" at {cause['line']}" for cause in causes if cause["line"]), "")
    yield (
        f"{label[0].upper()}{label[1:]}{line} took {share:.0%} of a step in {len(causes)} of {len(accounts)} samples; "
        f"at most {duration_text(seconds)} could be saved."
    )


def _gpu_sentences(gpus: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    throttled: dict[str, dict[int, float]] = {}
    for gpu in gpus:
        for reason, seconds in gpu["throttled_seconds"].items():
            if seconds >= _MIN_THROTTLED * gpu["measured_seconds"]:
                throttled.setdefault(reason, {})[gpu["index"]] = seconds / gpu["measured_seconds"]
    for reason, shares in throttled.items():
        text, most = reason.replace("_", " "), max(shares.values())
        yield f"Throttled ({text}): GPU {ranges_text([*shares])}, up to {most:.0%} of the time."
    idle = [gpu["index"] for gpu in gpus if gpu["idle_seconds"] > _MIN_IDLE * gpu["measured_seconds"]]
    if idle:
        yield f"Idle for more than half of the time: GPU {ranges_text(idle)}."


def _energy_sentences(totals: Mapping[str, Any]) -> Iterator[str]:
    if totals["energy_kwh"] is not None:
        error = f" ± {totals['energy_error_kwh']:.2g}" if totals["energy_error_kwh"] is not None else ""
        share = "" if totals["useful_share"] is None else f", {totals['useful_share']:.0%} of them busy"
        yield f"{totals['energy_kwh']:.3g}{error} kWh; {totals['gpu_hours']:.3g} GPU-hours{share}."


def _end_sentence(document: Mapping[str, Any]) -> str:
    status, explanation = document["exit_status"], document["explanation"]
    if not document["has_ended"]:
        return "Its end is not in the record: it runs, or gpumon was killed first."
    steps = document["ranks"][0]["steps_count"] if document["ranks"] else None
    at = "" if steps is None else f" after step {steps:,}"
    if not status:
        return f"Ended well{at}." if status == 0 else f"Ended{at}."
    how = f"Ended by {signal_name(-status)}{at}" if status < 0 else f"Ended with exit code {status}{at}"
    return f"{how}: {explanation['headline']}" if explanation else f"{how}."


STEP_TIME: Final = "step_time"
_CONDITION: Final = re.compile(r"\s*(\w+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*", re.ASCII)
_VALUES: Final = {
    "peak_memory": "peak_memory_bytes",
    "energy": "energy_kwh",
    "gpu_hours": "gpu_hours",
    "useful_share": "useful_share",
}
"""What is compared in addition to the step time, and its name among the totals of a report."""
_FIRST: Final = ("driver_version", "torch_version", "command", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""Differences that explain most, the likeliest first."""


class ComparedValue(NamedTuple):
    """One value of two runs.

    Attributes:
        name: Such as ``step_time``.
        base: The value of the first run; None if unknown.
        new: That of the second run.
        change: The relative change; None if unknown.
        low: The lower end of its interval: of step times, that of the confidence asked for; of energy, of its error.
        high: The upper end.
    """

    name: str
    base: float | None
    new: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high

    @property
    def verdict(self) -> str:
        """What the interval shows, in a clause."""
        if self.low is None or self.change is None:
            return "unknown"
        return ("more" if self.change > 0 else "less") if self.is_shown else "no difference can be shown"


class FailCondition(NamedTuple):
    """A condition of ``--fail-if``: a name, ``>`` or ``<``, and a relative change."""

    name: str
    is_above: bool
    change: float

    def state(self, comparisons: Sequence[ComparedValue]) -> bool | None:
        """Whether the condition is shown to hold (True) or not to hold (False); None if neither is."""
        value = next((item for item in comparisons if item.name == self.name), None)
        if value is None or value.low is None or value.high is None:
            return None
        if self.is_above:
            return True if value.low > self.change else False if value.high <= self.change else None
        return True if value.high < self.change else False if value.low >= self.change else None


def parse_condition(text: str) -> FailCondition:
    """Parse ``step_time > +5%``.

    Raises:
        CommandError: The text is no condition, or names an unknown value.
    """
    match = _CONDITION.fullmatch(text)
    names = (STEP_TIME, *_VALUES)
    if match is None or match[1] not in names:
        reason = f"{safe_text(text, 60)!r} is not a condition such as 'step_time > +5%'."
        raise CommandError.usage(ProblemCode.INVALID_VALUE, reason, f"Values: {', '.join(names)}.")
    return FailCondition(match[1], match[2] == ">", float(match[3]) / 100)


def compare_reports(base: Mapping[str, Any], new: Mapping[str, Any], confidence: float) -> list[ComparedValue]:
    """Compare the values of two reports; a value that one of them lacks is unknown."""
    steps = [report["totals"]["step_seconds"] for report in (base, new)]
    change = difference(step_points(base["steps"]), step_points(new["steps"]), confidence)
    shown = (None, None, None) if change is None else (change.change, change.low, change.high)
    return [ComparedValue(STEP_TIME, *steps, *shown), *(_value(name, base, new) for name in _VALUES)]


def _value(name: str, base: Mapping[str, Any], new: Mapping[str, Any]) -> ComparedValue:
    """A value that was counted once in each run: its interval is that of its measurement, not of another run."""
    values = [report["totals"].get(_VALUES[name]) for report in (base, new)]
    if not values[0] or values[1] is None:
        return ComparedValue(name, values[0], values[1])
    errors = [report["totals"].get("energy_error_kwh") or 0.0 if name == "energy" else 0.0 for report in (base, new)]
    low = max(0.0, values[1] - errors[1]) / (values[0] + errors[0]) - 1
    high = (values[1] + errors[1]) / (values[0] - errors[0]) - 1 if values[0] > errors[0] else float("inf")
    return ComparedValue(name, values[0], values[1], values[1] / values[0] - 1, low, high if isfinite(high) else None)


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, str]]:
    """What differs in the environments, what explains most first, and how the account of a step has changed."""
    sides = [
        {
            "command": " ".join(report["command"] or ()),
            **{name: str(value) for name, value in {**report["host"], **report["versions"]}.items() if value},
            **report["environment"],
            "gpus": ", ".join(sorted({str(gpu["name"]) for gpu in report["gpus"]})),
            **_account(report),
        }
        for report in (base, new)
    ]
    names = [name for name in {**sides[0], **sides[1]} if sides[0].get(name, "") != sides[1].get(name, "")]
    names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return [{"name": name, "base": sides[0].get(name, ""), "new": sides[1].get(name, "")} for name in names]


def _account(report: Mapping[str, Any]) -> dict[str, str]:
    """The latest account of a step, in whole percent."""
    shares = report["accounts"][-1]["shares"] if report["accounts"] else {}
    return {f"step: {name}": f"{share:.0%}" for name, share in shares.items() if share and share >= 0.01}
