"""The tree of frames as table rows: which nodes are open, and the text of each row."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from gpumon.core.units import bytes_text
from gpumon.present.paint.bar import DONE, stacked_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, line, width_of
from gpumon.present.paint.table import LazyRow
from gpumon.present.snapshot import change_text, place_text
from gpumon.snapshots.stack_tree import StackNode

_SIZE, _BLOCKS, _BAR = 9, 8, 12
"""Widths of columns, in cells."""
_MIN_WIDTH_FOR_BARS: Final = 110
_OPEN, _CLOSED, _LEAF = "▼ ", "▶ ", "· "
_MAX_INDENT_FRACTION: Final = 3
_BRANCH_INDENT: Final = 2
_CHAIN_INDENT: Final = 1
"""Of a node that is the only child, as most frames are."""


class TreeRow(NamedTuple):
    """A visible node.

    Attributes:
        node: The node.
        indent: Indentation in cells.
        is_open: Whether its children are visible.
    """

    node: StackNode
    indent: int
    is_open: bool


class OpenTree:
    """A tree, and which of its nodes are open.

    Args:
        roots: The root nodes.
        is_difference: Whether the tree shows changes.
    """

    def __init__(self, roots: Sequence[StackNode], *, is_difference: bool = False) -> None:
        self.roots = roots
        self.is_difference = is_difference
        self.total = sum(abs(node.weight) for node in roots)
        self._open: set[str] = set()

    def rows(self) -> list[TreeRow]:
        """The visible nodes, from the top. No recursion: a stack may be too deep for it."""
        rows: list[TreeRow] = []
        waiting = [TreeRow(node, 0, node.key in self._open) for node in reversed(self.roots)]
        while waiting:
            row = waiting.pop()
            rows.append(row)
            if row.is_open:
                children = row.node.children
                indent = row.indent + (_BRANCH_INDENT if len(children) > 1 else _CHAIN_INDENT)
                waiting += [TreeRow(child, indent, child.key in self._open) for child in reversed(children)]
        return rows

    def toggle(self, node: StackNode) -> None:
        """Open a node as `open` does, or close it."""
        if node.key in self._open:
            self._open.discard(node.key)
        else:
            self.open(node)

    def open(self, node: StackNode) -> None:
        """Open a node and its descendants down to the first one with several children."""
        while node.has_children:
            self._open.add(node.key)
            if len(node.children) > 1:
                return
            node = node.children[0]


def heading_line(tree: OpenTree, width: int) -> Line:
    """The headings of the columns."""
    columns = f" {'Size':>{_SIZE}}  Share {'Blocks':>{_BLOCKS}}"
    if tree.is_difference:
        columns = f" {'Change':>{_SIZE + 1}} {'Now':>{_SIZE}} {'Before':>{_SIZE}}"
    elif width >= _MIN_WIDTH_FOR_BARS:
        columns += " " * (_BAR + 2)
    return line(Span(clipped(f"{columns}  Frame", width).ljust(width), Role.HEADING))


def tree_rows(tree: OpenTree, rows: Sequence[TreeRow], width: int) -> list[LazyRow]:
    """The rows for a table. A row is rendered only when it is visible."""
    return [LazyRow(row.node.key, partial(_row_line, tree, row, width)) for row in rows]


def _row_line(tree: OpenTree, row: TreeRow, width: int) -> Line:
    node = row.node
    columns = _change_spans(node) if tree.is_difference else _amount_spans(tree, node, width)
    used = sum(width_of(span.text) for span in columns)
    indent = " " * min(row.indent, max(0, (width - used) // _MAX_INDENT_FRACTION))
    mark = (_OPEN if row.is_open else _CLOSED) if node.has_children else _LEAF
    name = f"{indent}{mark}{node.frame.name}"
    place = f"  {place_text(node.frame)}"
    room = width - used
    return line(*columns, clipped(name, room), Span(clipped(place, max(0, room - width_of(name))), Role.DIM))


def _amount_spans(tree: OpenTree, node: StackNode, width: int) -> list[Span]:
    share = node.amount.bytes / tree.total if tree.total else 0.0
    spans = [Span(f"{bytes_text(node.amount.bytes):>{_SIZE}} {share:>6.1%} {node.amount.blocks:>{_BLOCKS},}  ")]
    if width >= _MIN_WIDTH_FOR_BARS:
        spans.append(Span(f"{stacked_bar([(share, DONE)], 1.0, _BAR)}  ", Role.MEMORY_HISTORY))
    return spans


def _change_spans(node: StackNode) -> list[Span]:
    change = node.amount.bytes - node.before.bytes
    role = Role.WARNING if change > 0 else Role.PLAIN
    now, before = bytes_text(node.amount.bytes), bytes_text(node.before.bytes)
    return [Span(f"{change_text(change):>{_SIZE + 1}}", role), Span(f" {now:>{_SIZE}} {before:>{_SIZE}}  ")]
