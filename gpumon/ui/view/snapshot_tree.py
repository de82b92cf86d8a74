"""A tree of frames as rows: what is open, and how a row looks."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from gpumon.core.units import bytes_text
from gpumon.snapshots.tree import Node
from gpumon.ui.paint.bar import DONE, stacked_bar
from gpumon.ui.paint.line import Line, Role, Span, clipped, line, width_of
from gpumon.ui.view.snapshot import place_text
from gpumon.ui.view.snapshot_report import change_text
from gpumon.ui.widgets.line_table import LaterRow

_SIZE: Final = 9
_BLOCKS: Final = 8
_BAR: Final = 12
_ROOMY: Final = 110
"""From so many columns on there is room for bars."""
_OPEN, _CLOSED, _END = "▼ ", "▶ ", "· "
_MOST_INDENT_SHARE: Final = 3
_PARTING: Final = 2
_ALONE: Final = 1
"""An only child needs little room to be seen as one, and most frames have one."""


class TreeRow(NamedTuple):
    """A node that can be seen.

    Attributes:
        node: The node.
        indent: Cells before it.
        parent: Key of the node above it, empty at the top.
        is_open: Whether what is under it can be seen.
    """

    node: Node
    indent: int
    parent: str
    is_open: bool


class OpenTree:
    """A tree and what is open in it.

    Args:
        roots: Its topmost nodes.
        is_difference: Whether it tells what has changed.
    """

    def __init__(self, roots: Sequence[Node], *, is_difference: bool = False) -> None:
        self.roots = roots
        self.is_difference = is_difference
        self.total = sum(abs(node.weight) for node in roots)
        self._open: set[str] = set()

    def rows(self) -> list[TreeRow]:
        """What can be seen, from the top; a stack may be too deep for a function that calls itself."""
        found: list[TreeRow] = []
        waiting = [TreeRow(node, 0, "", node.key in self._open) for node in reversed(self.roots)]
        while waiting:
            row = waiting.pop()
            found.append(row)
            if row.is_open:
                children = row.node.children
                indent = row.indent + (_PARTING if len(children) > 1 else _ALONE)
                waiting += [TreeRow(each, indent, row.node.key, each.key in self._open) for each in reversed(children)]
        return found

    def turn(self, node: Node) -> None:
        """Opens a node, and what is under it up to where it parts; or closes it."""
        if node.key in self._open:
            self._open.discard(node.key)
        else:
            self.open(node)

    def open(self, node: Node) -> None:
        """Opens a node, and what is under it up to where it parts."""
        while node.has_children:
            self._open.add(node.key)
            if len(node.children) > 1:
                return
            node = node.children[0]

    def close(self, node: Node) -> bool:
        """Closes a node; returns whether it was open."""
        was_open = node.key in self._open
        self._open.discard(node.key)
        return was_open


def heading_line(tree: OpenTree, width: int) -> Line:
    """The headings of the columns."""
    figures = f" {'Size':>{_SIZE}}  Share {'Blocks':>{_BLOCKS}}"
    if tree.is_difference:
        figures = f" {'Change':>{_SIZE + 1}} {'Now':>{_SIZE}} {'Before':>{_SIZE}}"
    elif width >= _ROOMY:
        figures += " " * (_BAR + 2)
    return line(Span(clipped(f"{figures}  Frame", width).ljust(width), Role.HEADING))


def tree_rows(tree: OpenTree, rows: Sequence[TreeRow], width: int) -> list[LaterRow]:
    """The rows for a table; those that nobody sees are never drawn."""
    return [LaterRow(row.node.key, partial(_row_line, tree, row, width)) for row in rows]


def _row_line(tree: OpenTree, row: TreeRow, width: int) -> Line:
    node = row.node
    figures = _change_spans(node) if tree.is_difference else _figure_spans(tree, node, width)
    used = sum(width_of(span.text) for span in figures)
    indent = " " * min(row.indent, max(0, (width - used) // _MOST_INDENT_SHARE))
    mark = (_OPEN if row.is_open else _CLOSED) if node.has_children else _END
    name = f"{indent}{mark}{node.frame.name}"
    place = f"  {place_text(node.frame)}"
    room = width - used
    return line(*figures, clipped(name, room), Span(clipped(place, max(0, room - width_of(name))), Role.DIM))


def _figure_spans(tree: OpenTree, node: Node, width: int) -> list[Span]:
    share = node.amount.bytes / tree.total if tree.total else 0.0
    spans = [Span(f"{bytes_text(node.amount.bytes):>{_SIZE}} {share:>6.1%} {node.amount.blocks:>{_BLOCKS},}  ")]
    if width >= _ROOMY:
        spans.append(Span(f"{stacked_bar([(share, DONE)], 1.0, _BAR)}  ", Role.MEMORY_HISTORY))
    return spans


def _change_spans(node: Node) -> list[Span]:
    change = node.amount.bytes - node.before.bytes
    role = Role.WARNING if change > 0 else Role.PLAIN
    now, before = bytes_text(node.amount.bytes), bytes_text(node.before.bytes)
    return [Span(f"{change_text(change):>{_SIZE + 1}}", role), Span(f" {now:>{_SIZE}} {before:>{_SIZE}}  ")]
