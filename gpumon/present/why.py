"""Why a training run is slow, as lines: the account of the median step, the verdict, the causes, and the ranks."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.problems import Problem
from gpumon.core.units import MISSING, counted, rate_text, short_time_text
from gpumon.insight.bottlenecks.causes.other_ranks import wait_seconds, work_seconds
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, StepPart, StepShare
from gpumon.operations.why.examination import OUTSIDE, TRACE, ExaminationProgress, WhyReport
from gpumon.operations.why.processes import JobWhyReport
from gpumon.present.account_rows import TIME_WIDTH, cause_lines, class_row, indented, verdict_lines
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line

_MAX_PARTS: Final = 3
_MIN_PART: Final = 0.02
_BAR: Final = 24
_MAX_REPORTS: Final = 4


def why_lines(report: WhyReport, width: int) -> Iterator[Line]:
    """All lines of a report."""
    rank = "" if report.evidence.rank is None else f" rank {report.evidence.rank}"
    who = f"{report.host} PID {report.pid}{rank}" if report.host else f"PID {report.pid}{rank}"
    yield line(Span(clipped(f"{who}  {report.command}", width), Role.HEADING))
    yield from run_lines(report, width)
    yield line("")
    yield from verdict_lines(report.verdict, width)
    yield from cause_lines(report.verdict, width)
    yield line("")
    yield line(Span(clipped(_account_title(report), width), Role.HEADING))
    yield from account_lines(report, width)
    for problem in report.problems:
        yield from (line(Span(piece, Role.WARNING)) for piece in indented(f"! {problem}", width))


def run_lines(report: WhyReport, width: int) -> Iterator[Line]:
    """What was observed: PyTorch, the steps, the GPU and the host."""
    account, host = report.evidence.account, report.evidence.host
    parts = [f"{counted(account.samples_count, 'sample')} of the main thread in {report.seconds:.1f} s"]
    if account.has_steps:
        parts = [
            f"PyTorch {report.evidence.torch_version or MISSING}",
            f"{counted(account.steps_count, 'step')} in {report.seconds:.1f} s",
            f"median {short_time_text(account.step_seconds)}",
            f"mean {short_time_text(account.mean_seconds)}",
            f"{counted(account.samples_count, 'sample')} of the main thread",
        ]
    yield line(clipped(f" {'  '.join(parts)}", width))
    if report.device is not None and report.evidence.gpu is not None:
        yield line(clipped(f" {_gpu_text(report.evidence.gpu)}", width))
    if report.host:
        return
    cores = [
        f"host {MISSING if host.host_cpu_cores is None else f'{host.host_cpu_cores:.1f}'} of {host.cpu_count} cores"
    ]
    if host.process_cpu_cores is not None:
        cores.append(f"this process {host.process_cpu_cores:.1f}")
    if host.workers_count:
        cores.append(f"{counted(host.workers_count, 'worker')} {host.workers_cpu_cores or 0.0:.1f}")
    yield line(Span(clipped(f" {'  '.join(cores)}", width), Role.DIM))


def account_lines(report: WhyReport, width: int) -> Iterator[Line]:
    """A bar for each class of the median step, and what it consists of."""
    account = report.evidence.account
    for share in account.shares:
        yield _share_line(share, account.step_seconds, width)
        base = account.step_seconds + share.pause_seconds
        for part in share.top[:_MAX_PARTS]:
            if part.seconds >= _MIN_PART * base:
                yield _part_line(part, width)


def problem_lines(problem: Problem, width: int) -> Iterator[Line]:
    """Why there is no report, and what to do."""
    yield from (line(Span(piece, Role.WARNING)) for piece in indented(problem.reason, width))
    if problem.remedy:
        yield from (line(piece) for piece in indented(problem.remedy, width))


def progress_text(progress: ExaminationProgress) -> str:
    """How far an examination is."""
    if progress.total_seconds is None:
        return f"{progress.stage} {progress.seconds:.0f} s"
    return f"{progress.stage} {progress.seconds:.0f} of {progress.total_seconds:.0f} s"


def _account_title(report: WhyReport) -> str:
    source = "from a trace" if TRACE in report.stages else "from samples of the main thread"
    if not report.evidence.account.has_steps:
        return f"Account of an average second, {source}{'' if OUTSIDE in report.stages else ' in the kernel'}"
    return f"Account of the median step, {short_time_text(report.evidence.account.step_seconds)}, {source}"


def _gpu_text(gpu: GpuEvidence) -> str:
    shares = (
        ("utilization", gpu.utilization_share),
        ("SM", gpu.sm_share),
        ("tensor", gpu.tensor_share),
        ("DRAM", gpu.dram_share),
        ("clock", gpu.clock_share),
    )
    texts = [f"{name} {value:.0%}" for name, value in shares if value is not None]
    if gpu.pcie_bytes_per_second is not None:
        texts.append(f"PCIe {rate_text(gpu.pcie_bytes_per_second)}")
    return f"GPU {gpu.label} {gpu.name}  {'  '.join(texts)}"


def _share_line(share: StepShare, step_seconds: float, width: int) -> Line:
    pause = ""
    if share.pause_seconds >= _MIN_PART * step_seconds:
        pause = f" + {short_time_text(share.pause_seconds)} on average in some steps"
    return line(" ", *class_row(share.name, share.seconds, step_seconds, pause, width - 1))


def _part_line(part: StepPart, width: int) -> Line:
    head = f"   {short_time_text(part.seconds):>{TIME_WIDTH}}  "
    where = [Span(f"{part.line}  ", Role.ACCENT)] if part.line and part.line != part.name else []
    return cut([Span(head, Role.DIM), *where, Span(part.name, Role.DIM)], width)


def job_lines(report: JobWhyReport, width: int) -> Iterator[Line]:
    """All lines of a report on a job; the complete reports are those of the straggler and of a few ranks."""
    yield line(Span(f"{len(report.ranks)} ranks", Role.HEADING))
    longest = max(rank.evidence.account.step_seconds for rank in report.ranks)
    straggler = report.straggler
    host_width = max(min(len(rank.host), 24) for rank in report.ranks)
    for rank in report.ranks:
        account = rank.evidence.account
        number = rank.evidence.rank
        is_straggler = straggler is not None and number == straggler.rank
        name = f"rank {number}" if number is not None else f"PID {rank.pid}"
        name = f"{name:<8} {rank.host[:24]:<{host_width}}" if host_width else f"{name:<10}"
        work, waits = short_time_text(work_seconds(rank.evidence)), short_time_text(wait_seconds(rank.evidence))
        step = short_time_text(account.step_seconds) if account.has_steps else ""
        head = f" {name} {step:>8} "
        bar = fine_bar(work_seconds(rank.evidence) / longest, _BAR, Role.WARNING if is_straggler else Role.GPU_HISTORY)
        mark = "  slowest" if is_straggler else ""
        yield cut([Span(head), *bar, Span(f"  work {work}, waits for others {waits}{mark}", Role.DIM)], width)
    if straggler is not None:
        yield line(
            Span(clipped(f" The others wait for rank {straggler.rank}: {straggler.reason}.", width), Role.WARNING)
        )
    else:
        yield line(" No rank is clearly slower than the others.")
    for where, problem in report.problems.items():
        who = f"PID {where}: " if isinstance(where, int) else ""
        yield line(Span(clipped(f" {who}{problem}", width), Role.WARNING))
    shown = sorted(report.ranks, key=lambda rank: straggler is None or rank.evidence.rank != straggler.rank)
    for rank in shown[:_MAX_REPORTS]:
        yield line("")
        yield from why_lines(rank, width)
