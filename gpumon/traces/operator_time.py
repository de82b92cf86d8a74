"""The time of a thread by operator: at each moment the innermost one, where there is no GPU to account for."""

import re
from collections.abc import Callable
from typing import Final

from gpumon.core.step_classes import CPU_CLASSES, CPU_MATMUL, CPU_OPERATORS, DATA
from gpumon.traces.kinds import Kind, is_data_wait
from gpumon.traces.pieces import TimePieces
from gpumon.traces.table import EventTable

_MATMUL: Final = re.compile(
    r"::(mm|bmm|addmm|baddbmm|addmv|mv|matmul|linear|dot|convolution|_convolution|convolution_backward|mkldnn_\w+"
    r"|conv\d?d?\w*|thnn_conv\w*|_?scaled_dot_product\w*|_efficient_attention\w*|lstm|gru)$"
)
_DATA: Final = CPU_CLASSES.index(DATA)
_MATMULS: Final = CPU_CLASSES.index(CPU_MATMUL)
_OPERATORS: Final = CPU_CLASSES.index(CPU_OPERATORS)


def operator_class(name: str) -> int:
    """The number of the class of an operator in `CPU_CLASSES`."""
    return _MATMULS if _MATMUL.search(name) else _OPERATORS


def operator_pieces(table: EventTable, lane: int) -> TimePieces:
    """The time of a thread: each moment belongs to the innermost operator, and in a wait for data to the wait."""
    pieces = TimePieces()
    is_data = [is_data_wait(text) for text in table.texts]
    classes = [operator_class(text) for text in table.texts]
    names, kinds = table.names, table.kinds
    chosen = [
        index
        for index in range(len(table))
        if table.lanes[index] == lane
        and (kinds[index] == Kind.OPERATOR or (kinds[index] == Kind.ANNOTATION and is_data[names[index]]))
    ]
    chosen.sort(key=lambda index: (table.begins[index], -table.ends[index]))

    def add(begin: int, end: int, index: int, wait: int | None) -> None:
        owner = index if wait is None else wait
        share = classes[names[owner]] if wait is None else _DATA
        pieces.add(begin, end, share, names[owner], owner)

    innermost_pieces(table, chosen, lambda index: is_data[names[index]], add)
    return pieces


def innermost_pieces(
    table: EventTable,
    chosen: list[int],
    is_wait: Callable[[int], bool],
    add: Callable[[int, int, int, int | None], None],
) -> None:
    """Call ``add`` with each piece of time in which the innermost event of a thread stays the same.

    Args:
        table: The events.
        chosen: Indexes of the events of the thread, in the order of their begin, the outer ones first.
        is_wait: Whether all that happens within an event belongs to it.
        add: Called with the begin, the end, the innermost event, and the outermost wait around it.
    """
    stack: list[tuple[int, int, int | None]] = []
    position = 0

    def close(until: int) -> None:
        nonlocal position
        while stack and stack[-1][0] <= until:
            end, index, wait = stack.pop()
            if end > position:
                add(position, end, index, wait)
                position = end

    for index in chosen:
        begin, end = table.begins[index], table.ends[index]
        close(begin)
        wait = index if is_wait(index) else None
        if stack:
            outer_end, outer, outer_wait = stack[-1]
            if begin > position:
                add(position, begin, outer, outer_wait)
            end = min(end, outer_end)
            wait = wait if outer_wait is None else outer_wait
        position = max(position, begin) if stack else begin
        stack.append((end, index, wait))
    if stack:
        close(stack[0][0])
