"""Causes in a job of several ranks: a rank that comes last, and settings of DistributedDataParallel."""

from typing import Final

from gpumon.core.step_classes import COMMUNICATION
from gpumon.diagnosis.bottlenecks.cause import CauseRule, Finding, main_line, where_text
from gpumon.diagnosis.bottlenecks.evidence import SlownessEvidence

_MIN_SHARE: Final = 0.12
UNUSED_PARAMETERS: Final = "find_unused_parameters"
BUCKETS: Final = "bucket_cap_mb"


def _communication(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(COMMUNICATION)
    if not share.cost_seconds or evidence.straggler is not None or evidence.hints.keys() & {UNUSED_PARAMETERS, BUCKETS}:
        return None
    text = f"this rank waits for other ranks or for data from them{where_text(share)}"
    experiment = "Train on one GPU with the same batch size per rank, and compare the step times of all ranks."
    return Finding(share.cost_seconds, text, experiment, main_line(share))


def _unused_parameters(evidence: SlownessEvidence) -> Finding | None:
    share, line = evidence.account.share_of(COMMUNICATION), evidence.hints.get(UNUSED_PARAMETERS)
    if not share.cost_seconds or line is None:
        return None
    text = f"DistributedDataParallel searches for unused parameters in every step, as {line} asks it to"
    return Finding(share.cost_seconds, text, "Remove find_unused_parameters=True, if all parameters are used.", line)


def _buckets(evidence: SlownessEvidence) -> Finding | None:
    share, line = evidence.account.share_of(COMMUNICATION), evidence.hints.get(BUCKETS)
    if not share.cost_seconds or line is None or UNUSED_PARAMETERS in evidence.hints:
        return None
    text = f"gradients are sent in many small buckets, as {line} asks for"
    return Finding(share.cost_seconds, text, "Leave bucket_cap_mb at its default, 25.", line)


def _straggler(evidence: SlownessEvidence) -> Finding | None:
    straggler, account = evidence.straggler, evidence.account
    if straggler is None:
        return None
    bound = account.step_seconds - straggler.excess_seconds
    if evidence.rank == straggler.rank:
        text = f"the other ranks wait for this one: {straggler.reason}"
        experiment = "Give all ranks the same amount of data, and compare the clocks and the users of their GPUs."
        return Finding(straggler.excess_seconds, text, experiment, bound_seconds=bound)
    waiting = account.share_of(COMMUNICATION).cost_seconds
    text = f"this rank waits for rank {straggler.rank}: {straggler.reason}"
    experiment = f"Look at rank {straggler.rank}: its data, its GPU, and its verdict here."
    return Finding(min(waiting, straggler.excess_seconds), text, experiment, bound_seconds=bound)


RANKS: Final = (
    CauseRule("straggler", "a rank that is slower than the others", COMMUNICATION, 0.05, _straggler),
    CauseRule("unused_parameters", "search for unused parameters", COMMUNICATION, _MIN_SHARE, _unused_parameters),
    CauseRule("small_buckets", "small buckets", COMMUNICATION, _MIN_SHARE, _buckets),
    CauseRule("communication", "waiting for other ranks", COMMUNICATION, _MIN_SHARE, _communication),
)
