"""Lines of text in the styles of the theme, which repaint only when they change; the top line is one of them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumon.present.paint.line import Line, Role, changed_ranges, width_of
from gpumon.present.top_line import PlacedTab, top_line
from gpumon.session.view_state import ViewState

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
        segments, missing, known = [], width, self._styles if overlay is None else {}
        for text, role in line:
            segments.append(Segment(text, known[role] if role in known else self.style(role, overlay)))
            missing -= width_of(text)
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

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Any:  # noqa: ANN401 - typing has no Self in Python 3.10
        """Draw again; parts of it without the two messages, and the sizes computed again, that this costs otherwise."""
        if not regions or not repaint or layout or recompose or not self.is_attached or not self.display:
            return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        self._styles_cache.set_dirty(*regions)
        self._repaint_regions.update(regions)
        self.screen._dirty_widgets.add(self)  # noqa: SLF001 - what the screen does with the second message
        self.screen.check_idle()
        return self

    def notify_style_update(self) -> None:
        self._role_styles.clear()
        super().notify_style_update()


class TextLines(LineWidget):
    """Lines of text; the height is their number, and there is nothing around them."""

    DEFAULT_CSS = "TextLines { height: 1; width: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []
        self.styles.display = "none"

    @property
    def lines(self) -> Sequence[Line]:
        """The lines that are shown."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines."""
        before = self._lines
        if before == lines:
            return
        self._lines = list(lines)
        if len(before) != len(lines):
            self.styles.height = len(lines)
            self.styles.display = None if lines else "none"  # a class would apply all rules to all nodes below
            self.refresh(layout=True)
            return
        changed = [
            Region(begin, row, end - begin, 1)
            for row, (old, new) in enumerate(zip(before, lines, strict=True))
            for begin, end in changed_ranges(old, new)
        ]
        if changed:
            self.refresh(*changed)

    def line_segments(self, y: int) -> list[Segment]:
        """A line."""
        return self._role_styles.segments(self._lines[y] if y < len(self._lines) else (), self.outer_size.width)


class TopLine(TextLines):
    """The tabs, the host and the source; a click on a tab opens its screen, as its digit does.

    Args:
        front: Name of the tab of its screen; empty if it has none.
    """

    def __init__(self, front: str) -> None:
        super().__init__(id="top")
        self._front = front
        self._tabs: tuple[PlacedTab, ...] = ()

    def show_state(self, state: ViewState, keys: Mapping[str, str]) -> None:
        """Draw a state, with the key of each tab by its name."""
        line, self._tabs = top_line(state, self._front, self.app.size.width, keys)
        self.show([line])

    async def on_click(self, event: events.Click) -> None:
        """Open the screen whose tab is under the pointer."""
        for tab, start, end in self._tabs:
            if start <= event.x < end:
                await self.run_action(f"app.open_screen('{tab.name.lower()}')")
