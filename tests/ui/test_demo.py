"""The demo: opened, closed, and its effect on the frames below it."""

import time
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpumon.core.frames import encode
from gpumon.streams import replay
from gpumon.ui.app import GpumonApp
from tests import builders
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, app_on, busy, later, screen_lines, screen_text


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small recording in place of the bundled one."""
    path = tmp_path / "demo.jsonl"
    frames = [later(machine(3), float(second), driver_version="111.22") for second in range(3)]
    path.write_text("".join(encode(frame) + "\n" for frame in frames))
    monkeypatch.setattr(replay, "DEMO", path)
    return path


async def wait_for(app: GpumonApp, pilot: Pilot[None], text: str) -> None:
    """The one place here in which a real thread, the replay's, has to get to it."""
    deadline = time.monotonic() + 15
    while text not in screen_text(app):
        assert time.monotonic() < deadline, screen_text(app)
        await pilot.pause(0.02)


@pytest.mark.usefixtures("demo")
async def test_d_plays_the_demo_and_goes_back_to_live() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine(8))
        await pilot.press("d")
        await wait_for(app, pilot, " 3×H200 ")
        assert "REPLAY demo" in screen_text(app)
        stream.put(later(machine(8), 5.0, driver_version="333"))
        await pilot.press("d")
        await wait_for(app, pilot, " 8×H200 ")
        assert app.session.stream is stream
        assert not stream.closed


@pytest.mark.usefixtures("demo")
async def test_the_demo_costs_no_history() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        for bucket in range(5):
            stream.put(later(busy(90.0), 4.0 * bucket))
        await pilot.press("d")
        await wait_for(app, pilot, " 3×H200 ")
        stream.put(later(busy(90.0), 20.0))
        await pilot.press("d")
        await pilot.pause()
        kept = app.session.store.history(busy(90.0).devices[0].key, "utilization_gpu_percent", 6)
        assert kept == [90.0] * 6


@pytest.mark.usefixtures("demo")
async def test_a_recording_waits_while_the_demo_is_shown() -> None:
    recording = FakeRecording()
    app = app_on(recording)
    async with app.run_test(size=(120, 30)) as pilot:
        recording.put(machine())
        await pilot.press("d")
        await wait_for(app, pilot, " 3×H200 ")
        assert recording.paused
        await pilot.press("d")
        assert not recording.paused


async def test_there_is_no_demo_of_the_demo() -> None:
    app = app_on(FakeRecording("demo"))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("d")
        assert app.session.stream.title == "demo"
        assert "Demo" not in screen_lines(app)[-1]


async def test_a_process_screen_says_that_it_has_exited_and_where_the_frames_come_from() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(machine(1))
        await pilot.press("tab", "enter", "space")
        assert "PID 4000 on GPU 0" in screen_lines(app)[1]
        assert "PAUSED" in screen_lines(app)[0]
        await pilot.press("space")
        stream.put(later(builders.frame(devices=(builders.device(0, processes=()),)), 1.0))
        await pilot.pause()
        assert "PID 4000 on GPU 0  has exited; last values" in screen_lines(app)[1]
        assert "train.py" in screen_text(app)


@pytest.mark.usefixtures("demo")
async def test_going_back_to_a_live_stream_that_has_nothing_clears_the_demo() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("d")
        await wait_for(app, pilot, " 3×H200 ")
        await pilot.press("d")
        await pilot.pause()
        assert "111.22" not in screen_text(app)


async def test_a_missing_demo_is_a_notice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(replay, "DEMO", tmp_path / "[/]" / "none.gz")
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        stream.put(machine())
        await pilot.press("d")
        await pilot.pause()
        assert app.session.stream is stream
        assert "is missing" in screen_text(app)
