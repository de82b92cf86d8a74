"""The actions that open a screen; the app has them from here."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual.app import App

from gpumon.ui.costs import measure
from gpumon.ui.feed import Feed
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.screens.health import HealthScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.workloads import WorkloadsScreen
from gpumon.ui.terminal import sent_bytes
from gpumon.ui.workshop import Workshop

if TYPE_CHECKING:
    from gpumon.operations.doctor.examination import Wish


class Doors(App[None]):
    """An app whose keys open screens."""

    workshop: Workshop
    doctor_wish: "Wish | None" = None
    """What the doctor examines, if not everything."""

    @property
    @abstractmethod
    def feed(self) -> Feed:
        """What is shown."""

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
