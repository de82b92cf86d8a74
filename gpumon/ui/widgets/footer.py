"""The keys that can be used now, in one line: complete entries only, the first ones where there is no room for all."""

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

_ALWAYS_SHOWN: Final = ("help",)
"""Actions that have room before all others."""
_SPACES: Final = (3, 1)
"""Cells between entries: where all of them have room, and otherwise."""


class FooterEntry(NamedTuple):
    """A key and its label.

    Attributes:
        action: The action of its binding.
        key: The key to simulate on a click.
        display: The key as it is shown.
        label: The description of the binding.
        enabled: Whether the key can be used now.
    """

    action: str
    key: str
    display: str
    label: str
    enabled: bool

    @property
    def width(self) -> int:
        """Cells that it needs."""
        return cell_len(self.display) + 1 + cell_len(self.label)


class Footer(Widget, can_focus=False):
    """The bindings of the screen in the order of their definition: those of the focused widget, the screen, the app."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"footer--key", "footer--label", "footer--disabled"}
    DEFAULT_CSS = """
    Footer { dock: bottom; height: 1; width: 1fr; background: $footer-background; }
    Footer > .footer--key { color: $footer-key-foreground; text-style: bold; }
    Footer > .footer--label { color: $footer-description-foreground; }
    Footer > .footer--disabled { color: $footer-description-foreground; text-style: dim; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: list[tuple[int, FooterEntry]] = []
        """Entries with their first cell."""

    def on_mount(self) -> None:
        """Follow the bindings of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, self._follow_bindings)

    def on_unmount(self) -> None:
        """Stop following."""
        self.screen.bindings_updated_signal.unsubscribe(self)

    def on_resize(self, _: events.Resize) -> None:
        """Choose the entries that have room now."""
        self._arrange()

    def on_click(self, event: events.Click) -> None:
        """Press the key under the pointer."""
        for start, entry in self._shown:
            if start <= event.x < start + entry.width:
                self.app.simulate_key(entry.key)

    def render_line(self, y: int) -> Strip:
        segments, end = [], 0
        background = self.rich_style
        for start, entry in self._shown if y == 0 else ():
            key, label = (self._style("key"), self._style("label")) if entry.enabled else (self._style("disabled"),) * 2
            segments.append(Segment(" " * (start - end), background))
            segments.append(Segment(entry.display, background + key))
            segments.append(Segment(f" {entry.label}", background + label))
            end = start + entry.width
        return Strip(segments).adjust_cell_length(self.size.width, background)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"footer--{name}")

    def _follow_bindings(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self._arrange()

    def _arrange(self) -> None:
        """Place the entries; nothing is sent to the terminal unless they change."""
        entries = list(self._entries())
        for space in _SPACES:
            shown = _placed(entries, space)
            if _end(shown) <= self.size.width:
                break
        droppable = [entry for entry in entries if entry.action not in _ALWAYS_SHOWN]
        while _end(shown) > self.size.width and droppable:
            entries.remove(droppable.pop())
            shown = _placed(entries, _SPACES[-1])
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    def _entries(self) -> Iterator[FooterEntry]:
        """One entry for each action that is shown, then the command palette."""
        app = self.app
        actions = set()
        active = self.screen.active_bindings
        for _, binding, enabled, _ in active.values():
            if binding.show and binding.action not in actions:
                actions.add(binding.action)
                display = app.get_key_display(binding)
                yield FooterEntry(binding.action, binding.key, display, binding.description, enabled)
        palette = active.get(app.COMMAND_PALETTE_BINDING)
        if palette is not None and app.ENABLE_COMMAND_PALETTE:
            display = app.get_key_display(palette.binding)
            yield FooterEntry(palette.binding.action, palette.binding.key, display, "Palette", palette.enabled)


def _placed(entries: list[FooterEntry], space: int) -> list[tuple[int, FooterEntry]]:
    """Entries with their first cell."""
    placed, start = [], 1
    for entry in entries:
        placed.append((start, entry))
        start += entry.width + space
    return placed


def _end(placed: list[tuple[int, FooterEntry]]) -> int:
    """The first cell after the last entry."""
    return placed[-1][0] + placed[-1][1].width if placed else 0
