"""The keys that can be used now, in one line: at most six of the screen in front, and those that apply everywhere.

What a key did, or why it did nothing, stands in their place for a moment, so that it covers nothing else.
"""

from typing import ClassVar, Final, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from gpumon.ui.keymap import footer_rank, is_palette, meaning_of

MAX_KEYS: Final = 6
"""Of the screen, and of the app."""
_EVERYWHERE: Final = {"back"}
"""Meanings that stand with the keys of the app, whichever screen defines them."""
_NOTICE_SECONDS: Final = 4.0
_SPACES: Final = (3, 2, 1)
"""Cells between entries: as many as have room."""


class FooterEntry(NamedTuple):
    """A key and its label.

    Attributes:
        rank: Its rank: where room is short, the highest one is left out first.
        key: The key to simulate on a click.
        display: The key as it is shown.
        label: The description of the binding.
        enabled: Whether the key can be used now.
    """

    rank: int
    key: str
    display: str
    label: str
    enabled: bool

    @property
    def width(self) -> int:
        """Cells that it needs."""
        return cell_len(self.display) + 1 + cell_len(self.label)


class Footer(Widget, can_focus=False):
    """The keys of the screen in front and of its focused widget by rank, then those of the app."""

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
        self._separator: int | None = None
        """Cell of the line between the keys of the screen and those of the app."""
        self.notice = ""
        """What stands in the place of the keys; empty for the keys."""
        self._notice_end: Timer | None = None

    def say(self, text: str) -> None:
        """Show a text in the place of the keys for some seconds."""
        self.notice = text
        self.refresh()
        if self._notice_end is not None:
            self._notice_end.stop()
        if text:
            self._notice_end = self.set_timer(_NOTICE_SECONDS, lambda: self.say(""))

    def on_mount(self) -> None:
        """Follow the bindings of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, self._follow_bindings)

    def on_unmount(self) -> None:
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
        if self.notice and y == 0:
            notice = Strip([Segment(f" {self.notice}", background + self._style("key"))])
            return notice.adjust_cell_length(self.size.width, background)
        for start, entry in self._shown if y == 0 else ():
            if self._separator is not None and end <= self._separator < start:
                segments.append(Segment(" " * (self._separator - end), background))
                segments.append(Segment("│", background + self._style("disabled")))
                end = self._separator + 1
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
        front, everywhere = self._entries()
        width = self.size.width
        for space in _SPACES:
            shown, separator = _placed(front, everywhere, space)
            if _end(shown) <= width:
                break
        while _end(shown) > width and front + everywhere:
            last = max([*front, *everywhere], key=lambda entry: entry.rank)
            (front if last in front else everywhere).remove(last)
            shown, separator = _placed(front, everywhere, _SPACES[-1])
        if (shown, separator) != (self._shown, self._separator):
            self._shown, self._separator = shown, separator
            self.refresh()

    def _entries(self) -> tuple[list[FooterEntry], list[FooterEntry]]:
        """The entries of the screen, and those that apply everywhere, each by rank."""
        app = self.app
        ranked: dict[str, tuple[bool, FooterEntry]] = {}
        for node, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.action in ranked or not (binding.show or (is_palette(binding) and app.ENABLE_COMMAND_PALETTE)):
                continue
            label = "Palette" if is_palette(binding) else binding.description
            entry = FooterEntry(footer_rank(binding), binding.key, app.get_key_display(binding), label, enabled)
            is_everywhere = node is app or meaning_of(binding.id or "") in _EVERYWHERE
            ranked[binding.action] = is_everywhere, entry
        entries = sorted(ranked.values(), key=lambda item: item[1].rank)
        front = [entry for is_everywhere, entry in entries if not is_everywhere]
        everywhere = [entry for is_everywhere, entry in entries if is_everywhere]
        return front[:MAX_KEYS], everywhere[:MAX_KEYS]


def _placed(
    front: list[FooterEntry], everywhere: list[FooterEntry], space: int
) -> tuple[list[tuple[int, FooterEntry]], int | None]:
    """Entries with their first cell, and the cell of the line between both kinds, if there are both."""
    placed, start = [], 1
    separator = None
    for entry in front:
        placed.append((start, entry))
        start += entry.width + space
    if front and everywhere:
        separator = start
        start += 1 + space
    for entry in everywhere:
        placed.append((start, entry))
        start += entry.width + space
    return placed, separator


def _end(placed: list[tuple[int, FooterEntry]]) -> int:
    """The first cell after the last entry."""
    return placed[-1][0] + placed[-1][1].width if placed else 0
