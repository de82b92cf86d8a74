"""Every action of the app by name: its key, and its place in the command palette."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from textual.app import SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from gpumon.streams.base import Adjustable, Seekable, Stream
from gpumon.ui.screens.details import DetailsScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.screens.health import HealthScreen
from gpumon.ui.screens.overview import OverviewScreen

APP_BINDINGS: Final = (
    Binding("q,ctrl+c", "quit", "Quit", id="quit", tooltip="Leave gpumon"),
    Binding("question_mark,f1", "help", "Help", id="help", tooltip="What the screen shows and what the keys do"),
    Binding("m,M", "memory", "Memory", id="memory", tooltip="Where the GPU's memory is, and what PyTorch does with it"),
    Binding("w", "workloads", "Workloads", id="workloads", tooltip="Run diagnostic workloads and watch them"),
    Binding("a", "alerts", "Alerts", id="alerts", tooltip="What is wrong, since when, and what to do"),
    Binding("e", "explain", "Explain", id="explain", tooltip="Paste an error or a log: what it means, what mends it"),
    Binding("r", "doctor", "Doctor", id="doctor", tooltip="Check whether this machine is fit for PyTorch"),
    Binding("space,p", "pause", "Pause", id="pause", tooltip="Stop and go on"),
    Binding(
        "plus,equals_sign",
        "faster",
        "Pace",
        id="faster",
        key_display="+/-",
        tooltip="Faster: a shorter interval, or a quicker replay",
    ),
    Binding(
        "minus",
        "slower",
        "Slower",
        id="slower",
        show=False,
        tooltip="Slower: a longer interval, or a slower replay",
    ),
    Binding("full_stop", "forward", "10s", id="forth", key_display=",/.", tooltip="Ten seconds forth in the recording"),
    Binding("comma", "rewind", "Back", id="back", show=False, tooltip="Ten seconds back in the recording"),
    Binding("c", "cost", "Cost", id="cost", tooltip="What gpumon itself costs: time, calls, bytes, CPU, memory"),
    Binding("d", "demo", "Demo", id="demo", tooltip="Play the bundled recording, and back to live"),
    Binding("t", "theme", "Theme", id="theme", tooltip="Next theme: dark, light, ansi"),
    Binding("ctrl+z", "suspend_process", "Suspend", id="suspend", show=False, tooltip="Suspend; fg brings it back"),
)

ABOUT_A_DEVICE: Final = (OverviewScreen, DeviceScreen, DetailsScreen)
"""Screens with a device of which more can be shown."""


def applies(action: str, stream: Stream, screen: Screen[Any]) -> bool:
    """Whether an action of the app has a use with a stream and on a screen."""
    if action in {"rewind", "forward"}:
        return isinstance(stream, Seekable)
    if action in {"faster", "slower"}:
        return isinstance(stream, (Seekable, Adjustable))
    if action in {"demo", "workloads", "explain", "doctor", "cost"}:
        return isinstance(screen, OverviewScreen)
    if action == "memory":
        return isinstance(screen, ABOUT_A_DEVICE)
    if action == "alerts":
        return isinstance(screen, DrawnScreen) and not isinstance(screen, HealthScreen)
    return True


def system_commands(screen: Screen[object], others: Iterable[SystemCommand]) -> Iterator[SystemCommand]:
    """A command for each binding that applies now, then those of ``others`` that are called differently."""
    app = screen.app
    titles = set()
    for binding in APP_BINDINGS:
        if app.check_action(binding.action, ()):

            async def run(action: str = binding.action) -> None:
                await app.run_action(action)

            title = (binding.id or binding.description).capitalize()
            titles.add(title)
            yield SystemCommand(title, binding.tooltip, run)
    yield from (command for command in others if command.title not in titles)
