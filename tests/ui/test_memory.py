"""The memory of a GPU: its waterfall, a process's course, its segments, its cache, and why it ran out of memory."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.core.allocator import EmptiedCache, ProbeState
from gpumon.core.model import DeviceState, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.diagnosis.explanation import Explanation
from gpumon.probe.news import Ask, SegmentMap
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import oom
from gpumon.ui.screens.allocator_summary import AllocatorSummaryScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.empty_cache import EmptyCacheDialog, Phase
from gpumon.ui.screens.memory import MemoryScreen
from gpumon.ui.screens.oom import OomScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.segments import SegmentsScreen
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.text_line import TextLines
from tests import builders
from tests.diagnosis import oom_documents
from tests.ui.fakes import HOSTILE, FakeLive, FakeRecording, Refreshes, app_on, screen_lines, screen_text
from tests.ui.probing import BEGAN, GIB, MIB, PID, FakeWatcher, gpu, moment, probe, segments, silent, statistics
from tests.ui.test_snapshots import Compare

SUMMARY = "|====|\n|  PyTorch CUDA memory summary, device ID 0  |\n|====|"
SECONDS = 300


class Training:
    """A machine on which a training with a probe runs.

    Args:
        watcher: What tells of the probe.
        theme: The app's theme.
    """

    def __init__(self, watcher: FakeWatcher, theme: str = "dark") -> None:
        self.watcher = watcher
        self.stream = FakeLive()
        self.app = app_on(self.stream, theme)
        self.seconds = 0.0
        self.app.probes.clock = lambda: BEGAN + self.seconds
        self.app.probes.is_own = lambda _: True

    def go(self, *seconds: float, **changes: Any) -> None:  # noqa: ANN401
        """Seconds pass, in which the allocator takes more and more, and is short of memory twice."""
        for second in seconds:
            self.seconds = second
            wave = abs(second % 80 - 40) / 40
            reserved = (30 + int(second) // 10 if second < 150 else 60) * GIB
            allocated = int(reserved * (0.5 + 0.35 * wave))
            told = {
                "allocated_bytes": allocated,
                "active_bytes": allocated + GIB // 2,
                "reserved_bytes": reserved,
                "inactive_split_bytes": (reserved - allocated) // 3,
                "allocated_peak_bytes": (25 + min(int(second), 170) // 8) * GIB,
                "alloc_retries_count": (second >= 150) + (second >= 210),
                "ooms_count": int(second >= 250),
            }
            self.watcher.inbox.put(
                probe(PID, statistics(**told), at=BEGAN + second, process={"rank": 0, "world_size": 2}, **changes)
            )
            self.app.probes.take()
            self.stream.put(moment(second, gpu(reserved + GIB), builders.device(1)))
            self.app.feed.take()

    async def open(self, pilot: Pilot[Any], seconds: int = 20, **changes: Any) -> MemoryScreen:  # noqa: ANN401
        """The first frame comes, probes are looked for, time passes, and the key is pressed."""
        self.stream.put(moment(0.0))
        await pilot.pause()
        self.app.probes.start()
        self.go(*range(1, seconds), **changes)
        return await self.press(pilot)

    async def press(self, pilot: Pilot[Any], key: str = "m") -> MemoryScreen:
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(self.app.screen, MemoryScreen)
        return self.app.screen


@pytest.fixture
def training(watcher: FakeWatcher) -> Training:
    return Training(watcher)


def rows_of(screen: MemoryScreen) -> list[str]:
    return ["".join(span.text for span in row.line) for row in screen.query_one("#parts", LineTable).rows]


def put_cursor(screen: MemoryScreen, words: str) -> None:
    places = [place for place, row in enumerate(rows_of(screen)) if words in row]
    screen.query_one("#parts", LineTable).cursor = places[0]


# The waterfall


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_every_part_has_its_size_its_share_and_its_words(training: Training, size: tuple[int, int]) -> None:
    async with training.app.run_test(size=size) as pilot:
        screen = await training.open(pilot)
        rows = rows_of(screen)
        assert screen.told_bytes == builders.READINGS["memory_total_bytes"]
        for label, size_text in (
            ("▞ driver", "629 MiB"),
            ("PID 4000 rank 0", "32.0 GiB"),
            ("  ▄ context and libraries", "1.00 GiB"),
            ("  █ tensors", r"2\d.\d GiB"),
            ("  ▓ freed, awaited", "512 MiB"),
            ("  ░ cached", r"[\d.]+ GiB"),
            ("  ▚ fragmented", r"[\d.]+ GiB"),
            ("▒ PID 5000", "12.0 GiB"),
            ("? nobody's", "9.00 MiB"),
            ("· free", "95.8 GiB"),
        ):
            assert any(re.match(rf"{re.escape(label)} +{size_text} +[\d.]+% ", row) for row in rows), (label, rows)
        assert re.search(r"44\.\d GiB of 140 GiB taken +95\.8 GiB free", screen_text(training.app))


async def test_the_note_says_what_would_free_it(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        screen = await training.open(pilot)
        put_cursor(screen, "cached")
        await pilot.pause()
        assert "torch.cuda.empty_cache() gives it back" in screen_text(training.app)
        put_cursor(screen, "PID 4000")
        await pilot.pause()
        text = " ".join(screen_text(training.app).split())
        assert "PID 4000 rank 0: Python 3.12.3, torch 2.11.0+cu130, native allocator." in text
        assert "2.00 GiB of host memory pinned" in text


async def test_nothing_changed_and_nothing_is_drawn(training: Training) -> None:
    async with training.app.run_test(size=(160, 50)) as pilot:
        screen = await training.open(pilot)
        spies = [Refreshes(each) for each in screen.query(TextLines)] + [Refreshes(screen.query_one(LineTable))]
        training.stream.put(moment(19, gpu(32 * GIB), builders.device(1)))
        await pilot.pause()
        assert [spy.regions for spy in spies] == [[]] * len(spies)


async def test_the_chart_moves_on_by_whole_columns(training: Training) -> None:
    async with training.app.run_test(size=(160, 50)) as pilot:
        screen = await training.open(pilot, 21)
        spy = Refreshes(screen.query_one("#below", TextLines))
        training.stream.put(moment(20.5, gpu(33 * GIB), builders.device(1)))
        await pilot.pause()
        assert spy.rows == [], "no column has passed"
        training.go(21, 22, 23)
        training.app.draw()
        await pilot.pause()
        assert len(spy.rows) > 3


# Which GPU, which process, and from where


async def test_it_opens_for_the_gpu_under_the_cursor_and_goes_to_the_next(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        assert " Memory of GPU 0  H200" in screen_lines(training.app)[0]
        for key, number in (("right", 1), ("right", 0), ("left", 1), ("tab", 0), ("shift+tab", 1)):
            await pilot.press(key)
            await pilot.pause()
            assert f" Memory of GPU {number}  H200" in screen_lines(training.app)[0]
        assert "No process with a probe holds memory of this GPU." in screen_text(training.app)
        assert "s Segments" not in screen_text(training.app)
        assert re.search(r"Memory used  [\d.]+ GiB of 140 GiB", screen_text(training.app))
        await pilot.press("escape", "down")
        await training.press(pilot)
        assert " Memory of GPU 1  H200" in screen_lines(training.app)[0]


async def test_it_opens_from_a_gpu_and_from_a_process(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        training.stream.put(moment(0.0))
        await pilot.pause()
        await pilot.press("enter")
        assert isinstance(training.app.screen, DeviceScreen)
        await training.press(pilot, "M")
        await pilot.press("escape", "escape")
        for row, number in enumerate((0, 0, 1)):
            assert isinstance(training.app.screen, OverviewScreen)
            training.app.screen.query_one("#processes", LineTable).focus()
            training.app.screen.query_one("#processes", LineTable).cursor = row
            await training.press(pilot)
            assert f" Memory of GPU {number}  H200" in screen_lines(training.app)[0]
            await pilot.press("escape", "enter")
            await training.press(pilot)
            assert f" Memory of GPU {number}  H200" in screen_lines(training.app)[0]
            await pilot.press("escape", "escape")


async def test_keys_act_on_no_other_process_than_the_one_under_the_cursor(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        screen = await training.open(pilot)
        assert "s Segments e Empty" in screen_text(training.app)
        put_cursor(screen, "PID 5000")
        await pilot.pause()
        assert "Segments" not in screen_text(training.app)
        await pilot.press("e", "s")
        assert training.watcher.asked == []
        assert "PID 4000 rank 0  ⣿ allocated" in screen_text(training.app), "its course stays"


async def test_a_gpu_that_has_gone_and_one_that_is_split(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        training.stream.put(moment(21.0, builders.device(1)))
        await pilot.pause()
        assert "has gone; its last values" in screen_text(training.app)
        training.stream.put(moment(22.0, gpu(mig_mode=Switch.ENABLED)))
        await pilot.pause()
        assert "This GPU is split (MIG)" in screen_text(training.app)
        assert "Share" not in screen_text(training.app)


async def test_without_a_gpu_the_key_says_so(training: Training) -> None:
    async with training.app.run_test(size=(120, 40), notifications=True) as pilot:
        training.stream.put(builders.frame(devices=()))
        await pilot.pause()
        await pilot.press("m")
        assert [each.message for each in training.app._notifications] == [
            "There is no GPU whose memory could be shown."
        ]
        assert isinstance(training.app.screen, OverviewScreen)


# Probes


async def test_without_a_probe_it_says_how_to_have_one(training: Training) -> None:
    async with training.app.run_test(size=(80, 24)) as pilot:
        training.stream.put(moment(0.0))
        await pilot.pause()
        await training.press(pilot)
        for words in ("gpumon watch -- python train.py", "import gpumon.probe; gpumon.probe.start()", "attach PID"):
            assert words in screen_text(training.app)


async def test_a_recording_says_that_it_knows_nothing_of_pytorch(watcher: FakeWatcher) -> None:
    stream = FakeRecording()
    app = app_on(stream)
    async with app.run_test(size=(100, 30)) as pilot:
        stream.put(moment(0.0))
        await pilot.pause(0.4)
        await pilot.press("m")
        await pilot.pause()
        assert "only read on the machine itself" in screen_text(app)
        assert "▒ PID 4000" in screen_text(app)
    assert watcher.started == 0


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ProbeState.WAITING_FOR_TORCH, "has not imported PyTorch yet"),
        (ProbeState.CPU_ONLY, "its PyTorch is built for the CPU only"),
        (ProbeState.WAITING_FOR_CUDA, "has not begun to use a GPU yet"),
        (ProbeState.FAILED, "its PyTorch cannot be read"),
    ],
)
async def test_how_far_pytorch_is_in_words(training: Training, state: ProbeState, words: str) -> None:
    why = Problem(ProblemCode.UNKNOWN, "KeyError: 'segment'") if state is ProbeState.FAILED else None
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        training.watcher.inbox.put(probe(77, at=BEGAN + 19, state=state, process={"rank": 1}, problem=why))
        await pilot.pause()
        training.app.draw()
        await pilot.pause()
        assert re.search(rf"PID 77 rank 1 .*{re.escape(words)}", screen_text(training.app))
        assert isinstance(training.app.screen, MemoryScreen)
        put_cursor(training.app.screen, "PID 77")
        await pilot.pause()
        assert ("KeyError" in screen_text(training.app)) is (why is not None)


async def test_old_figures_say_their_age_and_a_probe_that_has_gone_leaves(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        assert " old" not in screen_text(training.app)
        training.seconds += 2.0
        training.app.draw()
        assert " old" not in screen_text(training.app)
        training.seconds += 5.0
        training.app.draw()
        await pilot.pause()
        assert "! 7s old  python train.py" in screen_text(training.app)
        training.watcher.inbox.put(silent(probe(PID, statistics())))
        await pilot.pause()
        training.app.draw()
        await pilot.pause()
        assert "▒ PID 4000 " in screen_text(training.app)
        assert "gpumon watch" in screen_text(training.app)


async def test_a_paused_screen_stands_still(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        await pilot.press("space")
        await pilot.pause()
        held = screen_lines(training.app)[1:-1]
        training.go(*range(20, 60))
        training.app.draw_anew()
        await pilot.pause()
        assert screen_lines(training.app)[1:-1] == held
        await pilot.press("space")
        await pilot.pause()
        assert screen_lines(training.app)[1:-1] != held


async def test_probes_are_looked_for_late_asked_often_while_shown_and_closed(training: Training) -> None:
    watcher = training.watcher
    async with training.app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.4)
        assert watcher.started == 0, "there is no frame yet"
        training.stream.put(moment(0.0))
        await pilot.pause()
        assert watcher.started == 0, "the first frame is drawn first"
        await pilot.pause(0.4)
        assert (watcher.started, watcher.paces) == (1, [1.0])
        await training.press(pilot)
        assert watcher.paces[-1] == 0.5
        await pilot.press("escape")
        await pilot.pause()
        assert watcher.paces[-1] == 1.0
        training.app.close_streams()
        assert watcher.closed == 1


# The course


async def test_the_course_marks_the_peak_retries_and_out_of_memory(training: Training) -> None:
    async with training.app.run_test(size=(160, 50)) as pilot:
        await training.open(pilot, SECONDS)
        text = screen_text(training.app)
        assert "⣿ allocated" in text
        assert "64.0 GiB ┤" in text
        marks = next(line for line in screen_lines(training.app) if "out of memory" in line)
        assert marks.count("R") == 2
        assert "▲ peak 46.0 GiB" in marks
        before = screen_lines(training.app)
        await pilot.press("z")
        await pilot.pause()
        assert "1 s/col" in screen_text(training.app)
        await pilot.press("x")
        await pilot.pause()
        assert screen_lines(training.app) == before


# Segments


async def opened_segments(training: Training, pilot: Pilot[Any]) -> SegmentsScreen:
    await training.open(pilot)
    await pilot.press("s")
    await pilot.pause()
    assert isinstance(training.app.screen, SegmentsScreen)
    return training.app.screen


async def test_segments_are_asked_for_and_drawn_by_pool_and_stream(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await opened_segments(training, pilot)
        assert training.watcher.asked == [(PID, Ask.SEGMENTS, {})]
        assert " Asked." in screen_text(training.app)
        training.watcher.answer(SegmentMap(segments(), is_cut=False, seconds=0.0123))
        await pilot.pause()
        text = screen_text(training.app)
        assert "Read just now; it held the process up for 12 ms." in text
        assert "6 segments, 1.56 GiB; free 797 MiB, largest hole 256 MiB, fragmentation 68%, 256 MiB in empty" in text
        order = [
            text.index(each) for each in ("shared pool, large", "pool, small", "stream 0x55d0", "private pool 0.1")
        ]
        assert order == sorted(order)
        assert re.search(r"512 MiB   432 MiB   232 MiB  █+·+[▒█]+·+", text)
        assert re.search(r"256 MiB  64.0 MiB  64.0 MiB  █+▓+·+ ", text)
        training.seconds += 75
        training.app.draw()
        await pilot.pause()
        assert "Read 70s ago" in screen_text(training.app)


async def test_segments_that_were_cut_refused_or_that_do_not_come(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await opened_segments(training, pilot)
        training.seconds += 9
        training.app.draw()
        await pilot.pause()
        assert "Asked 9s ago: no answer yet" in screen_text(training.app)
        await pilot.press("r")
        assert len(training.watcher.asked) == 1, "one request at a time"
        training.watcher.answer(SegmentMap(segments(), is_cut=True, seconds=0.5))
        await pilot.pause()
        assert "There are more blocks than are sent" in screen_text(training.app)
        await pilot.press("r")
        training.watcher.answer(problem=Problem(ProblemCode.UNRESPONSIVE, "It has just answered."))
        await pilot.pause()
        assert "! It has just answered." in screen_text(training.app)
        assert "6 segments" in screen_text(training.app), "what was there stays"


async def test_the_summary_in_full(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await opened_segments(training, pilot)
        await pilot.press("m")
        await pilot.pause()
        assert isinstance(training.app.screen, AllocatorSummaryScreen)
        assert training.watcher.asked[-1] == (PID, Ask.SUMMARY, {"ordinal": 0})
        training.watcher.answer(SUMMARY)
        await pilot.pause()
        assert "PyTorch CUDA memory summary, device ID 0" in screen_text(training.app)
        await pilot.press("r")
        training.watcher.answer(problem=Problem(ProblemCode.NOT_FOUND, "It is gone."))
        await pilot.pause()
        assert "! It is gone." in screen_text(training.app)


async def test_rows_are_made_once_for_a_map_and_a_width(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        screen = await opened_segments(training, pilot)
        training.watcher.answer(SegmentMap(segments(), is_cut=False, seconds=0.0))
        await pilot.pause()
        table = screen.query_one("#segments", LineTable)
        drawn = table.rows
        training.app.draw()
        assert table.rows is drawn
        await pilot.resize_terminal(100, 40)
        await pilot.pause()
        assert len(table.rows) == len(drawn)
        assert table.rows is not drawn


async def test_an_answer_that_comes_when_the_screen_is_closed_is_dropped(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await opened_segments(training, pilot)
        await pilot.press("escape")
        training.watcher.answer(SegmentMap(segments(), is_cut=False, seconds=0.0))
        await pilot.pause()
        assert isinstance(training.app.screen, MemoryScreen)


# Emptying the cache


async def opened_dialog(training: Training, pilot: Pilot[Any]) -> EmptyCacheDialog:
    await training.open(pilot)
    await pilot.press("e")
    await pilot.pause()
    assert isinstance(training.app.screen, EmptyCacheDialog)
    return training.app.screen


async def test_the_dialog_says_what_comes_back_and_cancels_by_default(training: Training) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        await opened_dialog(training, pilot)
        text = " ".join(screen_text(training.app).split())
        assert "Have PID 4000 rank 0 call torch.cuda.empty_cache()?" in text
        assert re.search(r"[\d.]+ (GiB|MiB) comes back: cached", text)
        for words in ("live tensors hold it", "parts of its segments are in use", "CUDA context", "CUDA graph"):
            assert words in text
        await pilot.press("enter")
        assert isinstance(training.app.screen, MemoryScreen)
        await pilot.press("e", "escape", "e", "n")
        assert isinstance(training.app.screen, MemoryScreen)
        assert training.watcher.asked == []


@pytest.mark.parametrize("keys", [["y"], ["right", "enter"]])
async def test_it_shows_what_came_back_by_both_accounts(training: Training, keys: list[str]) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        dialog = await opened_dialog(training, pilot)
        await pilot.press(*keys)
        await pilot.pause()
        assert training.watcher.asked == [(PID, Ask.EMPTY_CACHE, {})]
        assert "was asked to empty its cache" in screen_text(training.app)
        await pilot.press("y")
        assert len(training.watcher.asked) == 1, "it is asked once"
        before = statistics(reserved_bytes=31 * GIB, allocated_bytes=20 * GIB)
        after = statistics(reserved_bytes=27 * GIB, allocated_bytes=20 * GIB, active_bytes=20 * GIB)
        training.watcher.answer(EmptiedCache((before,), (after,), 0.14))
        await pilot.pause()
        assert "4.00 GiB came back in 140 ms" in " ".join(screen_text(training.app).split())
        assert dialog.phase is Phase.ANSWERED
        training.stream.put(moment(training.seconds + 1, gpu(28 * GIB), builders.device(1)))
        await pilot.pause()
        text = " ".join(screen_text(training.app).split())
        assert "The driver agrees: memory in use fell by 4.00 GiB." in text
        assert "20.0 GiB stays: live tensors hold it" in text
        await pilot.press("enter")
        assert isinstance(training.app.screen, MemoryScreen)


async def test_a_process_of_another_user_one_that_has_gone_and_one_that_fails(training: Training) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        await training.open(pilot)
        training.app.probes.is_own = lambda _: False
        await pilot.press("e")
        await pilot.pause()
        assert ["belongs to another user" in each.message for each in training.app._notifications] == [True]
        assert isinstance(training.app.screen, MemoryScreen)
        training.app.probes.is_own = lambda _: True
        await pilot.press("e", "y")
        training.watcher.answer(problem=Problem(ProblemCode.UNKNOWN, "RuntimeError: captured"))
        await pilot.pause()
        assert "Nothing was done. RuntimeError: captured" in screen_text(training.app)
        await pilot.press("escape", "e")
        training.watcher.inbox.put(silent(probe(PID, statistics())))
        training.app.probes.take()
        await pilot.press("y")
        await pilot.pause()
        assert "PID 4000 has gone" in screen_text(training.app)
        assert len(training.watcher.asked) == 1


async def test_figures_from_before_the_answer_do_not_tell_what_came_back(training: Training) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        dialog = await opened_dialog(training, pilot)
        await pilot.press("y")
        training.watcher.answer(EmptiedCache((statistics(),), (statistics(reserved_bytes=50 * GIB),), 0.1))
        await pilot.pause()
        later = training.seconds + 1
        for old in (
            {"state": DeviceState.UNRESPONSIVE, "age_seconds": 9.0},
            {"age_seconds": 1.2},
            {"problems": {"memory_used_bytes": Problem(ProblemCode.STALE, "Of 1 s ago.")}},
        ):
            training.stream.put(moment(later, gpu(32 * GIB, **old), builders.device(1)))
            await pilot.pause()
            assert dialog.phase is Phase.ANSWERED
            assert "river" not in screen_text(training.app)
        training.stream.put(moment(later, gpu(22 * GIB), builders.device(1)))
        await pilot.pause()
        assert "The driver agrees" in screen_text(training.app)


async def test_a_process_that_does_not_answer_may_do_it_yet(training: Training) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        await opened_dialog(training, pilot)
        await pilot.press("y")
        training.watcher.answer(problem=Problem(ProblemCode.UNRESPONSIVE, "It has not answered."))
        await pilot.pause()
        assert "Nothing is known to be done. It has not answered." in screen_text(training.app)


async def test_what_is_asked_and_the_buttons_are_in_sight_on_a_small_screen(training: Training) -> None:
    async with training.app.run_test(size=(60, 10)) as pilot:
        await opened_dialog(training, pilot)
        text = screen_text(training.app)
        assert "Have PID 4000 rank 0 call torch.cuda.empty_cache()?" in text
        assert "Leave it (n)" in text
        assert "Empty the cache (y)" in text


# Out of memory


async def test_a_file_that_was_left_is_explained(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_evidence(found: Explanation) -> Explanation:
        return replace(
            found, matches=tuple(replace(each, evidence={"held by": "PID 77 now"}) for each in found.matches)
        )

    monkeypatch.setattr(oom, "DRIVER_FILES", tmp_path)
    monkeypatch.setattr(oom, "with_evidence", with_evidence)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    told = oom_documents.document([oom_documents.pieces(40, 512 * MIB)], 2 * GIB)
    path = oom_documents.write(tmp_path, told, "oom-1795000000-4000-1.json.gz")
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot, oom_files=(str(path), "/tmp/not-one"))
        assert "! PID 4000 ran out of memory at 11:06:40: o explains it" in screen_text(training.app)
        await pilot.press("o")
        screen = training.app.screen
        assert isinstance(screen, OomScreen)
        for _ in range(40):
            await pilot.pause(0.05)
            if "PID 77 now" in str(screen.found):
                break
        await pilot.pause()
        assert "What the numbers say" in screen_text(training.app)
        await pilot.press("end")
        await pilot.pause()
        assert isinstance(screen.found, Explanation)
        assert screen.found.matches[0].evidence == {"held by": "PID 77 now"}
        await pilot.press("escape")
        assert isinstance(training.app.screen, MemoryScreen)


async def test_a_process_that_died_of_it_is_told_although_its_probe_had_no_time(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "gpumon" / "oom"
    folder.mkdir(parents=True)
    now = int(time.time())
    for name in (f"oom-{now}-4000-1.json.gz", f"oom-{now - 900}-4000-1.json.gz", f"oom-{now}-4001-1.json.gz", "x"):
        (folder / name).touch()
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        training.watcher.inbox.put(silent(probe(PID, statistics())))
        for _ in range(40):
            await pilot.pause(0.05)
            if training.app.probes.ooms:
                break
        assert [Path(each.path).name for each in training.app.probes.ooms] == [f"oom-{now}-4000-1.json.gz"]
        await pilot.press("o")
        await pilot.pause(0.2)
        assert isinstance(training.app.screen, OomScreen)


# Anything at all


@pytest.mark.parametrize("size", [(60, 10), (20, 5), (8, 3), (300, 100), (40, 12)])
async def test_every_size(training: Training, size: tuple[int, int]) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        await pilot.resize_terminal(*size)
        await pilot.press("down", "down", "s")
        training.watcher.answer(SegmentMap(segments(), is_cut=False, seconds=0.0))
        await pilot.pause()
        await pilot.press("m", "escape", "escape", "e", "n", "right", "left")
        await pilot.pause()
        assert isinstance(training.app.screen, MemoryScreen)


async def test_hostile_text_is_inert(training: Training) -> None:
    safe = HOSTILE.encode("ascii", "ignore").decode().replace("\x1b", "?").replace("\x07", "?").replace("\x00", "?")
    async with training.app.run_test(size=(120, 40)) as pilot:
        process = {"command": safe, "settings": {"PYTORCH_ALLOC_CONF": safe}, "python_version": safe}
        training.stream.put(moment(0.0))
        await pilot.pause()
        training.app.probes.start()
        training.watcher.inbox.put(probe(PID, statistics(), process=process, torch_version=safe, backend=safe))
        training.watcher.inbox.put(
            probe(78, process=process, state=ProbeState.FAILED, problem=Problem(ProblemCode.UNKNOWN, safe))
        )
        training.watcher.problems = (Problem(ProblemCode.UNKNOWN, safe),)
        await pilot.pause()
        training.stream.put(moment(1.0))
        screen = await training.press(pilot)
        for words in ("PID 4000", "PID 78"):
            put_cursor(screen, words)
            await pilot.pause()
            assert "[bold red]" in screen_text(training.app)
        await pilot.press("g", "s")
        training.watcher.answer(problem=Problem(ProblemCode.UNKNOWN, safe))
        await pilot.press("m")
        training.watcher.answer(safe)
        await pilot.pause()
        assert "[bold red]" in screen_text(training.app)
        await pilot.press("escape", "escape", "e", "y")
        training.watcher.answer(problem=Problem(ProblemCode.UNKNOWN, safe))
        await pilot.pause()
        assert "[bold red]" in screen_text(training.app)


# Pictures


def pictured(training: Training, *keys: str, answer: Any = None) -> tuple[GpumonApp, Any]:  # noqa: ANN401
    async def press(pilot: Pilot[Any]) -> None:
        await training.open(pilot, SECONDS)
        await pilot.press(*keys)
        await pilot.pause()
        if answer is not None:
            training.watcher.answer(answer)
        await pilot.pause()

    return training.app, press


@pytest.mark.parametrize("theme", ["dark", "ansi"])
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_picture_of_the_memory(snap_compare: Compare, watcher: FakeWatcher, size: tuple[int, int], theme: str) -> None:
    app, press = pictured(Training(watcher, theme), "down", "down", "down")
    assert snap_compare(app, terminal_size=size, run_before=press)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_picture_of_a_gpu_without_a_probe(snap_compare: Compare, size: tuple[int, int]) -> None:
    stream = FakeLive()
    stream.put(*(moment(second, gpu((40 + second) * GIB)) for second in range(40)))

    async def press(pilot: Pilot[Any]) -> None:
        await pilot.press("m")
        await pilot.pause()

    assert snap_compare(app_on(stream), terminal_size=size, run_before=press)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_picture_of_the_segments(snap_compare: Compare, training: Training, size: tuple[int, int]) -> None:
    app, press = pictured(training, "s", answer=SegmentMap(segments(), is_cut=False, seconds=0.008))
    assert snap_compare(app, terminal_size=size, run_before=press)


def test_picture_of_the_question(snap_compare: Compare, training: Training) -> None:
    app, press = pictured(training, "e")
    assert snap_compare(app, terminal_size=(80, 24), run_before=press)


def test_picture_of_what_came_back(snap_compare: Compare, training: Training) -> None:
    before = statistics(reserved_bytes=60 * GIB)
    after = statistics(reserved_bytes=48 * GIB)
    app, press = pictured(training, "e", "y", answer=EmptiedCache((before,), (after,), 0.31))
    assert snap_compare(app, terminal_size=(80, 24), run_before=press)
