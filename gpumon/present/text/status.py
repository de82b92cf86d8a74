"""The overview as plain text for output that is not a terminal: no escape sequences, colors or cursor."""

import shutil
from typing import Final

from gpumon.core.model import Frame
from gpumon.core.store import Store
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Severity, Thresholds, check, merged_alerts
from gpumon.present.device_table import DEVICE_COLUMNS, device_rows
from gpumon.present.header import host_line, versions_text
from gpumon.present.paint.line import plain
from gpumon.present.paint.table import fit_columns, headings, row_line
from gpumon.present.process_table import PROCESS_COLUMNS, process_line, process_rows
from gpumon.session.view_state import ViewState

_DEFAULT_WIDTH: Final = 120
_MIN_WIDTH: Final = 80


def status_text(frame: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> str:
    """Returns the output of ``gpumon status``."""
    width = max(shutil.get_terminal_size((_DEFAULT_WIDTH, 40)).columns, _MIN_WIDTH)
    device_columns = fit_columns(DEVICE_COLUMNS, width)
    columns = [column for column in PROCESS_COLUMNS if not column.is_optional and column.id != "share"]
    process_columns = fit_columns(columns, width)
    store = Store()
    store.apply(frame)
    view = ViewState(store, frame, (), "", thresholds=thresholds)
    lines = [f"{(plain(host_line(frame)))} · {versions_text(frame)}".strip(), "", plain(headings(device_columns))]
    lines += [plain(row_line(device_columns, row)) for row in device_rows(view)]
    processes = process_rows(frame)
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
