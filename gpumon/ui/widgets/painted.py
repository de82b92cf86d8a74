"""What all widgets made of lines share: roles become the theme's styles, lines become strips."""

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from gpumon.ui.paint.line import Line, Role

ROLE_CLASSES = frozenset(f"role--{role.value}" for role in Role)


class RoleStyles:
    """The styles of a widget's roles, looked up once a theme.

    Args:
        widget: A widget whose ``COMPONENT_CLASSES`` hold `ROLE_CLASSES`.
    """

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._styles: dict[Role, Style] = {}

    def clear(self) -> None:
        """Forgets the styles, because the theme or the widget's state changed."""
        self._styles.clear()

    def strip(self, line: Line, width: int, overlay: Style | None = None) -> Strip:
        """The line in exactly ``width`` cells; ``overlay`` is laid over every style."""
        segments = [Segment(text, self._style(role, overlay)) for text, role in line]
        return Strip(segments).adjust_cell_length(width, self._style(Role.PLAIN, overlay))

    def _style(self, role: Role, overlay: Style | None) -> Style:
        style = self._styles.get(role)
        if style is None:
            style = self._styles[role] = self._widget.get_component_rich_style(f"role--{role.value}")
        return style if overlay is None else style + overlay
