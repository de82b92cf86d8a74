"""Styles of the theme for the roles of lines, and lines as strips of Textual."""

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from gpumon.present.paint.line import Line, Role

ROLE_CLASSES = frozenset(f"role--{role.value}" for role in Role)


class RoleStyles:
    """The styles of roles on the background of a widget, cached until the theme changes.

    The app has the roles as its component classes: Textual creates a node for each class of each widget that has some,
    and again whenever the style of the widget may have changed.

    Args:
        widget: A widget of an app whose ``COMPONENT_CLASSES`` are `ROLE_CLASSES`.
    """

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._styles: dict[Role, Style] = {}

    def clear(self) -> None:
        """Drop the styles: the theme or the state of the widget has changed."""
        self._styles.clear()

    def strip(self, line: Line, width: int, overlay: Style | None = None) -> Strip:
        """The line in exactly ``width`` cells; ``overlay`` is applied on top of every style."""
        segments = [Segment(text, self.style(role, overlay)) for text, role in line]
        return Strip(segments).adjust_cell_length(width, self.style(Role.PLAIN, overlay))

    def overlay(self, component: str) -> Style:
        """The background and the text style of a component, to apply on top of the styles of roles.

        Where the component is reversed, its own colors replace those of the roles, which would become backgrounds.
        """
        style = self._widget.get_component_rich_style(component)
        return style + Style(dim=False) if style.reverse else Style(bgcolor=style.bgcolor, bold=style.bold)

    def style(self, role: Role, overlay: Style | None = None) -> Style:
        """The style of a role, with another one on top of it."""
        style = self._styles.get(role)
        if style is None:
            component = self._widget.app.get_component_styles(f"role--{role.value}")
            style = self._styles[role] = self._widget.rich_style + component.partial_rich_style
        return style if overlay is None else style + overlay
