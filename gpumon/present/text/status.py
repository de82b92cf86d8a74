"""The overview as plain text for output that is not a terminal: no escape sequences, colors or cursor."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gpumon.core.metrics import METRICS
from gpumon.core.model import Frame, short_product_name
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.store import Store
from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, gibibytes_text
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Severity, Thresholds, check, merged_alerts
from gpumon.present.device_table import DEVICE_COLUMNS, DeviceRow, device_rows, state_span
from gpumon.present.header import host_line, versions_text
from gpumon.present.paint.line import Span, plain
from gpumon.present.paint.table import fit_columns, headings, row_line
from gpumon.present.process_table import PROCESS_COLUMNS, process_line, process_rows
from gpumon.present.table_state import columns_for, visible_columns
from gpumon.session.table_memory import TableState
from gpumon.session.view_state import ViewState

_DEFAULT_WIDTH: Final = 120
_MIN_WIDTH: Final = 80


def formatted(frame: Frame, template: str) -> Iterator[str]:
    """A text for each device, with its values in place of their names in braces.

    Args:
        frame: The moment.
        template: The text; names are short ones such as ``index``, and those of the metrics.

    Raises:
        CommandError: The text has a name that no value has, or a brace too much.
    """
    for row in device_rows(ViewState(Store(), frame, (), "")):
        device = row.device
        values: dict[str, object] = {metric: device.get(metric) for metric in METRICS}
        values |= {
            "index": device.label,
            "name": short_product_name(device.name),
            "uuid": device.uuid,
            "state": _one_word(row, 0).text,
            "user": row.owner.user,
            "program": row.owner.program,
            "utilization": _number(device.get("utilization_gpu_percent")),
            "temperature": _number(device.get("temperature_celsius")),
            "power": _number(device.get("power_watts")),
            "memory_used": gibibytes_text(device.get("memory_used_bytes")),
            "memory_total": gibibytes_text(device.get("memory_total_bytes")),
        }
        known = {name: MISSING if value is None else value for name, value in values.items()}
        try:
            yield template.format_map(known)
        except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
            names = ", ".join(name for name in values if name not in METRICS)
            reason = f"The format {safe_text(template, 80)!r} cannot be used: {safe_text(str(error), 60)}."
            raise CommandError.usage(ProblemCode.NOT_FOUND, reason, f"Names: {names}, and those of --json.") from None


def _one_word(row: DeviceRow, _: int) -> Span:
    """The state in one word, so that scripts can split a line at its spaces."""
    return Span(state_span(row).text.replace(" ", "-") or "ok")


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


def status_text(frame: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> str:
    """Returns the output of ``gpumon status``."""
    width = max(shutil.get_terminal_size((_DEFAULT_WIDTH, 40)).columns, _MIN_WIDTH)
    with_words = [replace(item, cell=_one_word) if item.heading == "State" else item for item in DEVICE_COLUMNS]
    device_columns = fit_columns(with_words, width)
    processes = process_rows(frame)
    columns = [column for column in PROCESS_COLUMNS if column.id != "share"]
    process_columns = fit_columns(visible_columns(columns_for(columns, processes), TableState()), width)
    store = Store()
    store.apply(frame)
    view = ViewState(store, frame, (), "", thresholds=thresholds)
    lines = [f"{(plain(host_line(frame)))} · {versions_text(frame)}".strip(), "", plain(headings(device_columns))]
    lines += [plain(row_line(device_columns, row)) for row in device_rows(view)]
    if processes:
        lines += ["", *([plain(headings(process_columns))] if any(row.unread is None for row in processes) else [])]
        lines += [plain(process_line(process_columns, row)) for row in processes]
    alerts = check(frame, thresholds)
    if alerts:
        problems = [alert for alert in alerts if alert.severity is not Severity.INFO]
        infos = merged_alerts([alert for alert in alerts if alert.severity is Severity.INFO])
        lines += ["", *(f"! {alert.detail} {alert.action}".rstrip() for alert in problems)]
        lines += [f"i {alert.detail}" for alert in infos]
    return "\n".join(line.rstrip() for line in lines)
