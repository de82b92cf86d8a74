"""Every value of one process: its meaning, or why it is missing."""

from typing import ClassVar

from textual.binding import Binding, BindingType

from gpumon.present.entries import LABEL_WIDTH, VALUE_WIDTH, process_entries
from gpumon.present.header import title_line
from gpumon.session.view_state import ViewState
from gpumon.ui.screens.entries import EntriesScreen
from gpumon.ui.widgets.text_lines import TextLines


class ProcessScreen(EntriesScreen[None]):
    """One process on a device.

    Args:
        key: The device's key.
        pid: The process.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h", "app.pop_screen", "Back", id="process.back", tooltip="Back to the overview"),
    ]

    def __init__(self, key: str, pid: int) -> None:
        super().__init__()
        self.key = key
        self._pid = pid
        self._title = f"PID {pid}"

    def show(self, state: ViewState) -> None:
        """Draw the process; once it has exited, its last values."""
        device = next((device for device in state.frame.devices if device.key == self.key), None)
        process = None
        if device is not None:
            process = next((process for process in device.processes or () if process.pid == self._pid), None)
            self._title = f"PID {self._pid} on GPU {device.label}"
        with self.app.batch_update():
            exited = "  has exited; last values" if process is None else ""
            title = title_line(f"{self._title}{exited}", "", state, self.size.width)
            self.query_one("#title", TextLines).show([title])
            if process is not None:
                self.show_entries(process_entries(process, self._value_width))

    @property
    def _value_width(self) -> int:
        """Cells for a value on its own line."""
        return max(VALUE_WIDTH, self.size.width - LABEL_WIDTH - 4)
