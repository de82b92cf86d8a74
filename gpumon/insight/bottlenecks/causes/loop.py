"""Causes in the training loop: what the main thread does in addition to the model."""

from typing import Final

from gpumon.core.step_classes import (
    ANOMALY,
    CHECKPOINT,
    COLLECTION,
    COMPILATION,
    EMPTY_CACHE,
    EVALUATION,
    LOCKS,
    LOGGING,
    PROFILER,
    PROGRAMS,
    PYTHON,
    SLEEP,
    STATE_COPIES,
)
from gpumon.insight.bottlenecks.cause import CauseRule, Finding, main_kind, main_line, where_text
from gpumon.insight.bottlenecks.slowness_evidence import SlownessEvidence
from gpumon.traces.step_graph import COLLECTING

_MIN_SHARE: Final = 0.05
_MIN_EVALUATION: Final = 0.25
"""An evaluation now and then is part of a training run; one in every step is not."""
_MIN_PYTHON: Final = 0.15
_DISK_WAIT: Final = 0.2


def _collection(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(COLLECTION)
    if not share.cost_seconds:
        return None
    if any("gc.collect(" in part.name for part in share.top):
        text = f"the program calls gc.collect(){where_text(share)}"
        return Finding(share.cost_seconds, text, "Remove the call of gc.collect().", main_line(share))
    experiment = "Call gc.collect() and gc.freeze() before the loop, or gc.disable() and collect every 1,000 steps."
    return Finding(share.cost_seconds, "Python's garbage collector visits many objects", experiment)


def _logging(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(LOGGING)
    if not share.cost_seconds:
        return None
    is_network = main_kind(share) == "network"
    what = "the main thread waits for the network" if is_network else "the main thread writes logs or files"
    waits = evidence.host.disk_wait_share or 0.0
    if waits >= _DISK_WAIT:
        what += f" and waits for a disk in {waits:.0%} of the samples"
    experiment = "Log every 100 steps instead of each step, and write without fsync or from another thread."
    return Finding(share.cost_seconds, f"{what}{where_text(share)}", experiment, main_line(share))


def _evaluation(evidence: SlownessEvidence) -> Finding | None:
    share = evidence.account.share_of(EVALUATION)
    if not share.seconds:  # an evaluation that only some steps have is a pause and no disease
        return None
    experiment = "Evaluate once per epoch, in batches, and compare the step times."
    return Finding(share.seconds, f"every step evaluates{where_text(share)}", experiment, main_line(share))


def _rule(  # noqa: PLR0917 - the columns of a table
    name: str, label: str, class_name: str, text: str, experiment: str, min_share: float = _MIN_SHARE
) -> CauseRule:
    """A cause that is all of a class."""

    def find(evidence: SlownessEvidence) -> Finding | None:
        share = evidence.account.share_of(class_name)
        if not share.cost_seconds:
            return None
        return Finding(share.cost_seconds, f"{text}{where_text(share)}", experiment, main_line(share))

    return CauseRule(name, label, class_name, min_share, find)


LOOP: Final = (
    CauseRule("gc", "garbage collection", COLLECTION, _MIN_SHARE, _collection, COLLECTING),
    _rule(
        "checkpoint",
        "checkpoints",
        CHECKPOINT,
        "the training run waits while a checkpoint is written",
        "Save checkpoints ten times less often, or copy the state to the host and write it in another thread.",
    ),
    _rule(
        "copies",
        "copies of the state",
        STATE_COPIES,
        "the program duplicates objects with copy.deepcopy()",
        "Duplicate the state less often, or update the copy in place, as torch.optim.swa_utils does.",
    ),
    CauseRule("disk", "logging and files", LOGGING, _MIN_SHARE, _logging),
    _rule(
        "subprocess",
        "waiting for another program",
        PROGRAMS,
        "the main thread starts another program and waits",
        "Run the other program outside of the loop.",
    ),
    _rule("sleep", "sleeping", SLEEP, "the main thread sleeps", "Remove the call of sleep()."),
    _rule(
        "lock",
        "waiting for another thread",
        LOCKS,
        "the main thread waits for a lock, a queue or another thread",
        "Let the other thread hold the lock for a shorter time, or give it more to prepare in advance.",
    ),
    _rule(
        "recompiles",
        "compiling again",
        COMPILATION,
        "torch.compile compiles while the training run goes on",
        "Run with TORCH_LOGS=recompiles for the reasons; pad to few shapes, or use torch.compile(dynamic=True).",
    ),
    _rule(
        "empty_cache",
        "emptying the cache",
        EMPTY_CACHE,
        "torch.cuda.empty_cache() waits for the GPU, and the memory must be allocated again",
        "Remove the call of empty_cache().",
    ),
    _rule(
        "anomaly_mode",
        "anomaly detection",
        ANOMALY,
        "autograd stores a stack for every operator, because anomaly detection is on",
        "Remove torch.autograd.set_detect_anomaly(True).",
    ),
    _rule("profiler", "profiler", PROFILER, "a profiler or debugger runs", "Run without the profiler."),
    CauseRule("evaluation", "evaluation in every step", EVALUATION, _MIN_EVALUATION, _evaluation),
    _rule(
        "python",
        "Python in the loop",
        PYTHON,
        "the main thread runs Python code between the operators",
        "Leave this line out, or replace the Python loop by operators on tensors.",
        _MIN_PYTHON,
    ),
)
