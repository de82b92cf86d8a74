"""The demo: opened, closed, and its effect on the frames below it."""

from pathlib import Path

import pytest

from gpumon.core.frames import encode
from gpumon.streams import replay
from tests import builders
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, app_on, busy, later, screen_lines, screen_text, seen, session_on


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small recording in place of the bundled one."""
    path = tmp_path / "demo.jsonl"
    frames = [later(machine(3), float(second), driver_version="111.22") for second in range(3)]
    path.write_text("".join(encode(frame) + "\n" for frame in frames))
    monkeypatch.setattr(replay, "DEMO", path)
    return path


@pytest.mark.usefixtures("demo")
async def test_d_plays_the_demo_and_goes_back_to_live() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine(8))
        await pilot.press("d")
        await seen(pilot, " 3×H200 ")
        assert "REPLAY demo" in screen_text(app)
        stream.put(later(machine(8), 5.0, driver_version="333"))
        await pilot.press("d")
        await seen(pilot, " 8×H200 ")
        assert app.session.stream is stream
        assert not stream.closed


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


@pytest.mark.usefixtures("demo")
def test_the_history_goes_on_behind_the_demo_and_a_recording_waits() -> None:
    frames = [later(busy(90.0), 4.0 * bucket) for bucket in range(6)]
    session = session_on(stream := FakeLive(), *frames[:5])
    session.toggle_demo()
    stream.put(frames[5])
    session.toggle_demo()
    session.drain_frames()
    assert session.store.history(frames[0].devices[0].key, "utilization_gpu_percent", 6) == [90.0] * 6
    session = session_on(recording := FakeRecording(), machine())
    for is_demo in (True, False):
        session.toggle_demo()
        assert recording.paused is is_demo
    assert session.can_toggle_demo
    assert not session_on(FakeRecording("demo")).can_toggle_demo
