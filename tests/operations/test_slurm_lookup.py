"""Which of the commands of Slurm is asked about a job, and the message if none knows it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError
from gpumon.fleet import slurm_answer
from gpumon.operations.fleet.scheduler_job import JobReport, end_sentence, job_document, job_report
from gpumon.operations.fleet.slurm import look_up
from gpumon.present.text.job import job_lines
from tests.fleet.conftest import program as program  # noqa: PLC0414 - the fixture
from tests.fleet.test_slurm import new_entry
from tests.fleet.test_slurm_accounting import new_account, parsed

Program = Callable[[str, str], None]
UNKNOWN_JOB = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
FORBIDDEN = "echo called-without-need >&2; exit 1"


def answering(folder: Path, name: str, *entries: object) -> str:
    """A script that answers with jobs."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"jobs": entries}))
    return f"exec cat {file}"


@pytest.fixture(autouse=True)
def commands(program: Program) -> None:
    """Every command of Slurm refuses, unless a test says otherwise."""
    for name in ("squeue", "scontrol", "sacct"):
        program(name, FORBIDDEN)


def test_squeue_alone_suffices(program: Program, tmp_path: Path) -> None:
    program("squeue", answering(tmp_path, "squeue", new_entry()))
    known = look_up("4711")
    assert ([len(job.gpus) for job in known.jobs], known.accounts, known.problem) == ([6], (), None)


def test_scontrol_has_the_indexes_that_squeue_lacks(program: Program, tmp_path: Path) -> None:
    program("squeue", answering(tmp_path, "squeue", new_entry(gres_detail=[])))
    program("scontrol", answering(tmp_path, "scontrol", new_entry()))
    assert [job.gpus[-1] for job in look_up("4711").jobs] == [("gpu02", 7)]


def test_why_the_indexes_are_unknown(program: Program, tmp_path: Path) -> None:
    program("squeue", answering(tmp_path, "squeue", new_entry(gres_detail=[])))
    program("scontrol", "echo 'scontrol: error: Access/permission denied' >&2; exit 1")
    known = look_up("4711")
    report = job_report(known.jobs[0], None, problem=known.problem)
    assert report.sentence == (
        "Slurm does not report which GPUs the job has: scontrol failed: scontrol: error: Access/permission denied."
    )
    assert "GPUs: 6 requested, – allocated, – used" in job_lines(report, 0)
    (document,) = job_document([report])["jobs"]
    assert (document["allocated_gpus"], document["used_gpus"], document["account"]) == (None, None, None)


@pytest.mark.parametrize("is_empty", [False, True])
def test_sacct_knows_a_job_that_has_left_the_queue(program: Program, tmp_path: Path, is_empty: bool) -> None:
    program("squeue", answering(tmp_path, "squeue") if is_empty else UNKNOWN_JOB)
    program("sacct", f'[ "$*" = "--jobs 4711 --json" ] && {answering(tmp_path, "sacct", new_account())}')
    known = look_up("4711")
    assert (known.jobs, [account.job.id for account in known.accounts]) == ((), ["4711"])
    report = JobReport(known.accounts[0].job, account=known.accounts[0])
    assert report.sentence == "The time limit of 1d00h ended the job."
    lines = job_lines(report, 0)
    assert lines[0] == "Job 4711: train, of ada, TIMEOUT, partition gpu"
    assert lines[1].endswith("for 1d00h, on 2 hosts")
    assert lines[2:7] == [
        "GPUs: 6 requested, 6 allocated",
        "Host memory: 512 GiB requested, 300 GiB used at most by one task",
        "CPUs: 64 allocated, 50% of their time used",
        "Time limit: 1d00h",
        "GPU use at most by one task: 70.0 GiB, 98%",
    ]
    (document,) = job_document([report])["jobs"]
    assert (document["allocated_gpus"], document["used_gpus"], document["gpus"]) == (6, None, [])
    assert document["account"]["max_rss_bytes"] == 300 << 30
    assert document["account"]["signal"] == "KILL"


def test_what_is_said_if_nobody_knows_the_job(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("squeue", UNKNOWN_JOB)
    program("sacct", "echo 'sacct: error: Slurm accounting storage is disabled' >&2; exit 1")
    with pytest.raises(CommandError, match=r"no job 4711 in its queue\. sacct failed: .* storage is disabled"):
        look_up("4711")
    program("sacct", answering(tmp_path, "sacct"))
    with pytest.raises(CommandError, match="and sacct has no job 4711 that you may see"):
        look_up("4711")
    (tmp_path / "sacct").unlink()
    with pytest.raises(CommandError, match="sacct is not installed here"):
        look_up("4711")
    program("squeue", "echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(CommandError, match="Unable to contact slurm controller"):
        look_up("4711")
    monkeypatch.setattr(slurm_answer, "TIMEOUT_SECONDS", 0.2)
    program("squeue", "exec sleep 100")
    with pytest.raises(CommandError, match=r"squeue did not respond within 0.2 s"):
        look_up("4711")


@pytest.mark.parametrize(
    ("state", "changes", "sentence"),
    [
        ("COMPLETED", {}, "The job is complete after 1d00h."),
        ("OUT_OF_MEMORY", {}, "The job was ended because it used more host memory than the 512 GiB it had."),
        (
            "OUT_OF_MEMORY",
            {"memory_bytes": None},
            "The job was ended because it used more host memory than it requested.",
        ),
        ("FAILED", {}, "The job failed: the signal KILL ended it after 1d00h."),
        ("FAILED", {"signal": "", "exit_code": 2}, "The job failed with exit code 2 after 1d00h."),
        ("CANCELLED", {"gpu_percent": 0.0}, "The job was canceled after 1d00h. None of its tasks used a GPU."),
        ("REVOKED", {}, "The job is in the state REVOKED."),
        ("{0}", {}, "The job is in the state {0}."),
    ],
)
def test_how_a_job_ended(state: str, changes: dict[str, object], sentence: str) -> None:
    (account,) = parsed(new_account(state={"current": [state]}))
    assert end_sentence(account._replace(**changes)) == sentence  # type: ignore[arg-type]
