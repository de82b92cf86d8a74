"""Palettes: the colors of the built-in themes, and of themes that a user defines in the configuration file.

The built-in palettes keep the contrasts that `MIN_TEXT_CONTRAST` and `MIN_ROW_CONTRAST` state, and in those of gpumon
itself, roles that appear side by side stay distinct with red-green blindness (tests compute both). The colors of
well-known themes are as far from the original as their contrast needs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from gpumon.core.text_table import table
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


_TERMINAL_COLORS: Final[Mapping[str, str]] = dict.fromkeys(COLOR_NAMES, "ansi_default") | {
    name: color for color, *names in map(str.split, table(__package__, "terminal_colors")) for name in names
}


def _colored() -> Iterator[Palette]:
    """The palettes of ``themes.txt``: a line ``=== NAME dark`` or ``=== NAME light``, then names and colors."""
    for part in Path(__file__).with_name("themes.txt").read_text("utf-8").split("=== ")[1:]:
        name, kind, *words = part.split()
        yield Palette(name, dict(zip(words[::2], words[1::2], strict=True)), kind == DARK)


_DARK, _LIGHT, _HIGH_CONTRAST, *_WELL_KNOWN = _colored()
BUILT_IN: Final[Mapping[str, Palette]] = {
    palette.name: palette
    for palette in (
        _DARK,
        _LIGHT,
        Palette(ANSI, _TERMINAL_COLORS, has_terminal_colors=True),
        _HIGH_CONTRAST,
        Palette(MONO, dict.fromkeys(COLOR_NAMES, "ansi_default"), has_terminal_colors=True, has_colors=False),
        *_WELL_KNOWN,
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
