"""What started a process, and what /proc shows of one: on a /proc that says anything, and of real processes."""

import os
from pathlib import Path

import pytest

from gpumon.core.problems import ProblemCode
from gpumon.operations.process_details import ProcessOrigin, cuda_numbering, read_details, read_origin
from tests import builders
from tests.collect.proc import add_process
from tests.processes import sleeper, start_ticks

HEX = "0123456789abcdef" * 4


def origin(
    proc: Path, environment: dict[str, str] | None, cgroup: str = "0::/user.slice", command: str = "x"
) -> ProcessOrigin:
    folder = add_process(proc, 4000, start_ticks=77, parent=3999)
    add_process(proc, 3999, b"torchrun\0train.py\0")
    (folder / "cgroup").write_text(cgroup + "\n")
    if environment is not None:
        (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in environment.items()))
    return read_origin(4000, 77, command, proc)


def test_a_job_of_slurm(tmp_path: Path) -> None:
    environment = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
    result = origin(tmp_path, environment)
    assert (result.scheduler, result.job, result.rank, result.world_size) == ("slurm", "4711.2", 1, 4)
    assert (result.parent, result.parent_command) == (3999, "torchrun train.py")


@pytest.mark.parametrize(
    "cgroup",
    ["0::/system.slice/slurmstepd.scope/job_4711/step_2/user/task_0", "7:devices:/slurm/uid_1000/job_4711/step_2"],
)
def test_a_job_of_slurm_of_another_user_is_known_by_its_cgroup(tmp_path: Path, cgroup: str) -> None:
    result = origin(tmp_path, None, cgroup)
    assert (result.scheduler, result.job) == ("slurm", "4711.2")


def test_the_ranks_of_torchrun_stand_above_those_of_slurm(tmp_path: Path) -> None:
    environment = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    result = origin(tmp_path, {**environment, "TORCHELASTIC_RUN_ID": "x"})
    assert (result.rank, result.local_rank, result.world_size) == (5, 1, 8)
    assert result.framework == "torchrun"


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{HEX}.scope", HEX[:12]),
        (f"12:memory:/docker/{HEX}", HEX[:12]),
        (f"8:pids:/docker-{HEX}.scope\n7:blkio:/\n0::/", HEX[:12]),
        (f"0::/machine.slice/libpod-{HEX}.scope/container", HEX[:12]),
        ("0::/user.slice/user-1000.slice/session-2.scope", None),
    ],
)
def test_containers(tmp_path: Path, cgroup: str, container: str | None) -> None:
    assert origin(tmp_path, {}, cgroup).container == container


def test_a_pod_is_named_by_its_environment_or_by_its_uid(tmp_path: Path) -> None:
    uid = "0f1e2d3c-1111-2222-3333-444455556666"
    pod = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    cgroup = f"0::/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{HEX}.scope"
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0", "POD_NAMESPACE": "ml"}
    assert origin(tmp_path, environment, cgroup).pod == "ml/train-0"
    assert origin(tmp_path, {}, cgroup).pod == uid
    assert origin(tmp_path, {}, cgroup).container == HEX[:12]


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        ("python -m vllm.entrypoints.openai.api_server --model x", "vLLM"),
        ("python -m ipykernel_launcher -f x.json", "Jupyter"),
        ("ray::Worker.run", "Ray"),
        ("python train.py", None),
    ],
)
def test_frameworks(tmp_path: Path, command: str, framework: str | None) -> None:
    assert origin(tmp_path, {}, command=command).framework == framework


@pytest.mark.parametrize("value", ["-1", "\u0661", "12345678", "x", ""])
def test_a_rank_that_is_no_number_is_missing(tmp_path: Path, value: str) -> None:
    assert origin(tmp_path, {"RANK": value, "WORLD_SIZE": "8"}).rank is None


def test_hostile_variables_are_safe_text(tmp_path: Path) -> None:
    result = origin(tmp_path, {"SLURM_JOB_ID": "\x1b[2J" + "9" * 5000})
    assert result.job is not None
    assert "\x1b" not in result.job
    assert len(result.job) <= 80


def test_a_pid_that_was_reused_is_nothing(tmp_path: Path) -> None:
    add_process(tmp_path, 4000, start_ticks=78)
    result = read_origin(4000, 77, "x", tmp_path)
    assert result.job is None
    assert result.problem is not None
    assert result.problem.code is ProblemCode.PROCESS_NOT_VISIBLE
    details = read_details(4000, 77, tmp_path)
    assert details.state is None
    assert details.problems["state"].code is ProblemCode.PROCESS_NOT_VISIBLE


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every environment")
def test_the_environment_of_another_user_is_hidden_with_that_reason() -> None:
    result = read_origin(1, start_ticks(1), "init")
    assert result.problem is not None
    assert result.problem.code is ProblemCode.NO_PERMISSION


def test_details_of_a_real_process_without_its_secrets(tmp_path: Path) -> None:
    environment = {
        "CUDA_VISIBLE_DEVICES": "1,0",
        "NCCL_DEBUG": "INFO",
        "HF_TOKEN": "sEcReT1",
        "SLURM_JWT_KEY": "sEcReT1",
        "RAY_REDIS_PASSWORD": "sEcReT1",
        "RAY_ADDRESS": "redis://ann:sEcReT1@head:6379",
        "MY_OWN": "sEcReT1",
        "RANK": "0",
    }
    child = sleeper(environment, tmp_path)
    try:
        details = read_details(child.pid, start_ticks(child.pid))
        assert details.problems == {}
        assert details.folder == str(tmp_path)
        assert details.parent == os.getpid()
        assert details.threads == 1
        assert details.device_files == ()
        shown = dict(details.variables or ())
        assert shown["NCCL_DEBUG"] == "INFO"
        assert shown["HF_TOKEN"] == shown["SLURM_JWT_KEY"] == shown["RAY_REDIS_PASSWORD"] == "<secret>"
        assert "MY_OWN" not in shown
        assert "sEcReT1" not in str(details.variables)
        devices = (builders.device(0), builders.device(1))
        assert [(index, device.label) for index, device in cuda_numbering(details, devices)] == [(0, "1"), (1, "0")]
    finally:
        child.kill()
        child.wait()
