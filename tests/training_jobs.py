"""Reports on training jobs for tests: one that hangs, one that runs, one without a probe, and a notebook."""

from gpumon.core.collectives import CollectiveState, RecordedCollective
from gpumon.core.ranks import HangKind, HangVerdict
from gpumon.operations.training_jobs.report import (
    NO_PROBE,
    RUNNING,
    WAITS,
    RankGpu,
    RankReport,
    TrainingJobReport,
    TrainingJobState,
)

GIB = 1 << 30
HEADLINE = "Rank 3 has not entered all_reduce #288686 of group 0 (dp): it is in train.py:214 for 4 min; 7 ranks wait."
VERDICT = HangVerdict(
    HangKind.NOT_ENTERED,
    is_hang=True,
    summary=HEADLINE,
    rank=3,
    collective="all_reduce #288686 of group 0 (dp)",
    line="train.py:214",
    since_seconds=252.0,
    evidence=(
        "Ranks 0-2, 4-7 have entered all_reduce #288686 of group 0 (dp); rank 3 stands at #288685.",
        "The main thread of rank 3 has been in train.py:214 (evaluate) in 12 of 12 samples.",
        "Rank 3 uses 100 % of a core; the GPUs of the other ranks are busy at 190 W without tensor activity.",
    ),
    waiting_ranks=(0, 1, 2, 4, 5, 6, 7),
)


def collective(sequence: int, state: CollectiveState = CollectiveState.STARTED) -> RecordedCollective:
    return RecordedCollective("0 (dp)", sequence, "all_reduce", state, ((7168, 4096),), dtypes=("BFloat16",))


LAST = collective(288685, CollectiveState.COMPLETED)
"""The last collective of the rank that has not entered the next one."""


def rank(number: int, **changes: object) -> RankReport:
    """A rank of the job that hangs."""
    is_culprit = number == 3
    values: dict[str, object] = {
        "rank": number,
        "host": "",
        "pid": 28540 + number,
        "gpus": (RankGpu(str(number), f"GPU-{number}"),),
        "state": "not entered" if is_culprit else WAITS,
        "since_seconds": 252.0,
        "steps_count": 36085,
        "step_seconds": 0.412,
        "collective": LAST if is_culprit else collective(288686),
        "line": "train.py:214" if is_culprit else "train.py:188",
        "memory_bytes": 61 * GIB + number,
        "sm_percent": 4.0 if is_culprit else 99.0,
        "is_culprit": is_culprit,
    }
    return RankReport(**{**values, **changes})  # type: ignore[arg-type]


HANGING = TrainingJobReport(
    key="1000/4711",
    id="pretrain-7b",
    name="train",
    user="ada",
    launcher="torchrun",
    world_size=16,
    state=TrainingJobState.HANGING,
    since_seconds=252.0,
    headline=HEADLINE,
    step_seconds=0.412,
    ranks=tuple(rank(number) for number in range(8)),
    verdict=VERDICT,
    age_seconds=15_000.0,
)
RUNS = TrainingJobReport(
    key="1001/slurm 4712.0",
    id="slurm 4712.0",
    name="finetune",
    user="grace",
    launcher="srun",
    world_size=2,
    state=TrainingJobState.RUNNING,
    since_seconds=4000.0,
    headline="Rank 0 to 1 make progress: 2.4 steps/s.",
    step_seconds=0.0415,
    ranks=tuple(
        rank(number, state=RUNNING, since_seconds=None, step_seconds=0.0415, is_culprit=False) for number in range(2)
    ),
    verdict=HangVerdict(HangKind.RUNNING, is_hang=False, summary="Rank 0 to 1 make progress: 2.4 steps/s."),
    age_seconds=4000.0,
)
NOT_PROBED = TrainingJobReport(
    key="1002/pid 5000",
    id="pid 5000",
    name="notebook",
    user="bo",
    launcher="",
    world_size=1,
    state=TrainingJobState.UNKNOWN,
    since_seconds=90_000.0,
    headline="Nothing reports the progress of this job.",
    ranks=(RankReport(None, "", 5000, (RankGpu("7"),), memory_bytes=3 * GIB, sm_percent=0.0),),
    age_seconds=90_000.0,
    problems=(NO_PROBE,),
)
JOBS = (HANGING, RUNS, NOT_PROBED)
