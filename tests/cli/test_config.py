"""The configuration file: what it may say, what it gives way to, and that none of it can do harm."""

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpumon.cli import commands
from gpumon.cli.config import Config, load_config
from gpumon.cli.config_file import MOST_BYTES
from gpumon.streams.live import LiveStream
from tests.cli.running import GPUMON, is_one_line, run
from tests.nvml_mock import NvmlMock
from tests.terminal import Terminal

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the configuration file of the user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "gpumon" / "config.toml"
    file.parent.mkdir()

    def written(content: str | bytes) -> Path:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return written


def load() -> Config:
    return load_config(commands.gpumon)


def recorded_with(monkeypatch: pytest.MonkeyPatch, *argv: str, **environment: str) -> dict[str, Any]:
    """What `gpumon record` would record with."""
    seen: dict[str, Any] = {}

    def record(stream: LiveStream, file: Path, duration: float | None, anonymize: bool) -> None:
        seen.update(interval=stream.interval, duration=duration, anonymize=anonymize)

    monkeypatch.setattr("gpumon.operations.record.record", record)
    done = CliRunner().invoke(commands.gpumon, [*argv], env=environment, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return seen


# What it says


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for home in (tmp_path, tmp_path / "none", Path("/dev/null")):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        assert load() == Config()


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing yet\n", "\ufeff"])
def test_an_empty_file_says_nothing(write: Write, content: str) -> None:
    write(content)
    assert load() == Config()


def test_it_is_looked_for_in_the_home_where_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".config" / "gpumon").mkdir(parents=True)
    (tmp_path / ".config" / "gpumon" / "config.toml").write_text("interval = 2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CONFIG_HOME", unset)
        assert load().options == {"interval": 2.0}


def test_values_come_as_the_options_take_them(write: Write) -> None:
    write(
        'interval = 2\ntheme = "light"\nmouse = false\nhistory = "12h"\nspeed = 4\n'
        '[record]\nanonymize = true\nduration = 60\n[run]\ndevice = ["cuda:1", "cpu"]\n[export]\ncsv = false\n'
    )
    config = load()
    assert config.warning == ""
    assert config.options == {
        "interval": 2.0,
        "theme": "light",
        "mouse": False,
        "history": 43_200.0,
        "speed": 4.0,
        "record": {"anonymize": True, "duration": 60.0},
        "run": {"devices": ["cuda:1", "cpu"]},
        "export": {"as_csv": False},
    }


def test_what_is_typed_goes_before_the_environment_before_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interval(*argv: str, **environment: str) -> float:
        found: float = recorded_with(monkeypatch, *argv, **environment)["interval"]
        return found

    assert interval("record", "x") == 1.0
    write("interval = 2\n")
    assert interval("record", "x") == 2.0
    write("interval = 2\n[record]\ninterval = 3\n")
    assert interval("record", "x") == 3.0
    assert interval("record", "x", GPUMON_INTERVAL="4") == 4.0
    assert interval("--interval", "5", "record", "x", GPUMON_INTERVAL="4") == 5.0
    assert interval("--interval", "5", "record", "x", GPUMON_RECORD_INTERVAL="6") == 6.0
    assert interval("--interval", "5", "record", "--interval", "7", "x", GPUMON_RECORD_INTERVAL="6") == 7.0


def test_a_table_is_for_its_command_alone(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("[demo]\nspeed = 4\n[record]\nanonymize = true\n")
    assert recorded_with(monkeypatch, "record", "x") == {"interval": 1.0, "duration": None, "anonymize": True}


def test_thresholds_of_health_change_what_is_told(nvml_mock: NvmlMock, write: Write) -> None:
    file = write("[health]\ntemperature_margin_celsius = 80\n")
    environment = {**nvml_mock.environment(gpus=1), "XDG_CONFIG_HOME": str(file.parents[1])}
    told = json.loads(run("status", "--json", env=environment).stdout)["devices"][0]["alerts"]
    assert "temperature_high" in {alert["id"] for alert in told}
    write("")
    told = json.loads(run("status", "--json", env=environment).stdout)["devices"][0]["alerts"]
    assert "temperature_high" not in {alert["id"] for alert in told}


# What is wrong with it


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("\n\ninterval = 0.05\n", 3, "interval: 0.05 is not in the range 0.1<=x<=3600."),
        ("interval = nan\n", 1, "interval: 'nan' is not a number."),
        ("interval = inf\n", 1, "interval: inf is not in the range"),
        ('interval = "2"\n', 1, "interval: expected a number, not text."),
        ("interval = true\n", 1, "interval: expected a number, not true or false."),
        ("interval = 1979-05-27\n", 1, "interval: expected a number, not a time."),
        ("mouse = 0\n", 1, "mouse: expected true or false, not a number."),
        ('theme = "pink"\n', 1, "theme: 'pink' is not one of"),
        ("history = 5\n", 1, "history: '5' is not between 1m and 7d."),
        ('# x\nintervall = "2"\n', 2, "intervall: there is no such key; near it is interval."),
        ("duration = 5\n", 1, "duration: there is no such key"),
        ("[recrod]\nanonymize = true\n", 1, "recrod: there is no such key; near it is record."),
        ("interval = 2\n\n[record]\n  anonymise = true\n", 4, "record.anonymise: there is no such key; near it is an"),
        ("record.interval = 0.05\n", 1, "record.interval: 0.05 is not in the range"),
        ("record = {interval = 0.05}\n", 1, "record.interval: 0.05 is not in the range"),
        ("record = 5\n", 1, "record: expected a table, not a number."),
        ('[run]\ndevice = "cuda:0"\n', 2, "run.device: expected a list, not text."),
        ("[run]\ndevice = [1]\n", 2, "run.device: expected text, not a number."),
        ("[run]\nyes = true\n", 2, "run.yes: there is no such key"),
        ("health = 5\n", 1, "health: expected a table, not a number."),
        (
            "[health]\nidle_secs = 5\n",
            2,
            "health.idle_secs: there is no threshold 'idle_secs'; near it is idle_seconds.",
        ),
        ("[health]\nidle_seconds = 5\nbusy_percent = -1\n", 3, "health.busy_percent: busy_percent must be a number fr"),
    ],
)
def test_a_key_that_is_wrong_is_left_out_and_told_with_its_line(
    write: Write, content: str, line: int, reason: str
) -> None:
    file = write(content)
    config = load()
    assert config.warning.startswith(f"{file}:{line}: {reason}"), config.warning
    assert config.warning.endswith(" It is left out.")
    assert {"interval": 2.0}.items() >= {name: held for name, held in config.options.items() if held}.items()


def test_of_several_keys_that_are_wrong_the_first_is_told_and_the_right_ones_hold(write: Write) -> None:
    file = write('interval = 0\ntheme = "light"\nx = 1\n[record]\ny = 2\nanonymize = true\n')
    config = load()
    assert config.options == {"theme": "light", "record": {"anonymize": True}}
    assert config.warning.startswith(f"{file}:1: interval: ")
    assert config.warning.endswith(" 2 more keys are wrong.")
    assert "\n" not in config.warning


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        ("interval = \n", ":1", "Invalid value."),
        ("theme = 'x'\ninterval 2\n", ":2", "Expected '=' after a key in a key/value pair."),
        ("theme = 'x'\ntheme = 'y'\n", ":2", "Cannot overwrite a value."),
        ("a = [", ":1", "Invalid value."),
        (b"\x7fELF\x02\x01\x01\x00\x00", ":1", "Invalid statement."),
        (b"theme = 'x'\n\xff\xfe\x00", ":2", "It is not text in UTF-8."),
        ("a = " + "[" * 30_000, "", "It is nested too deeply."),
        ("a = " + "9" * 5_000, "", "Exceeds the limit"),
        (b"#" * (MOST_BYTES + 1), "", "It is larger than 64 KiB."),
    ],
)
def test_a_file_that_cannot_be_understood_leaves_the_defaults(
    write: Write, content: str | bytes, place: str, reason: str
) -> None:
    file = write(content)
    before = file.read_bytes()
    config = load()
    assert config.options == {}
    assert config.warning.startswith(f"{file}{place}: {reason}"), config.warning
    assert config.warning.endswith(" The defaults are used.")
    assert file.read_bytes() == before


def test_of_a_huge_file_little_is_read(write: Write) -> None:
    os.truncate(write(""), 100 << 20)
    tracemalloc.start()
    try:
        assert "larger than 64 KiB" in load().warning
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_what_is_not_a_file_is_not_waited_for(write: Write) -> None:
    file = write("")
    file.unlink()
    file.mkdir()
    assert load() == Config(warning=f"{file}: Is a directory. The defaults are used.")
    file.rmdir()
    os.mkfifo(file)
    assert load() == Config(warning=f"{file}: It is not a file. The defaults are used.")


def test_what_the_user_may_not_read_is_told(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("interval = 2\n")

    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)  # root may read everything
    assert load() == Config(warning=f"{file}: Permission denied. The defaults are used.")


def test_a_file_of_another_user_is_not_taken(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("interval = 2\n")
    owner = file.stat().st_uid or 4242
    if os.geteuid() == 0:
        os.chown(file, owner, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    reason = f"It belongs to another user (uid {owner})."
    assert load() == Config(warning=f"{file}: {reason} The defaults are used.")


def test_no_text_of_the_file_acts_on_the_terminal(write: Write) -> None:
    write('"\\u001b]0;owned\\u0007" = 1\n')
    assert load().warning.isprintable()


# How it is told


def test_commands_tell_it_on_standard_error_and_do_their_work(nvml_mock: NvmlMock, write: Write) -> None:
    file = write("interval = 0\n")
    environment = {**nvml_mock.environment(gpus=1), "XDG_CONFIG_HOME": str(file.parents[1])}
    done = run("status", "--json", env=environment)
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["devices"]) == 1
    assert is_one_line(done.stderr)
    assert f"{file}:1: interval: " in done.stderr


def test_the_screen_tells_it_as_well(nvml_mock: NvmlMock, write: Write) -> None:
    file = write("interval = 0.2\nmouse = 3\n")
    environment = {**nvml_mock.environment(gpus=1), "XDG_CONFIG_HOME": str(file.parents[1])}
    with Terminal((GPUMON,), env=environment, rows=30, cols=160) as terminal:
        shown = terminal.wait_for(r"(?s)every 0.2 s.*mouse: expected")
        assert str(file.parent)[:20] in shown
        terminal.send("q")
        assert terminal.wait_exit() == 0
