"""The first line of every screen: the screens with their digits, the host, and the source with its state."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpumon.core.units import age_text, local_time_text
from gpumon.health.alerts import Severity
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, merged, width_of
from gpumon.session.view_state import ViewState

_RUNNING_MARK: Final = "▶"
_ALERT_MARK: Final = "●"
_MIN_GAP: Final = 2


class Tab(NamedTuple):
    """A screen that a digit opens.

    Attributes:
        key: The digit.
        name: Its name for the user; in lower case, the id of its binding.
        help: What it shows.
        short_name: Its name where room is short; empty for the same.
    """

    key: str
    name: str
    help: str
    short_name: str = ""


TABS: Final = (
    Tab("1", "GPUs", "All GPUs, their processes, and the host"),
    Tab("2", "Processes", "The processes of all GPUs; signals", "Procs"),
    Tab("3", "Memory", "Memory of the GPU, and how PyTorch uses it", "Mem"),
    Tab("4", "Jobs", "Training jobs: their ranks, step times, and which rank hangs"),
    Tab("5", "Workloads", "Run diagnostic workloads on a GPU or the CPU", "Work"),
    Tab("6", "Alerts", "Current and past alerts, and how to fix them"),
    Tab("7", "Explain", "Paste an error or a log: what it means, how to fix it"),
    Tab("8", "Doctor", "Check whether this host is ready for PyTorch"),
    Tab("9", "Fleet", "GPUs of many hosts, from Prometheus or through ssh"),
)
"""Every screen with a digit, in the order of the digits. A digit without a screen is not shown."""


_DIGITS: Final = {tab.name: tab.key for tab in TABS}


class PlacedTab(NamedTuple):
    """The cells of a tab, the end excluded."""

    tab: Tab
    start: int
    end: int


class _Layout(NamedTuple):
    """What has room: the brand, all names or that of the tab in front, the host, time, gaps; or only short texts."""

    brand: bool
    all_names: bool
    front_name: bool
    host: bool
    clock: bool
    gaps: bool = True
    is_short: bool = False


_LAYOUTS: Final = (
    _Layout(brand=True, all_names=True, front_name=True, host=True, clock=True),
    _Layout(brand=True, all_names=True, front_name=True, host=False, clock=True),
    _Layout(brand=True, all_names=True, front_name=True, host=False, clock=False),
    _Layout(brand=False, all_names=True, front_name=True, host=False, clock=False),
    _Layout(brand=True, all_names=True, front_name=True, host=False, clock=False, is_short=True),
    _Layout(brand=False, all_names=True, front_name=True, host=False, clock=False, is_short=True),
    _Layout(brand=False, all_names=True, front_name=True, host=False, clock=False, is_short=True, gaps=False),
    _Layout(brand=True, all_names=False, front_name=True, host=False, clock=True),
    _Layout(brand=True, all_names=False, front_name=True, host=False, clock=False),
    _Layout(brand=False, all_names=False, front_name=True, host=False, clock=False),
    _Layout(brand=False, all_names=False, front_name=False, host=False, clock=False),
    _Layout(brand=False, all_names=False, front_name=False, host=False, clock=False, gaps=False),
)
"""From the most to the least room."""


def top_line(
    view: ViewState, front: str, width: int, keys: Mapping[str, str] = _DIGITS
) -> tuple[Line, tuple[PlacedTab, ...]]:
    """The line, and where each tab is in it. Names shorten, then become digits; the source always stays.

    Args:
        view: The state that is shown.
        front: Name of the tab of the screen in front; empty for a screen without a tab.
        width: Cells of the line.
        keys: The key of each tab by its name, as the user sees it; a tab without a key is left out.
    """
    for layout in _LAYOUTS:
        left, tabs = _left(view, front, layout, keys)
        right = _right(view, layout)
        gap = width - _width(left) - _width(right)
        if gap >= _MIN_GAP:
            break
    source = cut(right, max(0, width - _width(left) - 1))
    gap = max(1, width - _width(left) - _width(source))
    return cut((*left, Span(" " * gap), *source), width), tabs


def title_line(title: str, details: str, width: int) -> Line:
    """The title of a screen at the left, and details at the right where they have room."""
    left = clipped(f" {title}", width)
    right = f"{details} " if details and width_of(left) + width_of(details) + _MIN_GAP < width else ""
    return (Span(f"{left}{' ' * (width - width_of(left) - width_of(right))}{right}", Role.HEADING),)


def _left(view: ViewState, front: str, layout: _Layout, keys: Mapping[str, str]) -> tuple[Line, tuple[PlacedTab, ...]]:
    """The brand and the tabs."""
    spans = [Span(" gpumon ", Role.ACCENT)] if layout.brand else []
    tabs = []
    start = _width(spans)
    for tab in TABS:
        if tab.name not in keys:
            continue
        is_front = tab.name == front
        is_named = layout.all_names or (layout.front_name and is_front)
        name = ((layout.is_short and tab.short_name) or tab.name) if is_named else ""
        named = list(_tab_spans(view, tab, keys[tab.name], name, is_front=is_front))
        if layout.gaps or is_front:
            named.append(Span(" ", Role.BRAND if is_front else Role.PLAIN))
        end = start + _width(named)
        tabs.append(PlacedTab(tab, start, end))
        spans += named
        start = end
    return merged(spans), tuple(tabs)


def _tab_spans(view: ViewState, tab: Tab, key: str, name: str, *, is_front: bool) -> Iterator[Span]:
    """A tab with a cell before it; its count stands behind the name."""
    name = f" {name}" if name else ""
    mark, role = _count(view, tab)
    if is_front:
        yield Span(f" {key}{name}{mark}", Role.BRAND)
        return
    yield Span(f" {key}", Role.ACCENT)
    yield Span(name)
    yield Span(mark, role)


def _count(view: ViewState, tab: Tab) -> Span:
    """The running workloads, and the alerts that need attention, which their tabs show; empty if there are none."""
    if tab.name == "Workloads" and view.workloads.running_count:
        return Span(f" {_RUNNING_MARK}{view.workloads.running_count}", Role.ACCENT)
    severities = [alert.severity for alert in view.alerts if alert.needs_attention]
    if tab.name == "Alerts" and severities:
        role = Role.ERROR if Severity.CRITICAL in severities else Role.WARNING
        return Span(f" {_ALERT_MARK}{len(severities)}", role)
    return Span("")


def _right(view: ViewState, layout: _Layout) -> Line:
    """The host, the source with its state, and the time of the values."""
    frame = view.frame
    source = view.source
    if layout.is_short and view.position:
        source = f"PAUSED {view.position}" if view.is_paused else view.position
    spans = []
    if view.is_recording:
        spans.append(Span("REC ", Role.ERROR))
    if view.wait_count:
        spans.append(Span(f"notify:{view.wait_count} ", Role.ACCENT))
    if layout.host and frame.host.name:
        spans.append(Span(f"{frame.host.name}  ", Role.DIM))
    if view.silence_seconds:
        spans.append(Span(f"! silent {age_text(view.silence_seconds)} ", Role.ERROR))
    elif view.is_paused:
        spans.append(Span(f"‖ {source} ", Role.WARNING))
    else:
        spans += [Span("● ", Role.ACCENT), Span(f"{source} ")]
    if layout.clock and frame.time_seconds:
        spans.append(Span(f" {local_time_text(frame.time_seconds, '%H:%M')} ", Role.DIM))
    return merged(spans)


def _width(spans: Line | list[Span]) -> int:
    return sum(width_of(span.text) for span in spans)
