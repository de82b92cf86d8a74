"""Corrections of Textual that no test of a screen shows."""

import os
import selectors
import time

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
