"""Jobs of Slurm from ``squeue --json`` of several versions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.fleet import slurm_answer
from gpumon.fleet.model import FleetError
from gpumon.fleet.slurm import SlurmJob, expand_hosts, parse_details, parse_jobs, read_jobs

Entry = dict[str, Any]


def number(value: int, *, is_set: bool = True) -> Entry:
    return {"set": is_set, "infinite": False, "number": value}


def new_entry(**changes: object) -> Entry:
    """A job as Slurm 23.11 writes it."""
    entry: Entry = {
        "job_id": 4711,
        "array_job_id": number(0),
        "array_task_id": number(0, is_set=False),
        "user_name": "ada",
        "name": "train",
        "job_state": ["RUNNING"],
        "partition": "gpu",
        "nodes": "gpu[01-02]",
        "gres_detail": ["gpu:h100:4(IDX:0-3)", "gpu:h100:2(IDX:5,7)"],
        "tres_alloc_str": "cpu=64,mem=512G,node=2,billing=64,gres/gpu=6,gres/gpu:h100=6",
        "tres_req_str": "cpu=64,mem=512G,node=2,gres/gpu=6",
        "start_time": number(1_790_000_000),
        "end_time": number(1_790_086_400),
    }
    return {**entry, **changes}


def parsed(*entries: object) -> list[SlurmJob]:
    return parse_jobs(json.dumps({"jobs": entries, "errors": []}).encode())


def test_a_running_job() -> None:
    gpus = (*(("gpu01", index) for index in range(4)), ("gpu02", 5), ("gpu02", 7))
    expected = SlurmJob(
        "4711", "ada", "train", "RUNNING", "gpu", 6, gpus, ("gpu01", "gpu02"), 1_790_000_000, 1_790_086_400
    )
    assert parsed(new_entry()) == [expected]


def test_a_job_of_an_array() -> None:
    (job,) = parsed(new_entry(job_id=4799, array_job_id=number(4711), array_task_id=number(7)))
    assert job.id == "4711_7"


def test_a_job_that_waits_has_no_gpus() -> None:
    (job,) = parsed(new_entry(job_state=["PENDING"], nodes="", gres_detail=[], tres_alloc_str=""))
    assert (job.state, job.gpus, job.requested_gpus) == ("PENDING", (), 6)


def test_what_is_no_job_is_left_out() -> None:
    hostile = new_entry(job_id=1, user_name="a\033[31mb", nodes="x[1-999999999]", gres_detail=["gpu:9(IDX:0-999)", 5])
    jobs = parsed(None, 5, {"job_id": "x"}, {}, hostile, new_entry(nodes=7, gres_detail={"a": 1}, name=None))
    assert [job.id for job in jobs] == ["1", "4711"]
    assert "\033" not in jobs[0].user
    assert len(jobs[0].hosts) == 1 << 16
    assert len(jobs[0].gpus) == 65
    assert jobs[1].gpus == ()


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"jobs": ', b"[" * 100_000, b"slurm_load_jobs error"])
def test_an_answer_that_is_none(text: bytes) -> None:
    with pytest.raises(FleetError, match="no list of jobs"):
        parse_jobs(text)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("login1", ["login1"]),
        ("gpu[08-11],login1", ["gpu08", "gpu09", "gpu10", "gpu11", "login1"]),
        ("a[1,3-4]-ib,b2", ["a1-ib", "a3-ib", "a4-ib", "b2"]),
        ("a[x],b", ["b"]),
        ("a[3-1],b", ["b"]),
    ],
)
def test_lists_of_hosts(text: str, hosts: list[str]) -> None:
    assert list(expand_hosts(text)) == hosts


@pytest.fixture
def squeue(program: Callable[[str, str], None]) -> Callable[[str], None]:
    """Puts a program called squeue on PATH."""
    return lambda script: program("squeue", script)


def test_squeue_is_asked_for_one_job(squeue: Callable[[str], None], tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(json.dumps({"jobs": [new_entry()]}))
    squeue(f'[ "$*" = "--json --jobs 4711" ] && cat {tmp_path}/answer')
    assert [job.id for job in read_jobs("4711")] == ["4711"]


def test_squeue_that_fails_is_a_sentence(squeue: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    squeue("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(FleetError, match="Unable to contact slurm controller"):
        read_jobs()
    monkeypatch.setattr(slurm_answer, "TIMEOUT_SECONDS", 0.2)
    squeue("exec sleep 100")
    with pytest.raises(FleetError, match="did not respond"):
        read_jobs()
    with pytest.raises(FleetError, match="is not installed here"):
        read_jobs(command="squeue-that-does-not-exist")


def test_an_answer_without_end_is_a_sentence(squeue: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_answer, "MAX_BYTES", 1 << 20)
    squeue("exec cat /dev/zero")
    with pytest.raises(FleetError, match="answered with more than 1 MiB"):
        read_jobs()
    squeue("yes | head -c 3000000 >&2; echo 'squeue: error: Access denied' >&2; exit 1")
    with pytest.raises(FleetError, match="Access denied"):
        read_jobs()


DETAILS = Path(__file__).with_name("scontrol_jobs.txt").read_text()
"""Of ``scontrol show job -d``: a job of Slurm 22, one of an array of Slurm 19, and one that waits."""


def test_details_as_text() -> None:
    train, part, waiting = parse_details(DETAILS.encode())
    assert train[:6] == ("4711", "ada", "train", "RUNNING", "gpu", 8)
    assert train.hosts == ("gpu01", "gpu02", "gpu03")
    expected = [("gpu01", 3), ("gpu01", 6), ("gpu02", 3), ("gpu02", 6), *(("gpu03", index) for index in (0, 1, 4, 5))]
    assert list(train.gpus) == expected
    assert (part.id, part.gpus) == ("4711_7", (("cortex-08", 5),))
    assert (waiting.id, waiting.hosts, waiting.gpus, waiting.requested_gpus) == ("4800", (), (), 1)
    assert parse_details(b"slurm_load_jobs error\n\n\xff JobId=x") == []


@pytest.mark.parametrize(
    "nodes", [{"list": "gpu[01-02]"}, {"allocation": [{"index": 0, "name": "gpu01"}, {"index": 1, "name": "gpu02"}]}]
)
def test_hosts_of_the_resources_of_a_job(nodes: Entry) -> None:
    (job,) = parsed(new_entry(nodes="", job_resources={"nodes": nodes}))
    assert job.hosts == ("gpu01", "gpu02")
    assert len(job.gpus) == 6
