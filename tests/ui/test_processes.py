"""The screen of the processes of all GPUs, and the signals that it sends."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.core.model import Frame, Process
from gpumon.operations.signals import SignalSender
from gpumon.session.signal_controller import REMINDER_SECONDS
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.confirm import SignalDialog
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.screens.processes import ProcessesScreen
from tests import builders
from tests.processes import is_running, sleeper, start_ticks
from tests.ui.fakes import FakeLive, FakeStream, app_on, screen_lines, screen_text, until

GIB = 1 << 30
IGNORES_TERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gpumon"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = sleeper()
    yield process
    process.kill()
    process.wait()


def real(pid: int, **changes: Any) -> Process:  # noqa: ANN401
    return builders.process(pid, start_ticks=start_ticks(pid), **changes)


def host(*processes: Process, seconds: float = 100.0, used: float = 71000 << 20) -> Frame:
    readings = {"memory_used_bytes": used, "memory_unattributed_bytes": 0}
    device = builders.device(0, processes=processes, readings=readings)
    return builders.frame(devices=(device, builders.device(1, processes=())), monotonic_seconds=seconds)


async def opened(pilot: Pilot[Any], stream: FakeStream, frame: Frame) -> None:
    app = pilot.app
    assert isinstance(app, GpumonApp)
    app.session.signals.sender = SignalSender(own_pid=1 << 22)  # a child of the test is no child of gpumon
    stream.put(frame)
    await pilot.press("2")
    await pilot.pause()
    assert isinstance(app.screen, ProcessesScreen)


def notices(app: GpumonApp) -> list[str]:
    return [notice.message for notice in app._notifications]


def rows(app: GpumonApp) -> list[str]:
    """The rows of the table, by their PIDs or the labels of their groups."""
    text = [line.strip(" ▸") for line in screen_lines(app)[3:-1]]
    return [line.split("  ")[0] if line.startswith("▾") else line.split()[1] for line in text if line]


# The table


def several() -> Frame:
    processes = [
        builders.process(11, user="ann", memory_bytes=5 * GIB, cpu_percent=2.0, age_seconds=4 * 86400.0),
        builders.process(12, user="bo", memory_bytes=20 * GIB, command="python serve.py"),
        builders.process(13, user="ann", memory_bytes=30 * GIB, command="python train.py --lr 1"),
    ]
    return host(*processes)


async def test_rows_are_filtered() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        await opened(pilot, stream, several())
        assert rows(app) == ["13", "12", "11"]
        await pilot.press("slash", *"cmd~train", "enter")
        await pilot.pause()
        assert rows(app)[1:] == ["13", "11"], "the first line is the filter"


async def test_rows_are_grouped_with_sums() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        await opened(pilot, stream, several())
        await pilot.press("t", "t")
        await pilot.pause()
        assert rows(app) == ["▾ ann", "13", "11", "▾ bo", "12"]
        assert "2 processes  GPU mem 35.0 GiB" in screen_text(app)
        await pilot.press("t", "t")
        await pilot.pause()
        assert rows(app) == ["13", "12", "11"]


async def test_enter_opens_the_process_or_the_gpu_with_unattributed_memory() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        device = builders.device(0, readings={"memory_unattributed_bytes": 9 * GIB})
        await opened(pilot, stream, builders.frame(devices=(device,)))
        await pilot.press("enter")
        assert isinstance(app.screen, ProcessScreen)
        await pilot.press("escape", "down", "enter")
        assert isinstance(app.screen, DeviceScreen)


async def test_what_started_a_process_stands_in_its_row(child: subprocess.Popen[bytes]) -> None:
    environment = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "RANK": "3", "WORLD_SIZE": "8", "PATH": "/bin"}
    job = sleeper(environment)
    try:
        stream = FakeLive()
        app = app_on(stream)
        async with app.run_test(size=(160, 30)) as pilot:
            await opened(pilot, stream, host(real(child.pid), real(job.pid)))
            await until(pilot, lambda: "4711.0" in screen_text(app))
            assert "3/8" in screen_text(app)
            await pilot.press("slash", *"job:4711", "enter")
            await pilot.pause()
            assert rows(app)[1:] == [str(job.pid)]
    finally:
        job.kill()
        job.wait()


# Signals


async def test_a_process_ends_and_its_memory_comes_back(child: subprocess.Popen[bytes], state_home: Path) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await opened(pilot, stream, host(real(child.pid)))
        await pilot.press("K")
        await until(pilot, lambda: isinstance(app.screen, SignalDialog))
        text = screen_text(app)
        for words in (f"PID {child.pid}", "user ada", "started 20", "import time", "SIGTERM", "SIGINT", "SIGKILL"):
            assert words in text
        assert app.screen.focused is app.screen.query_one("#no")
        await pilot.press("down", "enter")
        await until(pilot, lambda: any("SIGTERM sent to PID" in text for text in notices(app)))
        stream.put(host(real(child.pid), seconds=101.0))
        assert await asyncio.to_thread(child.wait, 10) == -signal.SIGTERM
        stream.put(host(seconds=102.0, used=3 * GIB))
        await until(pilot, lambda: "No process uses a GPU." in screen_text(app))
        assert f"PID {child.pid} no longer uses a GPU. Memory in use on GPU 0 fell by 66.3 GiB." in notices(app)[-1]
    (logged,) = (json.loads(line) for line in (state_home / "signals.log").read_text().splitlines())
    assert (logged["signal"], logged["pid"], logged["sent"]) == ("SIGTERM", child.pid, True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keys", [["enter"], ["escape"]])
async def test_cancel_sends_nothing(child: subprocess.Popen[bytes], keys: list[str], state_home: Path) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, stream, host(real(child.pid)))
        await pilot.press("K")
        await until(pilot, lambda: isinstance(app.screen, SignalDialog))
        await pilot.press(*keys)
        await pilot.pause(0.3)
        assert isinstance(app.screen, ProcessesScreen)
        assert is_running(child.pid)
        assert not (state_home / "signals.log").exists()


async def test_several_marked_processes_get_one_signal() -> None:
    children = [sleeper() for _ in range(3)]
    try:
        stream = FakeLive()
        app = app_on(stream)
        async with app.run_test(size=(120, 50)) as pilot:
            await opened(pilot, stream, host(*(real(one.pid) for one in children)))
            await pilot.press("asterisk", "asterisk")
            assert "2 marked" in screen_text(app)
            await pilot.press("K")
            await until(pilot, lambda: isinstance(app.screen, SignalDialog))
            assert "Send a signal to 2 processes?" in screen_text(app)
            await pilot.press("down", "down", "down", "enter")
            codes = [await asyncio.to_thread(one.wait, 10) for one in children[:2]]
            assert codes == [-signal.SIGKILL] * 2
            assert is_running(children[2].pid)
    finally:
        for one in children:
            one.kill()
            one.wait()


async def test_a_process_that_ignores_the_signal_is_reported() -> None:
    child = subprocess.Popen([sys.executable, "-c", IGNORES_TERM], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        stream = FakeLive()
        app = app_on(stream)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await opened(pilot, stream, host(real(child.pid)))
            await pilot.press("K")
            await until(pilot, lambda: isinstance(app.screen, SignalDialog))
            await pilot.press("down", "enter")
            await until(pilot, lambda: bool(notices(app)))
            for seconds in (101.0, 102.0 + REMINDER_SECONDS):
                stream.put(host(real(child.pid), seconds=seconds))
            await until(pilot, lambda: any("still uses a GPU 11 s after SIGTERM" in text for text in notices(app)))
    finally:
        child.kill()
        child.communicate()


async def test_root_confirms_twice_for_the_processes_of_others(child: subprocess.Popen[bytes]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await opened(pilot, stream, host(real(child.pid)))
        await pilot.press("K")
        await until(pilot, lambda: isinstance(app.screen, SignalDialog))
        dialog = app.screen
        assert isinstance(dialog, SignalDialog)
        dialog._targets = [target._replace(is_foreign=True) for target in dialog._targets]
        await pilot.press("down", "enter")
        assert "processes of other users: ada" in screen_text(app)
        assert dialog.focused is dialog.query_one("#no")
        await pilot.pause(0.2)
        assert is_running(child.pid)
        await pilot.press("down", "enter")
        assert await asyncio.to_thread(child.wait, 10) == -signal.SIGTERM


# One process


async def test_the_screen_of_a_process_shows_what_it_runs_and_waits_for() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "1", "NCCL_DEBUG": "INFO", "HF_TOKEN": "sEcReT1", "PATH": "/bin"}
    child = sleeper(environment)
    try:
        stream = FakeLive()
        app = app_on(stream)
        async with app.run_test(size=(120, 70)) as pilot:
            await opened(pilot, stream, host(real(child.pid)))
            for number in range(10):
                stream.put(host(real(child.pid, sm_percent=50.0), seconds=104.0 + 4 * number))
            await pilot.press("enter")
            assert isinstance(app.screen, ProcessScreen)
            await until(pilot, lambda: "NCCL_DEBUG" in screen_text(app))
            text = screen_text(app)
            for words in ("cuda:0 = GPU 1", "sleeping", "INFO", "<secret>", "GPU memory", "SM 50 %", "last"):
                assert words in text
            assert "sEcReT1" not in text
            assert any("⣿" in line for line in screen_lines(app)), "the charts have points"
            await pilot.press("K")
            await until(pilot, lambda: isinstance(app.screen, SignalDialog))
    finally:
        child.kill()
        child.wait()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(120, 50), (70, 60)])
async def test_the_cursor_in_time_shows_the_values_of_that_moment(
    child: subprocess.Popen[bytes], size: tuple[int, int]
) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=size) as pilot:
        await opened(pilot, stream, host(real(child.pid), seconds=100.0))
        for number in range(26):
            stream.put(host(real(child.pid, sm_percent=float(number)), seconds=104.0 + 4 * number))
        await pilot.press("enter")
        await pilot.pause()
        assert "SM 25 %" in screen_text(app)
        await pilot.press(*["left"] * 5)
        await pilot.pause()
        assert "SM 19 %" in screen_text(app)
        assert " ago, " in screen_text(app)
        await pilot.press("right")
        await pilot.pause()
        assert "SM 20 %" in screen_text(app)
        stream.put(host(real(child.pid, sm_percent=99.0), seconds=208.0))
        await pilot.pause()
        assert "SM 20 %" in screen_text(app), "the cursor stands still"
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, ProcessScreen)
        assert "SM 99 %" in screen_text(app)
        await pilot.press("escape")
        assert isinstance(app.screen, ProcessesScreen)
