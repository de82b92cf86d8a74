"""Every value of one process: what it means, or why it is missing."""

from typing import ClassVar

from textual.binding import Binding, BindingType

from gpumon.ui.scene import Scene
from gpumon.ui.screens.entries import EntriesScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.entries import LABEL_WIDTH, VALUE_WIDTH, process_entries
from gpumon.ui.widgets.text_line import TextLines


class DetailsScreen(EntriesScreen[None]):
    """One process on a device.

    Args:
        key: The device's key.
        pid: The process.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h", "app.pop_screen", "Back", id="details.back", tooltip="Back to all GPUs"),
    ]

    def __init__(self, key: str, pid: int) -> None:
        super().__init__()
        self.key = key
        self._pid = pid
        self._title = f"PID {pid}"

    def show(self, scene: Scene) -> None:
        """Draws the process of a scene; of one that has gone, the last values, and that it has gone."""
        device = next((each for each in scene.frame.devices if each.key == self.key), None)
        process = None
        if device is not None:
            process = next((each for each in device.processes or () if each.pid == self._pid), None)
            self._title = f"PID {self._pid} on GPU {device.label}"
        with self.app.batch_update():
            gone = "  has gone; its last values" if process is None else ""
            self.query_one("#title", TextLines).show([title_line(f"{self._title}{gone}", "", scene, self.size.width)])
            if process is not None:
                self.show_entries(process_entries(process, self._value_room))

    @property
    def _value_room(self) -> int:
        """Cells for a value that has its line to itself."""
        return max(VALUE_WIDTH, self.size.width - LABEL_WIDTH - 4)
