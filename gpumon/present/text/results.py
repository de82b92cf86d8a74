"""The output of ``gpumon results``: the newest result of each kind, or the history of one workload with plots."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpumon.core.units import MISSING, counted, local_time_text
from gpumon.core.workload_metrics import Better, Measurement, WorkloadMetric, label_text
from gpumon.operations.results import ComparedResult, ResultGroup, SavedResult
from gpumon.operations.workload import MetricChange
from gpumon.present.paint.cell_table import CellColumn, cell_table, fitting_columns, value_column
from gpumon.present.paint.line import clipped, plain
from gpumon.present.paint.plot import MAX_CURVES, AxisTick, Curve
from gpumon.present.paint.table import Align
from gpumon.present.run_plots import MIN_WIDTH, comparison_lines, plotted
from gpumon.present.run_series import Compared, Comparison, is_drawable
from gpumon.present.workload_text import change_text, parameter_text
from gpumon.workload_runs.parameters import Value

_MAX_METRICS: Final = 3
"""Metrics of a history; the first is the one that matters."""
_MAX_ROWS: Final = 100
"""Results of a history that are listed; plots, CSV and JSON have all of them."""
_UUID_WIDTH: Final = 13
_MAX_PARAMETERS: Final = 60
_MAX_PLOT_WIDTH: Final = 110
_HOUR_SECONDS: Final = 3600
_DAY_SECONDS: Final = 86_400
_YEAR_SECONDS: Final = 365 * _DAY_SECONDS

_MetricKey = tuple[str, str]


def overview_lines(groups: Sequence[ResultGroup], width: int) -> list[str]:
    """A row for each workload, device and set of parameters: the newest value, its change, and how often and when.

    Args:
        groups: The results.
        width: Cells of a line, or 0 for as many as the table needs.
    """
    newest = [group.results[0] for group in groups]
    columns = [
        CellColumn(["Workload"], [group.workload for group in groups], 0),
        CellColumn(["Device"], [group.device_name for group in groups], 1),
        CellColumn(["Newest"], [_value_text(_main(item.result)) for item in newest], 1, Align.RIGHT),
        CellColumn(["Change"], [_main_change(item) for item in newest], 2, Align.RIGHT),
        CellColumn(["Verdict"], [item.result.verdict for item in newest], 2),
        CellColumn(["Runs"], [str(len(group.results)) for group in groups], 3, Align.RIGHT),
        CellColumn(["When"], [_time_text(item.result.time_seconds) for item in newest], 3),
        CellColumn(["Metric"], [_main_name(item.result) for item in newest], 4),
        CellColumn(["Hosts"], [_hosts_text(group) for group in groups], 4),
        CellColumn(["Parameters"], [clipped(_parameters_text(group), _MAX_PARAMETERS) for group in groups], 5),
    ]
    return _table_texts(columns, width)


def history_lines(groups: Sequence[ResultGroup], width: int, plot_width: int) -> list[str]:
    """A section for each device and set of parameters: its results over time, its hosts compared, and plots.

    Args:
        groups: The results of one workload.
        width: Cells of a line of the tables, or 0 for as many as they need.
        plot_width: Cells of a line of the plots, which are left out where it is too narrow.
    """
    lines: list[str] = []
    for group in groups:
        count = counted(len(group.results), "run")
        lines += [
            "",
            f"{group.workload} on {group.device_name}, {count}. Parameters: {_parameters_text(group) or 'none'}.",
        ]
        lines += ["", *_table_texts(_history_columns(group), width)]
        if len(group.results) > _MAX_ROWS:
            lines.append(f"{len(group.results) - _MAX_ROWS:,} older results are not listed; --csv and --json have all.")
        metric = next(iter(_main_keys(group)), None)
        if metric is not None:
            lines += _hosts_lines(group, metric, plot_width)
            lines += _plot_texts(group, metric, plot_width)
    return lines[1:]


def _table_texts(columns: Sequence[CellColumn], width: int) -> list[str]:
    return [plain(row).rstrip() for row in cell_table(fitting_columns(columns, width))]


def _history_columns(group: ResultGroup) -> list[CellColumn]:
    shown, has_several_gpus = group.results[:_MAX_ROWS], _has_several_gpus(group)
    results = [item.result for item in shown]
    columns = [
        CellColumn(["When"], [_time_text(result.time_seconds) for result in results], 0),
        CellColumn(["Host"], [result.host or MISSING for result in results], 2),
        CellColumn(["Device"], [_gpu_text(result) if has_several_gpus else result.device for result in results], 4),
        CellColumn(["Verdict"], [result.verdict for result in results], 1),
    ]
    for rank, key in enumerate(_main_keys(group)):
        values = [_value_text(_measurement(result, key)) for result in results]
        columns.append(value_column(_key_text(key), values, 1 if not rank else 5))
        if not rank:
            changes = [_change_of(item.changes, key) for item in shown]
            columns.append(CellColumn(["Change"], changes, 3, Align.RIGHT))
    columns.append(CellColumn(["torch"], [result.torch or MISSING for result in results], 6))
    columns.append(CellColumn(["Driver"], [result.driver or MISSING for result in results], 6))
    return columns


def _hosts_lines(group: ResultGroup, key: _MetricKey, plot_width: int) -> list[str]:
    """The newest value of each host, if there are several, as a sentence and as bars."""
    newest: dict[str, Measurement] = {}
    for item in group.results:
        measured = _measurement(item.result, key)
        if item.result.host is not None and measured is not None and is_drawable(measured.value):
            newest.setdefault(item.result.host, measured)
    if len(newest) < 2:
        return []
    metric = next(iter(newest.values())).metric
    hosts = [Compared(host, float(measured.value), None) for host, measured in newest.items()]
    is_lowest = metric.better is Better.LOWER
    best = (min if is_lowest else max)(compared.value for compared in hosts)
    word = "lowest" if is_lowest else "highest"
    texts = [
        f"{host.name} {metric.text(host.value)} "
        f"({word if host.value == best else change_text(host.value / best - 1 if best else None)})"
        for host in hosts
    ]
    lines = ["", f"{_key_text(key)}, newest of each host: {', '.join(texts)}."]
    if plot_width >= MIN_WIDTH:
        comparison = Comparison(_key_text(key), metric, hosts)
        bars = comparison_lines(comparison, min(plot_width, _MAX_PLOT_WIDTH))
        lines += ["", *(plain(row).rstrip() for row in bars)]
    return lines


def _plot_texts(group: ResultGroup, key: _MetricKey, width: int) -> list[str]:
    """The metric over time, with a curve for each GPU, or for each host if every host has one."""
    if width < MIN_WIDTH:
        return []
    has_several_gpus = _has_several_gpus(group)
    points: dict[str, list[tuple[float, float]]] = {}
    metric = WorkloadMetric(key[0])
    for item in reversed(group.results):
        measured = _measurement(item.result, key)
        if measured is not None and is_drawable(measured.value):
            name = _curve_name(item.result, has_several_gpus=has_several_gpus)
            points.setdefault(name, []).append((item.result.time_seconds, float(measured.value)))
            metric = measured.metric
    chosen = dict(list(points.items())[:MAX_CURVES])
    times = [seconds for curve in chosen.values() for seconds, _ in curve]
    if len(set(times)) < 2:
        return []
    start, end = min(times), max(times)
    curves = [
        Curve(host, [seconds - start for seconds, _ in curve], [value for _, value in curve])
        for host, curve in chosen.items()
    ]
    ticks = [
        AxisTick(share * (end - start), _moment_text(start + share * (end - start), end - start))
        for share in (0, 0.5, 1)
    ]
    title = f"{_key_text(key)}, {metric.unit}"
    drawn = plotted(curves, metric, ticks, min(width, _MAX_PLOT_WIDTH), title=title, from_zero=False)
    return ["", *(plain(row).rstrip() for row in drawn)]


def _has_several_gpus(group: ResultGroup) -> bool:
    """Whether a host has results of several GPUs."""
    gpus = {(item.result.host, item.result.uuid) for item in group.results}
    return len(gpus) > len({host for host, _ in gpus})


def _curve_name(result: SavedResult, *, has_several_gpus: bool) -> str:
    host = result.host or "unknown host"
    return f"{host} {_gpu_text(result)}" if has_several_gpus else host


def _gpu_text(result: SavedResult) -> str:
    """The first part of the UUID, as in nvidia-smi; indices differ between runs."""
    return clipped(result.uuid or MISSING, _UUID_WIDTH)


def _main_keys(group: ResultGroup) -> list[_MetricKey]:
    """The metrics that matter: the first of the newest result, the same for its other cases, then the next ones."""
    measured = next((item.result.measurements for item in group.results if item.result.measurements), ())
    keys = list(dict.fromkeys(item.key for item in measured))
    return sorted(keys, key=lambda key: key[0] != keys[0][0])[:_MAX_METRICS]


def _measurement(result: SavedResult, key: _MetricKey) -> Measurement | None:
    return next((item for item in result.measurements if item.key == key), None)


def _key_text(key: _MetricKey) -> str:
    name, case = key
    return f"{label_text(name)}, {case}" if case else label_text(name)


def _value_text(measured: Measurement | None) -> str:
    return MISSING if measured is None else measured.text


def _main(result: SavedResult) -> Measurement | None:
    """The measurement that matters: the first one."""
    return next(iter(result.measurements), None)


def _main_name(result: SavedResult) -> str:
    main = _main(result)
    return MISSING if main is None else _key_text(main.key)


def _main_change(item: ComparedResult) -> str:
    main = _main(item.result)
    return "" if main is None else _change_of(item.changes, main.key)


def _change_of(changes: Iterable[MetricChange], key: _MetricKey) -> str:
    return next((change_text(change.share) for change in changes if change.key == key), "")


def _hosts_text(group: ResultGroup) -> str:
    hosts = group.hosts
    return (hosts[0] if hosts else MISSING) + (f" +{len(hosts) - 1}" if len(hosts) > 1 else "")


def _parameters_text(group: ResultGroup) -> str:
    return ", ".join(f"{name}={_parameter_text(value)}" for name, value in group.parameters.items())


def _parameter_text(value: Value | None) -> str:
    return MISSING if value is None else parameter_text(value)


def _time_text(seconds: float) -> str:
    return local_time_text(seconds, "%Y-%m-%d %H:%M")


def _moment_text(seconds: float, extent: float) -> str:
    """A moment on an axis over ``extent`` seconds."""
    if extent < _DAY_SECONDS:
        return local_time_text(seconds, "%H:%M:%S" if extent < _HOUR_SECONDS else "%H:%M")
    return local_time_text(seconds, "%b %d" if extent < _YEAR_SECONDS else "%Y-%m-%d")
