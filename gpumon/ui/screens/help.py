"""Help: the keys, as their bindings describe them, and the meaning of columns, words and symbols."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Any, ClassVar, Final, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from gpumon.present.pages import page_titles
from gpumon.ui.keymap import TAB_BINDINGS, Bindings, footer_rank, key, key_text
from gpumon.ui.screens.base import BaseModalScreen, BaseScreen

_KEYS_WIDTH: Final = 17
_WIDTH: Final = 75
"""Fits 80 columns with padding and scroll bar."""

_PALETTE_LINE: Final = f"  {'ctrl+p':<{_KEYS_WIDTH}} All commands"
_TAB_LINE: Final = f"  {'tab':<{_KEYS_WIDTH}} Next table or field"
"""Textual defines these keys."""
_WORDS: Final = Path(__file__).parents[1] / "words.txt"
"""What the words on the screens mean."""


class KeyHelp(NamedTuple):
    """A binding and all of its keys."""

    keys: list[str]
    binding: Binding


class HelpScreen(BaseModalScreen[None]):
    """Keys of the screen below, keys of the app, and the legend.

    Args:
        below: The screen from which the help was opened.
        legend: The meaning of its columns, words and symbols.
    """

    BINDINGS: ClassVar[Bindings] = [
        key("help.back", "Close", "Close the help", "dismiss"),
        key("help.open", "Page", "The page about the screen", "page"),
        *(replace(item, action=f"app.{item.action}", id=f"help.{item.id}") for item in TAB_BINDINGS),
    ]

    def __init__(self, below: Screen[Any], legend: str) -> None:
        super().__init__()
        self.text = help_text(below, legend)
        self._page = below.PAGE if isinstance(below, BaseScreen) else ""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self.text, markup=False)

    def action_page(self) -> None:
        from gpumon.ui.screens.page import PageScreen  # few sessions need it

        if self._page:
            self.app.switch_screen(PageScreen(Path(self._page).name))


def help_text(screen: Screen[Any], legend: str) -> str:
    """The keys of a screen, which must be on top, then the screens and the keys of the app, then the legend."""
    app_ids = {binding.id for _, binding in screen.app._bindings}  # noqa: SLF001 - Textual has no public name for it
    screen_ids = {binding.id for binding in TAB_BINDINGS}
    entries = bindings_of(screen)
    own = [entry for entry in entries if entry.binding.id not in app_ids]
    tabs = [entry for entry in entries if entry.binding.id in screen_ids]
    others = [entry for entry in entries if entry not in own and entry not in tabs]
    lines = ["KEYS OF THIS SCREEN", *key_lines(own), ""]
    if isinstance(screen, BaseScreen) and screen.PAGE:
        lines += [f"  {'enter':<{_KEYS_WIDTH}} The page {page_titles()[Path(screen.PAGE).name]!r}", ""]
    if tabs:
        lines += ["SCREENS", *key_lines(tabs), ""]
    textual_lines = [_PALETTE_LINE, _TAB_LINE] if screen.app.ENABLE_COMMAND_PALETTE else [_TAB_LINE]
    return "\n".join([*lines, "EVERYWHERE", *key_lines(others), *textual_lines, "", legend, _WORDS.read_text("utf-8")])


def bindings_of(screen: Screen[Any]) -> list[KeyHelp]:
    """The bindings of a screen by rank, each with all of its keys; those of Textual itself have no id."""
    entries: dict[str, KeyHelp] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.id is not None:
            entries.setdefault(binding.id, KeyHelp([], binding)).keys.append(key_text(binding.key))
    return sorted(entries.values(), key=lambda entry: footer_rank(entry.binding))


def key_lines(entries: Iterable[KeyHelp]) -> Iterator[str]:
    """A line for each binding: its keys and its tooltip."""
    for keys, binding in entries:
        first, *rest = wrap(binding.tooltip, _WIDTH - _KEYS_WIDTH - 3) or [""]
        yield f"  {'  '.join(keys):<{_KEYS_WIDTH}} {first}"
        yield from (f"  {'':<{_KEYS_WIDTH}} {line}" for line in rest)
