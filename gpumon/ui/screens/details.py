"""Every value of one device or process: its unit, what it means, where it comes from, or why it is missing."""

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, Process
from gpumon.core.problems import Problem
from gpumon.core.units import MISSING, age_text, bytes_text, number_text, value_text
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.widgets.line_table import LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

_LABEL_WIDTH = 29
_VALUE_WIDTH = 41
_LEAST_NOTE_WIDTH = 20
Entry = tuple[str, str, str]
"""Label, value, and what is said about it: the reason if it is missing, else its meaning and source."""


class DetailsScreen(DrawnScreen[None]):
    """One device, or one process on it.

    Args:
        key: The device's key.
        pid: The process, or None for the device itself.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h", "app.pop_screen", "Back", id="details.back", tooltip="Back to all GPUs"),
    ]

    def __init__(self, key: str, pid: int | None = None) -> None:
        super().__init__()
        self._key = key
        self._pid = pid
        self._title = ""
        self._notes: list[str] = []

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield LineTable(id="details", choosable=False)
        yield Static(id="note", markup=False)
        yield Footer()

    def show(self, scene: Scene) -> None:
        """Draws the device or process of a scene; of one that has gone, the last values, and that it has gone."""
        device = next((each for each in scene.frame.devices if each.key == self._key), None)
        entries: list[Entry] | None = None
        if device is not None and self._pid is None:
            self._title = f"GPU {device.index}  {device.name or MISSING}"
            entries = list(device_entries(device))
        elif device is not None:
            process = next((each for each in device.processes or () if each.pid == self._pid), None)
            self._title = f"PID {self._pid} on GPU {device.index}"
            entries = None if process is None else list(process_entries(process, self._value_room))
        with self.app.batch_update():
            gone = "  has gone; its last values" if entries is None else ""
            self.query_one("#title", TextLines).show([title_line(f"{self._title}{gone}", "", scene, self.size.width)])
            if entries is not None:
                self._show_entries(entries)

    def _show_entries(self, entries: list[Entry]) -> None:
        self._notes = [note for _, _, note in entries]
        rows = [TableRow(label, _entry_line(label, value, note, self.size.width)) for label, value, note in entries]
        self.query_one("#details", LineTable).show(rows)
        self.show_note()

    @property
    def _value_room(self) -> int:
        """Cells for a value that has its line to itself."""
        return max(_VALUE_WIDTH, self.size.width - _LABEL_WIDTH - 4)

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Shows all of what is said about the row under the cursor, which the row itself may have no room for."""
        cursor = self.query_one("#details", LineTable).cursor
        note = self._notes[cursor] if cursor < len(self._notes) else ""
        static = self.query_one("#note", Static)
        if static.content != note:
            static.update(note)


def device_entries(device: Device) -> Iterator[Entry]:
    """Everything that is known of a device."""
    problems = device.problems
    age = f", values {age_text(device.age_seconds)} old" if device.age_seconds else ""
    yield "State", device.state.value + age, _reason(problems, "state")
    yield _entry("UUID", device.uuid, problems, "uuid", "state")
    yield _entry("PCI bus id", device.pci_bus_id, problems, "pci_bus_id", "state")
    yield _entry("Architecture", device.architecture, problems, "architecture", "state")
    cuda_index = None if device.cuda_index is None else str(device.cuda_index)
    yield _entry("CUDA index", cuda_index, problems, "cuda_index", "state")
    for metric in METRICS.values():
        value = device.get(metric.id)
        note = _reason(problems, metric.id, "state") if value is None else f"{metric.help} ({metric.source})"
        yield metric.label, value_text(value, metric.unit), note
    reasons = None if device.throttle_reasons is None else ", ".join(device.throttle_reasons) or "none"
    yield _entry("Throttle reasons", reasons, problems, "throttle_reasons", "state")
    count = None if device.processes is None else str(len(device.processes))
    yield _entry("Processes", count, problems, "processes", "state")


def process_entries(process: Process, room: int) -> Iterator[Entry]:
    """Everything that is known of a process; its command takes as many lines of ``room`` cells as it needs."""
    problems = process.problems
    cpu = None if process.cpu_percent is None else f"{number_text(process.cpu_percent, 1)} %"
    yield "PID", str(process.pid), "In the host's PID namespace."
    yield "Type", ", ".join(kind.value for kind in process.kinds), "NVML's lists in which it stands."
    yield _entry("User", process.user, problems, "user", "command")
    yield _entry("GPU memory", bytes_text(process.memory_bytes), problems, "memory_bytes")
    yield _entry("Host CPU", cpu, problems, "cpu_percent", "command")
    yield _entry("Host memory", bytes_text(process.host_memory_bytes), problems, "host_memory_bytes", "command")
    yield _entry("Age", age_text(process.age_seconds), problems, "age_seconds", "command")
    lines = wrap(process.command or MISSING, room, break_on_hyphens=False) or [MISSING]
    yield "Command", lines[0], _reason(problems, "command")
    for rest in lines[1:]:
        yield "", rest, ""


def _entry(label: str, value: str | None, problems: Mapping[str, Problem], *subjects: str) -> Entry:
    return label, MISSING if value is None else value, _reason(problems, *subjects)


def _reason(problems: Mapping[str, Problem], *subjects: str) -> str:
    """The first reason that is given under one of the names."""
    return next((str(problems[subject]) for subject in subjects if subject in problems), "")


def _entry_line(label: str, value: str, note: str, width: int) -> Line:
    room = width - _LABEL_WIDTH - _VALUE_WIDTH - 4
    if room < _LEAST_NOTE_WIDTH:
        note = ""
    shown = clipped(note, room)
    return line(Span(f"{label:<{_LABEL_WIDTH}} ", Role.ACCENT), f"{value:<{_VALUE_WIDTH}} ", Span(shown, Role.DIM))
