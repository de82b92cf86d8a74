"""The segments of a process and its complete memory summary."""

import re
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.core.problems import Problem, ProblemCode
from gpumon.probe.messages import RequestKind, SegmentMap
from gpumon.ui.screens.segments import SegmentsScreen
from tests.ui.fakes import screen_text
from tests.ui.probing import PID, segments
from tests.ui.training import Training


async def opened_segments(training: Training, pilot: Pilot[Any]) -> SegmentsScreen:
    await training.open(pilot)
    await pilot.press("enter")
    await pilot.pause()
    assert isinstance(training.app.screen, SegmentsScreen)
    return training.app.screen


@pytest.mark.long
async def test_segments_are_asked_for_and_drawn_by_pool_and_stream(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await opened_segments(training, pilot)
        assert training.watcher.asked == [(PID, RequestKind.SEGMENTS, {})]
        assert " Waiting for the response." in screen_text(training.app)
        training.watcher.answer(SegmentMap(segments(), is_cut=False, seconds=0.0123))
        await pilot.pause()
        text = screen_text(training.app)
        assert "Read just now; the process paused for 12.3 ms." in text
        assert "6 segments, 1.56 GiB; free 797 MiB, largest hole 256 MiB, fragmentation 68%, 256 MiB in empty" in text
        order = [
            text.index(label) for label in ("shared pool, large", "pool, small", "stream 0x55d0", "private pool 0.1")
        ]
        assert order == sorted(order)
        assert re.search(r"512 MiB   432 MiB   232 MiB  █+·+[▒█]+·+", text)
        assert re.search(r"256 MiB  64.0 MiB  64.0 MiB  █+▓+·+ ", text)
        training.seconds += 75
        training.app.drawing.draw()
        await pilot.pause()
        assert "Read 70s ago" in screen_text(training.app)


async def test_segments_that_were_cut_refused_or_that_do_not_come(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await opened_segments(training, pilot)
        training.seconds += 9
        training.app.drawing.draw()
        await pilot.pause()
        assert "No response after 9s" in screen_text(training.app)
        await pilot.press("r")
        assert len(training.watcher.asked) == 1, "one request at a time"
        training.watcher.answer(SegmentMap(segments(), is_cut=True, seconds=0.5))
        await pilot.pause()
        assert "The map is incomplete: there are more blocks than a probe sends" in screen_text(training.app)
        await pilot.press("r")
        training.watcher.answer(problem=Problem(ProblemCode.UNRESPONSIVE, "It has just answered."))
        await pilot.pause()
        assert "! It has just answered." in screen_text(training.app)
        assert "6 segments" in screen_text(training.app), "what was there stays"
