"""The verdict on a training run or a trace of one: its causes, ranked by what they cost, or why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpumon.core.step_classes import CORE_WAIT, GPU_CLASSES, GPU_WORK, IDLE, LABELS, SYNC
from gpumon.core.units import counted, short_time_text
from gpumon.insight.bottlenecks.cause import Bottleneck, judged
from gpumon.insight.bottlenecks.causes import CAUSES
from gpumon.insight.bottlenecks.causes.other_ranks import find_straggler
from gpumon.insight.bottlenecks.overlays import LAUNCHING
from gpumon.insight.bottlenecks.slowness_evidence import SlownessEvidence, StepAccount
from gpumon.insight.bottlenecks.traced_account import traced_evidence
from gpumon.traces.model import MAX_WORK, Trace

MIN_STEPS: Final = 3
MIN_SAMPLES: Final = 50
_MAX_UNKNOWN: Final = 0.25
_MIN_HEALTHY: Final = 0.9
_MIN_HEALTHY_SAMPLES: Final = 20
"""With this many samples that are all work, no cause takes a tenth of the step (19 times of 20)."""
_SHORT_STEP_SECONDS: Final = 2e-3
"""Python and launches take a millisecond or two of any step."""
_WORK: Final = (GPU_WORK, *GPU_CLASSES[: MAX_WORK + 1])
_HOST_WEIGHT: Final = 0.6
"""What the program itself does comes before the load of the host, unless that costs much more: the waits for a core in
a cause of the program are part of both."""
_GENERAL_WEIGHT: Final = 0.6
"""A cause with a line of the program comes before launches in general, which it may have made slow."""
_GENERAL: Final = frozenset({"small_kernels", "host"})
_REASONS_TO_LAUNCH: Final = frozenset({"tiny_copies", "small_buckets", "unused_parameters"})
"""Their time is part of the launches, and a change of one line removes it."""


@dataclass(frozen=True, slots=True)
class SlownessVerdict:
    """The verdict on a training run.

    Attributes:
        summary: The verdict in a sentence.
        is_decided: Whether the evidence suffices for one.
        causes: The causes, the most expensive first.
        has_steps: Whether the costs are those of a step, so that a shortest possible step is known.
    """

    summary: str
    is_decided: bool
    causes: tuple[Bottleneck, ...] = ()
    has_steps: bool = True


def judge_run(evidence: SlownessEvidence) -> SlownessVerdict:
    """The verdict on a training run; undecided if the evidence does not suffice for one."""
    account = evidence.account
    step = account.step_seconds
    has_steps = account.steps_count >= MIN_STEPS or not account.has_steps
    is_enough = account.is_traced or (has_steps and account.samples_count >= MIN_SAMPLES)
    if not is_enough and step and has_steps and _is_all_work(account):
        return SlownessVerdict(_healthy_text(evidence), is_decided=True, has_steps=account.has_steps)
    if not is_enough or not step:
        steps, samples = counted(account.steps_count, "step"), counted(account.samples_count, "sample")
        return SlownessVerdict(
            f"Undecided: {steps} and {samples} are not enough. Observe for longer with --seconds.", is_decided=False
        )
    causes = tuple(
        sorted(
            (cause for rule in CAUSES if (cause := judged(rule, evidence)) is not None),
            key=lambda cause: -cause.share * _weight(cause),
        )
    )
    if any(cause.kind in _REASONS_TO_LAUNCH for cause in causes):
        causes = tuple(sorted(causes, key=lambda cause: cause.kind in _GENERAL))
    queued = 0.0 if evidence.trace is None else evidence.trace.queued_seconds
    unknown = max(0.0, account.share_of(IDLE).seconds - queued)
    if evidence.gpu is not None and not account.is_traced and evidence.gpu.utilization_share is None:
        unknown += account.share_of(SYNC).seconds
    if unknown >= _MAX_UNKNOWN * step and (not causes or unknown > causes[0].seconds):
        busy = None if evidence.gpu is None else evidence.gpu.utilization_share
        if step < _SHORT_STEP_SECONDS and not account.is_traced and busy is not None and busy < 1 - _MAX_UNKNOWN:
            return SlownessVerdict(
                f"Host-bound because the steps are short: {short_time_text(step)}. A larger batch uses the GPU better.",
                is_decided=True,
            )
        return SlownessVerdict(
            f"Undecided: {short_time_text(unknown)} of {short_time_text(step)} have no reason that was measured.",
            is_decided=False,
            causes=causes,
        )
    if not causes:
        return SlownessVerdict(_healthy_text(evidence), is_decided=True)
    first = causes[0]
    where = f" Line: {first.line}." if first.line else ""
    cost = f"{first.share:.0%} of the time"
    if account.has_steps:
        cost = f"without it, a step takes {first.bound_text} instead of {short_time_text(first.base_seconds)}"
    summary = f"{first.label[0].upper()}{first.label[1:]}: {cost}.{where}"
    return SlownessVerdict(summary, is_decided=True, causes=causes, has_steps=account.has_steps)


def judge_traces(traces: Sequence[Trace]) -> tuple[SlownessVerdict, ...]:
    """The verdict on the median step of each recorded trace; undecided if a trace does not suffice for one."""
    usable = [traced_evidence(trace) for trace in traces if not trace.problems]
    are_ranks = len({evidence.rank for evidence in usable}) == len(usable)
    straggler = find_straggler(usable) if are_ranks else None
    verdicts = (judge_run(replace(evidence, straggler=straggler)) for evidence in usable)
    return tuple(
        SlownessVerdict(f"No verdict. {' '.join(trace.problems)}", is_decided=False)
        if trace.problems
        else next(verdicts)
        for trace in traces
    )


def _weight(cause: Bottleneck) -> float:
    if cause.name == CORE_WAIT:
        return _HOST_WEIGHT
    return _GENERAL_WEIGHT if cause.kind in _GENERAL else 1.0


def _is_all_work(account: StepAccount) -> bool:
    """Whether few samples are work to such a part that the rest cannot be a cause."""
    return account.samples_count >= _MIN_HEALTHY_SAMPLES and _work_share(account) > 1 - 1 / _MIN_HEALTHY_SAMPLES


def _work_share(account: StepAccount) -> float:
    """The part of the step that is the work which it is made for."""
    return sum(account.share_of(name).seconds for name in (*_WORK, *LAUNCHING)) / account.step_seconds


def _healthy_text(evidence: SlownessEvidence) -> str:
    """What most of the step is, where nothing costs much."""
    account = evidence.account
    share = _work_share(account)
    if share >= _MIN_HEALTHY:
        unit = "step" if account.has_steps else "time"
        return f"Healthy: {share:.0%} of the {unit} is {'compute' if evidence.gpu is None else 'work of the GPU'}."
    shares = sorted(account.shares, key=lambda share: -share.seconds)[:3]
    parts = ", ".join(f"{LABELS[share.name]} {share.seconds / account.step_seconds:.0%}" for share in shares)
    return f"No cause found that costs much: {parts}."
