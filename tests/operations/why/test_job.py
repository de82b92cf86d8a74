"""The ranks of a job are compared, and the one that the others wait for is named."""

from dataclasses import replace

import pytest

from gpumon.core.step_classes import BACKWARD, COMMUNICATION, DATA
from gpumon.insight.bottlenecks.causes.other_ranks import work_seconds
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, StepShare
from gpumon.insight.bottlenecks.slowness_verdict import judge_run
from gpumon.operations.why.document import why_job_document
from gpumon.operations.why.examination import WhyReport
from gpumon.operations.why.processes import compared
from gpumon.present.paint.line import plain
from gpumon.present.why import job_lines
from tests.insight.bottlenecks.makers import evidence


def rank(number: int, work: float, name: str = BACKWARD) -> WhyReport:
    """A rank that works for a part of a step of 100 ms, and waits for the others in the rest."""
    shares = {name: StepShare(name, work), COMMUNICATION: StepShare(COMMUNICATION, 0.1 - work)}
    run = evidence({key: share for key, share in shares.items() if share.seconds}, rank=number, world_size=4)
    return WhyReport(100 + number, "train.py", None, ("passive",), 5.0, run, judge_run(run))


def test_the_rank_with_more_work_is_the_straggler() -> None:
    report = compared((rank(0, 0.05), rank(1, 0.09, DATA), rank(2, 0.05), rank(3, 0.055)), {})

    assert report.straggler is not None
    assert report.straggler.rank == 1
    assert "waiting for data" in report.straggler.reason
    assert [item.verdict.causes[0].kind for item in report.ranks if item.evidence.rank != 1] == ["straggler"] * 3
    text = "\n".join(plain(line) for line in job_lines(report, 120))
    assert "The others wait for rank 1" in text
    document = why_job_document(report)["straggler"]
    assert document["rank"] == 1


def test_ranks_that_are_alike_have_no_straggler() -> None:
    report = compared((rank(0, 0.09), rank(1, 0.091), rank(2, 0.089)), {})

    assert report.straggler is None
    assert all(not item.verdict.causes for item in report.ranks)
    assert "No rank is clearly slower" in "\n".join(plain(line) for line in job_lines(report, 120))


def test_one_rank_has_nothing_to_compare() -> None:
    assert compared((replace(rank(0, 0.05)),), {}).straggler is None


def test_a_rank_whose_kernels_only_wait_does_not_work() -> None:
    """Measured on four H200: rank 1 has four times the data, and kernels run on every GPU during the entire step."""
    reports = []
    for number, sm_share in enumerate((0.337, 0.964, 0.337, 0.337)):
        gpu = GpuEvidence(utilization_share=1.0, sm_share=sm_share)
        run = evidence({"gpu_work": 1.0}, gpu=gpu, step=0.024, rank=number, world_size=4)
        reports.append(replace(rank(number, 0.05), evidence=run, verdict=judge_run(run)))
    report = compared(tuple(reports), {})

    assert report.straggler is not None
    assert report.straggler.rank == 1
    assert "work on the GPU" in report.straggler.reason
    assert [work_seconds(item.evidence) for item in report.ranks] == pytest.approx(
        [0.0081, 0.0231, 0.0081, 0.0081], abs=1e-4
    )
