"""`gpumon snapshot` as a shell runs it: its output, its files and its exit codes."""

import gzip
import json
import os
import pickle
from pathlib import Path

import pytest

from tests.cli.running import GPUMON, is_one_line, run
from tests.snapshots.files import block, real_bytes, segment
from tests.terminal import Terminal

ENVIRONMENT = {**os.environ, "COLUMNS": "100"}


def test_text(real: Path) -> None:
    done = run("snapshot", str(real), "--top", "3", env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "cuda:0  946 MiB in 226 blocks" in done.stdout
    assert "1.88 GiB in 339 blocks" in done.stdout
    assert "_init_group optim/adam.py:178, called by step train/train1.py:60" in done.stdout
    assert "more stacks" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_json(real: Path) -> None:
    done = run("snapshot", str(real), "--json", "--top", "2", env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert len(document["devices"][0]["stacks"]) == 2


def test_two_files(real: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pickle"
    other.write_bytes(pickle.dumps({"segments": [segment(block(0, 1 << 30, "active_allocated", "greedy"))]}))
    done = run("snapshot", str(real), str(other), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Changed since {real}, at the end: +78.4 MiB" in done.stdout
    assert "+1.00 GiB   1.00 GiB  greedy user/train.py:1" in done.stdout
    assert "-292 MiB" in done.stdout


def test_a_trace(real: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = run("snapshot", str(real), "--perfetto", str(trace), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Wrote ")
    assert f" to {trace}. " in done.stdout
    assert json.loads(trace.read_text())["traceEvents"]
    again = run("snapshot", str(real), "--perfetto", str(trace), env=ENVIRONMENT)
    assert (again.returncode, is_one_line(again.stderr)) == (2, True)
    both = run("snapshot", str(real), "--json", "--perfetto", str(tmp_path / "two.json"), env=ENVIRONMENT)
    assert json.loads(both.stdout)["schema"] == 1
    assert "two.json. Open the file" in both.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("data", "word"),
    [(b"hello", "does not start"), (real_bytes()[:5000], "truncated"), (gzip.compress(b""), "empty")],
    ids=["text", "cut", "gzip of nothing"],  # two workers that collect in different seconds must agree
)
def test_unreadable(data: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pickle"
    path.write_bytes(data)
    for more in ([], ["--json"]):
        done = run("snapshot", str(path), *more, env=ENVIRONMENT)
        assert (done.returncode, done.stdout) == (2, "")
        assert is_one_line(done.stderr)
        assert word in done.stderr


def test_not_there(tmp_path: Path) -> None:
    done = run("snapshot", str(tmp_path / "none"), env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (3, "")
    assert is_one_line(done.stderr)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_second_file_that_is_missing_is_told_before_the_first_is_read(more: list[str], tmp_path: Path) -> None:
    first = tmp_path / "first.pickle"
    first.write_bytes(b"no snapshot, which would be told first")
    done = run("snapshot", str(first), str(tmp_path / "second.pickle"), *more, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (3, "")
    assert "File not found" in done.stderr
    with Terminal([GPUMON, "snapshot", str(first), str(tmp_path / "second")], os.environ, rows=24, cols=80) as terminal:
        terminal.wait_for("File not found")
        assert terminal.wait_exit() == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("redirection", ["< /dev/null", "2> /dev/null"])
def test_half_a_terminal_gets_the_text(real: Path, redirection: str) -> None:
    command = ["sh", "-c", f"{GPUMON} snapshot {real} --top 3 {redirection}"]
    with Terminal(command, {**os.environ, "COLUMNS": "100"}, rows=60, cols=100) as terminal:
        terminal.wait_for("more stacks")
        assert terminal.wait_exit() == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arguments", [["a", "b", "c"], ["a", "--top", "0"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert run("snapshot", *arguments, env=ENVIRONMENT).returncode == 2


def test_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "nothing.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    done = run("snapshot", str(path), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "is empty" in done.stdout


def test_in_a_terminal(real: Path) -> None:
    with Terminal([GPUMON, "snapshot", str(real)], os.environ, rows=40, cols=120) as terminal:
        terminal.wait_for("peak 1.88 GiB")
        terminal.send("vv")
        terminal.wait_for("87 segments, 2.00 GiB")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert terminal.restored()
        assert terminal.cooked()
