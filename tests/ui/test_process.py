"""The screens of one GPU and of one process: their values, notes and titles."""

import re

from tests import builders
from tests.frames import troubled
from tests.ui.fakes import FakeLive, app_on, screen_lines, screen_text


async def test_details_follow_their_gpu_by_uuid() -> None:
    stream = FakeLive()
    app = app_on(stream)
    first, second = builders.device(0), builders.device(1)
    async with app.run_test(size=(120, 60)) as pilot:
        stream.put(builders.frame(devices=(first, second)))
        await pilot.press("down", "enter")
        moved = builders.device(0, uuid=second.uuid, readings={"temperature_celsius": 33.0})
        stream.put(builders.frame(devices=(moved,), monotonic_seconds=101.0))
        await pilot.pause()
        assert " GPU 0 " in screen_text(app)
        assert re.search(r"Temperature +33 of ", screen_text(app))


async def test_the_note_says_all_that_a_narrow_row_cannot() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(60, 24)) as pilot:
        stream.put(troubled())
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "fallen off the bus" in "\n".join(screen_lines(app)[-4:])
