"""A report as one HTML page, which loads nothing, and as Markdown for a ticket."""

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from gpumon.core.json_text import json_line
from gpumon.core.new_files import replace_file
from gpumon.core.units import local_time_text
from gpumon.present.report.sections import ReportChart, ReportSection, ReportTable, sections

TEMPLATE: Final = Path(__file__).resolve().parents[2] / "data" / "report.html"


def write_report(report: Mapping[str, Any], folder: Path) -> None:
    """Write the page, the Markdown and the document, each in one step.

    Raises:
        OSError: A file cannot be written; the file before it stays.
    """
    texts = {"report.html": report_html(report), "report.md": report_markdown(report), "report.json": json_line(report)}
    for name, text in texts.items():
        replace_file(folder / name, f"{text}\n".encode(errors="replace"))


def report_html(report: Mapping[str, Any]) -> str:
    """The page."""
    is_bad = bool(report["exit_status"]) or bool(report.get("hang"))
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(_title(report)),
        subtitle=escape(_subtitle(report)),
        verdict=escape(" ".join(report["verdict"])),
        mood=" bad" if is_bad else "",
        sections="\n".join(_section_html(section) for section in sections(report)),
    )


def report_markdown(report: Mapping[str, Any]) -> str:
    """The same as Markdown, with tables and without charts."""
    lines = [f"# {_markdown(_title(report))}", "", _subtitle(report), "", _markdown(" ".join(report["verdict"]))]
    for section in sections(report):
        tables = [item for item in section.items if isinstance(item, ReportTable)]
        if tables or section.text:
            lines += ["", f"## {section.title}", *(["", _markdown(section.text)] if section.text else [])]
        for table in tables:
            lines += ["", *markdown_table(table)]
    return "\n".join(lines) + "\n"


def markdown_table(table: ReportTable) -> Iterator[str]:
    """The lines of a table of Markdown."""
    rows = [table.header, tuple("---" for _ in table.header), *table.rows]
    return (f"| {' | '.join(map(_markdown, row))} |" for row in rows)


def _title(report: Mapping[str, Any]) -> str:
    return " ".join(report["command"]) if report["command"] else "Recording"


def _subtitle(report: Mapping[str, Any]) -> str:
    first, last = report["start_time_seconds"], report["end_time_seconds"]
    host = report["host"].get("name")
    times = f"{local_time_text(first, '%Y-%m-%d %H:%M:%S')} to {local_time_text(last, '%Y-%m-%d %H:%M:%S')}"
    return f"{times}{f', {host}' if host else ''}"


def _section_html(section: ReportSection) -> str:
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    items = "".join(_chart_html(item) if isinstance(item, ReportChart) else _table_html(item) for item in section.items)
    return f"<section><h2>{escape(section.title)}</h2>{text}{items}</section>"


def _chart_html(chart: ReportChart) -> str:
    keys = "".join(f'<span class="key {color}">{escape(label)}</span>' for color, label in chart.keys)
    shown = f"<p>{keys}</p>" if len(chart.keys) > 1 else ""
    return f"<figure>{chart.svg}{shown}<figcaption>{escape(chart.caption)}</figcaption></figure>"


def _table_html(table: ReportTable) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        kinds = (' class="text"' if number in table.texts else "" for number in range(len(cells)))
        texts = (f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(texts)}</tr>"

    body = "".join(row(cells, "td") for cells in table.rows)
    return f'<div class="wide"><table><thead>{row(table.header, "th")}</thead><tbody>{body}</tbody></table></div>'


def _markdown(text: str) -> str:
    """Text in which nothing is markup, and which stays in its cell."""
    for mark in ("\\", "|", "*", "_", "`", "<", "[", "#"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")
