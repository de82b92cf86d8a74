"""What of a snapshot is looked at: device, amounts, from which end of the stacks, and what is searched for."""

from enum import Enum
from typing import Final

from gpumon.snapshots.difference import changes
from gpumon.snapshots.model import DeviceMemory, Snapshot
from gpumon.snapshots.tree import Measure, Share, nodes, shares
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.view.snapshot import MEASURES, count_text
from gpumon.ui.view.snapshot_chart import Axis
from gpumon.ui.view.snapshot_tree import OpenTree


class View(Enum):
    """What is shown under the chart, by the words for it."""

    NOW = MEASURES[Measure.NOW]
    PEAK = MEASURES[Measure.PEAK]
    EVER = MEASURES[Measure.EVER]
    SEGMENTS = "segments"
    DIFFERENCE = "difference"


_MEASURES: Final = {View.NOW: Measure.NOW, View.PEAK: Measure.PEAK, View.EVER: Measure.EVER}


class Look:
    """What is looked at.

    Args:
        snapshot: The file.
        earlier: Another one that it is compared with.
    """

    def __init__(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> None:
        self.snapshot = snapshot
        self.earlier = earlier
        self.view = View.NOW
        self.axis = Axis.EVENTS
        self.innermost_first = False
        self.wanted = ""
        self._place = 0
        self._trees: dict[tuple[object, ...], OpenTree] = {}
        if earlier is not None:
            self.view = View.DIFFERENCE
        elif self.device is not None and self.device.history is not None:
            self.view = View.PEAK

    @property
    def device(self) -> DeviceMemory | None:
        """The device that is looked at, or None in a file without any."""
        return self.snapshot.devices[self._place] if self.snapshot.devices else None

    @property
    def views(self) -> list[View]:
        """What there is to look at."""
        left_out = set()
        if self.device is None or self.device.history is None:
            left_out |= {View.PEAK, View.EVER}
        if self.earlier is None:
            left_out.add(View.DIFFERENCE)
        return [view for view in View if view not in left_out]

    def next_device(self) -> None:
        """Looks at the next device; what it has not cannot be looked at."""
        self._place = (self._place + 1) % max(1, len(self.snapshot.devices))
        if self.view not in self.views:
            self.view = View.NOW

    def next_axis(self) -> None:
        """Lays the chart over time, or over events."""
        self.axis = Axis.TIME if self.axis is Axis.EVENTS else Axis.EVENTS

    @property
    def tree(self) -> OpenTree:
        """The tree that is looked at, as far open as it was left."""
        key = (self.view, self._place, self.innermost_first, self.wanted)
        tree = self._trees.get(key)
        if tree is None:
            if self.wanted:  # what was typed on the way to it is not looked at again
                self._trees = {each: tree for each, tree in self._trees.items() if not each[-1]}
            tree = OpenTree(nodes(self._shares()), is_difference=self.view is View.DIFFERENCE)
            if tree.roots:
                tree.open(tree.roots[0])
            self._trees[key] = tree
        return tree

    @property
    def nothing(self) -> str:
        """What is said where the tree is empty."""
        if self.wanted:
            return f"No stack has {self.wanted!r} in a frame."
        return "Nothing has changed." if self.view is View.DIFFERENCE else "Nothing was allocated."

    def heading(self, width: int) -> Line:
        """Which view it is, among those that there are."""
        spans = [Span(" ")]
        for view in self.views:
            is_this = view is self.view
            spans.append(
                Span(f"[{view.value}]" if is_this else f" {view.value} ", Role.ACCENT if is_this else Role.DIM)
            )
        order = "innermost first" if self.innermost_first else "outermost first"
        told = "" if self.view is View.SEGMENTS else order
        if self.wanted:
            told = f"{count_text(len(self._shares()), 'stack')} with {self.wanted!r}"
        used = sum(len(span.text) for span in spans)
        return line(*spans, Span(clipped(f"  {told}", max(0, width - used)), Role.DIM))

    def _shares(self) -> list[Share]:
        device = self.device
        if device is None or self.view is View.SEGMENTS:
            return []
        if self.view is View.DIFFERENCE:
            assert self.earlier is not None
            before = next((each for each in self.earlier.devices if each.ordinal == device.ordinal), None)
            first, second = (self.earlier, before), (self.snapshot, device)
            return changes(first, second, Measure.NOW, innermost_first=self.innermost_first, wanted=self.wanted)
        measure = _MEASURES[self.view]
        return shares(self.snapshot, device, measure, innermost_first=self.innermost_first, wanted=self.wanted)
