"""The way from screen to screen: what a digit opens, the next GPU, and the commands of the palette."""

import importlib
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from textual.app import SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from gpumon.session.app_session import AppSession
from gpumon.ui.bindings import applies
from gpumon.ui.key_table import meaning_of
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.terminal_app import TerminalApp

if TYPE_CHECKING:
    from gpumon.operations.doctor.examination import DoctorOptions

_MOVING_KEYS: Final = frozenset({"up", "down", "k", "j", "pageup", "pagedown", "home", "end", "tab", "shift+tab"})
"""Keys that the palette does not list."""


class NavigatedApp(TerminalApp):
    """An app whose screens lie above the overview: a digit replaces them, and ``esc`` leads back to it."""

    session: AppSession
    doctor_options: "DoctorOptions | None" = None
    """What the doctor checks, if not everything."""

    def action_open_screen(self, name: str) -> None:
        """Open the screen of a tab, or go back to it if it is open already."""
        overview = self._overview
        if name == "gpus":
            self._close_above(overview)
            return
        kind = _screen_class(name)
        if name == "fleet":
            overview = self._home
        same = next((screen for screen in self.screen_stack if type(screen) is kind), None)
        if same is not None:
            self._close_above(same)
            return
        try:
            screen = self._new_screen(name)
        except LookupError as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        if self.screen is overview:
            self.push_screen(screen)
        else:
            self._close_above(overview, but=1)
            self.switch_screen(screen)

    def action_select_device(self, step: int) -> None:
        """Go to another GPU; the cursor of the overview follows."""
        screen = self.screen
        if isinstance(screen, ViewScreen):
            screen.select_device(step)
            overview = self._overview
            if screen is not overview and screen.device_key is not None:
                overview.show_device(screen.device_key)

    def action_cost(self) -> None:
        from gpumon.ui.screens.cost import CostScreen

        if not isinstance(self.screen, CostScreen):
            self.push_screen(CostScreen())

    def action_topology(self) -> None:
        from gpumon.ui.screens.topology import TopologyScreen

        if not isinstance(self.screen, TopologyScreen):
            self.push_screen(TopologyScreen())

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.screen))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys that the stream or the screen has no use for."""
        if action == "open_screen" and parameters == ("workloads",) and self.session.is_read_only:
            return False
        if action == "open_screen" and parameters == ("fleet",) and self.session.fleet is None:
            return False
        return self._applies(action, self._front) and super().check_action(action, parameters)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: what the keys of the screen below it and of the app do, then Textual's commands."""
        titles = set()
        for node, binding, enabled, _ in screen.active_bindings.values():
            title = command_title(binding)
            if title and enabled and title not in titles and binding.key not in _MOVING_KEYS:
                titles.add(title)
                run = partial(self.run_action, binding.action, node)
                yield SystemCommand(title, binding.tooltip, partial(self.run_after_palette, run))
        yield from (command for command in super().get_system_commands(screen) if command.title not in titles)

    def _applies(self, action: str, screen: Screen[object]) -> bool:
        if action == "demo" and not self.session.can_toggle_demo:
            return False
        if action == "select_device" and not self.has_several_devices:
            return False
        return applies(action, self.session.stream, screen)

    @property
    def has_several_devices(self) -> bool:
        """Whether there is another GPU to go to."""
        frame = self.session.store.frame
        return frame is not None and len(frame.devices) > 1

    def _close_above(self, screen: Screen[Any], but: int = 0) -> None:
        """Close the screens above a screen, except the lowest ``but`` of them."""
        for _ in self.screen_stack[self.screen_stack.index(screen) + 1 + but :]:
            self.pop_screen()

    @property
    def _home(self) -> OverviewScreen:
        """The lowest screen: the overview of what gpumon was started with."""
        return next(screen for screen in self.screen_stack if isinstance(screen, OverviewScreen))

    @property
    def _overview(self) -> OverviewScreen:
        """The overview that is shown or lies below what is shown: that of a host of the fleet while it is open."""
        return next(screen for screen in reversed(self.screen_stack) if isinstance(screen, OverviewScreen))

    @property
    def _front(self) -> Screen[Any]:
        """The uppermost screen that is not a dialog."""
        return next((screen for screen in reversed(self.screen_stack) if not screen.is_modal), self.screen)

    @property
    def _selected_key(self) -> str | None:
        """The GPU that the uppermost screen with a GPU shows or has selected, or else the first one."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ViewScreen) and screen.device_key is not None:
                return screen.device_key
        frame = self.session.store.frame
        return frame.devices[0].key if frame is not None and frame.devices else None

    def _new_screen(self, name: str) -> Screen[Any]:
        """The screen of a tab.

        Raises:
            LookupError: It shows a GPU, and there is none.
        """
        key = self._selected_key
        if name == "memory" and key is None:
            raise LookupError("No GPU to show.")
        arguments = {"memory": (key,), "doctor": (self.doctor_options,)}
        screen: Screen[Any] = _screen_class(name)(*arguments.get(name, ()))
        return screen


def _screen_class(name: str) -> type[Screen[Any]]:
    """The class of a tab's screen, imported late: the first frame must not wait for it."""
    module = importlib.import_module(f"gpumon.ui.screens.{name}")
    kind: type[Screen[Any]] = getattr(module, f"{name.capitalize()}Screen")
    return kind


def command_title(binding: Binding) -> str:
    """The name of a binding in the palette: its meaning in words."""
    words = meaning_of(binding.id or "").replace("-", " ").replace("gpu", "GPU")
    return words[:1].upper() + words[1:]
