"""The line below the headings of a table, in which the user types a filter."""

from functools import cached_property
from typing import ClassVar, Final

from textual.containers import Horizontal
from textual.geometry import Size
from textual.reactive import reactive
from textual.widgets import Input, Static

from gpumon.present.paint.line import Role, Span, clipped, line, width_of
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.widgets.text_lines import TextLines

MAX_FILTER: Final = 200
_PLACEHOLDER: Final = "words, or user:ann  gpu:0-3  mem>10G  cpu<5  age>2d  cmd~train"


class FilterInput(Input):
    """The filter that the user types."""

    BINDINGS: ClassVar[Bindings] = [
        key("filter.open", "Keep filter", "Keep the filter, and go to the rows", "submit"),
        key("filter.down", "Rows", "Keep the filter, and go to the rows", "submit", keys="down", show=False),
        key("filter.back", "Clear", "Clear the filter, and go to the rows", "clear"),
    ]

    virtual_size = reactive(Size(0, 0), layout=False)
    """As `Input` has it, but without a new layout of the complete screen for every character."""

    def action_clear(self) -> None:
        self.value = ""
        self.post_message(self.Submitted(self, ""))


class FilterBar(Horizontal):
    """Visible while a filter is typed or applied: the filter, and how many rows match or why it cannot be applied."""

    DEFAULT_CSS = """
    FilterBar {
        display: none;
        height: 1;
        &.-shown { display: block; }
        Static { width: 2; padding-left: 1; color: $primary; text-style: bold; }
        Input { width: 2fr; min-width: 24; background: $background; }
        TextLines { width: 3fr; }
    }
    """

    @cached_property
    def _input(self) -> FilterInput:
        """What the user types into, made when it is first shown: few tables are filtered."""
        field = FilterInput(placeholder=_PLACEHOLDER, max_length=MAX_FILTER, compact=True, select_on_focus=False)
        field.cursor_blink = False  # a cursor that blinks sends bytes while nothing changes
        self.mount(Static("/", markup=False), field, self._status)
        return field

    @cached_property
    def _status(self) -> TextLines:
        return TextLines()

    @property
    def is_open(self) -> bool:
        """Whether a filter is typed or applied."""
        return self.has_class("-shown")

    def edit(self) -> None:
        """Show the bar, and move the focus into it."""
        self.add_class("-shown")
        self._input.focus()

    def set_text(self, text: str) -> None:
        """Show the bar with a filter, without moving the focus."""
        self.add_class("-shown")
        self._input.value = text

    def close_if_empty(self) -> None:
        """Hide the bar unless it has a filter."""
        self.set_class(bool(self._input.value.strip()), "-shown")

    def show(self, shown: int, total: int, problem: str) -> None:
        """Show how many rows match, or why the filter cannot be applied."""
        width = self._status.size.width or self.app.size.width // 2
        text = f"! {problem} " if problem else f"{shown} of {total} "
        status = Span(clipped(text, width), Role.WARNING if problem else Role.DIM)
        self._status.show([line(" " * (width - width_of(status.text)), status)])
