"""The traffic on each NVLink of each GPU, as lines: a row for what is sent and one for what is received."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.problems import Problem
from gpumon.core.topology import LinkedGpu, NvLink
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line

_LABEL: Final = 12
_TOTAL: Final = 7
_CELL: Final = 4
"""Cells of a link with one decimal; eighteen links fit into 92."""
_NARROW_CELL: Final = 3
_MISSING: Final = "–"
_NO_LINKS: Final = "no NVLink"
_DIRECTIONS: Final = (("out", "transmit_bytes_per_second"), ("in", "receive_bytes_per_second"))


def traffic_lines(gpus: Sequence[LinkedGpu], width: int) -> Iterator[Line]:
    """The rates between the last two readings; GPUs without rates have the reason in their place."""
    reasons = {gpu.index: reason for gpu in gpus if (reason := _why_none(gpu)) is not None}
    linked = [gpu for gpu in gpus if gpu.index not in reasons]
    if linked:
        count = max(len(gpu.links or ()) for gpu in linked)
        size = _CELL if _LABEL + _TOTAL + _CELL * count <= width else _NARROW_CELL
        numbers = "".join(str(number).rjust(size) for number in range(count))
        yield cut(line(Span(f"{'link'.ljust(_LABEL)}{'all'.rjust(_TOTAL)}{numbers}", Role.DIM)), width)
        for gpu in linked:
            for direction, field in _DIRECTIONS:
                yield cut(_row(gpu, direction, field, size), width)
    for reason in dict.fromkeys(reasons.values()):
        indices = [index for index, text in reasons.items() if text == reason]
        subject = "No GPU" if len(indices) == len(gpus) else f"GPU {', '.join(map(str, indices))}"
        text = f"{subject}: {reason}" if subject != "No GPU" else reason
        yield line(Span(clipped(text, width), Role.DIM))


def _row(gpu: LinkedGpu, direction: str, field: str, size: int) -> Line:
    name = f"GPU {gpu.index}" if direction == _DIRECTIONS[0][0] else ""
    label = f"{name.ljust(_LABEL - 4)}{direction}".ljust(_LABEL)
    rates = {link.number: _rate(link, field) for link in gpu.links or ()}
    known = [rate for rate in rates.values() if rate is not None]
    total = f"{sum(known) / 1e9:.1f}" if known else _MISSING
    cells = [_cell(rates.get(number), size) for number in range(max(rates, default=-1) + 1)]
    return line(label, Span(total.rjust(_TOTAL), Role.ACCENT), *cells)


def _rate(link: NvLink, field: str) -> int | None:
    rate: int | None = getattr(link, field)
    return rate


def _cell(rate: int | None, size: int) -> Span:
    if rate is None:
        return Span(_MISSING.rjust(size), Role.DIM)
    gigabytes = rate / 1e9
    text = f"{gigabytes:.0f}" if gigabytes >= 9.95 or size == _NARROW_CELL or not rate else f"{gigabytes:.1f}"
    return Span(text.rjust(size), Role.LINK if rate else Role.DIM)


def _why_none(gpu: LinkedGpu) -> str | None:
    """Why a GPU has no rates, in a sentence; None if it has some."""
    if gpu.links is None:
        return _sentence(gpu.problems.get("links"))
    if not gpu.links:
        return _NO_LINKS
    if any(_rate(link, field) is not None for link in gpu.links for _, field in _DIRECTIONS):
        return None
    return _sentence(gpu.links[0].problems.get(_DIRECTIONS[0][1]))


def _sentence(problem: Problem | None) -> str:
    return _NO_LINKS if problem is None else problem.reason
