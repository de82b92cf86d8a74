"""The bindings of the app, where each of them applies, and a list of all bindings of gpumon."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

from gpumon.streams.base import Adjustable, Seekable, Stream
from gpumon.ui.screens.alerts import AlertsScreen
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.process import ProcessScreen

APP_BINDINGS: Final = (
    Binding("q,ctrl+c", "quit", "Quit", id="quit", tooltip="Quit gpumon"),
    Binding("question_mark,f1", "help", "Help", id="help", tooltip="Keys and the meaning of the columns"),
    Binding("m,M", "memory", "Memory", id="memory", tooltip="Memory of the GPU, and how PyTorch uses it"),
    Binding("w", "workloads", "Workloads", id="workloads", tooltip="Run diagnostic workloads on a GPU or the CPU"),
    Binding("a", "alerts", "Alerts", id="alerts", tooltip="Current and past alerts, and how to fix them"),
    Binding("e", "explain", "Explain", id="explain", tooltip="Paste an error or a log: what it means, how to fix it"),
    Binding("r", "doctor", "Doctor", id="doctor", tooltip="Check whether this host is ready for PyTorch"),
    Binding("space,p", "pause", "Pause", id="pause", tooltip="Pause or resume; live frames still go into the history"),
    Binding(
        "plus,equals_sign",
        "faster",
        "Pace",
        id="faster",
        key_display="+/-",
        tooltip="Faster: a shorter interval, or a higher replay speed",
    ),
    Binding(
        "minus",
        "slower",
        "Slower",
        id="slower",
        show=False,
        tooltip="Slower: a longer interval, or a lower replay speed",
    ),
    Binding(
        "full_stop", "forward", "10s", id="forward", key_display=",/.", tooltip="Ten seconds forward in the recording"
    ),
    Binding("comma", "rewind", "Back", id="rewind", show=False, tooltip="Ten seconds back in the recording"),
    Binding("c", "cost", "Cost", id="cost", tooltip="CPU, memory, output and driver calls of gpumon"),
    Binding("d", "demo", "Demo", id="demo", tooltip="Play the bundled recording, or go back to live values"),
    Binding("t", "theme", "Theme", id="theme", tooltip="Next theme: dark, light, ansi (the terminal's colors)"),
    Binding("ctrl+l", "redraw", "Redraw", id="redraw", show=False, tooltip="Redraw the complete screen"),
    Binding("ctrl+z", "suspend_process", "Suspend", id="suspend", show=False, tooltip="Suspend; resume with fg"),
)

DEVICE_SCREENS: Final = (OverviewScreen, DeviceScreen, ProcessScreen)
"""Screens with a device, from which the memory screen can be opened."""
_FROM_OVERVIEW: Final = {"demo", "workloads", "explain", "doctor", "cost"}


def applies(action: str, stream: Stream, screen: Screen[Any]) -> bool:
    """Whether an action of the app can be used with a stream and on a screen."""
    if action in {"rewind", "forward"}:
        return isinstance(stream, Seekable)
    if action in {"faster", "slower"}:
        return isinstance(stream, (Seekable, Adjustable))
    if action in _FROM_OVERVIEW:
        return isinstance(screen, OverviewScreen)
    if action == "memory":
        return isinstance(screen, DEVICE_SCREENS)
    if action == "alerts":
        return isinstance(screen, ViewScreen) and not isinstance(screen, AlertsScreen)
    return True


class OwnedBinding(NamedTuple):
    """A binding and the class that defines it."""

    owner: type[DOMNode]
    binding: Binding


def all_bindings() -> Iterator[OwnedBinding]:
    """Every binding that a class of gpumon defines, found by importing every module of the package."""
    package = importlib.import_module("gpumon.ui")
    for module_info in pkgutil.walk_packages(package.__path__, "gpumon.ui."):
        module = importlib.import_module(module_info.name)
        for owner in vars(module).values():
            if isinstance(owner, type) and issubclass(owner, DOMNode) and owner.__module__ == module.__name__:
                for binding in vars(owner).get("BINDINGS", ()):
                    assert isinstance(binding, Binding), f"{owner.__name__} has a binding without id and tooltip"
                    yield OwnedBinding(owner, binding)
