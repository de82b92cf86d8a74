"""`gpumon pick` as scripts use it, also many at one moment."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import GPUMON, is_one_line, run
from tests.nvml_mock import NvmlMock

Environment = dict[str, str]


@pytest.fixture
def environment(nvml_mock: NvmlMock, tmp_path: Path) -> Environment:
    host = nvml_mock.environment(gpus=4, NVML_MOCK_IDLE="1")
    return {**host, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


def test_five_at_one_moment_get_four_different_gpus(
    environment: Environment, sleepers: Callable[[int], list[int]]
) -> None:
    (owner,) = sleepers(1)
    command = [GPUMON, "pick", "--index", "--pid", str(owner)]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    ended = [(process.communicate(timeout=60), process.returncode) for process in started]
    assert sorted(output for (output, _), code in ended if code == 0) == ["0\n", "1\n", "2\n", "3\n"]
    ((_, error), code) = next(item for item in ended if item[1] != 0)
    assert code == 1
    assert f"GPU 0 is reserved for PID {owner} by gpumon pick" in error


def test_who_holds_the_gpus(environment: Environment, sleepers: Callable[[int], list[int]]) -> None:
    pids = sleepers(2)
    environment |= {"NVML_MOCK_PIDS": ",".join(map(str, pids)), "NVML_MOCK_GPUS": "2", "NVML_MOCK_PROCS": "1"}
    done = run("pick", env=environment)
    assert done.returncode == 1
    assert is_one_line(done.stderr)
    assert all(f"PID {pid}" in done.stderr for pid in pids)
    waited = run("pick", "--wait", "--timeout", "1s", env=environment)
    assert waited.returncode == 1
    assert "in use by" in waited.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mig", ["0:2", "1:7,3:2"])
def test_mig_instances(environment: Environment, mig: str, sleepers: Callable[[int], list[int]]) -> None:
    environment |= {"NVML_MOCK_PIDS": str(sleepers(1)[0]), "NVML_MOCK_PROCS": "1", "NVML_MOCK_MIG": mig}
    gpu = mig[0]
    picked = run("pick", "--device", gpu, env=environment).stdout
    assert picked.startswith("MIG-"), "what CUDA_VISIBLE_DEVICES needs"
    named = run("pick", "--device", f"{gpu}:1", env=environment).stderr
    assert f"GPU {gpu}:1 is reserved" in named
    assert named == run("pick", "--device", picked.strip(), env=environment).stderr
    assert f"GPU {gpu}:0 is in use by" in run("pick", "--device", f"{gpu}:0", env=environment).stderr


def test_the_json_document(environment: Environment) -> None:
    document = json.loads(run("pick", "--json", "--device", "2-3", "--free-memory", "20G", env=environment).stdout)
    assert document["schema"] == 1
    assert [device["index"] for device in document["devices"]] == [2]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--free-memory", "much"], 2, "20G"),
        (["--device", "9"], 3, "no GPU 9"),
        (["--count", "5"], 1, "Only 4 of 5 GPUs fit"),
        (["--pid", "4194304"], 2, "no process 4194304"),
        (["--idle", "soon"], 2, "not a duration"),
    ],
)
def test_errors(environment: Environment, argv: list[str], code: int, words: str) -> None:
    done = run("pick", *argv, env=environment)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
