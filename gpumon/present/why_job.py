"""Why a job is slow, as lines: its ranks next to each other, the straggler, and the report of each rank."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.units import short_time_text
from gpumon.insight.bottlenecks.causes.other_ranks import wait_seconds, work_seconds
from gpumon.operations.why.job import JobWhyReport
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line
from gpumon.present.why import why_lines

_BAR: Final = 24
_MAX_REPORTS: Final = 4


def job_lines(report: JobWhyReport, width: int) -> Iterator[Line]:
    """All lines of a report on a job; the complete reports are those of the straggler and of a few ranks.

    Args:
        report: The report.
        width: Cells of a line.
    """
    yield line(Span(f"{len(report.ranks)} ranks", Role.HEADING))
    longest = max(rank.evidence.account.step_seconds for rank in report.ranks)
    straggler = report.straggler
    for rank in report.ranks:
        account = rank.evidence.account
        is_straggler = straggler is not None and rank.rank == straggler.rank
        name = f"rank {rank.rank}" if rank.rank is not None else f"PID {rank.pid}"
        work, waits = short_time_text(work_seconds(rank.evidence)), short_time_text(wait_seconds(rank.evidence))
        head = f" {name:<10} {short_time_text(account.step_seconds):>8} "
        bar = fine_bar(work_seconds(rank.evidence) / longest, _BAR, Role.WARNING if is_straggler else Role.GPU_HISTORY)
        mark = "  slowest" if is_straggler else ""
        yield cut([Span(head), *bar, Span(f"  work {work}, waits for others {waits}{mark}", Role.DIM)], width)
    if straggler is not None:
        yield line(
            Span(clipped(f" The others wait for rank {straggler.rank}: {straggler.reason}.", width), Role.WARNING)
        )
    else:
        yield line(" No rank is clearly slower than the others.")
    for pid, problem in report.problems.items():
        yield line(Span(clipped(f" PID {pid}: {problem}", width), Role.WARNING))
    shown = sorted(report.ranks, key=lambda rank: straggler is None or rank.rank != straggler.rank)[:_MAX_REPORTS]
    for rank in shown:
        yield line("")
        yield from why_lines(rank, width)
