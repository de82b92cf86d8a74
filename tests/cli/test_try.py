"""`gpumon try`: two programs in turns, with a stand-in for torch whose steps are backward passes."""

import json
import os
import signal
import subprocess
import sys
from math import log
from pathlib import Path
from random import Random

import pytest

from gpumon.core.paired import paired_change
from tests.probe.children import FAKE_TORCH, environment, waited

PROGRAM = """
import sys, time, torch
import torch.autograd
def backward():
    pass
torch.autograd.backward = backward
torch.cuda.allocate(0, 1)
while True:
    time.sleep(float(sys.argv[1]))
    torch.autograd.backward()
"""


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    (short_path / "train.py").write_text(PROGRAM)
    return short_path


def tried(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "gpumon", "try", *arguments],
        env={**environment(folder), "PYTHONPATH": f"{FAKE_TORCH}:{Path(__file__).parents[2]}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


def left(folder: Path) -> str:
    """The processes whose command lines name a folder."""
    done = subprocess.run(
        ["pgrep", "-f", f"^{sys.executable} {folder}/train"], capture_output=True, text=True, check=False
    )
    return done.stdout


def test_the_faster_command_is_named_and_nothing_of_either_is_left(tmp_path: Path) -> None:
    train = f"{sys.executable} {tmp_path}/train.py"
    slow = f"(setsid {train} 5 &) ; X=1 {train} 0.03"
    with tried(tmp_path, slow, f"{train} 0.002", "--steps", "20", "--json") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert [run["side"] for run in document["runs"]] == [*"ABBA" * 2]
    assert document["step_time"]["high"] < -0.4
    assert left(tmp_path) == ""


@pytest.mark.long
def test_an_interrupt_ends_the_command_too(tmp_path: Path) -> None:
    train = f"{sys.executable} {tmp_path}/train.py 0.01"
    with tried(tmp_path, train, train, "--steps", "100000") as process:
        waited(lambda: left(tmp_path))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert left(tmp_path) == ""


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        ("echo 'ModuleNotFoundError: No module named tokenizers'; exit 1", 1, "A ended with exit code 1: "),
        ("true", 3, "A succeeded without a step. Steps are those of optimizers"),
    ],
)
def test_a_command_without_steps_is_a_sentence(tmp_path: Path, command: str, code: int, sentence: str) -> None:
    with tried(tmp_path, command, "true") as process:
        _, err = process.communicate(timeout=30)
    assert (process.returncode, len(err.splitlines())) == (code, 1)
    assert sentence in err


def shown(factor: float) -> int:
    """How many of 200 experiments show a difference, on a host that drifts, with runs that differ by 1 %."""
    generator = Random(5)
    count = 0
    for _ in range(200):
        drift = generator.gauss(0.0, 0.02)
        sides = [side == "B" for side in "ABBAABBA"]
        logs = [log(factor) * new + drift * number + generator.gauss(0.0, 0.01) for number, new in enumerate(sides)]
        count += paired_change(logs, sides).is_shown
    return count


def test_equal_commands_are_seldom_called_different_and_a_drift_is_no_difference() -> None:
    assert shown(1.0) <= 14  # 5 % are expected, 10 of 200
    assert shown(1.05) >= 190


@pytest.mark.long
def test_workers_of_a_real_loader(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.randn(32)
model = torch.nn.Linear(32, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in DataLoader(Slow(), batch_size=1, num_workers=int(sys.argv[1])):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""
    )
    own = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    train = f"{sys.executable} {tmp_path}/train.py"
    changes = []
    for workers in (4, 1):
        command = ["gpumon", "try", f"{train} 1", f"{train} {workers}", "--steps", "60", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", *command], env=own, capture_output=True, text=True, timeout=280, check=False
        )
        changes.append((done.returncode, json.loads(done.stdout)["step_time"]))
    assert changes[0][0] == 0
    assert 0.2 < 1 + changes[0][1]["change"] < 0.35
    assert changes[1][0] == 4
