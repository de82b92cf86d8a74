"""The output of ``gpumon compare``: values side by side, and what differs in the environments."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from gpumon.core.units import MISSING, bytes_text, number_text, percent_text, short_time_text
from gpumon.operations.run_report.document import STEP_TIME, ComparedValue
from gpumon.present.paint.cell_table import CellColumn, cell_table
from gpumon.present.paint.line import plain
from gpumon.present.report.sections import ReportTable, table
from gpumon.present.report.write import markdown_table

_WRITE: Final[Mapping[str, Callable[[float | None], str]]] = {
    STEP_TIME: short_time_text,
    "peak_memory": bytes_text,
    "useful_share": lambda share: percent_text(None if share is None else 100 * share),
}


def compare_lines(
    comparisons: Sequence[ComparedValue],
    differences: Sequence[Mapping[str, str]],
    conditions: Sequence[tuple[str, bool | None]],
    *,
    is_markdown: bool = False,
) -> Iterator[str]:
    """The lines.

    Args:
        comparisons: The values.
        differences: What differs in the environments.
        conditions: The conditions of ``--fail-if``, and whether each holds; None if that is undecided.
        is_markdown: Whether to write tables of Markdown.
    """
    steps = comparisons[0]
    if steps.change is None or steps.low is None or steps.high is None:
        yield "Step times: too few steps to compare; a run of some minutes has enough."
    elif steps.is_shown:
        word = "longer" if steps.change > 0 else "less"
        yield f"NEW takes {abs(steps.change):.1%} {word} per step ({_interval(steps)})."
    else:
        yield f"No difference of step times can be shown ({_interval(steps)})."
    yield ""
    yield from table_lines(table("compared", [_row(item) for item in comparisons]), is_markdown=is_markdown)
    if differences:
        yield ""
        yield from table_lines(table("differences", differences), is_markdown=is_markdown)
    for text, state in conditions:
        yield f"{text}: {'undecided' if state is None else 'shown' if state else 'not so'}"


def _row(item: ComparedValue) -> dict[str, str]:
    """A row; a value is written in its unit."""
    write = _WRITE.get(item.name, partial(number_text, decimals=3))
    change = "" if item.change is None else f"{item.change:+.1%}"
    values = {"base": write(item.base), "new": write(item.new), "change": change}
    return {"name": item.name, **values, "interval": _interval(item), "verdict": item.verdict}


def _interval(item: ComparedValue) -> str:
    return MISSING if item.low is None or item.high is None else f"{item.low:+.1%} to {item.high:+.1%}"


def table_lines(shown: ReportTable, *, is_markdown: bool = False) -> Iterator[str]:
    """A table of a report for a terminal, or as Markdown."""
    if is_markdown:
        return markdown_table(shown)
    cells = zip(*shown.rows, strict=True)
    columns = [CellColumn([name], list(column), 0) for name, column in zip(shown.header, cells, strict=True)]
    return (plain(row).rstrip() for row in cell_table(columns))
