"""`gpumon enable`: which programs carry the probe, what others pay for it, and that nothing is left."""

import os
import statistics
import subprocess
import venv
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError
from gpumon.probe import enabling
from tests.probe.children import FAKE_TORCH

MAX_SECONDS = 0.001
PROGRAM = """
import sys
before = [type(finder).__name__ for finder in sys.meta_path]
import torch
torch.cuda.allocate(0, 1)
print(before.count('GpumonFinder'), getattr(sys, '_gpumon_probe_pid', None) is not None)
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    venv.create(tmp_path / "env", with_pip=False)
    return str(tmp_path / "env/bin/python")


def said(python: str, folder: Path, *, code: str = PROGRAM, **variables: str) -> str:
    kept = {
        "PYTHONDEVMODE": "1",
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(FAKE_TORCH),
        "GPUMON_PROBE_DIR": str(folder / "sockets"),
    }
    done = subprocess.run([python, "-c", code], env={**kept, **variables}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_programs_of_an_environment_carry_the_probe(
    tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(python, tmp_path) == "0 False"
    path = enabling.enable_python(python)
    assert enabling.enable_python(python) == path
    assert enabling.enabled_files(python) == [path]
    assert said(python, tmp_path) == "1 True"
    assert said(python, tmp_path, GPUMON_PROBE="0") == "0 False"
    both = os.pathsep.join([str(enabling.SITE), str(FAKE_TORCH)])
    assert said(python, tmp_path, PYTHONPATH=both) == "1 True"  # under gpumon watch too
    path.write_text(path.read_text().replace("sitecustomize.py", "gone.py"))
    assert said(python, tmp_path) == "1 False"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert list(enabling.disable(python)) == [path]
    assert (list(enabling.disable(python)), enabling.enabled_files(python)) == ([], [])
    assert said(python, tmp_path) == "0 False"


def test_the_profile_of_a_shell_gets_one_line(tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "dotfiles").write_text("alias x=y\n")
    (tmp_path / ".bashrc").symlink_to("dotfiles")
    for _ in range(2):
        enabling.enable_shell("/bin/bash")
    shell = "bash --norc -c '. ~/.bashrc; echo $PYTHONPATH'"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": "/own"}
    out = subprocess.run(shell, shell=True, env=environment, capture_output=True, text=True, check=True).stdout
    assert out == f"{enabling.SITE}:/own\n"
    assert enabling.enabled_profiles() == [tmp_path / ".bashrc"]
    assert list(enabling.disable(python)) == [tmp_path / ".bashrc"]
    assert (tmp_path / "dotfiles").read_text() == "alias x=y\n"
    with pytest.raises(CommandError, match="does not know the profile"):
        enabling.enable_shell("/bin/tcsh")


def test_what_is_not_python(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is not Python"):
        enabling.enable_python("/bin/true")


@pytest.mark.long
def test_the_start_of_other_programs_takes_no_longer(tmp_path: Path, python: str) -> None:
    """CPU time, pair by pair: the time of a start varies by more than the limit on a busy host."""
    code = "import time; print(time.process_time())"
    differences = []
    for _ in range(50):
        without = float(said(python, tmp_path, code=code))
        enabling.enable_python(python)
        said(python, tmp_path, code=code)  # compiles the module
        differences.append(float(said(python, tmp_path, code=code)) - without)
        assert list(enabling.disable(python))
    assert statistics.median(differences) < MAX_SECONDS
