"""Palettes as themes of Textual: variables for the stylesheet, and no color at all in the theme without colors."""

from functools import lru_cache
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from gpumon.core.text_table import table
from gpumon.present.paint.line import Role
from gpumon.present.palette import BACKGROUND, CURSOR_ROW, PANEL, PRIMARY, SUCCESS, SURFACE, Palette

_DIM: Final = Role.DIM.value
_GRID: Final = Role.GRID.value

_TEXTUAL_VARIABLES: Final = dict(row.split() for row in table("gpumon.ui", "textual_variables"))
"""Variables of Textual's own widgets, and the color that each of them takes."""
_WITHOUT_VARIABLES_OF_THE_TERMINAL: Final = frozenset(
    name for name in _TEXTUAL_VARIABLES if name.startswith(("block", "input", "screen", "scrollbar"))
)
"""With the terminal's colors, these states are shown by reversed text or by Textual's own choice of colors."""
_TERMINAL_VARIABLES: Final = dict(row.split() for row in table("gpumon.ui", "terminal_variables"))


def textual_theme(palette: Palette) -> Theme:
    """The theme of a palette: ``$background``, ``$surface``, ``$panel``, ``$cursor-row``, and ``$role-NAME``."""
    colors = palette.colors
    variables = {f"role-{role.value}": colors[role.value] for role in Role}
    variables[CURSOR_ROW] = colors[CURSOR_ROW]
    for name, color in _TEXTUAL_VARIABLES.items():
        if not (palette.has_terminal_colors and name in _WITHOUT_VARIABLES_OF_THE_TERMINAL):
            variables[name] = colors[color]
    if palette.has_terminal_colors:
        variables.update(_TERMINAL_VARIABLES)
    return Theme(
        palette.name,
        primary=colors[PRIMARY],
        secondary=colors[Role.SERIES_5.value],
        accent=colors[PRIMARY],
        success=colors[SUCCESS],
        warning=colors[Role.WARNING.value],
        error=colors[Role.ERROR.value],
        foreground=colors[Role.PLAIN.value],
        background=colors[BACKGROUND],
        surface=colors[SURFACE],
        panel=colors[PANEL],
        boost=colors[PANEL],
        dark=palette.is_dark,
        ansi=palette.has_terminal_colors,
        variables=variables,
    )


class WithoutColors(LineFilter):
    """Removes every color; bold, dim, underlined and reversed text remains, and text on a color becomes reversed.

    Textual shows what is selected in its own lists by the background alone.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        """The segments without colors."""
        return [
            Segment(text, None if style is None else _without_color(style), control)
            for text, style, control in segments
        ]


@lru_cache(1024)
def _without_color(style: Style) -> Style:
    background = style.bgcolor
    plain = style.without_color
    return plain if background is None or background.is_default else plain + Style(reverse=True)
