"""`gpumon explain` with the files of probes, as a shell runs it: by name, the newest one, and none."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.running import is_one_line, run, shell
from tests.insight.oom_documents import FRAGMENTED, FULL, GIB, document, used, write
from tests.nvml_mock import NvmlMock

CROWDED = document([used(18 * GIB)], 4 * GIB, others=60 * GIB)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment without the user's own files."""
    folders = {"HOME": "home", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run", "GPUMON_PROBE_DIR": "probe"}
    return {**os.environ, "COLUMNS": "100", **{name: str(tmp_path / folder) for name, folder in folders.items()}}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gpumon" / "oom"


def test_a_file_is_explained_by_its_name(tmp_path: Path, environment: dict[str, str]) -> None:
    path = write(tmp_path, FRAGMENTED, "whatever it is called")
    done = run("explain", "--more", str(path), "--no-live", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nCUDA out of memory [oom]\n" in done.stdout
    assert "\n  Fragmentation: PyTorch reserves 5.86 GiB" in done.stdout
    assert '\n      File "/home/ada/train/train.py", line 41, in step\n' in done.stdout


@pytest.mark.sampled(1)
@pytest.mark.parametrize("unpack", ["cat", "gunzip -c"])
def test_a_file_comes_through_a_pipe(tmp_path: Path, environment: dict[str, str], unpack: str) -> None:
    path = write(tmp_path, FRAGMENTED)
    done = shell(f'{unpack} {path} | "$@"', "explain", "--json", "--no-live", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["matches"][0]["memory_cause"] == "fragmentation"


def test_the_newest_file_of_all_folders(tmp_path: Path, environment: dict[str, str], state: Path) -> None:
    write(state, FRAGMENTED, "oom-1795000000-4242-1.json.gz")
    write(state, FRAGMENTED, "oom-999-4242-1.json.gz")
    write(state, b"", "notes.txt")
    newest = write(tmp_path / "probe" / "oom", FULL, "oom-1795000007-1-2.json.gz")
    write(tmp_path / "probe" / "oom", FRAGMENTED, "oom-1795000007-1-1.json.gz")
    write(tmp_path / "run" / "gpumon" / "oom", FRAGMENTED, "oom-1795000009-1-1.json.gz")  # another folder was named
    done = run("explain", "--oom", "--more", "--no-live", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"The newest of 4 files: {newest}\n\n")
    assert "\nCUDA out of memory [oom]\n" in done.stdout
    assert "\n  Too big: the process requested 4.00 GiB" in done.stdout
    raw = json.loads(run("explain", "--oom", "--json", "--no-live", env=environment).stdout)
    assert (raw["file"], raw["files"], raw["matches"][0]["memory_cause"]) == (str(newest), 4, "too_big")


def test_no_file_is_one_sentence(environment: dict[str, str]) -> None:
    done = run("explain", "--oom", env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert is_one_line(done.stderr)
    assert "gpumon watch -- python train.py" in done.stderr


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_others_do_not_count(environment: dict[str, str], state: Path, tmp_path: Path) -> None:
    os.chown(write(state, FULL), 12345, -1)
    others = tmp_path / "probe" / "oom"
    write(others, FULL)
    os.chown(others, 12345, -1)
    assert run("explain", "--oom", env=environment).returncode == 3


def test_it_is_a_choice_of_its_own(environment: dict[str, str]) -> None:
    done = run("explain", "--oom", "--list", env=environment)
    assert (done.returncode, done.stdout) == (2, "")


def test_who_holds_the_memory_now_stands_beside_it(
    nvml_mock: NvmlMock, environment: dict[str, str], state: Path
) -> None:
    path = write(state, CROWDED)
    seen = nvml_mock.environment(gpus=2, pids=[os.getpid()], PATH=os.environ["PATH"])
    done = run("explain", "--more", str(path), "--live", env={**environment, **seen})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n  Other processes: 60.5 GiB are in use outside of this process's PyTorch" in done.stdout
    assert "\nThis host now\n  cuda:0                    not a GPU of this host\n" in done.stdout
    assert f"by process: {os.getpid()} " in done.stdout
    raw = json.loads(run("status", "--json", env={**environment, **seen}).stdout)
    here = write(state, {**CROWDED, "device": {**CROWDED["device"], "uuid": raw["devices"][1]["uuid"]}})
    assert (
        "  cuda:0                    GPU 1\n"
        in run("explain", "--more", str(here), "--live", env={**environment, **seen}).stdout
    )
