"""Styles of the theme for the roles of lines, and lines as strips of Textual."""

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from gpumon.present.paint.line import Line, Role

ROLE_CLASSES = frozenset(f"role--{role.value}" for role in Role)


class RoleStyles:
    """The styles of a widget's roles, cached until the theme changes.

    Args:
        widget: A widget whose ``COMPONENT_CLASSES`` hold `ROLE_CLASSES`.
    """

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._styles: dict[Role, Style] = {}

    def clear(self) -> None:
        """Drop the styles: the theme or the state of the widget has changed."""
        self._styles.clear()

    def strip(self, line: Line, width: int, overlay: Style | None = None) -> Strip:
        """The line in exactly ``width`` cells; ``overlay`` is applied on top of every style."""
        segments = [Segment(text, self._style(role, overlay)) for text, role in line]
        return Strip(segments).adjust_cell_length(width, self._style(Role.PLAIN, overlay))

    def overlay(self, component: str) -> Style:
        """The background and the text style of a component, to apply on top of the styles of roles.

        Where the component is reversed, its own colors replace those of the roles, which would become backgrounds.
        """
        style = self._widget.get_component_rich_style(component)
        return style + Style(dim=False) if style.reverse else Style(bgcolor=style.bgcolor, bold=style.bold)

    def _style(self, role: Role, overlay: Style | None) -> Style:
        style = self._styles.get(role)
        if style is None:
            style = self._styles[role] = self._widget.get_component_rich_style(f"role--{role.value}")
        return style if overlay is None else style + overlay
