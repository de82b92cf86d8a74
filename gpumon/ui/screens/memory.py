"""Where the memory of a GPU is: from zero to its total, part by part, and one process's share of it over time."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

from gpumon.core.model import Device
from gpumon.operations.memory import Waterfall, waterfall
from gpumon.operations.probed import Owner, owners_of
from gpumon.probe.news import Probe
from gpumon.ui.messages import SceneWanted
from gpumon.ui.paint.line import Line
from gpumon.ui.probes import OutOfMemory, ProbeBoard
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.device import GUTTER, axis_line, chart_lines
from gpumon.ui.view.memory import (
    MemoryRow,
    bar_line,
    headline,
    memory_rows,
    note_lines,
    oom_line,
    pane_lines,
    table_heading,
)
from gpumon.ui.view.memory_history import LINES_AROUND, MemoryChart, history_heading, history_lines
from gpumon.ui.view.memory_words import hint_lines
from gpumon.ui.view.moving_chart import MovingChart
from gpumon.ui.view.window import ZOOMS, Window, column_of
from gpumon.ui.widgets.line_table import MARGIN, LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines
from gpumon.ui.workshop import Workshop

_LINES_AROUND: Final = 5
"""Title, headline, bar, headings and footer."""
_PANE_LINES: Final = 3
_LEAST_CHART: Final = 4
_MOST_CHART: Final = 24
_LEAST_ROWS: Final = 5
_HELD_INTERVALS: Final = 2.5
_DEFAULT_ZOOM: Final = ZOOMS.index(2.0)
_MOST_ZOOM: Final = ZOOMS.index(30.0)
_OFFERED: Final = ("segments", "explain_oom")


class MemoryScreen(DrawnScreen[None]):
    """The memory of a GPU, and keys to the next one.

    Args:
        board: The probes.
        workshop: What works in the background.
        key: The device's key.
    """

    AUTO_FOCUS: ClassVar[str] = "#parts"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,h,m", "app.pop_screen", "Back", id="memory.back", tooltip="Back to where you were"),
        Binding("s", "segments", "Segments", id="memory.segments", tooltip="What the process's memory is cut into"),
        Binding("e", "empty_cache", "Empty", id="memory.empty", tooltip="Have the process give back its cache"),
        Binding("o", "explain_oom", "Explain", id="memory.oom", tooltip="Why a process ran out of memory"),
        Binding("right", "next(1)", "GPU", id="memory.next", key_display="←/→", tooltip="The next GPU"),
        Binding("left", "next(-1)", "Before", id="memory.before", show=False, tooltip="The GPU before"),
        Binding("tab", "next(1)", "Next", id="memory.tab", show=False, tooltip="The next GPU"),
        Binding("shift+tab", "next(-1)", "Before", id="memory.back-tab", show=False, tooltip="The GPU before"),
        Binding("z", "zoom(-1)", "Zoom", id="memory.zoom-in", key_display="z/x", tooltip="Zoom in: less time, finer"),
        Binding("x", "zoom(1)", "Out", id="memory.zoom-out", show=False, tooltip="Zoom out: more time, coarser"),
    ]

    def __init__(self, board: ProbeBoard, workshop: Workshop, key: str) -> None:
        super().__init__()
        self.key = key
        self.chosen: Owner | None = None
        """The process whose course is shown: that under the cursor, else the one with most of PyTorch's memory."""
        self.is_chosen = False
        """Whether the cursor is not on another process, which tells nothing of itself."""
        self.told_bytes = 0
        """The sum of all parts."""
        self._board = board
        self._workshop = workshop
        self._scene: Scene | None = None
        self._device: Device | None = None
        self._rows: list[MemoryRow] = []
        self._chart = MemoryChart()
        self._whole = MovingChart("memory_used_bytes")
        self._zoom = _DEFAULT_ZOOM
        self._offered: tuple[bool, ...] = ()

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="headline")
        yield TextLines(id="notes")
        yield TextLines(id="bar")
        yield TextLines(id="parts-heading")
        yield LineTable(id="parts", choosable=False)
        yield TextLines(id="pane")
        yield TextLines(id="below")
        yield Footer()

    def on_mount(self) -> None:
        """From now on the probes tell more often."""
        super().on_mount()
        self._board.look(is_looked_at=True)

    def on_unmount(self) -> None:
        """Nobody looks any more."""
        self._board.look(is_looked_at=False)

    def show(self, scene: Scene) -> None:
        """Draws the GPU of a scene; of one that has gone, its last values."""
        device = next((each for each in scene.frame.devices if each.key == self.key), None)
        self._scene = scene
        gone = "  has gone; its last values" if device is None and self._device is not None else ""
        self._device = device = device or self._device
        with self.app.batch_update():
            if device is None:
                self._lines("title").show([title_line("This GPU has gone", "", scene, self.size.width)])
                return
            name = (device.name or "").removeprefix("NVIDIA ")
            title = title_line(f"Memory of GPU {device.label}  {name}{gone}", "", scene, self.size.width)
            self._lines("title").show([title])
            self._show_memory(scene, device)
        offered = tuple(bool(self.check_action(action, ())) for action in _OFFERED)
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def _show_memory(self, scene: Scene, device: Device) -> None:
        probes = self._board.probes if self._is_here else {}
        fall = waterfall(device, probes)
        owners = {owner.pid: owner for owner in owners_of(device, probes).owners}
        width = self.size.width
        row_width = width - MARGIN - 1
        notes = self._notes(fall, width)
        self._lines("notes").show(notes)
        drawable = fall.problem is None
        self.told_bytes = sum(part.bytes for part in fall.parts)
        self._lines("headline").show([headline(fall, width)] if drawable else [])
        self._lines("bar").show([bar_line(fall, width)] if drawable else [])
        self._lines("parts-heading").show([table_heading(width, fall.total_bytes)] if drawable else [])
        self._rows = list(memory_rows(fall, owners, probes, self._board.now, row_width))
        table = self.query_one("#parts", LineTable)
        table.show([TableRow(row.key, row.line) for row in self._rows])
        self.chosen = self._chosen(owners)
        self._show_pane()
        room = self.size.height - _LINES_AROUND - _PANE_LINES - len(notes)
        below = self._below(scene, device, probes, room)
        self._lines("below").show(below)
        table.styles.height = max(1, min(len(self._rows), room - len(below)))

    @on(LineTable.CursorMoved)
    def follow_cursor(self) -> None:
        """Another part is under the cursor, and maybe another process's."""
        if self._scene is not None:
            self.show(self._scene)

    @property
    def _is_here(self) -> bool:
        """Whether the GPUs are those of the machine whose probes are known."""
        return self._scene is not None and self._scene.is_this_machine

    @property
    def _ooms(self) -> Sequence[OutOfMemory]:
        return self._board.ooms if self._is_here else ()

    def _notes(self, fall: Waterfall, width: int) -> list[Line]:
        """What has to be known beside the bar: why there is none, what does not match, and that memory ran out."""
        notes = [str(fall.problem)] if fall.problem is not None else list(fall.notes)
        notes += map(str, self._board.problems if self._is_here else ())
        ran_out = [oom_line(ran_out, width) for ran_out in self._ooms[-1:]]
        return [*ran_out, *note_lines(notes, width)]

    def _chosen(self, owners: Mapping[int, Owner]) -> Owner | None:
        cursor = self.query_one("#parts", LineTable).cursor
        pid = self._rows[cursor].pid if cursor < len(self._rows) else None
        told = {each.pid: each for each in owners.values() if each.statistics is not None}
        self.is_chosen = bool(told) and (pid is None or pid in told)
        before = None if self.chosen is None else told.get(self.chosen.pid)
        largest = max(told.values(), key=_reserved, default=None)
        return told.get(pid or 0) or before or largest

    def _show_pane(self) -> None:
        cursor = self.query_one("#parts", LineTable).cursor
        note = self._rows[cursor].note if cursor < len(self._rows) else ""
        self._lines("pane").show(pane_lines(note, self.size.width, _PANE_LINES) if self._rows else [])

    def _below(self, scene: Scene, device: Device, probes: Mapping[int, Probe], room: int) -> list[Line]:
        """The course of the chosen process, else how to have one and that of the whole GPU, as far as there is room."""
        width, owner = self.size.width, self.chosen
        hints = [] if owner is not None else hint_lines(width, probes, is_this_machine=scene.is_this_machine)
        rows = max(min(len(self._rows), room - len(hints) - LINES_AROUND - _LEAST_CHART), _LEAST_ROWS)
        height = min(_MOST_CHART, room - len(hints) - LINES_AROUND - rows)
        if height < _LEAST_CHART or width <= 2 * GUTTER:
            return hints if room - len(hints) >= min(len(self._rows), _LEAST_ROWS) else []
        seconds = ZOOMS[self._zoom]
        now, interval = scene.frame.monotonic_seconds, scene.frame.interval_seconds
        window = Window(column_of(now, seconds), width - GUTTER, seconds)
        course = None if owner is None else self._board.course(owner.pid, self.key)
        if owner is not None and course is not None:
            self._chart.draw(course, window, height, _HELD_INTERVALS * max(1.0, interval))
            return [history_heading(owner, width), *history_lines(self._chart, window, now)]
        history = scene.store.of_device(self.key)
        self._whole.draw(None if history is None else history.timeline, device, window, height, interval)
        return [*hints, *chart_lines(self._whole, 1, device, width), axis_line(window, now)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the keys that have no use for the process under the cursor."""
        if action in {"segments", "empty_cache"}:
            return self.is_chosen
        if action == "explain_oom":
            return bool(self._ooms)
        return super().check_action(action, parameters)

    def action_next(self, steps: int) -> None:
        """Goes to another GPU, in the order of the overview."""
        keys = [] if self._scene is None else [device.key for device in self._scene.frame.devices]
        if keys:
            place = keys.index(self.key) + steps if self.key in keys else 0
            self.key, self._device = keys[place % len(keys)], None
            self.post_message(SceneWanted())

    def action_zoom(self, steps: int) -> None:
        self._zoom = max(0, min(_MOST_ZOOM, self._zoom + steps))
        self.post_message(SceneWanted())

    def action_segments(self) -> None:
        from gpumon.ui.screens.segments import SegmentsScreen  # it is seldom opened

        if self.chosen is not None and self._device is not None:
            self.app.push_screen(SegmentsScreen(self._board, self.chosen, self._device))

    def action_empty_cache(self) -> None:
        from gpumon.ui.screens.empty_cache import EmptyCacheDialog  # it is seldom opened

        chosen = self.chosen
        if chosen is None or chosen.probe is None or self._device is None:
            return
        refusal = self._board.refusal(chosen.probe)
        if refusal:
            self.notify(refusal, severity="warning", markup=False)
        else:
            self.app.push_screen(EmptyCacheDialog(self._board, chosen, self._device))

    def action_explain_oom(self) -> None:
        from gpumon.ui.screens.oom import OomScreen  # it brings the catalogue of errors, which few starts need

        if self._ooms:
            self.app.push_screen(OomScreen(self._workshop, self._ooms[-1]))

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)


def _reserved(owner: Owner) -> int:
    return 0 if owner.statistics is None else owner.statistics.reserved_bytes
