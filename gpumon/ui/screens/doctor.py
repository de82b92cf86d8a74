"""Whether this machine is fit for PyTorch: the doctor's checks as they are made."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

from gpumon.diagnosis.checks import Check
from gpumon.operations.doctor.examination import Examination, Wish
from gpumon.ui.messages import SceneWanted
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.doctor import doctor_rows, summary
from gpumon.ui.widgets.line_table import MARGIN, LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

_SCROLL_BAR = 1


class DoctorScreen(DrawnScreen[None]):
    """The checks of this machine, whatever is shown elsewhere.

    Args:
        wish: What is examined; everything if None.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h", "app.pop_screen", "Back", id="doctor.back", tooltip="Back to all GPUs"),
        Binding("r,f5", "again", "Check again", id="doctor.again", tooltip="Make every check anew"),
    ]

    def __init__(self, wish: Wish | None = None) -> None:
        super().__init__()
        self._wish = wish
        self._examination: Examination | None = None

    @property
    def checks(self) -> list[Check]:
        """Those that were made up to now."""
        return [] if self._examination is None else self._examination.checks

    @property
    def is_over(self) -> bool:
        """Whether no more checks come."""
        return self._examination is not None and self._examination.is_over

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield LineTable(id="checks", choosable=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begins to examine."""
        self.action_again()

    def on_unmount(self) -> None:
        """Ends what still runs for a screen that nobody sees any more."""
        self._close()

    def show(self, scene: Scene) -> None:
        """Draws the checks that were made up to now."""
        is_over = self.is_over  # before the checks are taken, so that the last ones are not missed
        checks, width = self.checks, self.size.width
        what = f"Doctor{'' if scene.is_this_machine else ' of this machine'}{'' if is_over else ', at work'}"
        rows = doctor_rows(checks, max(1, width - MARGIN - _SCROLL_BAR), is_over=is_over)
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title_line(what, summary(checks), scene, width)])
            self.query_one("#checks", LineTable).show([TableRow(*row) for row in rows])

    def action_again(self) -> None:
        self._close()
        self._examination = Examination(self._wish)
        self._examination.inbox.on_arrival(self._ring)
        self._examination.start()
        self.post_message(SceneWanted())

    def _ring(self) -> None:
        self.post_message(SceneWanted())

    def _close(self) -> None:
        if self._examination is not None:
            self._examination.inbox.on_arrival(lambda: None)
            self._examination.close()
