"""Two traces compared: what was added, removed and slower, and inputs that do not compare."""

import gzip
import json
from pathlib import Path

import click.testing
import pytest

from gpumon.cli.commands import gpumon
from gpumon.core.problems import CommandError

NAMES = ("base.json", "new.json")


def written(folder: Path, name: str, *operators: tuple[str, float]) -> str:
    """A trace of a CPU with two steps of 1 ms, each with these operators."""
    events = []
    for step in range(2):
        begin = 1000.0 * step
        events.append(("user_annotation", f"ProfilerStep#{step}", begin, 1000.0))
        for operator, duration in operators:
            events.append(("cpu_op", operator, begin, duration))
            begin += duration
    keys = ("cat", "name", "ts", "dur")
    rows = [{"ph": "X", "pid": 1, "tid": 1, **dict(zip(keys, event, strict=True))} for event in events]
    (folder / name).write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    return str(folder / name)


def compared(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(gpumon, ["compare", *arguments])


def test_operators_that_were_added_removed_and_slower_are_named_per_step(tmp_path: Path) -> None:
    base = written(tmp_path, NAMES[0], ("aten::mm", 100.0), ("aten::add", 50.0), ("aten::old", 70.0))
    new = written(tmp_path, NAMES[1], ("aten::mm", 300.0), ("aten::add", 50.0), ("aten::new", 20.0))
    changes = json.loads(compared(base, new, "--json").stdout)["changes"]
    states = {item["name"]: (item["state"], round(1e6 * item["change_seconds"])) for item in changes}
    named = {"aten::mm": ("slower", 200), "aten::old": ("removed", -70), "aten::new": ("added", 20)}
    assert {name: state for name, state in states.items() if name.startswith("aten::")} == named
    assert "| aten::mm | slower |" in compared(base, new, "--markdown").stdout.replace("\\_", "_")


def test_a_truncated_trace_is_one_sentence(tmp_path: Path) -> None:
    base = written(tmp_path, NAMES[0], ("aten::mm", 100.0))
    (tmp_path / "new.json.gz").write_bytes(gzip.compress(Path(base).read_bytes())[:-20])
    result = compared(base, str(tmp_path / "new.json.gz"))
    assert isinstance(result.exception, CommandError)
    assert "is truncated" in str(result.exception)


@pytest.mark.parametrize("text", ["{}", '{"schema":1,"kind":"gpumon_report"}', "no JSON"])
def test_a_trace_and_something_else_do_not_compare(tmp_path: Path, text: str) -> None:
    (tmp_path / "other").write_text(text)
    result = compared(written(tmp_path, NAMES[0], ("aten::mm", 1.0)), str(tmp_path / "other"))
    assert result.exit_code == 2
    assert "compare two traces, or two runs" in result.output
