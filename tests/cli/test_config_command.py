"""`gpumon config`: where each value comes from, and a file to start with."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpumon.cli import commands
from gpumon.cli.config import load_config
from gpumon.present.paint.columns import column_ids
from tests.cli.running import is_one_line, run
from tests.cli.test_config import Write, write

__all__ = ["write"]

Keys = dict[str, dict[str, Any]]


def keys(file: Path | None, *argv: str, **environment: str) -> Keys:
    """What ``gpumon config --json`` lists, by key."""
    folder = "/nonexistent" if file is None else str(file.parents[1])
    done = run(*argv, "config", "--json", env={"XDG_CONFIG_HOME": folder, "PATH": "/usr/bin:/bin", **environment})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    return {item["key"]: item for item in document["keys"]}


def test_without_a_file_every_key_has_its_default() -> None:
    listed = keys(None)
    assert {item["source"] for item in listed.values()} == {"default"}
    assert all(item["value"] == item["default"] for item in listed.values())
    assert listed["interval"]["value"] == 1.0
    assert listed["theme"]["value"] == "dark"
    assert listed["alerts.idle_seconds"]["value"] == 30.0
    assert listed["run.device"]["value"] == ["cuda:0"]
    assert listed["keymap.quit"]["value"] == "q"
    assert listed["speed"]["value"] == 1.0


def test_the_source_of_each_value(write: Write) -> None:
    file = write(
        'interval = 2\nhistory = "2h"\n\n[record]\nduration = 5\n[alerts]\nidle_seconds = 7\n'
        '[themes.sea]\nprimary = "#048"\n[keymap]\nquit = "f10"\n"table.up" = ["w", "?"]\n'
    )
    listed = keys(
        file, "--history", "3h", GPUMON_MOUSE="0", GPUMON_DEMO_SPEED="4", GPUMON_RUN_DEVICE="cpu", NO_COLOR="1"
    )

    def source(key: str) -> tuple[object, object, str, object, object]:
        item = listed[key]
        return item["value"], item["default"], item["source"], item["line"], item["variable"]

    assert source("interval") == (2.0, 1.0, "file", 1, None)
    assert source("history") == (10_800.0, 3600.0, "command line", None, None)
    assert source("mouse") == (False, True, "environment", None, "GPUMON_MOUSE")
    assert source("theme") == ("mono", "dark", "environment", None, "NO_COLOR")
    assert source("demo.speed") == (4.0, 1.0, "environment", None, "GPUMON_DEMO_SPEED")
    assert source("run.device") == (["cpu"], ["cuda:0"], "environment", None, "GPUMON_RUN_DEVICE")
    assert source("record.duration") == (5.0, None, "file", 5, None)
    assert source("alerts.idle_seconds") == (7.0, 30.0, "file", 7, None)
    assert source("themes.sea.primary") == ("#048", "#6cb6ff", "file", 9, None)
    assert source("keymap.quit") == ("f10", "q", "file", 11, None)
    assert source("keymap.table.up")[0] == "w,?"
    assert "record.interval" not in listed, "the key at the top says it already"


def test_the_table_is_aligned_and_lists_every_problem(write: Write) -> None:
    file = write('interval = 0\nx = 1\n[keymap]\nqiut = "x"\n[record]\ninterval = 3\n')
    done = run("config", env={"XDG_CONFIG_HOME": str(file.parents[1]), "PATH": "/usr/bin:/bin"})
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["Key", "Value", "Default", "Source"]
    column = lines[0].index("Source")
    for line in lines[1 : lines.index("")]:
        assert line[column - 2 : column] == "  "
        assert line[column:].startswith(("default", "file:", "environment"))
    row = next(line for line in lines if line.startswith("record.interval"))
    assert row.split() == ["record.interval", "3", "1", "file:6"]
    assert f"File: {file}" in lines
    assert any(line.startswith(f"{file}:1: interval: ") for line in lines)
    assert any(line.startswith(f"{file}:2: x: there is no such key") for line in lines)
    assert "There is no key binding 'qiut'; did you mean quit?" in lines


def test_a_new_file_is_valid_with_and_without_its_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    file = tmp_path / "gpumon" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = run("config", "--init", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(file) in done.stdout
    assert load_config(commands.gpumon).warning == ""
    assert load_config(commands.gpumon).options.get("interval") is None

    text = file.read_text()
    lines = [line for line in text.splitlines() if not line.endswith("= ...")]
    file.write_text("\n".join(line[1:] if line[:1] == "#" and line[1:2] != " " else line for line in lines))
    config = load_config(commands.gpumon)
    assert config.warning == ""
    assert config.options["interval"] == 1.0
    assert config.options["run"]["devices"] == ["cuda:0"]
    assert "sea" in config.appearance.themes
    assert config.appearance.keymap["quit"] == "q"


def test_a_file_that_exists_stays(write: Write) -> None:
    file = write("interval = 2\n")
    done = run("config", "--init", env={"XDG_CONFIG_HOME": str(file.parents[1]), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 2
    assert is_one_line(done.stderr)
    assert "exists already" in done.stderr
    assert file.read_text() == "interval = 2\n"


def test_the_columns_of_every_table_that_has_some_to_choose_can_be_set() -> None:
    screens = Path(__file__).resolve().parents[2] / "gpumon" / "ui" / "screens"
    pattern = re.compile(r'TableView(?:\[\w+\])?\(\s*\w+\(id="([\w-]+)"')
    ids = {table for file in screens.glob("*.py") for table in pattern.findall(file.read_text())}
    assert "alerts" in ids
    assert ids <= set(column_ids())
    assert all(column_ids().values())
