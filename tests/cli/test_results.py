"""`gpumon run` with cases, plots and CSV, the code of a workload, and `gpumon results`."""

import csv
import io
import json
import re
import socket
from pathlib import Path

import pytest

from tests.cli.running import is_one_line, run
from tests.nvml_mock import NvmlMock

TORCH = """
class _Version: cuda = None
class device:
    def __init__(self, name): self.type = name.partition(":")[0]
version, __version__ = _Version, "2.99.0+fake"
"""
WORKLOAD = """
from _kit import Uses, Workload, choice

def work(size):
    return size * size

def run(context):
    context.step("Sweeping.")
    print("a line of the program")
    for size in (1, 4, 16, 64):
        case = f"batch {size}"
        limit = {"limit": 5000.0, "limit_source": "a, limit"}
        context.result("speed", work(size) + 0.5, "items/s", 3, case=case, position=size, **limit)
        context.result("seconds", 1.5 / size, "s", 3, case=case, position=size)
    context.checked += 1
    return context.ok("Choose 64.")

WORKLOAD = Workload(
    "sweep", "Sweeps.", "nothing", lambda context: Uses(0, 1.0), run,
    (choice("how", "up", ("up", "down"), "Which way."),), code=(work,),
)
"""
COLUMNS = ["workload", "device", "case", "position", "name", "value", "unit", "repetitions", "limit", "limit_source"]
Environment = dict[str, str]


@pytest.fixture
def environment(nvml_mock: NvmlMock, tmp_path: Path) -> Environment:
    """A host without a driver, with a workload of the user, and torch."""
    (tmp_path / "fake_torch").mkdir()
    (tmp_path / "fake_torch" / "torch.py").write_text(TORCH)
    folder = tmp_path / "config" / "gpumon" / "workloads"
    folder.mkdir(parents=True)
    (folder / "sweep.py").write_text(WORKLOAD)
    return {
        **nvml_mock.environment_without_library(),
        "PYTHONPATH": str(tmp_path / "fake_torch"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


@pytest.mark.long
def test_cases_are_a_table_and_plots_are_drawn_where_they_are_wanted(environment: Environment) -> None:
    plain = run("run", "sweep", "--device", "cpu", env=environment)
    assert plain.returncode == 0, plain.stderr
    assert ["batch", "64", "4096", "81.9", "5000", "0.02344"] in [row.split() for row in plain.stdout.splitlines()]
    assert "┤" not in plain.stdout
    drawn = run("run", "sweep", "--device", "cpu", "--plot", env=environment)
    assert "items/s by batch" in drawn.stdout
    assert drawn.stdout.count("●") == 10, "four points of each curve, and two legends"
    assert max(map(len, drawn.stdout.splitlines())) <= 100
    assert "\x1b" not in drawn.stdout
    assert drawn.stdout.rstrip().endswith("sweep: ok. Choose 64.")


@pytest.mark.parametrize("command", [["run", "sweep"], ["results"]])
def test_json_and_csv_exclude_each_other(environment: Environment, command: list[str]) -> None:
    done = run(*command, "--json", "--csv", env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--json and --csv exclude each other." in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["workloads", "nothing", "--code"], "There is no workload 'nothing'."),
        (["workloads", "--code"], "--code needs the NAME of a workload"),
        (["results", "nothing"], "There is no workload and no saved result 'nothing'."),
        (["results", "--since", "soon"], "neither a duration"),
    ],
)
def test_wrong_usage(environment: Environment, argv: list[str], words: str) -> None:
    done = run(*argv, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_results_are_listed_compared_and_drawn(environment: Environment, tmp_path: Path) -> None:
    empty = run("results", env=environment)
    assert (empty.returncode, empty.stdout) == (0, "")
    assert is_one_line(f"gpumon: {empty.stderr}")
    for _ in range(2):
        assert run("run", "sweep", "--device", "cpu", env=environment).returncode == 0
    kept = (tmp_path / "state" / "gpumon" / "results.jsonl").read_text().splitlines()
    host = json.loads(kept[0])["host"]
    assert host == socket.gethostname()
    (heading, row) = run("results", env=environment).stdout.splitlines()
    assert heading.split()[:3] == ["Workload", "Device", "Newest"]
    assert row.startswith(f"sweep     CPU of {host}")
    assert "1.5 items/s  +0.0 %  ok          2" in row
    history = run("results", "sweep", "--plot", env=environment).stdout
    assert f"sweep on CPU of {host}, 2 runs. Parameters: how=up." in history
    assert len(re.findall(rf" {host} +cpu +ok +1\.5 items/s", history)) == 2
    assert "speed, batch 1, items/s" in history
    assert run("results", "sweep", "--host", "elsewhere", env=environment).stdout == ""


def test_results_for_programs(environment: Environment) -> None:
    for _ in range(2):
        run("run", "sweep", "--device", "cpu", env=environment)
    document = json.loads(run("results", "--json", env=environment).stdout)
    (group,) = document["groups"]
    assert (document["schema"], group["workload"], group["runs"], group["hosts"]) == (
        1,
        "sweep",
        2,
        [socket.gethostname()],
    )
    newest, oldest = json.loads(run("results", "sweep", "--json", env=environment).stdout)["results"]
    assert newest["time_seconds"] > oldest["time_seconds"]
    assert newest["changes"][0] == {
        "name": "speed", "before": 1.5, "after": 1.5, "case": "batch 1", "share": 0.0, "is_better": None,
    }  # fmt: skip
    assert oldest["changes"] == []
    header, *rows = csv.reader(io.StringIO(run("results", "--csv", env=environment).stdout))
    assert header == ["time_seconds", "host", "device_name", "driver", "torch", "verdict", *COLUMNS]
    assert len(rows) == 16
    assert run("results", "--json", "--since", "1s", "--host", "elsewhere", env=environment).returncode == 0
