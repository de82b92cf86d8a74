"""Two traces side by side, for a terminal or as Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpumon.core.step_classes import LABELS
from gpumon.core.units import short_time_text
from gpumon.present.report.sections import table
from gpumon.present.text.compare import table_lines

_MAX_ROWS: Final = 30
_MAX_NAME: Final = 60


def trace_diff_lines(document: Mapping[str, Any], *, is_markdown: bool) -> Iterator[str]:
    """The lines.

    Args:
        document: What `gpumon.operations.trace_diff.diff_document` returns.
        is_markdown: Whether to write tables of Markdown.
    """
    base, new = (document[name]["step_seconds"] for name in ("base", "new"))
    change = f" ({new / base - 1:+.1%})" if base else ""
    yield f"The median step takes {short_time_text(new)} in NEW, {short_time_text(base)} in BASE{change}."
    classes = [{**item, **_row(item), "name": LABELS[item["name"]]} for item in document["classes"]]
    changes = [{**item, **_row(item), "name": _short(item["name"])} for item in document["changes"][:_MAX_ROWS]]
    for shown in (table("trace_classes", classes), table("trace_changes", changes)):
        if shown.rows:
            yield ""
            yield from table_lines(shown, is_markdown=is_markdown)
    if left := len(document["changes"]) - len(changes):
        yield f"{left} smaller changes are in --json."
    yield from document["problems"]


def _row(item: Mapping[str, Any]) -> dict[str, str]:
    change = item["new_seconds"] - item["base_seconds"]
    return {"change": f"{'+' if change >= 0 else '-'}{short_time_text(abs(change))}"}


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
