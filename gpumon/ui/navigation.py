"""The way from screen to screen: what a digit opens, the next GPU, a host of the fleet, and which keys apply."""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from textual.notifications import SeverityLevel
from textual.screen import Screen

from gpumon.present.top_line import TABS
from gpumon.session.app_session import AppSession
from gpumon.streams.base import Adjustable, Seekable
from gpumon.ui.messages import FleetHostRequested
from gpumon.ui.screens.base import BaseScreen, ViewScreen
from gpumon.ui.screens.overview import OverviewScreen

if TYPE_CHECKING:
    from gpumon.operations.doctor.examination import DoctorOptions
    from gpumon.workload_runs.catalogue import WorkloadInfo

ScreenResultT = TypeVar("ScreenResultT")
_TAB_SCREENS: Final = frozenset(tab.name.lower() for tab in TABS)


class ScreenStack(Protocol):
    """What the parts of the app use of it: its screens and its notices."""

    @property
    def screen(self) -> Screen[Any]:
        """The screen on top."""

    @property
    def screen_stack(self) -> Sequence[Screen[Any]]:
        """The screens, the lowest first."""

    def push_screen(
        self, screen: Screen[ScreenResultT], callback: Callable[[ScreenResultT | None], None] | None = None, /
    ) -> object:
        """Open a screen above the others; the callback receives its result."""

    def switch_screen(self, screen: Screen[Any], /) -> object:
        """Replace the screen on top."""

    def pop_screen(self) -> object:
        """Close the screen on top."""

    def warn(self, text: object) -> None:
        """Show why something is not done."""

    def say(self, text: str) -> None:
        """Say what a key did, or why it did nothing, in the line of the keys."""

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a notice for some seconds."""


class Navigation:
    """The screens lie above the overview: a digit replaces them, and ``esc`` leads back to it.

    Args:
        stack: The screens.
        session: What they show.

    Attributes:
        doctor_options: What the doctor checks, if not everything.
    """

    def __init__(self, stack: ScreenStack, session: AppSession) -> None:
        self.doctor_options: DoctorOptions | None = None
        self._stack = stack
        self._session = session

    def open(self, name: str) -> None:
        """Open a screen by its name: that of a tab, or one that opens above any other screen."""
        if name == "gpus":
            self._close_above(self.overview)
        elif name in _TAB_SCREENS:
            self._open_tab(name)
        elif not isinstance(self._stack.screen, screen_class(name)):
            self._stack.push_screen(screen_class(name)())

    # What the palette opens, imported late: the first values must not wait for it

    def open_device(self, key: str, metric: str = "") -> None:
        """Show a GPU over time, with the chart of one metric if it is named."""
        from gpumon.ui.screens.device import DeviceScreen

        self._stack.push_screen(DeviceScreen(key, (metric,) if metric else ()))

    def open_process(self, device_key: str, pid: int) -> None:
        """Show a process of a GPU."""
        from gpumon.ui.screens.process import ProcessScreen

        self._stack.push_screen(ProcessScreen(device_key, pid))

    def open_workload(self, workload: "WorkloadInfo") -> None:
        """Open the form of a workload; the runs are listed on the screen below it."""
        from gpumon.ui.screens.workload_form import WorkloadForm

        self.open("workloads")
        state = self._session.view_state()
        if state is not None:
            self._stack.push_screen(WorkloadForm(workload, state))

    def open_page(self, name: str) -> None:
        """Open a page of the documentation."""
        from gpumon.ui.screens.page import PageScreen

        self._stack.push_screen(PageScreen(name))

    def explain_error(self, error_id: str) -> None:
        """Explain a known error."""
        from gpumon.ui.screens.explain import ExplainScreen

        self._stack.push_screen(ExplainScreen(error_id=error_id))

    def explain_device(self) -> None:
        """Show the alert of the selected GPU, or say that it has none."""
        from gpumon.ui.screens.alerts import AlertsScreen

        key, state = self.selected_key, self._session.view_state()
        devices = () if state is None else state.frame.devices
        label = next((device.label for device in devices if device.key == key), "")
        if state is None or not any(alert.device_key == key for alert in state.alerts):
            self._stack.say(f"e: GPU {label} has nothing to explain" if label else "e: nothing to explain")
            return
        self.open("alerts")
        if isinstance(self._stack.screen, AlertsScreen):
            self._stack.screen.select(key)

    def open_host(self, message: FleetHostRequested) -> None:
        """Show a host of the fleet, or one of its GPUs, on the screens of this host."""
        from gpumon.ui.screens.device import DeviceScreen  # late: the first values must not wait for it

        if self._session.open_host(message.host) is None:
            problem = None if self._session.fleet is None else self._session.fleet.host_problem(message.host)
            self._stack.warn(f"{message.host} reports no GPU now. {problem or ''}".rstrip())
            return
        self._stack.push_screen(OverviewScreen(is_of_fleet=True))
        if message.device_key is not None:
            self._stack.push_screen(DeviceScreen(message.device_key))

    def go_home(self) -> None:
        """Close every screen above the overview of what gpumon was started with."""
        self._close_above(self._home)

    def select_device(self, step: int) -> None:
        """Go to another GPU; the cursor of the overview follows."""
        screen = self._stack.screen
        if isinstance(screen, ViewScreen):
            screen.select_device(step)
            overview = self.overview
            if screen is not overview and screen.device_key is not None:
                overview.show_device(screen.device_key)

    def applies(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Whether the stream and the screen in front have a use for an action of the app."""
        session = self._session
        shows_frames = partial(self._front_has, lambda view: view.SHOWS_FRAMES)
        selects_device = partial(self._front_has, lambda view: view.SELECTS_DEVICE)
        conditions: dict[object, Callable[[], bool]] = {  # called for one key only: a check of a stream's kind is slow
            ("open_screen", ("workloads",)): lambda: not session.is_read_only,
            "pause": shows_frames,
            "seek": lambda: isinstance(session.stream, Seekable) and shows_frames(),
            "change_pace": lambda: isinstance(session.stream, (Seekable, Adjustable)) and shows_frames(),
            "demo": lambda: session.can_toggle_demo,
            "record": lambda: session.shown.is_this_host,
            "explain_selected": selects_device,
            "select_device": lambda: (
                self.has_several_devices
                and self._front_has(lambda view: view.SELECTS_DEVICE and view.conditions().get("select_device", True))
            ),
            "notify_when": lambda: (
                session.shown.is_this_host and self._front_has(lambda view: view.SELECTS_DEVICE or view.LISTS_PROCESSES)
            ),
        }
        return all(conditions[key]() for key in (action, (action, parameters)) if key in conditions)

    def _front_has(self, trait: Callable[[ViewScreen[Any]], bool]) -> bool:
        """Whether the uppermost screen that is not a dialog has a trait."""
        front = self._front
        return isinstance(front, ViewScreen) and trait(front)

    @property
    def has_several_devices(self) -> bool:
        """Whether there is another GPU to go to."""
        frame = self._session.store.frame
        return frame is not None and len(frame.devices) > 1

    @property
    def overview(self) -> OverviewScreen:
        """The overview that is shown or lies below what is shown: that of a host of the fleet while it is open."""
        return next(screen for screen in reversed(self._stack.screen_stack) if isinstance(screen, OverviewScreen))

    @property
    def _home(self) -> OverviewScreen:
        """The lowest screen: the overview of what gpumon was started with."""
        return next(screen for screen in self._stack.screen_stack if isinstance(screen, OverviewScreen))

    @property
    def _front(self) -> Screen[Any]:
        """The uppermost screen that is not a dialog."""
        screens = reversed(self._stack.screen_stack)
        return next((screen for screen in screens if not screen.is_modal), self._stack.screen)

    @property
    def selected_key(self) -> str | None:
        """The GPU that the uppermost screen with a GPU shows or has selected, or else the first one."""
        for screen in reversed(self._stack.screen_stack):
            if isinstance(screen, ViewScreen) and screen.device_key is not None:
                return screen.device_key
        frame = self._session.store.frame
        return frame.devices[0].key if frame is not None and frame.devices else None

    def _open_tab(self, name: str) -> None:
        """Replace the screens above the overview, or go back to the screen if it is open already."""
        stack = self._stack
        below = self._home if name == "fleet" else self.overview
        has_fleet = name != "fleet" or self._session.fleet is not None
        kind = screen_class(name if has_fleet else "fleet_setup")
        same = next((screen for screen in stack.screen_stack if type(screen) is kind), None)
        key = self.selected_key
        if same is not None:
            self._close_above(same)
        elif name == "memory" and key is None:
            stack.warn("No GPU to show.")
        else:
            arguments = {"memory": (key,), "doctor": (self.doctor_options,)}
            screen = kind(*arguments.get(name, ()))
            if stack.screen is below:
                stack.push_screen(screen)
            else:
                self._close_above(below, but=1)
                stack.switch_screen(screen)

    def _close_above(self, screen: Screen[Any], but: int = 0) -> None:
        """Close the screens above a screen, except the lowest ``but`` of them."""
        for _ in self._stack.screen_stack[self._stack.screen_stack.index(screen) + 1 + but :]:
            self._stack.pop_screen()


def screen_class(name: str) -> type[BaseScreen[Any]]:
    """The class of a screen by its name, imported late: the first frame must not wait for it."""
    module = importlib.import_module(f"gpumon.ui.screens.{name}")
    kind: type[BaseScreen[Any]] = getattr(module, f"{name.title().replace('_', '')}Screen")
    return kind
