"""`gpumon trace` as a shell runs it: its output and its exit codes."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.running import is_one_line, run
from tests.traces.maker import ACCOUNT, training

ENVIRONMENT = {**os.environ, "COLUMNS": "100"}


@pytest.fixture
def path(short_path: Path) -> Path:
    return training().write(short_path / "trace.json")


def test_text(path: Path) -> None:
    done = run("trace", str(path), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Waiting for other ranks: without it, a step takes 860 µs at best instead of 1.00 ms." in done.stdout
    assert "4 steps, median step 2, 1.00 ms: annotations of torch.profiler (ProfilerStep)" in done.stdout
    assert "compute on tensor cores" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_critical_path(path: Path) -> None:
    """Its classes add up to the step; the kernels that the host hides are not part of it."""
    done = run("trace", str(path), "--critical", "--top", "2", env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    heading, first, *_ = done.stdout.splitlines()
    assert ": critical path of step" in heading
    assert first.split()[0] in {"compute", "host-bound", "synchronization"}
    (trace,) = json.loads(run("trace", str(path), "--json", env=ENVIRONMENT).stdout)["traces"]
    times = [item["time_seconds"] for item in trace["step"]["critical_path"]]
    assert sum(times) == pytest.approx(trace["step"]["duration_seconds"])


def test_json(path: Path) -> None:
    done = run("trace", str(path), "--json", "--top", "3", env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    (trace,) = document["traces"]
    times = {item["name"]: round(item["time_seconds"] * 1e6) for item in trace["step"]["classes"]}
    assert {name: time for name, time in times.items() if time} == ACCOUNT
    assert sum(item["time_seconds"] for item in trace["step"]["classes"]) == pytest.approx(
        trace["step"]["duration_seconds"]
    )
    assert trace["verdict"]["is_decided"] is True
    assert trace["verdict"]["causes"][0]["bound_seconds"] == pytest.approx(860e-6)
    assert len(trace["kernels"]) == len(trace["gaps"]) == 3
    assert document["ranks"] is None


def test_ranks(path: Path, tmp_path: Path) -> None:
    other = training(4, distributedInfo={"rank": 1}).write(tmp_path / "other.json.gz")
    done = run("trace", str(path), str(other), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 ranks\n")
    document = json.loads(run("trace", str(path), str(other), "--json", env=ENVIRONMENT).stdout)
    assert document["ranks"]["matched"] == 4
    assert document["ranks"]["slowest"] is None


def test_a_file_that_cannot_be_read(path: Path, tmp_path: Path) -> None:
    missing = run("trace", str(path), str(tmp_path / "none.json"), env=ENVIRONMENT)
    assert (missing.returncode, missing.stdout) == (3, "")
    assert is_one_line(missing.stderr)
    path.write_text("{}")
    damaged = run("trace", str(path), env=ENVIRONMENT)
    assert damaged.returncode == 2
    assert "is not a trace" in damaged.stderr
