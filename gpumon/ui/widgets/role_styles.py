"""Styles of the theme for the roles of lines, lines as segments of Rich, and the widgets that are made of them."""

from functools import cached_property

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from gpumon.present.paint.line import Line, Role, width_of

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
        self._overlays: dict[str, Style] = {}

    def clear(self) -> None:
        """Drop the styles: the theme or the state of the widget has changed."""
        self._styles.clear()
        self._overlays.clear()

    def segments(self, line: Line, width: int, overlay: Style | None = None) -> list[Segment]:
        """The line in exactly ``width`` cells; ``overlay`` is applied on top of every style."""
        segments = [Segment(text, self.style(role, overlay)) for text, role in line]
        missing = width - sum(width_of(text) for text, _ in line)
        if missing > 0:
            segments.append(Segment(" " * missing, self.style(Role.PLAIN, overlay)))
        return segments if missing >= 0 else [*Strip(segments).crop(0, width)]

    def overlay(self, component: str) -> Style:
        """The background and the text style of a component, to apply on top of the styles of roles.

        Where the component is reversed, its own colors replace those of the roles, which would become backgrounds.
        """
        overlay = self._overlays.get(component)
        if overlay is None:
            style = self._widget.get_component_rich_style(component)
            overlay = style + Style(dim=False) if style.reverse else Style(bgcolor=style.bgcolor, bold=style.bold)
            self._overlays[component] = overlay
        return overlay

    def style(self, role: Role, overlay: Style | None = None) -> Style:
        """The style of a role, with another one on top of it."""
        style = self._styles.get(role)
        if style is None:
            component = self._widget.app.get_component_styles(f"role--{role.value}")
            style = self._styles[role] = self._widget.rich_style + component.partial_rich_style
        return style if overlay is None else style + overlay


class LineWidget(Widget):
    """A widget of lines, whose changed lines are sent without the strips that Textual makes and caches for each.

    It has neither a border nor a padding.
    """

    @cached_property
    def _role_styles(self) -> RoleStyles:
        return RoleStyles(self)

    def line_segments(self, y: int) -> list[Segment]:
        """A visible line, as wide as the content."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        return Strip(self.line_segments(y), self.size.width)

    def notify_style_update(self) -> None:
        self._role_styles.clear()
        super().notify_style_update()
