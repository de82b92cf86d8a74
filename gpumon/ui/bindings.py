"""The bindings of the app, where each of them applies, and a list of all bindings of gpumon."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

from gpumon.present.top_line import TABS
from gpumon.streams.base import Adjustable, Seekable, Stream
from gpumon.ui.key_table import KEY_MEANINGS
from gpumon.ui.screens.base import ViewScreen

TERMINAL_BINDINGS: Final = (
    Binding("y", "copy", "Copy", id="copy", tooltip="Copy the row or the text to the clipboard"),
    Binding("S", "save", "Save", id="save", tooltip="Save the screen as a picture and as text"),
    Binding("T", "theme", "Theme", id="theme", tooltip="Next theme"),
    Binding("ctrl+l", "redraw", "Redraw", id="redraw", show=False, tooltip="Redraw the complete screen"),
    Binding("ctrl+z", "suspend_process", "Suspend", id="suspend", show=False, tooltip="Suspend; resume with fg"),
    Binding("question_mark,f1", "help", "Help", id="help", tooltip="Keys and the meaning of the columns"),
    Binding("q", "ask_to_quit", "Quit", id="quit", tooltip="Quit; asks while a workload started here is running"),
    Binding("ctrl+c", "quit", "Quit now", id="quit-now", show=False, tooltip="Quit without a question", priority=True),
)
"""The bindings of every app of gpumon."""

SCREEN_BINDINGS: Final = tuple(
    Binding(
        ",".join(key for key, meaning in KEY_MEANINGS.items() if meaning == tab.name.lower()),
        f"open_screen('{tab.name.lower()}')",
        tab.name,
        id=tab.name.lower(),
        show=False,
        tooltip=tab.help,
    )
    for tab in TABS
)
"""The screens with a digit; the top line shows them, not the footer."""

APP_BINDINGS: Final = (
    *SCREEN_BINDINGS,
    Binding(
        "left_square_bracket",
        "select_device(-1)",
        "GPU",
        id="previous-gpu",
        key_display="[ ]",
        tooltip="Previous GPU",
    ),
    Binding("right_square_bracket", "select_device(1)", "GPU", id="next-gpu", show=False, tooltip="Next GPU"),
    Binding("space", "pause", "Pause", id="pause", tooltip="Pause or resume; live frames still go into the history"),
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
    Binding("C", "cost", "Cost", id="cost", tooltip="CPU, memory, output and driver calls of gpumon"),
    Binding("L", "topology", "Topology", id="topology", tooltip="Connections of the GPUs: NVLink, PCIe, NUMA, network"),
    Binding("N", "notify_when", "Notify", id="notify-when", tooltip="Notify me when a GPU is free or a process ends"),
    Binding("d", "demo", "Demo", id="demo", tooltip="Play the bundled recording, or go back to live values"),
    *TERMINAL_BINDINGS,
)


def applies(action: str, stream: Stream, screen: Screen[Any]) -> bool:
    """Whether an action of the app, without its parameters, can be used with a stream and on a screen."""
    if action in {"rewind", "forward"}:
        return isinstance(stream, Seekable)
    if action in {"faster", "slower"}:
        return isinstance(stream, (Seekable, Adjustable))
    if action == "select_device":
        return isinstance(screen, ViewScreen) and screen.SELECTS_DEVICE
    if action == "notify_when":
        return isinstance(screen, ViewScreen) and (screen.SELECTS_DEVICE or screen.LISTS_PROCESSES)
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
