"""Notify me when ...: the key, the dialog, what shows that gpumon waits, and the bell."""

import pytest

from gpumon.core.device_use import FREE_SAMPLES
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.choice import NotifyWhenDialog
from tests import builders
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
        for second in range(FREE_SAMPLES):
            stream.put(builders.frame(devices=(builders.device(0, processes=()),), monotonic_seconds=102.0 + second))
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
