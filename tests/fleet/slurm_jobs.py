"""Jobs of Slurm on the hosts of `tests.fleet.hosts`, as ``squeue --json`` of Slurm 23.11 reports them."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fleet.targets import FakeHost

USERS = ("ada", "bob", "carol", "dan")
NAMES = ("llama-70b-sft", "resnet", "eval-sweep", "notebook")


def number(value: float) -> dict[str, Any]:
    """A number in the form of Slurm."""
    return {"set": True, "infinite": False, "number": value}


def jobs_of(hosts: Sequence[FakeHost]) -> list[dict[str, Any]]:
    """A job for every four hosts, the last of which is idle."""
    jobs = []
    for index in range(0, len(hosts), 4):
        names = [host.name for host in hosts[index : index + 4]]
        count = 8 * len(names)
        job = index // 4
        jobs.append(
            {
                "job_id": 4700 + job,
                "array_job_id": number(0),
                "array_task_id": {"set": False, "infinite": False, "number": 0},
                "user_name": USERS[job % len(USERS)],
                "name": NAMES[job % len(NAMES)],
                "job_state": ["RUNNING"],
                "partition": "gpu",
                "nodes": ",".join(names),
                "job_resources": {"nodes": {"count": len(names), "allocation": [{"name": name} for name in names]}},
                "gres_detail": ["gpu:h200:8(IDX:0-7)"] * len(names),
                "tres_alloc_str": f"cpu=64,node={len(names)},gres/gpu={count},gres/gpu:h200={count}",
                "tres_req_str": f"gres/gpu={count}",
                "start_time": number(int(time.time()) - 7200),
                "end_time": number(int(time.time()) + 7200),
            }
        )
    return jobs


def install(install_program: Callable[[str, str], None], folder: Path, hosts: Sequence[FakeHost]) -> Path:
    """Put a squeue on PATH that reports the jobs; returns the file to which it adds a line for each call."""
    answer, calls = folder / "squeue.json", folder / "squeue.calls"
    answer.write_text(json.dumps({"jobs": jobs_of(hosts), "errors": [], "warnings": []}))
    install_program("squeue", f'echo "$@" >> {calls}; cat {answer}')
    return calls
