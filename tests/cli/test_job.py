"""`gpumon job`: with a squeue that answers from Slurm's schema, without one, and on the host of the job."""

import json
import os
from pathlib import Path

from tests.cli.running import run
from tests.fleet.canned import responding
from tests.fleet.fake_prometheus import serving
from tests.fleet.hosts import mixed_hosts
from tests.fleet.test_slurm import new_entry
from tests.nvml_mock import NvmlMock


def with_squeue(folder: Path, *entries: object, **env: str) -> dict[str, str]:
    """An environment whose squeue answers with jobs."""
    (folder / "answer").write_text(json.dumps({"jobs": entries}))
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\nexec cat {folder}/answer\n")
    program.chmod(0o755)
    return {**env, "PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


def test_a_job_on_this_host(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    here = os.uname().nodename.partition(".")[0]
    entry = new_entry(nodes=f"{here},gpu-elsewhere", gres_detail=["gpu:2(IDX:0,2)", "gpu:1(IDX:5)"])
    env = with_squeue(tmp_path, entry, **nvml_mock.environment(gpus=3))
    done = run("job", "4711", "--json", env=env)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    assert (job["user"], job["allocated_gpus"], job["requested_gpus"]) == ("ada", 3, 6)
    known = [gpu for gpu in job["gpus"] if gpu["problem"] is None]
    assert [(gpu["host"], gpu["gpu"]) for gpu in known] == [(here, 0), (here, 2)]
    assert all(gpu["uuid"] and gpu["used_bytes"] is not None for gpu in known)
    text = run("job", "4711", env=env).stdout
    assert text.startswith("Job 4711: train, of ada, RUNNING, partition gpu\n")
    assert "Nothing is known about gpu-elsewhere GPU 5." in text


def test_without_slurm_and_without_the_job(tmp_path: Path) -> None:
    env = {"PATH": "/nowhere:/bin", "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = run("job", "4711", env=env)
    assert (done.returncode, done.stderr) == (3, "gpumon: squeue is not installed here.\n")
    done = run("job", "4711", env=with_squeue(tmp_path))
    assert done.returncode == 3
    assert "Slurm has no job 4711 in its queue. sacct is not installed" in done.stderr
    assert run("job", "train", env=env).returncode == 2
    assert run("job", "4711", "--hosts", "a", "--prometheus", "http://b", env=env).returncode == 2


def test_a_job_with_the_configured_prometheus(tmp_path: Path) -> None:
    entry = new_entry(nodes="node[0002-0003]", gres_detail=["gpu:2(IDX:0-1)", "gpu:2(IDX:2-3)"])
    hosts = mixed_hosts(4)
    with serving(responding(hosts)) as fake:
        (tmp_path / "gpumon").mkdir()
        (tmp_path / "gpumon" / "config.toml").write_text(f'[fleet]\nprometheus = "{fake.url}"\n')
        done = run("job", "4711", "--json", env=with_squeue(tmp_path, entry))
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    loads = [gpu["utilization_percent"] for gpu in job["gpus"]]
    expected = [hosts[host].value("DCGM_FI_DEV_GPU_UTIL", gpu) for host, gpu in ((2, 0), (2, 1), (3, 2), (3, 3))]
    assert loads == expected
    assert job["used_gpus"] == 2
    assert job["sentence"] == "2 of 4 GPUs are idle for 30 minutes: node0003 GPUs 2, 3."
