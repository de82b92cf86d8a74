"""What NCCL's counts add to a verdict, and the ranks of other hosts."""

import os

import pytest

from gpumon.core.ranks import HangKind, HangVerdict
from gpumon.distributed.environment import JobRank, TrainingJob
from gpumon.distributed.ras_report import parse_report
from gpumon.operations.training_jobs.ras_ranks import remote_ranks, with_ras
from tests.distributed.ras_server import FakeRank, report_json

UNDECIDED = HangVerdict(HangKind.UNDECIDED, False, "No progress.")
RANKS = [FakeRank(rank, 100 + rank, "10.0.0.1" if rank < 2 else "10.0.0.2", 51) for rank in range(4)]


def job(size: int = 4) -> TrainingJob:
    ranks = tuple(JobRank(100 + rank, 1, rank, rank) for rank in range(2))
    return TrainingJob("x", os.getuid(), "me", "torchrun", size, ranks)


def test_a_rank_on_another_host_that_has_entered_fewer_collectives() -> None:
    ranks = [*RANKS[:3], RANKS[3]._replace(all_reduces=50)]
    report = parse_report(report_json(ranks))
    verdict = with_ras(job(), UNDECIDED, report, 40.0)
    assert verdict.summary == (
        "Rank 3 on 10.0.0.2 has not entered all_reduce #51, as NCCL counts, for 40s; 3 ranks wait."
    )
    assert (verdict.kind, verdict.is_hang, verdict.rank, verdict.waiting_ranks) == (
        HangKind.NOT_ENTERED,
        True,
        3,
        (0, 1, 2),
    )
    remote = remote_ranks(job(), report)
    assert [(rank.rank, rank.host, rank.pid) for rank in remote] == [(2, "10.0.0.2", 102), (3, "10.0.0.2", 103)]


def test_a_dead_rank_on_another_host() -> None:
    report = parse_report(report_json(RANKS[:3], RANKS[3:], comma=""))
    verdict = with_ras(job(), UNDECIDED, report, 40.0)
    assert (verdict.kind, verdict.rank, verdict.is_hang) == (HangKind.DEAD, 3, True)


@pytest.mark.parametrize(
    ("verdict", "seconds"),
    [
        (HangVerdict(HangKind.RUNNING, False, "The job makes progress."), 40.0),
        (HangVerdict(HangKind.STOPPED, True, "Rank 1 is stopped.", 1), 40.0),
        (UNDECIDED, 10.0),
    ],
)
def test_counts_of_a_job_that_makes_progress_or_is_decided_do_not_matter(verdict: HangVerdict, seconds: float) -> None:
    report = parse_report(report_json([*RANKS[:3], RANKS[3]._replace(all_reduces=50)]))
    assert with_ras(job(), verdict, report, seconds) is verdict


def test_equal_counts_and_other_jobs_decide_nothing() -> None:
    assert with_ras(job(), UNDECIDED, parse_report(report_json(RANKS)), 40.0) is UNDECIDED
    other = parse_report(report_json([FakeRank(0, 777), FakeRank(1, 778, all_reduces=3)]))
    assert with_ras(job(), UNDECIDED, other, 40.0) is UNDECIDED
    assert remote_ranks(job(), other) == ()


def test_that_all_ranks_have_entered_is_known_only_of_this_host() -> None:
    transport = HangVerdict(HangKind.TRANSPORT, True, "Every rank has entered it.", None, "all_reduce #51")
    verdict = with_ras(job(), transport, None, 40.0)
    assert verdict.kind is HangKind.UNDECIDED
    assert "2 of 4 ranks are on other hosts" in verdict.summary
    assert with_ras(job(size=2), transport, None, 40.0) is transport
