"""Notify me when ...: the key, the dialog, what shows that gpumon waits, and the bell."""

import subprocess
import time
from pathlib import Path

import pytest

from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.choice import NotifyWhenDialog
from tests import builders
from tests.cli.running import GPUMON
from tests.nvml_mock import NvmlMock
from tests.terminal import Terminal
from tests.ui.fakes import FakeLive, app_on, screen_lines, screen_text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keys", [("2",), (), ("enter",)])
async def test_waiting_for_a_free_gpu(keys: tuple[str, ...]) -> None:
    stream = FakeLive()
    app: GpumonApp = app_on(stream)
    busy = builders.device(0, processes=(builders.process(4000),))
    async with app.run_test(size=(100, 30)) as pilot:
        stream.put(builders.frame(devices=(busy,)))
        await pilot.pause()
        await pilot.press(*keys, "N")
        await pilot.pause()
        assert isinstance(app.screen, NotifyWhenDialog)
        text = screen_text(app)
        assert "Notify me when …" in text
        assert ("[ ] PID 4000 has ended" in text) == (keys == ("2",))
        if keys == ("2",):
            await pilot.press("down")
        await pilot.press("enter", "escape")
        await pilot.pause()
        assert "notify:1" in screen_lines(app)[0]
        stream.put(builders.frame(devices=(builders.device(0, processes=()),), monotonic_seconds=102.0))
        await pilot.pause()
        assert [notice.message for notice in app._notifications] == ["GPU 0 is free."]
        assert "notify:" not in screen_lines(app)[0]


async def test_a_notification_is_canceled_in_the_same_list() -> None:
    stream = FakeLive()
    app: GpumonApp = app_on(stream)
    devices = (builders.device(0, processes=(builders.process(4000),)), builders.device(1))
    async with app.run_test(size=(60, 20)) as pilot:
        stream.put(builders.frame(devices=devices))
        await pilot.pause()
        await pilot.press("N", "enter", "escape")
        await pilot.pause()
        assert len(app.session.waits.armed) == 1
        await pilot.press("right_square_bracket", "N")
        await pilot.pause()
        assert "[x] GPU 0 is free" in screen_text(app)
        assert "GPU 1 is utilized below 5 % for 5m " in screen_text(app)
        assert "waiting" in screen_text(app)
        await pilot.press("end", "enter", "escape")
        await pilot.pause()
        assert app.session.waits.armed == []
        assert "notify:" not in screen_lines(app)[0]


@pytest.mark.long
def test_a_process_ends_and_the_terminal_rings(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    """With a real collector: the bell, the notification of the terminal, and the command."""
    received = tmp_path / "received.json"
    configuration = tmp_path / "gpumon" / "config.toml"
    configuration.parent.mkdir()
    configuration.write_text(f'[notify]\nterminal = "osc9"\ncommand = ["tee", "{received}"]\n')
    child = subprocess.Popen(["sleep", "60"])
    variables = nvml_mock.environment(gpus=1, pids=[child.pid], NVML_MOCK_PROCS="1")
    variables |= {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    try:
        with Terminal((GPUMON,), variables, rows=30, cols=120) as terminal:
            terminal.wait_for("1 GPUs")
            terminal.send("2")
            terminal.wait_for(rf"Idle +Command[\s\S]* {child.pid} ")
            terminal.send("N")
            terminal.wait_for(rf"\[ \] PID {child.pid} has ended")
            terminal.send("\r")
            terminal.wait_for(r"\[x\] PID")
            terminal.send("\x1b")
            terminal.wait_for("notify:1")
            written = terminal.written
            child.kill()
            child.wait()
            terminal.wait_for(rf"PID {child.pid} (has ended|no longer uses a GPU)\.")
            after = terminal.raw[written:]
            assert b"\x1b]9;gpumon: PID %d " % child.pid in after
            assert b".\a\a" in after, "the end of the notification, and the bell"
            deadline = time.monotonic() + 10
            while not received.exists() or not received.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert f"PID {child.pid}" in received.read_text()
            terminal.send("q")
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
