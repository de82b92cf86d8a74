"""Corrections of the pinned version of Textual, each with the test that fails without it.

Importing the module applies them. They replace names of Textual that are not public, so each needs a look when the
version changes.
"""

import selectors
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

from rich import cells
from rich.segment import Segment
from rich.style import Style
from textual import _compositor, _segment_tools, events
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.cache import FIFOCache, LRUCache
from textual.color import Color
from textual.css.scalar import Scalar
from textual.css.stylesheet import Stylesheet
from textual.drivers import linux_driver
from textual.geometry import Region
from textual.keys import KEY_TO_UNICODE_NAME
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.timer import Timer

from gpumon.ui.partial_update import render_partial_update

_IDLE_SECONDS = 0.5
_ROUNDS_AFTER_INPUT = 3
_LINE_CACHE_SIZE = 4
_CACHE_SIZE = 256
_UNREADABLE_KEY = "unreadable"
"""No binding has this name."""


class TolerantParser(XTermParser):
    """A parser for which a key that has no character (``ESC [ 1114112 u``) is a key that does nothing, not an error."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        try:
            yield from super()._sequence_to_key_events(sequence, alt)
        except (ValueError, OverflowError):
            yield events.Key(_UNREADABLE_KEY, None)


class PromptSelector(selectors.SelectSelector):
    """A selector that waits for input only: at its end, Textual waits 0.1 s for a selector without a file.

    Textual wakes up ten times a second, because a lone ESC becomes a key after a time. Without input, twice is enough.
    """

    _idle_rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The files that are ready, at once if there is none to wait for."""
        is_idle = self._idle_rounds > _ROUNDS_AFTER_INPUT
        ready = super().select(_IDLE_SECONDS if is_idle else timeout) if self.get_map() else []
        self._idle_rounds = 0 if ready else self._idle_rounds + 1
        return ready


class LineCache(FIFOCache[Any, Any]):
    """A cache that does not keep its own line, which Textual enters where nothing is to change: it would be garbage."""

    __slots__ = ("_line",)

    def __init__(self, line: int) -> None:
        super().__init__(_LINE_CACHE_SIZE)
        self._line = line

    def __setitem__(self, key: object, value: Strip | list[Strip]) -> None:
        if self._line not in (map(id, value) if isinstance(value, list) else (id(value),)):
            super().__setitem__(key, value)


class LateCache:
    """A cache of a line that exists from its first use on, in the slot that Textual fills for every line."""

    def __init__(self, slot: MemberDescriptorType) -> None:
        self._slot = slot

    def __get__(self, strip: Strip, _: type[Strip]) -> FIFOCache[Any, Strip]:
        try:
            return self._slot.__get__(strip)  # type: ignore[no-any-return]
        except AttributeError:
            cache = LineCache(id(strip))
            self._slot.__set__(strip, cache)
            return cache


def _clear(cache: LRUCache[Any, Any]) -> None:
    """Take the ring of the entries apart, too: with it, all rules of a theme wait for the next garbage collection."""
    for link in cache._cache.values():  # noqa: SLF001
        link.clear()
    _clear_names(cache)


def _start_strip(strip: Strip, segments: Iterable[Segment], cell_length: int | None = None) -> None:
    strip._segments, strip._cell_length = list(segments), cell_length  # noqa: SLF001
    strip._render_cache = strip._link_ids = strip._cell_count = None  # noqa: SLF001


def _start_timer(timer: Timer) -> None:
    """Let a time that has passed be now: with that of a notice that is over, a timer would never give way to others."""
    timer._interval = max(0.0, timer._interval)  # noqa: SLF001
    timer._skip = timer._skip and timer._repeat != 0  # noqa: SLF001 - a timer whose only tick is skipped never ticks
    _start_any_timer(timer)


def _set_variables(stylesheet: Stylesheet, variables: dict[str, str]) -> None:
    """Keep the rules that were parsed with the same variables: Textual parses all of them twice when an app starts."""
    if variables != stylesheet._variables:  # noqa: SLF001
        _set_new_variables(stylesheet, variables)


def _tolerant_decoder(encoding: str) -> Callable[[], IncrementalDecoder]:
    """A decoder for which a byte that is not UTF-8 is U+FFFD: a Latin-1 terminal and a paste send such bytes."""
    return partial(getincrementaldecoder(encoding), "replace")


linux_driver.getincrementaldecoder = _tolerant_decoder  # type: ignore[attr-defined, assignment]
linux_driver.XTermParser = TolerantParser  # type: ignore[attr-defined]
linux_driver.selectors = SimpleNamespace(**{**vars(selectors), "SelectSelector": PromptSelector})  # type: ignore[attr-defined, assignment]

_clear_names = LRUCache.clear
LRUCache.clear = _clear  # type: ignore[method-assign, assignment]

_start_any_timer = Timer._start  # noqa: SLF001
Timer._start = _start_timer  # type: ignore[method-assign, assignment]  # noqa: SLF001

_set_new_variables = Stylesheet.set_variables
Stylesheet.set_variables = _set_variables  # type: ignore[method-assign, assignment]
Stylesheet.reparse = Stylesheet.parse  # type: ignore[method-assign]

# The cache of Textual's method keeps the lines of 1024 removed widgets alive, because its key contains the instance.
_inner_outer = partial(StylesCache.get_inner_outer.__wrapped__, StylesCache)
StylesCache.get_inner_outer = staticmethod(lru_cache(1024)(_inner_outer))  # type: ignore[assignment]

# Every line of every widget would have seven caches, a third of the objects of a screen; few are ever used.
for _name in {name for name in Strip.__slots__ if name.endswith("_cache")} - {"_render_cache"}:
    setattr(Strip, _name, LateCache(getattr(Strip, _name)))
Strip.__init__ = _start_strip  # type: ignore[method-assign, assignment]

# Positions, styles of many themes, and halves of lines, new in each frame of a chart, fill larger ones for an hour.
for _class in (Color, Region, Scalar, Segment, Strip, Style, VisualStyle, _segment_tools, cells):
    for _name, _value in [*vars(_class).items()]:
        _cached = getattr(_value, "__func__", _value)
        if hasattr(_cached, "cache_parameters") and (_cached.cache_parameters()["maxsize"] or 0) > _CACHE_SIZE:
            _smaller = lru_cache(_CACHE_SIZE)(_cached.__wrapped__)
            setattr(_class, _name, classmethod(_smaller) if isinstance(_value, classmethod) else _smaller)  # type: ignore[arg-type]

# Without the character of a key, the footer shows the key while a text field consumes it.
KEY_TO_UNICODE_NAME.update(plus="PLUS SIGN", minus="HYPHEN-MINUS", slash="SOLIDUS")

# Textual renders far more than the changed cells, and sends each line from the left end of its widget.
_compositor.Compositor.render_partial_update = render_partial_update  # type: ignore[assignment, method-assign]
