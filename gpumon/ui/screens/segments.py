"""PyTorch's memory in one process: the map of its segments, and the complete ``torch.cuda.memory_summary()``."""

from typing import ClassVar, Final

from textual.app import ComposeResult

from gpumon.core.holes import SegmentLayout
from gpumon.core.model import Device
from gpumon.core.units import duration_text, short_time_text
from gpumon.operations.gpu_processes import Owner
from gpumon.present.paint.line import Line, Role, Span, cut, line
from gpumon.present.paint.table import LazyRow, TableRow
from gpumon.present.probe_text import waiting_text, who_text
from gpumon.present.segments import heading_line, segment_rows, summary_lines
from gpumon.probe.messages import Answer, RequestKind, SegmentMap
from gpumon.session.view_state import ProbeRequest, ProbesState, ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ProbeRequested
from gpumon.ui.screens.base import TextScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable

_MAX_JUST_NOW_SECONDS: Final = 10.0


class ProbeAnswerScreen(TextScreen[None]):
    """Shows the answer of a process that has a probe, and can request it again.

    Args:
        owner: The process, with the statistics of its allocator for the GPU.
    """

    PAGE: ClassVar[str] = "docs/memory.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Memory"
    BINDINGS: ClassVar[Bindings] = [key("probe.run", "Read again", "Read it again from the process", "refresh_answer")]

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        assert owner.statistics is not None
        assert owner.probe is not None
        self._owner = owner
        self._probe = owner.probe
        self._ordinal = owner.statistics.ordinal
        self._request_number = 0
        self._is_waiting = False

    def on_mount(self) -> None:
        super().on_mount()
        self.action_refresh_answer()

    def new_request(self) -> ProbeRequested:
        """The request to send."""
        raise NotImplementedError

    def action_refresh_answer(self) -> None:
        """Send the request, unless one has not been answered yet."""
        if not self._is_waiting:
            self._is_waiting = True
            message = self.new_request()
            self._request_number = message.number
            self.post_message(message)

    def request_of(self, probes: ProbesState) -> ProbeRequest | None:
        """The newest request, or None if it was not sent yet."""
        request = probes.requests.get(self._request_number)
        self._is_waiting = request is None or request.answer is None
        return request


class SegmentsScreen(ProbeAnswerScreen):
    """The segments of one process on one GPU.

    Args:
        owner: The process, with the statistics of its allocator for the GPU.
        device: The GPU.
    """

    AUTO_FOCUS: ClassVar[str] = "#segments"
    BINDINGS: ClassVar[Bindings] = [
        key("segments.view", "Summary", "Next view: the complete memory_summary()", "summary")
    ]

    def __init__(self, owner: Owner, device: Device) -> None:
        super().__init__(owner)
        self._title = f"Segments of {who_text(owner)} on GPU {device.label}"
        self._answer: Answer | None = None
        self._answered_monotonic = 0.0
        self._map: SegmentMap | None = None
        self._layout: SegmentLayout | None = None
        self._rows: list[TableRow | LazyRow] = []
        self._rows_for: tuple[SegmentLayout | None, int] = (None, 0)

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title", "state", "summary", "segments-heading")
        yield LineTable(id="segments", choosable=False)
        yield Footer()

    def new_request(self) -> ProbeRequested:
        return ProbeRequested(self._probe, RequestKind.SEGMENTS)

    def show(self, state: ViewState) -> None:
        width = self.size.width
        request = self.request_of(state.probes)
        if request is not None and request.answer is not None and request.answer is not self._answer:
            self._answer = request.answer
            if isinstance(request.answer.result, SegmentMap):
                self._map, self._answered_monotonic = request.answer.result, request.answered_monotonic
                self._layout = SegmentLayout(self._map.segments, self._ordinal)
        layout = self._layout
        self.show_title(self._title)
        self._lines("state").show([self._state_line(request, state.probes.clock_monotonic)])
        self._lines("summary").show([] if layout is None else summary_lines(layout, width))
        self._lines("segments-heading").show([] if layout is None else [heading_line(width)])
        self.query_one(LineTable).show(self._rows_of(layout, self.text_width))

    def _rows_of(self, layout: SegmentLayout | None, width: int) -> list[TableRow | LazyRow]:
        """The rows, made once for a map and a width: the rows of thousands of blocks are the same in every draw."""
        if self._rows_for != (layout, width):
            self._rows_for = (layout, width)
            self._rows = [] if layout is None else list(segment_rows(layout, width))
        return self._rows

    def _state_line(self, request: ProbeRequest | None, now: float) -> Line:
        """The age and the cost of the map, and whether it is complete; or the request that has no answer yet."""
        parts: list[Span] = []
        if request is not None and request.answer is None:
            parts.append(Span(f" {waiting_text(now - request.requested_monotonic)}"))
        elif request is not None and request.answer is not None and request.answer.problem is not None:
            parts.append(Span(f" ! {request.answer.problem}", Role.WARNING))
        if self._map is not None:
            if self._map.is_cut:
                parts.append(Span(" ! The map is incomplete: there are more blocks than a probe sends.", Role.WARNING))
            seconds = now - self._answered_monotonic
            age = "just now" if seconds < _MAX_JUST_NOW_SECONDS else f"{duration_text(seconds)} ago"
            parts.append(Span(f" Read {age}; the process paused for {short_time_text(self._map.seconds)}.", Role.DIM))
        return cut(parts, self.size.width)

    def action_summary(self) -> None:
        self.app.push_screen(AllocatorSummaryScreen(self._owner))


class AllocatorSummaryScreen(ProbeAnswerScreen):
    """The text of ``torch.cuda.memory_summary()`` as the process returned it.

    Args:
        owner: The process, with the statistics of its allocator for the GPU.
    """

    AUTO_FOCUS: ClassVar[str] = "#lines"
    IS_TEXT: ClassVar[bool] = True
    BINDINGS: ClassVar[Bindings] = [
        key("summary.view", "Segments", "Next view: the map of the segments", "app.pop_screen")
    ]

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self._text = ""

    def new_request(self) -> ProbeRequested:
        return ProbeRequested(self._probe, RequestKind.SUMMARY, ordinal=self._ordinal)

    def show(self, state: ViewState) -> None:
        """Draw the newest text, or the request that has no answer yet."""
        request = self.request_of(state.probes)
        answer = None if request is None else request.answer
        if answer is not None and isinstance(answer.result, str):
            self._text = answer.result
        text, role = self._text, Role.PLAIN
        if answer is not None and answer.problem is not None:
            text, role = f"! {answer.problem}", Role.WARNING
        elif not text and request is not None:
            text, role = waiting_text(state.probes.clock_monotonic - request.requested_monotonic), Role.DIM
        self.show_title(f"memory_summary() of {who_text(self._owner)}")
        self.show_text(line(Span(row, role)) for row in text.splitlines())
