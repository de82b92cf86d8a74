"""The actions that open a screen, and the probes that some of them show; the app has them from here."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from textual import on

from gpumon.core.model import Frame
from gpumon.ui.commands import ABOUT_A_DEVICE
from gpumon.ui.costs import measure
from gpumon.ui.feed import Feed
from gpumon.ui.messages import ProbesHaveNews
from gpumon.ui.probes import ProbeBoard, Watcher
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.screens.health import HealthScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.workloads import WorkloadsScreen
from gpumon.ui.terminal import sent_bytes
from gpumon.ui.terminal_app import TerminalApp
from gpumon.ui.workshop import Workshop

if TYPE_CHECKING:
    from gpumon.operations.doctor.examination import Wish

_PROBES_AFTER_SECONDS: Final = 0.3


class Doors(TerminalApp):
    """An app whose keys open screens."""

    workshop: Workshop
    probes: ProbeBoard
    doctor_wish: "Wish | None" = None
    """What the doctor examines, if not everything."""

    @property
    @abstractmethod
    def feed(self) -> Feed:
        """What is shown."""

    def board_of(self, home: Feed) -> ProbeBoard:
        """The probes beside a feed. They are looked for once its first frame is drawn, and only on this machine."""

        def ring() -> None:
            self.post_message(ProbesHaveNews())

        board = ProbeBoard(self.open_watcher, ring, self.workshop.in_background)

        def begin(_: Frame) -> None:
            home.on_frame.remove(begin)
            self.set_timer(_PROBES_AFTER_SECONDS, board.start)

        if home.is_this_machine:
            home.on_frame += [board.watch, begin]
        return board

    def open_watcher(self) -> Watcher:
        """What probes are watched with."""
        from gpumon.probe.client import ProbeWatcher  # late: the first frame must not wait for it

        return ProbeWatcher()

    @on(ProbesHaveNews)
    def take_probe_news(self) -> None:
        """Takes in what the probes tell; it is drawn with the next frame, so that both are of one moment."""
        self.probes.take()

    def action_memory(self) -> None:
        from gpumon.ui.screens.memory import MemoryScreen  # it is seldom opened

        key = self.screen.key if isinstance(self.screen, ABOUT_A_DEVICE) else None
        if key is None:
            self.notify("There is no GPU whose memory could be shown.", severity="warning", markup=False)
        else:
            self.push_screen(MemoryScreen(self.probes, self.workshop, key))

    def action_workloads(self) -> None:
        self.push_screen(WorkloadsScreen(self.workshop))

    def action_explain(self) -> None:
        from gpumon.ui.screens.explain import ExplainScreen  # it brings the catalogue of errors, which few starts need

        self.push_screen(ExplainScreen(self.workshop))

    def action_alerts(self) -> None:
        self.push_screen(HealthScreen())

    def action_doctor(self) -> None:
        from gpumon.ui.screens.doctor import DoctorScreen  # it brings all checks, which few starts need

        self.push_screen(DoctorScreen(self.doctor_wish))

    def action_cost(self) -> None:
        self.push_screen(CostScreen(lambda: measure(self.feed, sent_bytes(self))))

    def action_help(self) -> None:
        self.push_screen(HelpScreen())
