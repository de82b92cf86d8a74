"""The ranks of a job are compared, and the one that the others wait for is named."""

from dataclasses import replace

from gpumon.core.step_classes import BACKWARD, COMMUNICATION, DATA
from gpumon.diagnosis.bottlenecks.evidence import StepShare
from gpumon.diagnosis.bottlenecks.verdict import judge_run
from gpumon.operations.why.examination import WhyReport
from gpumon.operations.why.job import compared, job_document
from gpumon.present.paint.line import plain
from gpumon.present.why_job import job_lines
from tests.diagnosis.bottlenecks.makers import evidence


def rank(number: int, work: float, name: str = BACKWARD) -> WhyReport:
    """A rank that works for a part of a step of 100 ms, and waits for the others in the rest."""
    shares = {name: StepShare(name, work), COMMUNICATION: StepShare(COMMUNICATION, 0.1 - work)}
    run = evidence({key: share for key, share in shares.items() if share.seconds}, rank=number, world_size=4)
    return WhyReport(100 + number, "train.py", number, 4, "2.11.0", None, ("passive",), 5.0, run, judge_run(run))


def test_the_rank_with_more_work_is_the_straggler() -> None:
    report = compared((rank(0, 0.05), rank(1, 0.09, DATA), rank(2, 0.05), rank(3, 0.055)), {})

    assert report.straggler is not None
    assert report.straggler.rank == 1
    assert "waiting for data" in report.straggler.reason
    assert [item.verdict.causes[0].kind for item in report.ranks if item.rank != 1] == ["straggler"] * 3
    text = "\n".join(plain(line) for line in job_lines(report, 120))
    assert "The others wait for rank 1" in text
    document = job_document(report)["straggler"]
    assert document["rank"] == 1


def test_ranks_that_are_alike_have_no_straggler() -> None:
    report = compared((rank(0, 0.09), rank(1, 0.091), rank(2, 0.089)), {})

    assert report.straggler is None
    assert all(not item.verdict.causes for item in report.ranks)
    assert "No rank is clearly slower" in "\n".join(plain(line) for line in job_lines(report, 120))


def test_one_rank_has_nothing_to_compare() -> None:
    assert compared((replace(rank(0, 0.05)),), {}).straggler is None
