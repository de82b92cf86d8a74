"""Why a training run is slow, as lines: the account of the median step, the verdict, and the causes."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.problems import Problem
from gpumon.core.step_classes import (
    BACKWARD,
    CHECKPOINT,
    COLLECTION,
    COMPILATION,
    CORE_WAIT,
    EVALUATION,
    FORWARD,
    GIL_WAIT,
    GPU_WORK,
    LABELS,
    LOCKS,
    LOGGING,
    OPTIMIZER,
    PREPARATION,
    PYTHON,
    SLEEP,
)
from gpumon.core.units import MISSING, counted, rate_text, short_time_text
from gpumon.diagnosis.bottlenecks.cause import Bottleneck
from gpumon.diagnosis.bottlenecks.evidence import GpuEvidence, StepPart, StepShare
from gpumon.operations.why.examination import TRACE, ExaminationProgress, WhyReport
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line, wrapped
from gpumon.present.trace_account import CLASS_ROLES

_LABEL_WIDTH: Final = max(map(len, LABELS.values()))
_TIME_WIDTH: Final = 8
_MIN_BAR: Final = 8
_MAX_BAR: Final = 40
_MAX_PARTS: Final = 3
_MIN_PART: Final = 0.02
_ROLES: Final = {
    **CLASS_ROLES,
    FORWARD: Role.SERIES_1,
    BACKWARD: Role.SERIES_3,
    OPTIMIZER: Role.SERIES_8,
    GPU_WORK: Role.GPU_HISTORY,
    PREPARATION: Role.SERIES_2,
    COLLECTION: Role.SERIES_4,
    CHECKPOINT: Role.SERIES_5,
    LOGGING: Role.SERIES_5,
    SLEEP: Role.SERIES_6,
    LOCKS: Role.SERIES_6,
    GIL_WAIT: Role.SERIES_6,
    CORE_WAIT: Role.SERIES_7,
    COMPILATION: Role.SERIES_4,
    EVALUATION: Role.SERIES_8,
    PYTHON: Role.CLOCK,
}


def why_class_role(name: str) -> Role:
    """The role that a class is drawn with, always next to its name."""
    return _ROLES.get(name, Role.MEMORY_HISTORY)


def why_lines(report: WhyReport, width: int) -> Iterator[Line]:
    """All lines of a report.

    Args:
        report: The report.
        width: Cells of a line.
    """
    yield line(Span(clipped(f"{_who(report)}  {report.command}", width), Role.HEADING))
    yield from run_lines(report, width)
    yield line("")
    yield from why_verdict_lines(report, width)
    yield line("")
    yield line(Span(clipped(_account_title(report), width), Role.HEADING))
    yield from account_lines(report, width)
    for problem in report.problems:
        yield from (line(Span(piece, Role.WARNING)) for piece in _indented(f"! {problem}", width))


def run_lines(report: WhyReport, width: int) -> Iterator[Line]:
    """What was observed: PyTorch, the steps, the GPU and the host."""
    account, host = report.evidence.account, report.evidence.host
    parts = [
        f"PyTorch {report.torch_version or MISSING}",
        f"{counted(account.steps_count, 'step')} in {report.seconds:.1f} s",
        f"median {short_time_text(account.step_seconds)}",
        f"mean {short_time_text(account.mean_seconds)}",
        f"{counted(account.samples_count, 'sample')} of the main thread",
    ]
    yield line(clipped(f" {'  '.join(parts)}", width))
    if report.evidence.gpu is not None:
        yield line(clipped(f" {_gpu_text(report.evidence.gpu)}", width))
    cores = [
        f"host {MISSING if host.host_cpu_cores is None else f'{host.host_cpu_cores:.1f}'} of {host.cpu_count} cores"
    ]
    if host.process_cpu_cores is not None:
        cores.append(f"this process {host.process_cpu_cores:.1f}")
    if host.workers_count:
        cores.append(f"{counted(host.workers_count, 'worker')} {host.workers_cpu_cores or 0.0:.1f}")
    yield line(Span(clipped(f" {'  '.join(cores)}", width), Role.DIM))


def why_verdict_lines(report: WhyReport, width: int) -> Iterator[Line]:
    """The verdict, and each cause with its evidence, its bound and an experiment."""
    verdict = report.verdict
    role = Role.ACCENT if verdict.is_decided else Role.WARNING
    yield from (line(Span(piece, role)) for piece in _indented(verdict.summary, width))
    for number, cause in enumerate(verdict.causes, 1):
        yield from _cause_lines(number, cause, width)


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
    yield from (line(Span(piece, Role.WARNING)) for piece in _indented(problem.reason, width))
    if problem.remedy:
        yield from (line(piece) for piece in _indented(problem.remedy, width))


def progress_text(progress: ExaminationProgress) -> str:
    """How far an examination is."""
    if progress.total_seconds is None:
        return f"{progress.stage} {progress.seconds:.0f} s"
    return f"{progress.stage} {progress.seconds:.0f} of {progress.total_seconds:.0f} s"


def _who(report: WhyReport) -> str:
    return f"PID {report.pid}" if report.rank is None else f"PID {report.pid} rank {report.rank}"


def _account_title(report: WhyReport) -> str:
    source = "from a trace" if TRACE in report.stages else "from samples of the main thread"
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


def _cause_lines(number: int, cause: Bottleneck, width: int) -> Iterator[Line]:
    head = f"{number}. {cause.label[0].upper()}{cause.label[1:]}"
    text = f"{head}: {cause.evidence} Without it: {short_time_text(cause.bound_seconds)} at best. {cause.experiment}"
    first, *rest = wrapped(text, max(20, width - 4))
    yield cut([Span(f" {first[: len(head)]}", why_class_role(cause.name)), Span(first[len(head) :])], width)
    yield from (line(f"    {piece}") for piece in rest)


def _share_line(share: StepShare, step_seconds: float, width: int) -> Line:
    part = share.seconds / step_seconds if step_seconds else 0.0
    head = f" {LABELS[share.name]:<{_LABEL_WIDTH}} {short_time_text(share.seconds):>{_TIME_WIDTH}} {part:>6.1%} "
    pause = ""
    if share.pause_seconds >= _MIN_PART * step_seconds:
        pause = f" + {short_time_text(share.pause_seconds)} on average in some steps"
    bar = max(_MIN_BAR, min(_MAX_BAR, width - len(head) - len(pause) - 1))
    return cut(
        [Span(head), *fine_bar(part, bar, why_class_role(share.name)), Span(pause, Role.DIM)],
        width,
    )


def _part_line(part: StepPart, width: int) -> Line:
    head = f"   {short_time_text(part.seconds):>{_TIME_WIDTH}}  "
    where = [Span(f"{part.line}  ", Role.ACCENT)] if part.line and part.line != part.name else []
    return cut([Span(head, Role.DIM), *where, Span(part.name, Role.DIM)], width)


def _indented(text: str, width: int) -> list[str]:
    first, *rest = wrapped(text, max(20, width - 2))
    return [f" {first}", *(f"   {piece}" for piece in rest)]
