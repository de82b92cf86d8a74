"""The view of a snapshot: the selected device and amounts, the direction of the stacks, and the search text."""

from enum import Enum

from gpumon.core.units import counted
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.snapshot import MEASURES
from gpumon.present.snapshot_chart import HistoryAxis
from gpumon.present.snapshot_tree import OpenTree
from gpumon.snapshots.model import DeviceMemory, Snapshot
from gpumon.snapshots.stack_tree import Measure, StackShare, child_nodes, stack_amounts, stack_changes


class View(Enum):
    """What is shown below the chart; the values are shown to the user."""

    NOW = MEASURES[Measure.NOW]
    PEAK = MEASURES[Measure.PEAK]
    EVER = MEASURES[Measure.EVER]
    SEGMENTS = "segments"
    DIFFERENCE = "difference"


class SnapshotViewState:
    """What the user has selected.

    Args:
        snapshot: The snapshot.
        earlier: The snapshot to compare with, or None.
    """

    def __init__(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> None:
        self.snapshot = snapshot
        self.earlier = earlier
        self.view = View.NOW
        self.axis = HistoryAxis.EVENTS
        self.cursor: float | None = None
        """Position of the cursor on the axis of the chart, from 0 to 1; None without a cursor."""
        self.innermost_first = False
        self.pattern = ""
        self._device_index = 0
        self._trees: dict[tuple[object, ...], OpenTree] = {}
        if earlier is not None:
            self.view = View.DIFFERENCE
        elif self.device is not None and self.device.history is not None:
            self.view = View.PEAK

    @property
    def device(self) -> DeviceMemory | None:
        """The selected device, or None in a file without devices."""
        return self.snapshot.devices[self._device_index] if self.snapshot.devices else None

    @property
    def views(self) -> list[View]:
        """The available views."""
        unavailable = set()
        if self.device is None or self.device.history is None:
            unavailable |= {View.PEAK, View.EVER}
        if self.earlier is None:
            unavailable.add(View.DIFFERENCE)
        return [view for view in View if view not in unavailable]

    def next_view(self) -> None:
        """Show the next view; the first one follows the last one."""
        views = self.views
        self.view = views[(views.index(self.view) + 1) % len(views)]

    def select_device(self, step: int) -> None:
        """Select the device ``step`` places further, and another view if it does not have the current one."""
        self._device_index = (self._device_index + step) % max(1, len(self.snapshot.devices))
        if self.view not in self.views:
            self.view = View.NOW

    def move_cursor(self, steps: int, columns: int) -> None:
        """Move the cursor by columns of the chart; without a cursor, set it at the end."""
        last = columns - 1
        column = last if self.cursor is None else int(self.cursor * columns) + steps
        self.point(max(0, min(column, last)), columns)

    def point(self, column: int, columns: int) -> None:
        """Set the cursor to the middle of a column of the chart."""
        self.cursor = (column + 0.5) / columns

    def next_axis(self) -> None:
        """Switch the axis of the chart between time and events; the cursor is removed, since its meaning changes."""
        self.cursor = None
        self.axis = HistoryAxis.TIME if self.axis is HistoryAxis.EVENTS else HistoryAxis.EVENTS

    @property
    def tree(self) -> OpenTree:
        """The tree of the current selection, with the nodes that were opened in it."""
        key = (self.view, self._device_index, self.innermost_first, self.pattern)
        tree = self._trees.get(key)
        if tree is None:
            if self.pattern:  # trees of the texts that were typed before are not needed again
                self._trees = {other: tree for other, tree in self._trees.items() if not other[-1]}
            tree = OpenTree(child_nodes(self._shares()), is_difference=self.view is View.DIFFERENCE)
            if tree.roots:
                tree.open(tree.roots[0])
            self._trees[key] = tree
        return tree

    @property
    def empty_text(self) -> str:
        """The text in place of an empty tree."""
        if self.pattern:
            return f"No stack contains {self.pattern!r}."
        return "No stack has changed." if self.view is View.DIFFERENCE else "No allocations."

    def heading(self, width: int) -> Line:
        """The names of the available views, with the current one marked."""
        spans = [Span(" ")]
        for view in self.views:
            is_current = view is self.view
            spans.append(
                Span(f"[{view.value}]" if is_current else f" {view.value} ", Role.ACCENT if is_current else Role.DIM)
            )
        order = "innermost first" if self.innermost_first else "outermost first"
        detail = "" if self.view is View.SEGMENTS else order
        if self.pattern:
            detail = f"{counted(len(self._shares()), 'stack')} with {self.pattern!r}"
        used = sum(len(span.text) for span in spans)
        return line(*spans, Span(clipped(f"  {detail}", max(0, width - used)), Role.DIM))

    def _shares(self) -> list[StackShare]:
        device = self.device
        if device is None or self.view is View.SEGMENTS:
            return []
        if self.view is View.DIFFERENCE:
            assert self.earlier is not None
            before = next((other for other in self.earlier.devices if other.ordinal == device.ordinal), None)
            first, second = (self.earlier, before), (self.snapshot, device)
            return stack_changes(first, second, Measure.NOW, innermost_first=self.innermost_first, pattern=self.pattern)
        measure = {View.NOW: Measure.NOW, View.PEAK: Measure.PEAK, View.EVER: Measure.EVER}[self.view]
        return stack_amounts(self.snapshot, device, measure, innermost_first=self.innermost_first, pattern=self.pattern)
