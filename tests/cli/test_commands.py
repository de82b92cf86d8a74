"""Every command as scripts use it: exit codes, JSON documents, pipes, and the environment."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from gpumon.cli import commands
from gpumon.core.frames import encode
from gpumon.streams.base import Stream
from tests import builders
from tests.cli.contract import violations
from tests.cli.running import is_one_line, run, shell
from tests.nvml_mock import NvmlMock

README = Path(__file__).resolve().parents[2] / "README.md"
COUNT_FRAMES = "import sys, json; print(sum(json.loads(line)['schema'] == 1 for line in sys.stdin))"


@pytest.fixture(scope="module")
def environment(nvml_mock: NvmlMock) -> dict[str, str]:
    """Two healthy GPUs."""
    return nvml_mock.environment(gpus=2)


@pytest.fixture(scope="module")
def no_driver(nvml_mock: NvmlMock) -> dict[str, str]:
    """A host without a driver."""
    return nvml_mock.environment_without_library()


def status(environment: dict[str, str]) -> dict[str, Any]:
    """The status document; the command must succeed."""
    done = run("status", "--json", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


# Commands and help


def command_names() -> set[str]:
    return set(commands.gpumon.commands)


def test_help_names_every_command_and_the_exit_codes(no_driver: dict[str, str]) -> None:
    done = run("--help", env=no_driver)
    assert done.returncode == 0
    listed = re.findall(r"^  ([\w-]+)  ", done.stdout.partition("Commands:")[2], re.MULTILINE)
    assert set(listed) == command_names()
    words = " ".join(done.stdout.split())
    for code in ("0 success", "1 completed with a bad verdict", "2 usage error", "3 a prerequisite", "128+n ended by"):
        assert code in words


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", ["", "demo", "status", "record", "replay", "export", "selftest"])
def test_every_command_has_a_help(no_driver: dict[str, str], command: str) -> None:
    done = run(*command.split(), "--help", env=no_driver)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: gpumon {command}".rstrip())
    assert "--debug" in done.stdout


def test_version(no_driver: dict[str, str]) -> None:
    assert re.fullmatch(r"gpumon, version \d+\.\d+\S*\n", run("--version", env=no_driver).stdout)


# Wrong usage


@pytest.mark.parametrize(
    "line",
    [
        "nonsense", "--nonsense", "--interval nan", "--interval 0", "--interval inf", "--interval x", "--theme pink",
        "demo --speed nan", "demo --speed 0", "record", "record - --duration nan", "record - --duration 0", "replay",
        "status extra", "--theme pink status",
    ],
)  # fmt: skip
def test_wrong_usage(environment: dict[str, str], line: str) -> None:
    done = run(*line.split(), env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", ["demo", "replay {whole}", "replay -"])
def test_the_screen_needs_a_terminal(environment: dict[str, str], tmp_path: Path, line: str) -> None:
    whole = tmp_path / "whole.jsonl"
    whole.write_text(encode(builders.frame()) + "\n")
    done = run(*line.format(whole=whole).split(), env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert is_one_line(done.stderr)


# One sample


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "fault",
    [
        "", "lost:1", "unknown:1", "notsupported:power,noperm:procs", "nofunc:nvmlDeviceGetMemoryInfo_v2",
        "garbage:util,garbage:emptyname,garbage:memna", "garbage:esc,garbage:pidmax,garbage:procmem", "deadpids",
        "hang:1", "timeout:1,flaky:0=0.5",
    ],
)  # fmt: skip
def test_status_keeps_its_contract(nvml_mock: NvmlMock, sleepers: Callable[[int], list[int]], fault: str) -> None:
    pids = [os.getpid(), *sleepers(2), (1 << 22) - 1]
    document = status(nvml_mock.environment(gpus=2, pids=pids, fault=fault))
    assert violations(document) == []
    assert len(document["devices"]) == 2


def test_status_of_an_old_driver_keeps_its_contract(old_nvml_mock: NvmlMock) -> None:
    assert violations(status(old_nvml_mock.environment(gpus=2, pids=[os.getpid()]))) == []


def test_status_of_a_host_without_gpus_keeps_its_contract(nvml_mock: NvmlMock) -> None:
    done = run("status", "--json", env=nvml_mock.environment(gpus=0))
    assert done.returncode == 3
    assert is_one_line(done.stderr)
    assert violations(json.loads(done.stdout)) == []


def test_violations_of_the_contract_are_found(environment: dict[str, str]) -> None:
    document = status(environment)
    device = document["devices"][0]
    device["power_watts"] = device["name"] = None
    device["problems"]["name"] = {"code": "unknown"}
    device["memory_used_bytes"] = "N/A"
    device["alerts"] = [{"id": "x", "severity": "bad", "since_seconds": 1, "detail": "y"}]
    del document["devices"][1]["clock_sm_hertz"]
    document["host"]["cpu_percent"] = None
    assert [line.partition(":")[0] for line in violations(document)] == [
        "host.cpu_percent",
        "devices[0].memory_used_bytes",
        "devices[0].problems.name",
        "devices[0].power_watts",
        "devices[0].alerts[0].action",
        "devices[0].alerts[0]",
        "devices[1].clock_sm_hertz",
    ]


def test_alerts_have_a_start_and_an_action(nvml_mock: NvmlMock) -> None:
    document = status(nvml_mock.environment(gpus=3, fault="lost:1,hang:2"))
    assert {alert["id"] for alert in document["alerts"]} <= {"left_behind"}, "of another test that hangs"
    above = [
        [alert["id"] for alert in device["alerts"] if alert["severity"] != "info"] for device in document["devices"]
    ]
    assert above == [[], ["gpu_lost"], ["gpu_unresponsive"]]
    for device in document["devices"][1:]:
        (alert,) = device["alerts"]
        assert alert["severity"] == "critical"
        assert alert["since_seconds"] == pytest.approx(document["time_seconds"], abs=1)
        assert alert["detail"].endswith(".")
        assert alert["action"].endswith(".")


def test_without_a_driver_the_document_has_the_reason(no_driver: dict[str, str]) -> None:
    done = run("status", "--json", env=no_driver)
    assert done.returncode == 3
    assert is_one_line(done.stderr)
    document = json.loads(done.stdout)
    assert violations(document) == []
    assert document["devices"] == []
    assert document["problems"]["driver"]["code"] == "library_not_found"
    assert [alert["id"] for alert in document["alerts"]] == ["driver"]
    assert document["problems"]["driver"]["reason"] in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("line", ["", "status", "record {file}", "record -", "memory", "devices", "topology", "pick"])
def test_without_a_driver_there_is_a_sentence_and_no_output(
    no_driver: dict[str, str], tmp_path: Path, line: str
) -> None:
    file = tmp_path / "day.jsonl"
    done = run(*line.format(file=file).split(), env=no_driver)
    assert (done.returncode, done.stdout) == (3, "")
    assert is_one_line(done.stderr)
    assert not file.exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("fault", "code"), [("hang:1", 0), ("hang:1@0.2", 0), ("hangall", 3), ("hangall@0.2", 0)])
def test_status_ends_even_if_the_driver_hangs(nvml_mock: NvmlMock, fault: str, code: int) -> None:
    started = time.monotonic()
    done = run("status", "--json", env=nvml_mock.environment(gpus=2, fault=fault))
    assert time.monotonic() - started < 30
    assert done.returncode == code
    assert violations(json.loads(done.stdout)) == []
    assert done.stderr == "" if code == 0 else is_one_line(done.stderr)


# Pipes and closed streams


def test_a_reader_that_closes_the_pipe_is_not_an_error(environment: dict[str, str]) -> None:
    done = shell('"$@" | head -1; "$@" --json | head -1', "status", env=environment)
    assert done.stderr == ""
    assert [line[:1] for line in done.stdout.splitlines()] == [done.stdout[0], "{"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("line", ["", "status", "status --json", "--help", "record - --duration 0.1"])
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_are_not_an_error(environment: dict[str, str], line: str, closed: str) -> None:
    done = shell(f'"$@" {closed}', *line.split(), env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("buffering", ["", "1"])
@pytest.mark.parametrize("line", ["status", "--version", "config", "workloads --json", "record -"])
def test_a_full_disk_is_reported(environment: dict[str, str], line: str, buffering: str) -> None:
    done = shell('"$@" > /dev/full', *line.split(), env={**environment, "PYTHONUNBUFFERED": buffering})
    assert done.returncode == 1
    assert is_one_line(done.stderr)
    assert "no space left on device" in done.stderr.lower()
    assert "standard output" in done.stderr


# Recording


def test_frames_go_through_a_pipe(environment: dict[str, str]) -> None:
    script = f'"$@" | \'{sys.executable}\' -c "{COUNT_FRAMES}"'
    done = shell(script, "record", "-", "--interval", "0.1", "--duration", "1", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert 5 <= int(done.stdout) <= 13


# The environment


def options() -> list[tuple[str, str, str]]:
    """Command, option, and the environment variable that sets it according to the rule."""
    rows = []
    for command in (commands.gpumon, *commands.gpumon.commands.values()):
        path = () if command is commands.gpumon else (str(command.name),)
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name not in {"version", "help"}:
                words = (*path, parameter.opts[0].removeprefix("--").replace("-", "_"))
                rows.append(
                    (" ".join(path), str(parameter.name), "_".join(("GPUMON", *words)).upper().replace("-", "_"))
                )
    return rows


@pytest.mark.parametrize(("command", "option", "variable"), options())
def test_every_option_can_be_set_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, command: str, option: str, variable: str
) -> None:
    monkeypatch.setenv(variable, "7")
    click_command = commands.gpumon.commands[command] if command else commands.gpumon
    parameter = next(parameter for parameter in click_command.params if parameter.name == option)
    parent = click.Context(commands.gpumon, info_name="gpumon", **commands.gpumon.context_settings)
    context = click.Context(click_command, parent=parent, info_name=command) if command else parent
    assert parameter.value_from_envvar(context) is not None


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("GPUMON_INTERVAL", "nan", "record -"),
        ("GPUMON_INTERVAL", "0.01", "record -"),
        ("GPUMON_RECORD_INTERVAL", "x", "record -"),
        ("GPUMON_THEME", "pink", "demo"),
        ("GPUMON_DEMO_SPEED", "nan", "demo"),
    ],
)
def test_values_of_the_environment_are_checked(
    environment: dict[str, str], variable: str, value: str, line: str
) -> None:
    done = run(*line.split(), env={**environment, variable: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: Invalid value" in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("line", ["status", "memory --json", "watch true", "--interval 0.2 workloads"])
def test_an_invalid_variable_is_a_warning_for_commands_that_do_not_use_it(
    environment: dict[str, str], line: str
) -> None:
    done = run(*line.split(), env={**environment, "GPUMON_THEME": "pink"})
    assert done.returncode == 0
    assert is_one_line(done.stderr)
    assert done.stderr.startswith("gpumon: GPUMON_THEME is ignored: 'pink' is not one of")


@pytest.mark.parametrize(
    ("variables", "arguments", "theme"),
    [
        ({"GPUMON_THEME": "ansi"}, [], "ansi"),
        ({"GPUMON_THEME": "ansi"}, ["demo"], "ansi"),
        ({"GPUMON_THEME": "ansi", "GPUMON_DEMO_THEME": "light"}, ["demo"], "light"),
        ({"GPUMON_THEME": "ansi"}, ["demo", "--theme", "dark"], "dark"),
        ({}, ["--theme", "light", "demo"], "light"),
        ({}, ["demo"], "dark"),
    ],
)
def test_the_most_specific_theme_is_used(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], arguments: Sequence[str], theme: str
) -> None:
    seen: list[tuple[Stream, str]] = []
    monkeypatch.setattr(commands, "show", lambda stream, theme, *_, **__: seen.append((stream, theme)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    commands.gpumon(arguments, standalone_mode=False)
    ((stream, used),) = seen
    stream.close()
    assert used == theme


BROKEN = """
import gpumon.operations.one_shot as module
module.sample_frame = lambda **_: 1 / 0
from gpumon.cli import main
main()
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("variables", "line", "shown"),
    [
        ({}, "status", False),
        ({}, "--debug status", True),
        ({}, "status --debug", True),
        ({"GPUMON_DEBUG": "1"}, "status", True),
        ({"GPUMON_DEBUG": "true"}, "status", True),
        ({"GPUMON_DEBUG": "0"}, "status", False),
    ],
)
def test_a_failure_of_gpumon_itself(
    no_driver: dict[str, str], variables: dict[str, str], line: str, shown: bool
) -> None:
    command = [sys.executable, "-c", BROKEN, *line.split()]
    done = subprocess.run(command, env={**no_driver, **variables}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert ("Traceback" in done.stderr) is shown
    assert is_one_line(done.stderr) is not shown
    assert "ZeroDivisionError" in done.stderr
