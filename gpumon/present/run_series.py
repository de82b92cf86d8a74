"""What can be drawn of a result: sweeps over a number, and comparisons of cases or of metrics.

A metric with a position is a point of a sweep. So is one whose name contains one number, such as
``to_device_pinned_4KiB`` or ``block_128``. What remains is compared: the cases of a metric, or metrics of one unit.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from gpumon.core.units import BYTES_PER_UNIT
from gpumon.core.workload_metrics import Measurement, WorkloadMetric, label_text
from gpumon.present.paint.plot import MAX_CURVES

_POINT: Final = re.compile(r"(?P<before>\D*?)_?(?P<number>\d+)(?P<unit>B|[KMGT]iB)?(?P<after>_\D*)?")
_QUANTITY: Final = re.compile(r"(?<![\w.])(?P<number>\d+(?:\.\d+)?)\s?(?P<unit>B|[KMGT]iB)?(?!\w)")
"""A number in the name of a case, with a unit of bytes if it has one."""
_MIN_POINTS: Final = 3
_MIN_COMPARED: Final = 2


class MetricSweep(NamedTuple):
    """Metrics of one unit over the same numbers.

    Attributes:
        title: Their unit, after their name if all curves are of one metric.
        metric: One of the metrics, whose unit all have.
        axis: What the numbers count, such as ``batch``; empty if unknown.
        labels: A label for each number, rising.
        curves: By the name of the curve: a value for each number at which it was measured.
    """

    title: str
    metric: WorkloadMetric
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
        metric: One of the metrics, whose unit all have.
        values: The values.
    """

    title: str
    metric: WorkloadMetric
    values: list[Compared]


class _SweepPoint(NamedTuple):
    """A metric as a point: the name of its metric, the curve to which it belongs, its place and its label."""

    name: str
    family: str
    position: float
    label: str
    measured: Measurement


def sweeps_of(measurements: Iterable[Measurement]) -> tuple[list[MetricSweep], list[Measurement]]:
    """The sweeps among the measurements of a result, and the other ones."""
    measurements = list(measurements)
    are_ambiguous = _ambiguous_names(measurements)
    by_curve: dict[tuple[str, str, str], dict[float, _SweepPoint]] = defaultdict(dict)
    axes: dict[str, set[str]] = defaultdict(set)
    rest = []
    for item in measurements:
        point = _point_of(item)
        if point is None or not is_drawable(item.value):
            rest.append(item)
            continue
        unit = item.metric.unit
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
            rest += [point.measured for point in points.values()]
            continue
        is_only = len(names[unit]) == 1 and bool(family)
        curve_name = family if is_only else ", ".join(filter(None, [label_text(name), family]))
        title = f"{label_text(name)}, {unit}" if is_only else unit
        axis = next(iter(axes[unit])) if len(axes[unit]) == 1 else ""
        metric = next(iter(points.values())).measured.metric
        _add_curve(sweeps, unit, MetricSweep(title, metric, axis, {}, {}), curve_name, points)
    ordered = [sweep._replace(labels=dict(sorted(sweep.labels.items()))) for _, sweep in sweeps]
    return ordered, rest


def _add_curve(
    sweeps: list[tuple[str, MetricSweep]], unit: str, new: MetricSweep, name: str, points: Mapping[float, _SweepPoint]
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
    sweep.curves[name] = {at: float(points[at].measured.value) for at in sorted(points)}


def comparisons_of(measurements: Iterable[Measurement]) -> list[Comparison]:
    """The cases of each metric, then metrics without cases by their unit.

    Counts, which are complete numbers, are no measure to compare metrics by, and equal values are no comparison.
    """
    cases: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    units: dict[str, list[Measurement]] = defaultdict(list)
    for item in measurements:
        if is_drawable(item.value):
            group = cases[item.metric.name, item.metric.unit] if item.case else units[item.metric.unit]
            group.append(item)
    comparisons = [
        Comparison(", ".join(filter(None, [group[0].metric.label, group[0].metric.heading])), group[0].metric,
                   [_compared(item, item.case) for item in group])
        for group in cases.values()
        if len({item.value for item in group}) >= _MIN_COMPARED
    ]  # fmt: skip
    comparisons += [
        Comparison(unit, group[0].metric, [_compared(item, item.metric.label) for item in group])
        for unit, group in units.items()
        if len(group) >= _MIN_COMPARED and not all(float(item.value).is_integer() for item in group)
    ]
    return comparisons


def _compared(item: Measurement, name: str) -> Compared:
    limit = item.limit if item.limit is not None and is_drawable(item.limit) else None
    return Compared(name, float(item.value), limit)


def is_drawable(value: float) -> bool:
    """Whether an axis that begins at 0 can show a number."""
    return 0 <= value < inf


def _point_of(item: Measurement) -> _SweepPoint | None:
    """A measurement as a point of a sweep, or None if it is none."""
    name = item.metric.name
    if item.position is not None and is_drawable(item.position):
        return _case_point(name, item.case, float(item.position), item)
    match = None if item.case else _POINT.fullmatch(name)
    if match is None:
        return None
    unit = match["unit"] or ""
    name = (match["before"] + (match["after"] or "")).strip("_")
    position = float(match["number"]) * BYTES_PER_UNIT.get(unit.lower(), 1)
    return _SweepPoint(name, "", position, match["number"] + unit, item)


def _case_point(name: str, case: str, position: float, item: Measurement) -> _SweepPoint:
    """A case with a position; the number in its name is the label, and the rest names the curve."""
    for match in _QUANTITY.finditer(case):
        number = float(match["number"])
        if position in {number, number * BYTES_PER_UNIT.get((match["unit"] or "").lower(), 1)}:
            family = f"{case[: match.start()].rstrip(' =:,_-')} {case[match.end() :].lstrip(' =:,_-')}".strip()
            return _SweepPoint(name, family, position, match[0].replace(" ", ""), item)
    return _SweepPoint(name, case, position, f"{position:g}", item)


def _ambiguous_names(measurements: Sequence[Measurement]) -> set[str]:
    """Metrics that have several values at one position, which belong to several curves."""
    seen: set[tuple[str, float]] = set()
    names = set()
    for item in measurements:
        if item.position is not None and is_drawable(item.position):
            key = (item.metric.name, item.position)
            names |= {key[0]} if key in seen else set()
            seen.add(key)
    return names
