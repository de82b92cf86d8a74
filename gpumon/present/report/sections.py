"""What a report shows, in order: tables and charts with their headings, made from its document."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.step_classes import LABELS
from gpumon.core.units import (
    MISSING,
    bytes_text,
    count_text,
    duration_text,
    megahertz_text,
    percent_text,
    power_text,
    short_time_text,
)
from gpumon.present.report.svg import ChartLine, color_of, heat_map, line_chart

_TABLES: Final = Path(__file__).resolve().parents[2] / "data" / "report_tables.txt"
_MAX_ROWS: Final = 64
_MAX_LINES: Final = 6
_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "text": str,
    "count": count_text,
    "time": short_time_text,
    "duration": duration_text,
    "bytes": bytes_text,
    "power": power_text,
    "clock": megahertz_text,
    "energy": lambda value: f"{value:.3g}",
    "share": lambda value: percent_text(100 * value),
    "reasons": lambda value: ", ".join(
        f"{name.replace('_', ' ')} {duration_text(held)}" for name, held in value.items()
    ),
}


class ReportTable(NamedTuple):
    """A table of texts; the columns in ``texts`` are text, and the others numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int] = frozenset()


class ReportChart(NamedTuple):
    """A chart with the color class and the label of each of its lines."""

    svg: str
    caption: str
    keys: tuple[tuple[str, str], ...] = ()


class ReportSection(NamedTuple):
    """A part of a report: its heading, sentences, which may be missing, and its charts and tables."""

    title: str
    text: str
    items: tuple[ReportTable | ReportChart, ...]


@cache
def _tables() -> Mapping[str, tuple[str, tuple[tuple[str, str, str], ...]]]:
    """The heading and the columns of each table."""
    tables: dict[str, tuple[str, tuple[tuple[str, str, str], ...]]] = {}
    key = ""
    for line in _TABLES.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            key, _, title = line[1:].partition("] ")
            tables[key] = title, ()
        elif " = " in line and not line.startswith("#"):
            name, _, rest = line.partition(" = ")
            field, form = rest.split()
            tables[key] = tables[key][0], (*tables[key][1], (name, field, form))
    return tables


def table(key: str, rows: Iterable[Mapping[str, Any]]) -> ReportTable:
    """The table with a key; at most `_MAX_ROWS` rows of it are shown."""
    columns = _tables()[key][1]

    def cell(row: Mapping[str, Any], field: str, form: str) -> str:
        value = row.get(field)
        return (_FORMATS[form](value) if value is not None else "") or MISSING

    cells = tuple(tuple(cell(row, field, form) for _, field, form in columns) for row in list(rows)[:_MAX_ROWS])
    texts = frozenset(number for number, (_, _, form) in enumerate(columns) if form in {"text", "reasons"})
    return ReportTable(tuple(name for name, _, _ in columns), cells, texts)


def section(
    key: str, rows: Sequence[Mapping[str, Any]], text: str = "", *charts: ReportChart
) -> Iterator[ReportSection]:
    """The section of a table, with charts before it; none without rows and charts."""
    if rows or charts:
        yield ReportSection(_tables()[key][0], text, (*charts, *([table(key, rows)] if rows else [])))


def sections(report: Mapping[str, Any]) -> Iterator[ReportSection]:
    """The sections of a report; one without content is left out."""
    gpus, ranks, seconds = report["gpus"], report["ranks"], report["seconds"]
    failure = {"hang": report.get("hang"), **(report.get("explanation") or {})}
    yield from section("failure", [{"name": name, "value": value} for name, value in failure.items() if value])
    rows = [_line(gpu, "utilization_percent", f"GPU {gpu['index']}") for gpu in gpus[:_MAX_ROWS]]
    places = {row.label: number for number, row in enumerate(rows)}
    marks = [(places.get(event["subject"]), event["seconds"], event["text"]) for event in report["events"]]
    if rows:
        caption = "Utilization of each GPU, 0 to 100 %; red marks are events."
        chart = ReportChart(heat_map(rows, marks, seconds, duration_text(seconds)), caption)
        yield ReportSection("Timeline", "", (chart, *_chart(gpus, "power_watts", seconds, "Power.", power_text)))
    yield from _steps(report)
    yield from _account(report)
    names = ("allocated_bytes", "reserved_bytes")
    memory = [
        chart for name in names for chart in _chart(ranks, name, seconds, f"{name[:-6].title()} by rank.", bytes_text)
    ]
    memory = memory or [*_chart(gpus, "memory_bytes", seconds, "Memory in use by GPU.", bytes_text)]
    if memory:
        yield ReportSection("Memory", "", tuple(memory))
    energies = ("energy_joules", "energy_kwh"), ("energy_error_joules", "energy_error_kwh")
    used = [gpu | {new: gpu[old] / 3.6e6 for old, new in energies if gpu[old] is not None} for gpu in gpus]
    yield from section("gpus", used)
    yield from section("ranks", ranks)
    yield from section("events", report["events"])
    host = {name.replace("_", " "): value for name, value in {**report["host"], **report["versions"]}.items()}
    named = [{"name": name, "value": value} for name, value in {**host, **report["environment"]}.items() if value]
    yield from section("environment", named, " ".join(report["problems"]))


def _steps(report: Mapping[str, Any]) -> Iterator[ReportSection]:
    steps = report["steps"]
    if not steps or not steps["histogram"]:
        return
    line = ChartLine("step", steps["values"], steps["width_seconds"])
    charts = [
        *_drawn(
            [line], report["seconds"], "Duration of a step.", short_time_text, ("0", duration_text(report["seconds"]))
        )
    ]
    bars = [float(count) for _, count in steps["histogram"]]
    low, high = short_time_text(steps["histogram"][0][0]), short_time_text(steps["histogram"][-1][0])
    spread = ChartLine("steps", bars, 1.0)
    charts += _drawn(
        [spread], float(len(bars)), f"Distribution of steps, from {low} to {high}.", count_text, (low, high)
    )
    yield from section("steps", report["ranks"][:1], _drift_text(report["drift"]), *charts)


def _drift_text(drift: Mapping[str, Any] | None) -> str:
    if drift is None:
        return "Too few steps to show whether they became slower."
    change, interval = f"{drift['change']:+.1%}", f"{drift['low']:+.1%} to {drift['high']:+.1%}"
    shown = f"changed by {change}" if drift["is_shown"] else "shows no drift"
    return f"From the first third of the steps to the last, their duration {shown} (95 %: {interval})."


def _account(report: Mapping[str, Any]) -> Iterator[ReportSection]:
    """The account over time: a line for each of the largest classes, and the causes that were found last."""
    accounts, seconds = report["accounts"], report["seconds"]
    if not accounts:
        return
    totals: dict[str, float] = {}
    for account in accounts:
        for name, share in account["shares"].items():
            totals[name] = totals.get(name, 0.0) + (share or 0.0)
    largest = sorted(totals, key=lambda name: -totals[name])[:_MAX_LINES]
    width = seconds / len(accounts)
    lines = [
        ChartLine(LABELS.get(name, name), [item["shares"].get(name) for item in accounts], width) for name in largest
    ]
    caption = "Where the time of a step goes, as a share of it, each time that a rank was observed."
    charts = _drawn(lines, seconds, caption, lambda value: percent_text(100 * value), ("0", duration_text(seconds)))
    yield from section("causes", accounts[-1]["causes"], accounts[-1]["summary"], *charts)


def _line(item: Mapping[str, Any], name: str, label: str) -> ChartLine:
    series = item["series"].get(name, {"values": (), "width_seconds": 1.0})
    return ChartLine(label, series["values"], series["width_seconds"])


def _chart(
    items: Sequence[Mapping[str, Any]], name: str, seconds: float, caption: str, text: Callable[[float], str]
) -> Iterator[ReportChart]:
    """One value of GPUs or ranks over time."""
    labels = (f"GPU {item['index']}" if "index" in item else f"rank {item['rank'] or 0}" for item in items[:_MAX_LINES])
    lines = [_line(item, name, label) for item, label in zip(items, labels, strict=False)]
    yield from _drawn(lines, seconds, caption, text, ("0", duration_text(seconds)))


def _drawn(
    lines: Sequence[ChartLine], width: float, caption: str, text: Callable[[float], str], ends: tuple[str, str]
) -> Iterator[ReportChart]:
    """Lines as a chart; none without a value."""
    highest = max((value for line in lines for value in line.values if value is not None), default=0.0)
    if highest:
        keys = tuple((color_of(number), line.label) for number, line in enumerate(lines))
        yield ReportChart(line_chart(lines, width, text(highest), highest, ends), caption, keys)
