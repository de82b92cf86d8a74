"""What is written to the terminal for a new alert, and that nothing is written in a replay."""

import pytest

from gpumon.core.model import DeviceState
from gpumon.session.alert_notifier import NotifySettings
from gpumon.ui import terminal
from gpumon.ui.app import GpumonApp
from gpumon.ui.notifications import notice_sequence
from tests import builders
from tests.ui.fakes import FakeLive, FakeRecording


@pytest.mark.parametrize(
    ("bell", "terminal", "environment", "expected"),
    [
        (True, "", {}, "\a"),
        (False, "osc9", {}, "\x1b]9;gpumon: a; b\a"),
        (True, "osc777", {}, "\x1b]777;notify;gpumon;a, b\a\a"),
        (False, "osc9", {"TMUX": "/tmp/t,1,0"}, "\x1bPtmux;\x1b\x1b]9;gpumon: a; b\a\x1b\\"),
        (False, "", {}, ""),
    ],
)
def test_sequences(bell: bool, terminal: str, environment: dict[str, str], expected: str) -> None:
    assert notice_sequence("a; b", bell=bell, terminal=terminal, environment=environment) == expected


def test_a_hostile_text_ends_no_sequence() -> None:
    sequence = notice_sequence("x\x1b]52;c;AAAA\a\x9cy", bell=False, terminal="osc9", environment={})
    assert sequence.count("\x1b") == sequence.count("\a") == 1
    assert "\x9c" not in sequence


@pytest.mark.parametrize(("stream", "count"), [(FakeLive(), 1), (FakeRecording(), 0)], ids=["live", "replay"])
async def test_a_new_alert_reaches_the_terminal(
    stream: FakeLive | FakeRecording, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(terminal, "write", lambda _, sequence: shown.append(sequence))
    app = GpumonApp(stream, notices=NotifySettings(bell=True))
    async with app.run_test(size=(100, 30)) as pilot:
        for second in range(4):
            lost = builders.device(1, state=DeviceState.LOST, age_seconds=None, processes=None)
            devices = (builders.device(0), builders.device(1) if second < 2 else lost)
            stream.put(builders.frame(devices=devices, monotonic_seconds=100.0 + second))
        await pilot.pause()
        await pilot.pause(0.3)
    assert shown == ["\a"] * count
