"""Corrections of Textual that no test of a screen shows."""

import asyncio
import os
import selectors
import time

from textual.app import App
from textual.drivers import linux_driver

from gpumon.ui.textual_fixes import PromptSelector

LONG_SECONDS = 5.0


def test_the_end_of_input_waits_for_nothing() -> None:
    """Textual's last wait is for a selector from which it has removed the terminal."""
    assert vars(linux_driver)["selectors"].SelectSelector is PromptSelector
    selector = PromptSelector()
    reading, writing = os.pipe()
    try:
        selector.register(reading, selectors.EVENT_READ)
        os.write(writing, b"q")
        assert [key.fd for key, _ in selector.select(LONG_SECONDS)] == [reading]
        selector.unregister(reading)
        started = time.monotonic()
        assert selector.select(LONG_SECONDS) == []
        assert time.monotonic() - started < LONG_SECONDS / 2
    finally:
        selector.close()
        os.close(reading)
        os.close(writing)


async def test_a_timer_whose_time_has_passed_ticks_at_once() -> None:
    async with App[None]().run_test() as pilot:
        ticked = asyncio.Event()
        pilot.app.set_timer(-0.02, ticked.set)
        await asyncio.wait_for(ticked.wait(), LONG_SECONDS)
