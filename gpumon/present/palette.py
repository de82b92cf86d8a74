"""Palettes: the colors of the built-in themes, and of themes that a user defines in the configuration file.

The built-in palettes keep the contrasts that `MIN_TEXT_CONTRAST` and `MIN_ROW_CONTRAST` state, and roles that appear
side by side stay distinct with red-green blindness (tests compute both).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from gpumon.present.paint.line import Role

MIN_TEXT_CONTRAST: Final = 4.5
"""Contrast of text to its background: WCAG 2.2, criterion 1.4.3."""
MIN_ROW_CONTRAST: Final = 1.5
"""Contrast of the row under the cursor, and of grid lines, to what is around them."""

BACKGROUND: Final = "background"
SURFACE: Final = "surface"
PANEL: Final = "panel"
CURSOR_ROW: Final = "cursor-row"
PRIMARY: Final = "primary"
SUCCESS: Final = "success"
BACKGROUNDS: Final[Mapping[str, str]] = {
    BACKGROUND: "behind tables and charts",
    SURFACE: "behind dialogs and text fields",
    PANEL: "behind headings and the footer",
    CURSOR_ROW: "behind the row under the cursor",
}
COLOR_NAMES: Final = (PRIMARY, SUCCESS, *BACKGROUNDS, *(role.value for role in Role))
"""Every name that a theme gives a color."""

DARK: Final = "dark"
LIGHT: Final = "light"
ANSI: Final = "ansi"
MONO: Final = "mono"
HIGH_CONTRAST: Final = "high-contrast"
_BASE: Final = "base"
_THEME_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_COLOR: Final = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_FOLLOWERS: Final[Mapping[str, tuple[str, ...]]] = {
    PRIMARY: (Role.ACCENT.value, Role.BRAND.value),
    Role.PLAIN.value: (Role.HEADING.value, Role.CURSOR.value),
}
"""Colors that a user's theme sets together with another one, unless it names them itself."""
_MIXTURES: Final[Mapping[str, float]] = {PANEL: 0.03, SURFACE: 0.05, CURSOR_ROW: 0.22}
"""How much of the text color these backgrounds contain in a user's theme that sets only the background."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The colors of a theme.

    Attributes:
        name: Name of the theme.
        colors: A color for each of `COLOR_NAMES`: ``#rrggbb``, or ``ansi_NAME`` for a color of the terminal.
        is_dark: Whether light text is on a dark background.
        has_terminal_colors: Whether the colors are those of the terminal.
        has_colors: Whether colors are sent at all; without them, bold, dim and reverse text remain.
    """

    name: str
    colors: Mapping[str, str]
    is_dark: bool = True
    has_terminal_colors: bool = False
    has_colors: bool = True


def _palette(name: str, colors: str, *, is_dark: bool = True) -> Palette:
    """A palette from lines of names and colors."""
    words = colors.split()
    return Palette(name, dict(zip(words[::2], words[1::2], strict=True)), is_dark)


_DARK: Final = _palette(
    DARK,
    """
    background #0d1117      surface #1a2230         panel #131922           cursor-row #2a3a52
    primary #6cb6ff         success #86e5cb         brand #6cb6ff           accent #6cb6ff
    plain #dce3ee           dim #a3adbd             heading #b4c3dc         cursor #ffffff
    warning #ffd97a         error #ff7f8a           grid #414c5e
    load-low #6aaef5        load-medium #7fdcc4     load-high #ffae5c
    gpu-history #56c8a8     memory-history #86b4ff  power #ffd97a           temperature #ff9678
    clock #a9b8cc           activity #f7a8dc        link #b9dcff
    series-1 #62b2ff        series-2 #ffb454        series-3 #3fbf9a        series-4 #f5e77a
    series-5 #a99bff        series-6 #ff8f6b        series-7 #ef9fd8        series-8 #eef2f8
    """,
)
_LIGHT: Final = _palette(
    LIGHT,
    """
    background #ffffff      surface #f5f7fa         panel #f4f7fb           cursor-row #b9cde6
    primary #0a52a8         success #075a85         brand #0a52a8           accent #0a52a8
    plain #1b2330           dim #454f5e             heading #2c3e5c         cursor #000000
    warning #7a4a00         error #a80a4f           grid #a9b5c4
    load-low #1c4db8        load-medium #006058     load-high #983310
    gpu-history #006058     memory-history #3448b8  power #7a4a00           temperature #9c2e0e
    clock #3f5066           activity #9d1a78        link #075a85
    series-1 #1852ac        series-2 #983310        series-3 #00624a        series-4 #5a4600
    series-5 #603bba        series-6 #96231f        series-7 #8d2586        series-8 #1d2430
    """,
    is_dark=False,
)
_HIGH_CONTRAST: Final = _palette(
    HIGH_CONTRAST,
    """
    background #000000      surface #000000         panel #000000           cursor-row #00278c
    primary #9fdcff         success #8ffff0         brand #9fdcff           accent #9fdcff
    plain #ffffff           dim #d0d0d0             heading #ffffff         cursor #ffffff
    warning #ffe14d         error #ffb3b8           grid #808080
    load-low #9fd0ff        load-medium #ffffff     load-high #ffc266
    gpu-history #66ffcc     memory-history #a8ccff  power #ffe14d           temperature #ffbc9f
    clock #cfd8e6           activity #ffc4ee        link #c8e8ff
    series-1 #9fd0ff        series-2 #ffc266        series-3 #55f0b8        series-4 #fff27a
    series-5 #d0c8ff        series-6 #ffb8a0        series-7 #ffc0ec        series-8 #ffffff
    """,
)
_TERMINAL_COLORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(COLOR_NAMES, "ansi_default"),
    **dict.fromkeys((PRIMARY, "accent", "brand", "load-low", "memory-history", "series-1"), "ansi_cyan"),
    **dict.fromkeys((SUCCESS, "load-medium", "gpu-history", "series-3"), "ansi_green"),
    **dict.fromkeys(("warning", "load-high", "power", "series-2"), "ansi_yellow"),
    **dict.fromkeys(("error", "temperature", "series-6"), "ansi_red"),
    **dict.fromkeys(("activity", "series-5"), "ansi_magenta"),
    "grid": "ansi_bright_black",
    "link": "ansi_bright_blue",
    "series-4": "ansi_bright_blue",
    "series-7": "ansi_bright_magenta",
}
BUILT_IN: Final[Mapping[str, Palette]] = {
    palette.name: palette
    for palette in (
        _DARK,
        _LIGHT,
        Palette(ANSI, _TERMINAL_COLORS, has_terminal_colors=True),
        _HIGH_CONTRAST,
        Palette(MONO, dict.fromkeys(COLOR_NAMES, "ansi_default"), has_terminal_colors=True, has_colors=False),
    )
}
"""The built-in palettes by name, in the order in which the key for themes goes through them."""
_BASES: Final = {DARK: _DARK, LIGHT: _LIGHT}


def check_theme_name(name: str) -> None:
    """Check the name of a user's theme.

    Raises:
        ValueError: The name is not valid.
    """
    if name in BUILT_IN:
        raise ValueError(f"{name} is a built-in theme; choose another name.")
    if not _THEME_NAME.fullmatch(name):
        raise ValueError("the name of a theme consists of a-z, 0-9 and hyphens.")


def check_color(name: str, value: object) -> None:
    """Check an entry of a user's theme.

    Raises:
        ValueError: There is no such color name, or the value is not a color.
    """
    if name == _BASE:
        if value not in _BASES:
            raise ValueError(f"{value!r} is not a base; write {' or '.join(_BASES)}.")
    elif name not in COLOR_NAMES:
        similar = next(iter(get_close_matches(name, (_BASE, *COLOR_NAMES), n=1)), "")
        raise ValueError(f"a theme has no such color{f'; did you mean {similar}?' if similar else '.'}")
    elif not (isinstance(value, str) and _COLOR.fullmatch(value)):
        raise ValueError(f"{value!r} is not a color such as #1a2b3c.")


def user_palette(name: str, entries: Mapping[str, str]) -> Palette:
    """The palette of a user's theme: its own colors on top of those of its base.

    Args:
        name: The name.
        entries: Entries that `check_color` accepts.
    """
    base = _BASES[entries.get(_BASE, DARK)]
    own = {key: _long(color) for key, color in entries.items() if key != _BASE}
    colors = dict(base.colors)
    for leader, followers in _FOLLOWERS.items():
        if leader in own:
            colors.update(dict.fromkeys(followers, own[leader]))
    colors.update(own)
    if BACKGROUND in own:
        text = colors[Role.PLAIN.value]
        colors.update({key: _mixed(own[BACKGROUND], text, share) for key, share in _MIXTURES.items() if key not in own})
    return Palette(name, colors, base.is_dark)


def palettes(user_palettes: Iterable[Palette] = ()) -> dict[str, Palette]:
    """The built-in palettes and those of the user, by name."""
    return {**BUILT_IN, **{palette.name: palette for palette in user_palettes}}


def _long(color: str) -> str:
    """``#abc`` as ``#aabbcc``."""
    digits = color[1:].lower()
    return "#" + (digits if len(digits) == 6 else "".join(digit * 2 for digit in digits))


def _mixed(color: str, other: str, share: float) -> str:
    """A color with a share of another one."""
    pairs = zip(bytes.fromhex(color[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + bytes(round(one + (two - one) * share) for one, two in pairs).hex()
