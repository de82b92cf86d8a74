"""Help: the keys, as their bindings describe them, and the meaning of columns, words and symbols."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from textwrap import wrap
from typing import Any, ClassVar, Final, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.keys import format_key
from textual.screen import Screen
from textual.widgets import Static

from gpumon.present.doc_pages import SCREEN_PAGES
from gpumon.ui.bindings import SCREEN_BINDINGS
from gpumon.ui.key_table import footer_rank
from gpumon.ui.screens.base import BaseModalScreen

_KEYS_WIDTH: Final = 17
_WIDTH: Final = 75
"""Fits 80 columns with padding and scroll bar."""
_KEY_NAMES: Final = {"enter": "enter", "escape": "escape", "tab": "tab", "space": "space"}

_PALETTE_LINE: Final = f"  {'ctrl+p':<{_KEYS_WIDTH}} All commands"
_TAB_LINE: Final = f"  {'tab':<{_KEYS_WIDTH}} Next table or field"
"""Textual defines these keys."""

LEGEND: Final = """\
A GPU
  Util           share of time in which a kernel or a copy ran; not how
                 much of the GPU worked
  GPU            1:0 is the first MIG instance of GPU 1
  Memory GiB     held by processes / installed, without the driver's
                 reserve; ~ memory that the GPU shares with the host
  Power W        draw / limit           SM MHz   clock / maximum
  MemCtl         share of time in which device memory was read or written
  PCIe           generation x lanes     Perf     P0 is the fastest state
  State          why the clocks are lowered; a power cap is normal at
                 full load
                 no SM work: busy, but only with copies, or stuck
                 UNRESPONSIVE 12s: the driver has not answered since then
                 LOST: the GPU or the driver is gone   STALE 5s: old value
  Util 52s       the last 52 seconds, on a scale to 100 % or all memory;
                 _ is idle, a dot is a gap without a value;
                 ┆ a workload of gpumon started or ended
  !  before a value: needs attention    –  no value: enter shows why
                                        ?  an impossible value

A GPU OVER TIME
  power cap ...  when the clocks were lowered, and why; below it events:
                 ┆ a workload of gpumon, ! the GPU or an alert, X an Xid
                 error, x the driver

A GPU'S MEMORY
  ▞ ▒ ? ·        driver; process without a probe; unattributed; free
  ▄ █ ▓          context and libraries; tensors; freed, waiting for stream
  ░ ▚            cached: can be released; fragmented: cannot
                 To see inside a process: gpumon watch -- python train.py
                 or import gpumon.probe; gpumon.probe.start()
  chart          ⣿ allocated, inside ⠒ reserved, inside ⠐ all that NVML
                 reports; ▲ peak, R allocation retry, X out of memory

A PROCESS
  Type           C compute, G graphics, M client of MPS
  CPU%           100 is one processor of the host
"""


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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", id="help.back", tooltip="Close the help"),
        Binding("question_mark,f1", "dismiss", "Close", show=False, id="close.help", tooltip="Close the help"),
        *(replace(item, action=f"app.{item.action}", id=f"help.{item.id}") for item in SCREEN_BINDINGS),
    ]

    def __init__(self, below: Screen[Any], legend: str = LEGEND) -> None:
        super().__init__()
        self._text = help_text(below, legend)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text, markup=False)


def help_text(screen: Screen[Any], legend: str) -> str:
    """The keys of a screen, which must be on top, then the screens and the keys of the app, then the legend."""
    app_ids = {binding.id for _, binding in screen.app._bindings}  # noqa: SLF001 - Textual has no public name for it
    screen_ids = {binding.id for binding in SCREEN_BINDINGS}
    entries = bindings_of(screen)
    own = [entry for entry in entries if entry.binding.id not in app_ids]
    tabs = [entry for entry in entries if entry.binding.id in screen_ids]
    others = [entry for entry in entries if entry not in own and entry not in tabs]
    lines = ["KEYS OF THIS SCREEN", *key_lines(own), ""]
    page = SCREEN_PAGES.get(type(screen).__name__)
    if page is not None:
        lines += [f"More: {page}", ""]
    if tabs:
        lines += ["SCREENS", *key_lines(tabs), ""]
    textual_lines = [_PALETTE_LINE, _TAB_LINE] if screen.app.ENABLE_COMMAND_PALETTE else [_TAB_LINE]
    return "\n".join([*lines, "EVERYWHERE", *key_lines(others), *textual_lines, "", legend])


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


def key_text(key: str) -> str:
    """A key as a user knows it, such as ``ctrl+p`` or ``?``."""
    *modifiers, name = key.split("+")
    return "+".join([*modifiers, _KEY_NAMES.get(name) or format_key(name)])
