"""Causes in a job of several ranks: a rank that comes last, and settings of DistributedDataParallel."""

from collections.abc import Sequence
from statistics import median
from typing import Final

from gpumon.core.step_classes import COMMUNICATION, CORE_WAIT, GPU_WORK, HOST, IDLE, LABELS
from gpumon.core.units import short_time_text
from gpumon.insight.bottlenecks.cause import NO_LINE, Finding, main_kind, main_line, where_text
from gpumon.insight.bottlenecks.causes.loop import BUCKETS, UNUSED_PARAMETERS
from gpumon.insight.bottlenecks.slowness_evidence import OperatorUse, SlownessEvidence, Straggler

_MIN_EXCESS: Final = 0.08
"""A rank whose work takes longer than that of the others by this part of the step is a straggler."""
_SEARCH: Final = "torch.distributed.ddp.reducer::search_unused_parameters"
_MIN_COLLECTIVES: Final = 30


def _communication(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(COMMUNICATION)
    if not share.cost_seconds or evidence.straggler is not None or evidence.hints.keys() & {UNUSED_PARAMETERS, BUCKETS}:
        return None
    calls = _calls_of_collectives(evidence)
    if calls is not None and calls.count >= _MIN_COLLECTIVES and calls.seconds > share.cost_seconds:
        return None
    if main_kind(share) == "data_parallel":
        return None
    text = f"this rank waits for other ranks or for data from them{where_text(share)}"
    return Finding(share.cost_seconds, text, main_line(share))


def _unused_parameters(evidence: SlownessEvidence) -> Finding | None:
    """What the search costs: a rank without a GPU waits for the others; on a GPU it is time of the host.

    The reducer marks all unused parameters at once, in the hook of the first gradient.
    """
    share, line = evidence.account.share_of(COMMUNICATION), evidence.hints.get(UNUSED_PARAMETERS, NO_LINE)
    search = None if evidence.trace is None else evidence.trace.operators.get(_SEARCH)
    text = "DistributedDataParallel searches for unused parameters in every step"
    text += f", as {line} asks it to" if line else ""
    if search is None or evidence.trace is None:
        return Finding(share.cost_seconds, text, line) if share.cost_seconds and line else None
    marking = evidence.trace.operators.get("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
    seconds = search.seconds + (marking.max_seconds if marking is not None else 0.0)
    seconds = min(seconds, evidence.account.share_of(HOST).cost_seconds + share.cost_seconds)
    return Finding(seconds, text, line, bound_seconds=evidence.account.step_seconds - seconds)


def _buckets(evidence: SlownessEvidence) -> Finding | None:
    share, line = evidence.account.share_of(COMMUNICATION), evidence.hints.get(BUCKETS, NO_LINE)
    if UNUSED_PARAMETERS in evidence.hints:
        return None
    text = "gradients are sent in many small buckets" + (f", as {line} asks for" if line else "")
    experiment = "Leave bucket_cap_mb at its default, 25." if line else "Send several tensors in one collective."
    calls = _calls_of_collectives(evidence)
    if calls is None or calls.count < _MIN_COLLECTIVES:
        return Finding(share.cost_seconds, text, line, experiment=experiment) if share.cost_seconds and line else None
    text = f"{calls.count:.0f} collectives in every step; {text}" if line else f"{calls.count:.0f} collectives per step"
    seconds = share.cost_seconds + min(calls.seconds, evidence.account.share_of(HOST).cost_seconds)
    bound = evidence.account.step_seconds - seconds
    return Finding(seconds, text, line or main_line(share), bound_seconds=bound, experiment=experiment)


def _calls_of_collectives(evidence: SlownessEvidence) -> OperatorUse | None:
    """The calls of collectives on the host; None without a trace that has them."""
    operators = {} if evidence.trace is None else evidence.trace.operators
    calls = [use for name, use in operators.items() if name.startswith("c10d::")]
    if not calls:
        return None
    return OperatorUse(
        sum(use.seconds for use in calls), sum(use.count for use in calls), max(use.max_seconds for use in calls)
    )


def _data_parallel(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(COMMUNICATION)
    if not share.cost_seconds or main_kind(share) != "data_parallel":
        return None
    text = f"nn.DataParallel copies the model to every GPU in each step, from one process{where_text(share)}"
    return Finding(share.cost_seconds, text, main_line(share))


def _straggler(evidence: SlownessEvidence) -> Finding | None:
    straggler, account = evidence.straggler, evidence.account
    if straggler is None:
        return None
    bound = account.step_seconds - straggler.excess_seconds
    if evidence.rank == straggler.rank:
        text = f"the other ranks wait for this one: {straggler.reason}"
        experiment = "Give all ranks the same amount of data, and compare the clocks and the users of their GPUs."
        return Finding(straggler.excess_seconds, text, bound_seconds=bound, experiment=experiment)
    waiting = account.share_of(COMMUNICATION).cost_seconds
    text = f"this rank waits for rank {straggler.rank}: {straggler.reason}"
    experiment = f"Look at rank {straggler.rank}: its data, its GPU, and its verdict here."
    return Finding(min(waiting, straggler.excess_seconds), text, bound_seconds=bound, experiment=experiment)


def work_seconds(evidence: SlownessEvidence) -> float:
    """The part of the median step in which a rank does not wait for others."""
    account = evidence.account
    return account.step_seconds - wait_seconds(evidence) - account.share_of(IDLE).seconds


def wait_seconds(evidence: SlownessEvidence) -> float:
    """The part of the median step in which a rank waits for others, also in kernels."""
    return evidence.account.share_of(COMMUNICATION).seconds + _spinning_seconds(evidence)


def _spinning_seconds(evidence: SlownessEvidence) -> float:
    """The time of kernels without work: those of NCCL run while they wait, on few of the multiprocessors."""
    account, gpu = evidence.account, evidence.gpu
    if gpu is None or gpu.sm_share is None:
        return 0.0
    return max(0.0, account.share_of(GPU_WORK).seconds - gpu.sm_share * account.step_seconds)


def find_straggler(ranks: Sequence[SlownessEvidence]) -> Straggler | None:
    """The rank whose work takes longest, if that is clearly longer than that of the others."""
    if len(ranks) < 2:
        return None
    slowest = max(ranks, key=work_seconds)
    others = [evidence for evidence in ranks if evidence is not slowest]
    excess = work_seconds(slowest) - median(work_seconds(evidence) for evidence in others)
    if slowest.rank is None or excess < _MIN_EXCESS * slowest.account.step_seconds:
        return None
    names = {share.name for evidence in ranks for share in evidence.account.shares} - {COMMUNICATION, IDLE, CORE_WAIT}
    more = {
        name: _class_seconds(slowest, name) - median(_class_seconds(evidence, name) for evidence in others)
        for name in names
    }
    largest = sorted(more, key=lambda name: -more[name])[:2]
    parts = ", ".join(f"{short_time_text(more[name])} in {LABELS[name]}" for name in largest if more[name] > 0)
    return Straggler(slowest.rank, excess, f"its work takes {short_time_text(excess)} longer per step: {parts}")


def _class_seconds(evidence: SlownessEvidence, name: str) -> float:
    seconds = evidence.account.share_of(name).median_seconds
    return seconds - _spinning_seconds(evidence) if name == GPU_WORK else seconds


RANKS: Final = (_straggler, _unused_parameters, _buckets, _data_parallel, _communication)
"""The conditions, which causes.txt names."""
