"""Notifications of new alerts: which alerts, how many commands at one time, and commands that fail or hang."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.alerts import Alert, AlertChange, Severity
from gpumon.session import alert_notifier
from gpumon.session.alert_notifier import AlertNotifier, NotifySettings, run_command
from tests.builders import frame
from tests.core.test_ownership import needs_root
from tests.processes import is_running

HOT = Alert("temperature_high", Severity.CRITICAL, "GPU 0 is at 91 °C.", "Check the fans.", 5.0, "GPU-0", 0)
SLOW = Alert("pcie_degraded", Severity.WARNING, "GPU 1 uses PCIe x8.", device_key="GPU-1", device_index=1)
NOTE = Alert("idle", Severity.INFO, "GPU 2 is idle.")


class Notified:
    """A notifier whose commands end when the test wants."""

    def __init__(self, settings: NotifySettings) -> None:
        self.shown: list[str] = []
        self.problems: list[Problem] = []
        self.running: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.notifier = AlertNotifier(
            settings, lambda work, then: self.running.append((work, then)), self.problems.append
        )
        self.notifier.show = self.shown.append

    def begin(self, *alerts: Alert) -> None:
        self.notifier.observe(frame(), [AlertChange(alert, has_begun=True) for alert in alerts])

    def end_command(self, problem: Problem | None = None) -> Any:  # noqa: ANN401
        work, then = self.running.pop(0)
        then(problem)
        return json.loads(work.args[1])  # type: ignore[attr-defined]


def test_only_new_alerts_above_info() -> None:
    notified = Notified(NotifySettings(bell=True))
    notified.begin(HOT)
    assert notified.shown == [], "what stands at the start is on the screen"
    notified.begin(NOTE)
    notified.notifier.observe(frame(), [AlertChange(HOT, has_begun=False)])
    assert notified.shown == []
    notified.begin(HOT, NOTE, SLOW)
    assert notified.shown == ["GPU 0 is at 91 °C. and 1 more"]
    assert notified.running == []


def test_one_command_at_a_time() -> None:
    notified = Notified(NotifySettings(command=("true",)))
    notified.begin()
    notified.begin(HOT, SLOW)
    notified.begin(SLOW)
    assert len(notified.running) == 1
    first = notified.end_command()
    assert (first["id"], first["severity"], first["host"]) == ("temperature_high", "critical", "node7")
    assert (first["device_index"], first["device_uuid"], first["action"]) == (0, "GPU-0", "Check the fans.")
    assert len(notified.running) == 1
    assert [notified.end_command()["id"] for _ in range(2)] == ["pcie_degraded"] * 2
    assert notified.running == []
    assert notified.shown == []


def test_a_command_that_keeps_failing_is_reported_once() -> None:
    notified = Notified(NotifySettings(command=("false",)))
    notified.begin()
    notified.begin(HOT, HOT, HOT, HOT)
    failure = Problem(ProblemCode.UNKNOWN, "It failed.")
    for problem in (failure, failure, None, failure):
        notified.end_command(problem)
    assert notified.problems == [failure, failure]


def test_many_alerts_do_not_wait_without_a_limit() -> None:
    notified = Notified(NotifySettings(command=("true",)))
    notified.begin()
    notified.begin(*[HOT] * 500)
    count = 0
    while notified.running:
        notified.end_command()
        count += 1
    assert count <= 20


def test_the_command_gets_the_text_without_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read() + sys.argv[2])"
    assert run_command((sys.executable, "-c", program, str(file), "$HOME; exit"), '{"id": 1}') is None
    assert file.read_text() == '{"id": 1}\n$HOME; exit'


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("no-such-command",), "was not found"),
        (("sh", "-c", "echo something >&2; exit 3"), "failed with exit code 3: something"),
        (("false",), "failed with exit code 1: no message"),
        (("/etc/passwd",), "was not found"),
    ],
)
def test_commands_that_fail(command: tuple[str, ...], words: str) -> None:
    problem = run_command(command, "{}")
    assert problem is not None
    assert words in problem.reason


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    began = time.monotonic()
    problem = run_command(("sh", "-c", f"sleep 60 & echo $! > {file}; wait"), "{}", seconds=0.5)
    assert time.monotonic() - began < 5
    assert problem is not None
    assert "did not end within 0.5 s" in problem.reason
    pid = int(file.read_text())
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and is_running(pid):
        time.sleep(0.02)
    assert not is_running(pid)


@needs_root
def test_root_does_not_run_the_program_of_another_user(tmp_path: Path) -> None:
    program = tmp_path / "notify"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.chown(program, 1234, 1234)
    problem = run_command((str(program),), "{}")
    assert problem is not None
    assert problem.code is ProblemCode.NO_PERMISSION
    assert alert_notifier.COMMAND_SECONDS == 10.0
