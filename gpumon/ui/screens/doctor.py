"""The doctor screen: whether this host is ready for PyTorch, check by check."""

from typing import ClassVar

from gpumon.health.checks import Check
from gpumon.operations.doctor.examination import DoctorOptions, Examination
from gpumon.present.doctor import doctor_rows, summary
from gpumon.present.paint.table import TableRow
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.base import TextScreen
from gpumon.ui.widgets.line_table import LineTable


class DoctorScreen(TextScreen[None]):
    """The checks of this host, whatever host the other screens show.

    Args:
        options: What is examined; everything if None.
    """

    PAGE: ClassVar[str] = "docs/doctor.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Doctor"
    TEXT_ID: ClassVar[str] = "checks"
    BINDINGS: ClassVar[Bindings] = [key("doctor.run", "Check again", "Run every check again", "again")]

    def __init__(self, options: DoctorOptions | None = None) -> None:
        super().__init__()
        self._options = options
        self._examination: Examination | None = None

    @property
    def checks(self) -> list[Check]:
        """The results so far."""
        return [] if self._examination is None else self._examination.checks

    @property
    def is_over(self) -> bool:
        """Whether all checks have arrived."""
        return self._examination is not None and self._examination.is_over

    def on_mount(self) -> None:
        self.action_again()

    def on_unmount(self) -> None:
        """Ends what still runs when the screen is closed."""
        self._close()

    def show(self, scene: ViewState) -> None:
        is_over = self.is_over  # read before the checks, so that the last ones are not missed
        checks = self.checks
        title = f"Doctor{'' if scene.is_this_host else ' (this host)'}{'' if is_over else ', running'}"
        rows = doctor_rows(checks, self.text_width, is_over=is_over)
        self.show_title(title, summary(checks))
        self.query_one(LineTable).show([TableRow(*row) for row in rows])

    def action_again(self) -> None:
        self._close()
        self._examination = Examination(self._options)
        self._examination.inbox.on_arrival(self._ring)
        self._examination.start()
        self.post_message(ViewStateRequested())

    def _ring(self) -> None:
        self.post_message(ViewStateRequested())

    def _close(self) -> None:
        if self._examination is not None:
            self._examination.inbox.on_arrival(lambda: None)
            self._examination.close()
