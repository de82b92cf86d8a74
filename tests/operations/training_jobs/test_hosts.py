"""Jobs of several hosts: what `gpumon jobs --json` prints on each of them, read through ssh and merged."""

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.ranks import HangKind, HangVerdict
from gpumon.operations.training_jobs.hosts import HostJobs, merged_jobs, parse_jobs, read_hosts
from gpumon.operations.training_jobs.report import TrainingJobReport, TrainingJobState, jobs_document
from tests.training_jobs import HANGING, JOBS, LAST, RUNS, collective, rank

WAITING = HangVerdict(HangKind.UNDECIDED, True, "all_reduce #288686 does not complete.", since_seconds=60.0)


def text(*reports: TrainingJobReport, host: str = "box") -> bytes:
    return json.dumps(jobs_document(reports, host)).encode()


def part(first: int, last: int, culprit: int | None = None) -> TrainingJobReport:
    """The ranks of one host of a job in which rank ``culprit`` has not entered the collective."""
    ranks = tuple(
        rank(
            number,
            state="no progress",
            is_culprit=False,
            line="train.py:188",
            since_seconds=60.0,
            collective=LAST if number == culprit else collective(288686),
        )
        for number in range(first, last)
    )
    return replace(HANGING, ranks=ranks, verdict=WAITING, headline=WAITING.summary, since_seconds=60.0)


def test_a_report_survives_the_way_through_json() -> None:
    parsed = parse_jobs(text(*JOBS), "gpu01")
    assert [(report.name, report.state, report.headline) for report in parsed] == [
        (report.name, report.state, report.headline) for report in JOBS
    ]
    assert parsed[0].verdict == HANGING.verdict
    assert [replace(one, host="", process=None, is_culprit=other.is_culprit) for one, other in zip(
        parsed[0].ranks, HANGING.ranks, strict=True
    )] == list(HANGING.ranks)  # fmt: skip
    assert {one.host for one in parsed[0].ranks} == {"gpu01"}


def test_the_rank_on_another_host_is_named() -> None:
    hosts = [
        HostJobs("gpu01", parse_jobs(text(part(0, 4)), "gpu01")),
        HostJobs("gpu02", parse_jobs(text(part(4, 8, culprit=6)), "gpu02")),
    ]
    (job,) = merged_jobs(hosts)
    assert job.state is TrainingJobState.HANGING
    assert job.verdict is not None
    assert (job.verdict.rank, job.verdict.is_hang) == (6, True)
    assert "Rank 6 has not entered all_reduce #288686" in job.headline
    assert [(one.rank, one.host) for one in job.ranks] == [(n, "gpu01" if n < 4 else "gpu02") for n in range(8)]
    assert [one.rank for one in job.ranks if one.is_culprit] == [6]


def test_a_job_that_makes_progress_on_one_host_does_not_hang() -> None:
    moving = replace(part(4, 8), verdict=HangVerdict(HangKind.RUNNING, False, "The job makes progress."))
    moving = replace(moving, state=TrainingJobState.RUNNING)
    (job,) = merged_jobs(
        [HostJobs("a", parse_jobs(text(part(0, 4)), "a")), HostJobs("b", parse_jobs(text(moving), "b"))]
    )
    assert job.state is TrainingJobState.RUNNING


def test_ranks_that_are_alone_on_their_hosts_are_judged_without_probes() -> None:
    """A program that was started by hand on each host, or by an operator of Kubernetes: no launcher is known."""
    waits = replace(WAITING, collective="all_reduce", waiting_ranks=(0,))
    reports = [replace(part(number, number + 1), id="10.0.0.1:29500", launcher="", world_size=2) for number in range(2)]
    for number, verdict in enumerate((waits, replace(WAITING, is_hang=False))):
        ranks = (rank(number, state="", line=f"a.py:{number}", since_seconds=60.0, collective=None),)
        reports[number] = replace(reports[number], ranks=ranks, verdict=verdict)
    (job,) = merged_jobs(
        [HostJobs(host, parse_jobs(text(report), host)) for host, report in zip("ab", reports, strict=True)]
    )
    assert job.headline == "Rank 1 has not entered all_reduce: it is in a.py:1 for 60s; rank 0 waits."
    assert (job.running_ranks, job.state) == (2, TrainingJobState.HANGING)


@pytest.mark.parametrize("name", ["pid 5000", "127.0.0.1:29500", "localhost:1"])
def test_processes_alone_are_different_jobs_on_different_hosts(name: str) -> None:
    hosts = [HostJobs(host, parse_jobs(text(replace(JOBS[2], id=name)), host)) for host in ("a", "b")]
    assert len(merged_jobs(hosts)) == 2


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"schema": 2, "jobs": []}',
        b'{"schema": 1}',
        b'{"schema": 1, "jobs": [{"id": 5}]}',
        b'{"schema": 1, "jobs": [{"id": "x", "user": "u", "state": "sleepy"}]}',
        b'{"schema": 1, "jobs": [{"id": "x", "user": "u", "state": "running", "ranks": [{"rank": -1}]}]}',
    ],
)
def test_another_document_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any reason
        parse_jobs(raw, "box")


def test_hosts_are_read_through_ssh(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(text(RUNS))
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys, time\n"
        "host, command = sys.argv[-2:]\n"
        "assert sys.argv[-3] == '--' and command == 'exec gpumon jobs --json'\n"
        "if host == 'good':\n"
        f"    print(pathlib.Path({str(tmp_path / 'good.json')!r}).read_text()); sys.exit(1)\n"
        "if host == 'old': print('{}'); sys.exit(0)\n"
        "if host == 'bare': sys.exit(127)\n"
        "if host == 'down': print('ssh: connect: No route to host', file=sys.stderr); sys.exit(255)\n"
        "time.sleep(30)\n"
    )
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    results = {entry.host: entry for entry in read_hosts(["good", "old", "bare", "down", "slow"], 2.0, [str(ssh)])}
    assert [report.name for report in results["good"].value or ()] == ["finetune"]
    problems = {host: entry.problem for host, entry in results.items() if entry.problem is not None}
    assert {host: problem.code for host, problem in problems.items()} == dict.fromkeys(
        ("old", "bare", "down", "slow"), ProblemCode.NOT_READ
    )
    assert problems["down"] == Problem(ProblemCode.NOT_READ, "down cannot be reached: ssh: connect: No route to host.")
    assert "no gpumon on the PATH" in problems["bare"].reason
    assert "no complete report within 2 s" in problems["slow"].reason
