"""What is left of a closed screen, and of processes and values that are gone: nothing, however many there were."""

import gc
from collections import Counter
from collections.abc import Sequence

import pytest
from rich import cells
from rich.segment import Segment
from textual.cache import FIFOCache, LRUCache
from textual.strip import Strip
from textual.widget import Widget

from gpumon.ui.screens.overview import OverviewScreen
from tests import builders
from tests.ui.fakes import FakeLive, app_on

ROUNDS = 6
KEYS = ("question_mark", "6", "5", "8", "C", "3", "ctrl+p", "enter C")
"""Each opens a screen from the overview, the last one on top of another; not the doctor, which starts programs."""


def live_objects(kinds: Sequence[type]) -> Counter[str]:
    """Number of objects of each kind that something still refers to."""
    gc.unfreeze()  # the app hides from the collector what exists after its start
    gc.collect()
    counts: Counter[str] = Counter()
    for item in gc.get_objects():
        counts.update(kind.__name__ for kind in kinds if isinstance(item, kind))
    return counts


@pytest.mark.long
async def test_a_hundred_screen_changes_leave_no_widget_and_no_line_behind() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(100, 30)) as pilot:
        stream.put(builders.frame())
        await pilot.pause()

        async def open_and_close_all(rounds: int) -> Counter[str]:
            for _ in range(rounds):
                for key in KEYS:
                    for press in key.split():
                        await pilot.press(press)
                        assert not isinstance(app.screen, OverviewScreen), key
                    await pilot.press(*["escape"] * len(key.split()))
                    assert isinstance(app.screen, OverviewScreen), key
            await pilot.pause()
            return live_objects((Widget, Strip))

        before = await open_and_close_all(1)
        after = await open_and_close_all(ROUNDS)
        grown = {name: after[name] - before[name] for name in after}
        assert after["Widget"] > 0
        assert grown["Widget"] == 0
        assert grown["Strip"] < ROUNDS * len(KEYS), "less than one line for each screen"


def test_halves_of_divided_lines_are_kept_for_a_screen_not_for_an_hour() -> None:
    for number in range(3000):
        assert Segment(f"…{number}").split_cells(1) == (Segment("…"), Segment(str(number)))
        assert cells.cell_len(f"…{number}") == len(f"…{number}")
    assert Segment("训").split_cells(1) == (Segment(" "), Segment(" "))
    assert Segment._split_cells.cache_info().currsize <= 1024
    assert cells.cached_cell_len.cache_info().currsize <= 1024


def test_a_line_has_only_the_caches_that_are_used() -> None:
    line = Strip([Segment("ab")])
    assert not any(isinstance(item, FIFOCache) for item in gc.get_referents(line))
    assert line.crop(0, 1) is line.crop(0, 1)
    assert sum(isinstance(item, FIFOCache) for item in gc.get_referents(line)) == 1


def test_lines_and_cleared_caches_are_freed_without_a_collection() -> None:
    gc.collect()
    line, cache = Strip([Segment("ab")]), LRUCache[str, str](4)
    cache["a"] = cache["b"] = "c"
    cache.clear()
    assert line.divide([2]) == [line.adjust_cell_length(2)]
    del line
    assert gc.collect() == 0
