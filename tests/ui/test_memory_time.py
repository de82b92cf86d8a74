"""The cursor in time on the memory screen."""

import re

from tests.ui.fakes import screen_text
from tests.ui.training import Training


async def test_the_cursor_shows_the_memory_of_the_process_at_a_moment(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        screen = await training.open(pilot, 60)
        now = re.search(r"reserved ([\d.]+ GiB)", screen_text(training.app))
        await pilot.press("left", "shift+left", "shift+left")
        await pilot.pause()
        text = screen_text(training.app)
        assert re.search(r"4\ds ago, \d\d:\d\d:\d\d", text)
        then = re.search(r"reserved ([\d.]+ GiB)", text)
        assert now is not None
        assert then is not None
        assert (now[1], then[1]) == ("35.0 GiB", "31.0 GiB")
        await pilot.press("escape")
        await pilot.pause()
        assert training.app.screen is screen, "the first escape removes the cursor"
        assert " ago, " not in screen_text(training.app)
        await pilot.press("escape")
        assert training.app.screen is not screen
