"""Jobs that have left the queue, from ``sacct --json`` of several versions."""

import json
from typing import Any

import pytest

from gpumon.fleet.model import FleetError
from gpumon.fleet.slurm_accounting import JobAccount, parse_accounts
from tests.fleet.test_slurm import number

Entry = dict[str, Any]
GIBIBYTE = 1 << 30


def resource(kind: str, count: int, name: str = "") -> Entry:
    return {"type": kind, "name": name, "id": 1, "count": count}


def step(*peaks: Entry) -> Entry:
    return {"step": {"id": "4711.0", "name": "python"}, "tres": {"requested": {"max": list(peaks), "min": []}}}


def new_account(**changes: object) -> Entry:
    """A job as Slurm 23.11 writes it."""
    entry: Entry = {
        "job_id": 4711,
        "array": {"job_id": 0, "task_id": number(0, is_set=False)},
        "association": {"account": "lab", "cluster": "c", "partition": "gpu", "user": "ada"},
        "user": "ada",
        "name": "train",
        "partition": "gpu",
        "nodes": "gpu[01-02]",
        "state": {"current": ["TIMEOUT"], "reason": "None"},
        "exit_code": {"status": ["SIGNALED"], "return_code": number(0), "signal": {"id": number(9), "name": "KILL"}},
        "time": {
            "elapsed": 86_400,
            "start": 1_790_000_000,
            "end": 1_790_086_400,
            "limit": number(1440),
            "total": {"seconds": 2_764_800, "microseconds": 500_000},
        },
        "tres": {
            "allocated": [resource("cpu", 64), resource("mem", 524_288), resource("gres", 6, "gpu")],
            "requested": [
                resource("cpu", 64),
                resource("mem", 524_288),
                resource("gres", 6, "gpu:h100"),
                resource("gres", 6, "gpu"),
            ],
        },
        "steps": [
            step(resource("cpu", 9), resource("mem", 3 * GIBIBYTE)),
            step(
                resource("mem", 300 * GIBIBYTE),
                resource("gres", 70 * GIBIBYTE, "gpumem"),
                resource("gres", 98, "gpuutil"),
            ),
        ],
    }
    return {**entry, **changes}


def parsed(*entries: object) -> list[JobAccount]:
    return parse_accounts(json.dumps({"meta": {}, "jobs": entries, "errors": []}).encode())


def test_a_job_that_has_ended() -> None:
    (account,) = parsed(new_account())
    job = account.job
    assert job[:6] == ("4711", "ada", "train", "TIMEOUT", "gpu", 6)
    assert (job.gpus, job.hosts) == ((), ("gpu01", "gpu02"))
    assert (job.start_seconds, job.end_seconds) == (1_790_000_000, 1_790_086_400)
    assert account[1:] == (
        *(0, "KILL", 86_400, 86_400, 6, 64, 2_764_800.5),
        *(512 * GIBIBYTE, 300 * GIBIBYTE, 70 * GIBIBYTE, 98),
    )


def test_what_is_not_recorded_is_unknown() -> None:
    steps: list[object] = [
        None,
        {},
        {"tres": 5},
        step({"type": "mem", "count": -2}, {"type": "mem", "count": 2**64 - 2}),
    ]
    pending = new_account(nodes="None assigned", steps=steps, tres={}, time={"limit": {"set": True, "infinite": True}})
    (account, bare) = parsed(pending, {"job_id": 1}, None, {"job_id": "x"})
    assert account.job.hosts == ()
    assert account[3:] == (None,) * 9
    assert bare == JobAccount(bare.job)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"jobs": 5}', b"sacct: error: Slurm accounting storage is disabled"])
def test_an_answer_that_is_none(text: bytes) -> None:
    with pytest.raises(FleetError, match="sacct --json gave no list of jobs"):
        parse_accounts(text)
