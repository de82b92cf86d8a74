"""The overview as plain text, for a terminal that is none: no escapes, no colours, no cursor."""

import shutil

from gpumon.core.model import Frame
from gpumon.core.store import Store
from gpumon.diagnosis.health import DEFAULTS, Severity, Thresholds, check, merged_alerts
from gpumon.ui.paint.columns import headings, place, row_line
from gpumon.ui.paint.line import plain
from gpumon.ui.scene import Scene
from gpumon.ui.view.around import host_line, versions
from gpumon.ui.view.devices import DEVICE_COLUMNS, device_rows
from gpumon.ui.view.processes import PROCESS_COLUMNS, process_rows

_WIDTH = 120


def report(frame: Frame, thresholds: Thresholds = DEFAULTS) -> str:
    """What `gpumon status` prints."""
    width = max(shutil.get_terminal_size((_WIDTH, 40)).columns, 80)
    devices = place([column for column in DEVICE_COLUMNS if not column.stretches], width)
    processes = place(PROCESS_COLUMNS, width)
    lines = [f"{(plain(host_line(frame)))} · {versions(frame)}".strip(), "", plain(headings(devices))]
    lines += [plain(row_line(devices, row)) for row in device_rows(Scene(Store(), frame, (), ""))]
    shown = process_rows(frame)
    if shown:
        lines += ["", plain(headings(processes)), *(plain(row_line(processes, row)) for row in shown)]
    alerts = check(frame, thresholds)
    wrong = [alert for alert in alerts if alert.severity is not Severity.INFO]
    notes = merged_alerts([alert for alert in alerts if alert.severity is Severity.INFO])
    if alerts:
        lines += ["", *(f"! {alert.detail} {alert.action}".rstrip() for alert in wrong)]
        lines += [f"i {note.detail}" for note in notes]
    return "\n".join(line.rstrip() for line in lines)
