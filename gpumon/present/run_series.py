"""What can be drawn of a result: sweeps over a number, and comparisons of cases or of metrics.

A metric with a position is a point of a sweep. So is one whose name contains one number, such as
``to_device_pinned_4KiB`` or ``block_128``. What remains is compared: the cases of a metric, or metrics of one unit.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from gpumon.present.paint.plot import MAX_CURVES
from gpumon.present.workload_text import BYTE_UNITS, label_text

_POINT: Final = re.compile(r"(?P<before>\D*?)_?(?P<number>\d+)(?P<unit>B|[KMGT]iB)?(?P<after>_\D*)?")
_QUANTITY: Final = re.compile(r"(?<![\w.])(?P<number>\d+(?:\.\d+)?)\s?(?P<unit>B|[KMGT]iB)?(?!\w)")
"""A number in the name of a case, with a unit of bytes if it has one."""
_FACTORS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MIN_POINTS: Final = 3
_MIN_COMPARED: Final = 2

Metric = Mapping[str, Any]


class MetricSweep(NamedTuple):
    """Metrics of one unit over the same numbers.

    Attributes:
        title: Their unit, after their name if all curves are of one metric.
        axis: What the numbers count, such as ``batch``; empty if unknown.
        labels: A label for each number, rising.
        curves: By the name of the curve: a value for each number at which it was measured.
    """

    title: str
    axis: str
    labels: dict[float, str]
    curves: dict[str, dict[float, float]]


class Compared(NamedTuple):
    """A value among others of the same unit."""

    name: str
    value: float
    limit: float | None


class Comparison(NamedTuple):
    """Values of one unit.

    Attributes:
        title: The unit, after the name of the metric if its cases are compared.
        unit: The unit.
        values: The values.
    """

    title: str
    unit: str
    values: list[Compared]


class _SweepPoint(NamedTuple):
    """A metric as a point: the name of its metric, the curve to which it belongs, its place and its label."""

    name: str
    family: str
    position: float
    label: str
    metric: Metric


def sweeps_of(metrics: Iterable[Metric]) -> tuple[list[MetricSweep], list[Metric]]:
    """The sweeps among the metrics of a result, and the other metrics."""
    metrics = list(metrics)
    are_ambiguous = _ambiguous_names(metrics)
    by_curve: dict[tuple[str, str, str], dict[float, _SweepPoint]] = defaultdict(dict)
    axes: dict[str, set[str]] = defaultdict(set)
    rest = []
    for metric in metrics:
        point = _point_of(metric)
        if point is None or number_of(metric) is None:
            rest.append(metric)
            continue
        unit = str(metric["unit"])
        axes[unit].add(point.family)
        family = point.family if point.name in are_ambiguous else ""
        by_curve[unit, point.name, family][point.position] = point
    names: dict[str, set[str]] = defaultdict(set)
    for (unit, name, _), points in by_curve.items():
        if len(points) >= _MIN_POINTS:
            names[unit].add(name)
    sweeps: list[tuple[str, MetricSweep]] = []
    for (unit, name, family), points in by_curve.items():
        if len(points) < _MIN_POINTS:
            rest += [point.metric for point in points.values()]
            continue
        is_only = len(names[unit]) == 1 and bool(family)
        curve_name = family if is_only else ", ".join(filter(None, [label_text(name), family]))
        title = f"{label_text(name)}, {unit}" if is_only else unit
        axis = next(iter(axes[unit])) if len(axes[unit]) == 1 else ""
        _add_curve(sweeps, unit, MetricSweep(title, axis, {}, {}), curve_name, points)
    ordered = [sweep._replace(labels=dict(sorted(sweep.labels.items()))) for _, sweep in sweeps]
    return ordered, rest


def _add_curve(
    sweeps: list[tuple[str, MetricSweep]],
    unit: str,
    new: MetricSweep,
    name: str,
    points: Mapping[float, _SweepPoint],
) -> None:
    """Add a curve to the sweep of its unit over the same numbers, or to a new one."""
    for known_unit, sweep in sweeps:
        has_room = len(sweep.curves) < MAX_CURVES
        if (
            known_unit == unit
            and has_room
            and (sweep.labels.keys() >= points.keys() or points.keys() >= sweep.labels.keys())
        ):
            break
    else:
        sweep = new
        sweeps.append((unit, sweep))
    sweep.labels.update({position: point.label for position, point in points.items()})
    sweep.curves[name] = {at: float(points[at].metric["value"]) for at in sorted(points)}


def comparisons_of(metrics: Iterable[Metric]) -> list[Comparison]:
    """The cases of each metric, then metrics without cases by their unit.

    Counts, which are complete numbers, are no measure to compare metrics by, and equal values are no comparison.
    """
    cases: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    units: dict[str, list[Compared]] = defaultdict(list)
    for metric in metrics:
        value, limit = number_of(metric), number_of(metric, "limit")
        if value is None:
            continue
        name, unit = label_text(str(metric["name"])), str(metric["unit"])
        if metric.get("case"):
            cases[name, unit].append(Compared(str(metric["case"]), value, limit))
        else:
            units[unit].append(Compared(name, value, limit))
    comparisons = [
        Comparison(f"{name}, {unit}" if unit and unit not in BYTE_UNITS else name, unit, group)
        for (name, unit), group in cases.items()
        if len({compared.value for compared in group}) >= _MIN_COMPARED
    ]
    comparisons += [
        Comparison(unit, unit, group)
        for unit, group in units.items()
        if len(group) >= _MIN_COMPARED and not all(compared.value.is_integer() for compared in group)
    ]
    return comparisons


def number_of(metric: Metric, field: str = "value") -> float | None:
    """A number of a metric that an axis which begins at 0 can show."""
    value = metric.get(field)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < inf else None


def _point_of(metric: Metric) -> _SweepPoint | None:
    """A metric as a point of a sweep, or None if it is none."""
    name, case, position = str(metric["name"]), str(metric.get("case") or ""), number_of(metric, "position")
    if position is not None:
        return _case_point(name, case, position, metric)
    match = None if case else _POINT.fullmatch(name)
    if match is None:
        return None
    unit = match["unit"] or ""
    name = (match["before"] + (match["after"] or "")).strip("_")
    return _SweepPoint(name, "", float(match["number"]) * _FACTORS[unit], match["number"] + unit, metric)


def _case_point(name: str, case: str, position: float, metric: Metric) -> _SweepPoint:
    """A case with a position; the number in its name is the label, and the rest names the curve."""
    for match in _QUANTITY.finditer(case):
        if position in {float(match["number"]), float(match["number"]) * _FACTORS[match["unit"] or ""]}:
            family = f"{case[: match.start()].rstrip(' =:,_-')} {case[match.end() :].lstrip(' =:,_-')}".strip()
            return _SweepPoint(name, family, position, match[0].replace(" ", ""), metric)
    return _SweepPoint(name, case, position, f"{position:g}", metric)


def _ambiguous_names(metrics: Sequence[Metric]) -> set[str]:
    """Metrics that have several values at one position, which belong to several curves."""
    seen: set[tuple[str, float]] = set()
    names = set()
    for metric in metrics:
        position = number_of(metric, "position")
        if position is not None:
            key = (str(metric["name"]), position)
            names |= {key[0]} if key in seen else set()
            seen.add(key)
    return names
