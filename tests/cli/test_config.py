"""The configuration file: its entries, their precedence, and that no content can do harm."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpumon.cli import commands
from gpumon.cli.config import Config, load_config
from gpumon.cli.config_file import MAX_BYTES
from gpumon.cli.notify_config import notify_settings
from gpumon.session.alert_notifier import NotifySettings
from gpumon.streams.live import LiveStream
from tests.cli.running import GPUMON, is_one_line, run
from tests.core.test_ownership import needs_root
from tests.nvml_mock import NvmlMock
from tests.terminal import Terminal

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the configuration file of the user; returns its path."""
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
    """The options that `gpumon record` receives."""
    seen: dict[str, Any] = {}

    def record(
        stream: LiveStream, _: Path, duration: float | None, *, anonymize: bool, activity: bool, **__: object
    ) -> None:
        seen.update(interval=stream.interval, duration=duration, anonymize=anonymize)
        assert activity

    monkeypatch.setattr("gpumon.operations.record.record", record)
    done = CliRunner().invoke(commands.gpumon, [*argv], env=environment, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return seen


# Entries


def test_without_a_file_the_configuration_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for home in (tmp_path, tmp_path / "none", Path("/dev/null")):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        assert load() == Config()


def test_the_default_folder_is_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".config" / "gpumon").mkdir(parents=True)
    (tmp_path / ".config" / "gpumon" / "config.toml").write_text("interval = 2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CONFIG_HOME", unset)
        assert load().options == {"interval": 2.0}


def test_values_are_converted_as_the_options_require(write: Write) -> None:
    write(
        'interval = 2\ntheme = "light"\nmouse = false\nhistory = "12h"\nspeed = 4\nread_only = true\n'
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
        "read_only": True,
        "record": {"anonymize": True, "duration": 60.0},
        "run": {"devices": ["cuda:1", "cpu"]},
        "export": {"as_csv": False},
    }


def test_flags_take_precedence_over_the_environment_and_that_over_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interval(*argv: str, **environment: str) -> float:
        value: float = recorded_with(monkeypatch, *argv, **environment)["interval"]
        return value

    assert interval("record", "x") == 1.0
    write("interval = 2\n")
    assert interval("record", "x") == 2.0
    write("interval = 2\n[record]\ninterval = 3\n")
    assert interval("record", "x") == 3.0
    assert interval("record", "x", GPUMON_INTERVAL="4") == 4.0
    assert interval("--interval", "5", "record", "x", GPUMON_INTERVAL="4") == 5.0
    assert interval("--interval", "5", "record", "x", GPUMON_RECORD_INTERVAL="6") == 6.0
    assert interval("--interval", "5", "record", "--interval", "7", "x", GPUMON_RECORD_INTERVAL="6") == 7.0


def test_a_table_sets_only_the_options_of_its_command(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("[demo]\nspeed = 4\n[record]\nanonymize = true\n")
    assert recorded_with(monkeypatch, "record", "x") == {"interval": 1.0, "duration": None, "anonymize": True}


def test_alert_thresholds_change_the_alerts(nvml_mock: NvmlMock, write: Write) -> None:
    file = write("[alerts]\ntemperature_margin_celsius = 80\n")
    environment = {**nvml_mock.environment(gpus=1), "XDG_CONFIG_HOME": str(file.parents[1])}
    alerts = json.loads(run("status", "--json", env=environment).stdout)["devices"][0]["alerts"]
    assert "temperature_high" in {alert["id"] for alert in alerts}
    write("")
    alerts = json.loads(run("status", "--json", env=environment).stdout)["devices"][0]["alerts"]
    assert "temperature_high" not in {alert["id"] for alert in alerts}


def test_the_former_table_of_thresholds_works_with_a_warning(write: Write) -> None:
    file = write("[alerts]\nidle_seconds = 5\n[health]\nidle_seconds = 6\nbusy_percent = 7\n")
    config = load()
    assert config.alerts == {"idle_seconds": 5.0, "busy_percent": 7.0}
    assert config.warning == f"{file}:3: The table [health] is now called [alerts]. Rename it."


# The look of the screens


def test_themes_columns_and_keys(write: Write) -> None:
    write(
        'theme = "sea"\n[demo]\ntheme = "sand"\n[columns]\ndevices = ["memory", "name", "memory"]\n'
        '[keymap]\nquit = "f10"\ntable.up = ["w", "up"]\n'
        '[themes.sea]\nbase = "light"\nprimary = "#048"\n[themes.sand]\nload-high = "#ffb35c"\n'
    )
    config = load()
    assert config.warning == ""
    assert config.options == {"theme": "sea", "demo": {"theme": "sand"}}
    sea, sand = config.appearance.palettes()
    assert (sea.name, sea.is_dark, sea.colors["accent"]) == ("sea", False, "#004488")
    assert (sand.is_dark, sand.colors["load-high"]) == (True, "#ffb35c")
    assert config.appearance.columns == {"devices": ("memory", "name")}
    assert config.appearance.keymap == {"quit": "f10", "table.up": "w,up"}


def test_a_bad_color_leaves_the_others_of_the_theme(write: Write) -> None:
    write('[themes.sea]\nprimary = "#048"\nwarning = 5\n')
    assert load().appearance.themes == {"sea": {"primary": "#048"}}


def test_a_changed_key_and_a_theme_reach_the_screen(nvml_mock: NvmlMock, write: Write) -> None:
    file = write('theme = "sea"\n[themes.sea]\nbackground = "#0b1f2a"\n[keymap]\nquit = "f10"\nqiut = "x"\n')
    environment = {**nvml_mock.environment(gpus=1), "XDG_CONFIG_HOME": str(file.parents[1])}
    with Terminal((GPUMON,), env=environment, rows=30, cols=160) as terminal:
        terminal.wait_for("did you mean quit")
        assert b"48;2;11;31;42" in terminal.raw
        terminal.send("q?")
        terminal.wait_for("Cursor up")  # q no longer quits
        terminal.send("?")  # closes the help
        terminal.send("\x1b[21~")
        assert terminal.wait_exit() == 0


# Errors


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
        ('# x\nintervall = "2"\n', 2, "intervall: there is no such key; did you mean interval?"),
        ("duration = 5\n", 1, "duration: there is no such key"),
        ("[recrod]\nanonymize = true\n", 1, "recrod: there is no such key; did you mean record?"),
        ("interval = 2\n\n[record]\n  anonymise = true\n", 4, "record.anonymise: there is no such key; did you"),
        ("record.interval = 0.05\n", 1, "record.interval: 0.05 is not in the range"),
        ("record = {interval = 0.05}\n", 1, "record.interval: 0.05 is not in the range"),
        ("record = 5\n", 1, "record: expected a table, not a number."),
        ('[run]\ndevice = "cuda:0"\n', 2, "run.device: expected a list, not text."),
        ("[run]\ndevice = [1]\n", 2, "run.device: expected text, not a number."),
        ("[run]\nyes = true\n", 2, "run.yes: there is no such key"),
        ("alerts = 5\n", 1, "alerts: expected a table, not a number."),
        ("[alerts]\nidle_secs = 5\n", 2, "alerts.idle_secs: there is no threshold 'idle_secs'"),
        ("[alerts]\nidle_seconds = 5\nbusy_percent = -1\n", 3, "alerts.busy_percent: "),
        ("themes = 5\n", 1, "themes: expected a table, not a number."),
        ("[themes]\nsea = 5\n", 2, "themes.sea: expected a table, not a number."),
        (
            '[themes.sea]\nlod-high = "#048"\n',
            2,
            "themes.sea.lod-high: a theme has no such color; did you mean load-high?",
        ),
        ('[themes.sea]\nprimary = "reddish"\n', 2, "themes.sea.primary: 'reddish' is not a color such as #1a2b3c."),
        ('[themes.sea]\nbase = "pink"\n', 2, "themes.sea.base: 'pink' is not a base; write dark or light."),
        ('[themes.dark]\nprimary = "#048"\n', 2, "themes.dark.primary: dark is a built-in theme; choose another name."),
        ('[themes.A_B]\nprimary = "#048"\n', 2, "themes.A_B.primary: the name of a theme consists of"),
        ('[columns]\ndevice = ["name"]\n', 2, "columns.device: there is no such table; did you mean devices?"),
        ('[columns]\ndevices = "name"\n', 2, "columns.devices: expected a list of column ids"),
        ("[columns]\ndevices = []\n", 2, "columns.devices: expected a list of column ids"),
        (
            '[columns]\ndevices = ["name", "memry"]\n',
            2,
            "columns.devices: there is no column 'memry'; did you mean mem",
        ),
        ("[keymap]\nquit = 5\n", 2, "keymap.quit: expected a key"),
        ('[keymap]\nquit = ["q", 5]\n', 2, "keymap.quit: expected a key"),
        ('[keymap]\nquit = ""\n', 2, "keymap.quit: expected a key"),
    ],
)
def test_an_invalid_entry_is_ignored_and_reported_with_its_line(
    write: Write, content: str, line: int, reason: str
) -> None:
    file = write(content)
    config = load()
    assert config.warning.startswith(f"{file}:{line}: {reason}"), config.warning
    assert config.warning.endswith(" It is ignored.")
    assert {"interval": 2.0}.items() >= {name: value for name, value in config.options.items() if value}.items()


def test_the_first_of_several_invalid_entries_is_reported_and_valid_ones_are_used(write: Write) -> None:
    file = write('interval = 0\ntheme = "light"\nx = 1\n[record]\ny = 2\nanonymize = true\n')
    config = load()
    assert config.options == {"theme": "light", "record": {"anonymize": True}}
    assert config.warning.startswith(f"{file}:1: interval: ")
    assert config.warning.endswith(" 2 more keys are not valid.")
    assert "\n" not in config.warning


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        ("interval = \n", ":1", "Invalid value."),
        ("theme = 'x'\ninterval 2\n", ":2", "Expected '=' after a key in a key/value pair."),
        ("theme = 'x'\ntheme = 'y'\n", ":2", "Cannot overwrite a value."),
        ("a = [", ":1", "Invalid value."),
        (b"\x7fELF\x02\x01\x01\x00\x00", ":1", "Invalid statement."),
        (b"theme = 'x'\n\xff\xfe\x00", ":2", "The file is not UTF-8 text."),
        ("a = " + "[" * 30_000, "", "Tables or lists are nested too deeply."),
        ("a = " + "9" * 5_000, "", "Exceeds the limit"),
        (b"#" * (MAX_BYTES + 1), "", "The file is larger than 64 KiB."),
    ],
)
def test_a_file_that_is_not_toml_leaves_the_defaults(
    write: Write, content: str | bytes, place: str, reason: str
) -> None:
    file = write(content)
    before = file.read_bytes()
    config = load()
    assert config.options == {}
    assert config.warning.startswith(f"{file}{place}: {reason}"), config.warning
    assert config.warning.endswith(" The defaults are used.")
    assert file.read_bytes() == before


def test_a_path_that_is_not_a_regular_file_does_not_block(write: Write) -> None:
    file = write("")
    file.unlink()
    file.mkdir()
    assert load() == Config(warning=f"{file}: Is a directory. The defaults are used.")
    file.rmdir()
    os.mkfifo(file)
    assert load() == Config(warning=f"{file}: Not a regular file. The defaults are used.")


def test_an_unreadable_file_is_reported(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("interval = 2\n")

    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)  # root may read everything
    assert load() == Config(warning=f"{file}: Permission denied. The defaults are used.")


def test_a_file_of_another_user_is_not_used(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("interval = 2\n")
    owner = file.stat().st_uid or 4242
    if os.geteuid() == 0:
        os.chown(file, owner, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert load().options == {}
    warning = load().warning
    assert warning.startswith(f"{file}: The file belongs to another user (UID {owner}). The defaults are used. Run ")


@needs_root
def test_root_does_not_use_a_file_below_the_home_of_another_user(write: Write) -> None:
    file = write("interval = 2\n")
    assert load().options == {"interval": 2.0}
    os.chown(file.parents[1], 4242, 4242)
    assert load().options == {}
    assert f"The folder {file.parents[1]} belongs to another user (UID 4242)." in load().warning


def test_the_warning_contains_no_control_characters(write: Write) -> None:
    write('"\\u001b]0;owned\\u0007" = 1\n')
    assert load().warning.isprintable()


# The warning


def test_commands_print_the_warning_to_standard_error_and_run(nvml_mock: NvmlMock, write: Write) -> None:
    file = write("interval = 0\n")
    environment = {**nvml_mock.environment(gpus=1), "XDG_CONFIG_HOME": str(file.parents[1])}
    done = run("status", "--json", env=environment)
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["devices"]) == 1
    assert is_one_line(done.stderr)
    assert f"{file}:1: interval: " in done.stderr


def test_notifications(write: Write) -> None:
    write('[notify]\nbell = true\nterminal = "osc9"\ncommand = "notify-send \'GPU alert\'"\n')
    config = load()
    assert config.warning == ""
    assert notify_settings(config.notify) == NotifySettings(True, "osc9", ("notify-send", "GPU alert"))
    write('[notify]\ncommand = ["sh", "-c", "cat > /tmp/x"]\n')
    assert notify_settings(load().notify).command == ("sh", "-c", "cat > /tmp/x")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("bell = 1", "notify.bell: expected true or false."),
        ('terminal = "osc8"', "notify.terminal: expected"),
        ("command = 5", "notify.command: expected text"),
        ("command = [1]", "notify.command: expected text"),
        ('command = "don\'t"', "notify.command: "),
        ("volume = 5", "notify.volume: there is no such key."),
    ],
)
def test_notifications_that_are_not_valid(write: Write, content: str, words: str) -> None:
    write(f"[notify]\n{content}\n")
    assert words in load().warning
    assert load().notify == {}
