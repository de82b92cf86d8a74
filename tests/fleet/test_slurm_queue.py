"""The queue of Slurm, read by a child process."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.core.problems import ProblemCode
from gpumon.fleet import slurm_queue
from gpumon.fleet.slurm_queue import has_slurm, read_queue
from tests.fleet.test_slurm import Entry, new_entry

Install = Callable[[str, str], None]


def answer(folder: Path, *entries: Entry) -> str:
    """A command that prints jobs."""
    file = folder / "answer.json"
    file.write_text(json.dumps({"jobs": entries}))
    return f"cat {file}"


def test_jobs_that_run_on_gpus(program: Install, tmp_path: Path) -> None:
    waiting = new_entry(job_id=5, job_state=["PENDING"], nodes="", gres_detail=[])
    without_gpus = new_entry(job_id=6, gres_detail=[], tres_alloc_str="cpu=4", tres_req_str="cpu=4")
    command = answer(tmp_path, new_entry(), waiting, without_gpus)
    program("squeue", f'echo "$@" >> {tmp_path}/calls; {command}')
    assert has_slurm()
    queue = read_queue()
    assert (queue.problem, queue.needs_details) == (None, False)
    (job,) = queue.jobs
    assert (job.id, job.user, job.name, job.requested_gpus) == ("4711", "ada", "train", 6)
    assert job.gpus == (*(("gpu01", index) for index in range(4)), ("gpu02", 5), ("gpu02", 7))
    assert (tmp_path / "calls").read_text() == "--json --states=RUNNING\n"


def test_scontrol_alone_is_asked_once_squeue_reported_no_indexes(program: Install, tmp_path: Path) -> None:
    full = answer(tmp_path, new_entry())
    (tmp_path / "bare.json").write_text(json.dumps({"jobs": [new_entry(gres_detail=[])]}))
    program("squeue", f"echo squeue >> {tmp_path}/calls; cat {tmp_path}/bare.json")
    program("scontrol", f'echo scontrol "$@" >> {tmp_path}/calls; {full}')
    queue = read_queue()
    assert queue.needs_details
    assert len(queue.jobs[0].gpus) == 6
    assert read_queue(needs_details=True) == queue
    details = "scontrol show job -d --json"
    assert (tmp_path / "calls").read_text().splitlines() == ["squeue", details, details]


def test_indexes_that_nothing_reports(program: Install, tmp_path: Path) -> None:
    program("squeue", answer(tmp_path, new_entry(gres_detail=[])))
    program("scontrol", "echo 'slurm_load_jobs error: Access denied' >&2; exit 1")
    queue = read_queue()
    assert queue.jobs == ()
    assert queue.problem is not None
    assert "Access denied" in queue.problem.reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
        ("echo '{'", "no list of jobs"),
        ("head -c 200000000 /dev/zero", "more than 128 MiB"),
        ("kill -9 $PPID", "process that reads the queue"),
    ],
)
def test_a_failure_is_a_sentence(program: Install, script: str, reason: str) -> None:
    program("squeue", script)
    queue = read_queue()
    assert queue.jobs == ()
    assert queue.problem is not None
    assert reason in str(queue.problem)


def test_slurm_that_hangs(program: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_queue, "_TIMEOUT_SECONDS", 0.5)
    program("squeue", "exec sleep 5")
    queue = read_queue()
    assert queue.problem is not None
    assert queue.problem.code is ProblemCode.UNRESPONSIVE
