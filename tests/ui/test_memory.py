"""The memory screen: parts of a GPU's memory, the history of a process, and its probes."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.core.allocator import ProbeState
from gpumon.core.model import Device, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.operations.gpu_processes import GpuOwners, owners_of
from gpumon.probe.messages import Probe, SegmentMap
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import probe_question
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.memory import MemoryScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.text_lines import TextLines
from tests import builders
from tests.ui.fakes import screen_lines, screen_text, until
from tests.ui.probing import BEGAN, PID, FakeWatcher, gpu, moment, probe, segments, silent, statistics
from tests.ui.test_snapshots import Compare
from tests.ui.training import SECONDS, Training, put_cursor, rows_of

# The waterfall


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_every_part_has_its_size_its_share_and_its_words(training: Training, size: tuple[int, int]) -> None:
    async with training.app.run_test(size=size) as pilot:
        screen = await training.open(pilot)
        rows = rows_of(screen)
        assert screen.parts_bytes == builders.READINGS["memory_total_bytes"]
        for label, size_text in (
            (" ▞ driver", "629 MiB"),
            ("A  PID 4000 rank 0", "32.0 GiB"),
            (" ▄   context and libraries", "1.00 GiB"),
            (" █   tensors", r"2\d.\d GiB"),
            (" ▓   waiting for stream", "512 MiB"),
            (" ░   cached", r"[\d.]+ GiB"),
            (" ▚   fragmented", r"[\d.]+ GiB"),
            ("B▓ PID 5000", "12.0 GiB"),
            (" ? unattributed", "9.00 MiB"),
            (" · free", "95.8 GiB"),
        ):
            assert any(re.match(rf"{re.escape(label)} +{size_text} +[\d.]+% ", row) for row in rows), (label, rows)
        assert re.search(r"44\.\d of 140 GiB in use +95\.8 GiB free", screen_text(training.app))


async def test_the_note_says_what_would_free_it(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        screen = await training.open(pilot)
        put_cursor(screen, "cached")
        await pilot.pause()
        assert "torch.cuda.empty_cache() returns it" in screen_text(training.app)
        put_cursor(screen, "PID 4000")
        await pilot.pause()
        text = " ".join(screen_text(training.app).split())
        assert "PID 4000 rank 0: Python 3.12.3, torch 2.11.0+cu130, native allocator." in text
        assert "2.00 GiB of pinned host memory" in text


async def test_the_bar_follows_the_cursor(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        screen = await training.open(pilot)
        bar = screen.query_one("#bar", TextLines)
        put_cursor(screen, "PID 5000")
        await pilot.pause()
        assert re.search(r"▔+ B PID 5000 12\.0 GiB", screen_text(training.app))
        put_cursor(screen, "tensors")
        await pilot.pause()
        assert re.search(r"▔+ A PID 4000 rank 0 32\.0 GiB", screen_text(training.app))
        put_cursor(screen, "free")
        await pilot.pause()
        assert "▔" not in screen_text(training.app)
        await pilot.resize_terminal(60, 10)
        await pilot.pause()
        assert bar.size.height == 1
        assert sum("GiB" in line or "MiB" in line for line in screen_lines(training.app)) >= 3, "rows have room"


async def test_processes_are_matched_with_probes_once_for_each_draw(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def count(device: Device, probes: Mapping[int, Probe]) -> GpuOwners:
        calls.append(device.key)
        return owners_of(device, probes)

    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        monkeypatch.setattr("gpumon.operations.waterfall.owners_of", count)
        monkeypatch.setattr("gpumon.operations.gpu_processes.owners_of", count)
        training.app.drawing.draw()
        assert len(calls) == 1


# Which GPU, which process, and from where


@pytest.mark.long
async def test_it_opens_from_a_gpu_and_from_a_process(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        training.stream.put(moment(0.0))
        await pilot.pause()
        await pilot.press("enter")
        assert isinstance(training.app.screen, DeviceScreen)
        await training.press(pilot, "m")
        await pilot.press("escape", "g")
        for row, number in ((1, 0), (2, 1)):
            assert isinstance(training.app.screen, OverviewScreen)
            training.app.screen.query_one("#processes", LineTable).focus()
            training.app.screen.query_one("#processes", LineTable).cursor = row
            await training.press(pilot)
            assert f" Memory of GPU {number}  H200" in screen_lines(training.app)[1]
            await pilot.press("escape", "enter")
            await training.press(pilot)
            assert f" Memory of GPU {number}  H200" in screen_lines(training.app)[1]
            await pilot.press("escape")


async def test_keys_act_on_no_other_process_than_the_one_under_the_cursor(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(probe_question, "ask_for_probe", lambda _screen, pid, _policy, _then: asked.append(pid))
    async with training.app.run_test(size=(120, 40)) as pilot:
        screen = await training.open(pilot)
        assert re.search("⏎ Segments +E Empty", screen_text(training.app))
        put_cursor(screen, "PID 5000")
        await pilot.pause()
        await pilot.press("E", "enter")
        assert training.watcher.asked == []
        assert asked == [5000], "it may get a probe"
        assert "PID 4000 rank 0  ⣿ allocated" in screen_text(training.app), "its history stays"


@pytest.mark.long
async def test_a_gpu_that_has_gone_and_one_that_is_split(training: Training) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        training.stream.put(moment(21.0, builders.device(1)))
        await pilot.pause()
        assert "is gone; last values" in screen_text(training.app)
        training.stream.put(moment(22.0, gpu(mig_mode=Switch.ENABLED)))
        await pilot.pause()
        assert "This GPU is partitioned (MIG)" in screen_text(training.app)
        assert "Share" not in screen_text(training.app)


async def test_without_a_gpu_the_key_says_so(training: Training) -> None:
    async with training.app.run_test(size=(120, 40), notifications=True) as pilot:
        training.stream.put(builders.frame(devices=()))
        await pilot.pause()
        await pilot.press("m")
        assert [shown.message for shown in training.app._notifications] == ["No GPU to show."]
        assert isinstance(training.app.screen, OverviewScreen)


# Probes


async def test_without_a_probe_it_says_how_to_have_one(training: Training) -> None:
    async with training.app.run_test(size=(80, 24)) as pilot:
        training.stream.put(moment(0.0))
        await pilot.pause()
        await training.press(pilot)
        for words in ("gpumon watch -- python train.py", "import gpumon.probe; gpumon.probe.start()", "attach PID"):
            assert words in screen_text(training.app)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ProbeState.WAITING_FOR_TORCH, "has not imported PyTorch yet"),
        (ProbeState.CPU_ONLY, "uses a CPU-only build of PyTorch"),
        (ProbeState.WAITING_FOR_CUDA, "not used a GPU yet"),
        (ProbeState.FAILED, "uses a PyTorch that the probe cannot read"),
    ],
)
async def test_how_far_pytorch_is_in_words(training: Training, state: ProbeState, words: str) -> None:
    why = Problem(ProblemCode.UNKNOWN, "KeyError: 'segment'") if state is ProbeState.FAILED else None
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        training.watcher.inbox.put(probe(77, at=BEGAN + 19, state=state, process={"rank": 1}, problem=why))
        await pilot.pause()
        training.app.drawing.draw()
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
        training.app.drawing.draw()
        assert " old" not in screen_text(training.app)
        training.seconds += 5.0
        training.app.drawing.draw()
        await pilot.pause()
        assert "! 7s old  python train.py" in screen_text(training.app)
        training.watcher.inbox.put(silent(probe(PID, statistics())))
        await pilot.pause()
        training.app.drawing.draw()
        await pilot.pause()
        assert "A▒ PID 4000 " in screen_text(training.app)
        assert "gpumon watch" in screen_text(training.app)


async def test_probes_are_looked_for_late_asked_often_while_shown_and_closed(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = training.watcher
    drawn: list[str] = []
    monkeypatch.setattr(watcher, "start", lambda: drawn.append(screen_text(training.app)))
    async with training.app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.4)
        assert drawn == [], "there is no frame yet"
        training.stream.put(moment(0.0))
        await until(pilot, lambda: bool(drawn))
        assert ["H200" in text for text in drawn] == [True], "the first frame is drawn first"
        assert watcher.paces == [1.0]
        await training.press(pilot)
        assert watcher.paces[-1] == 0.5
        await pilot.press("escape")
        await pilot.pause()
        assert watcher.paces[-1] == 1.0
        training.app.session.close()
        assert watcher.closed == 1


# History


@pytest.mark.long
async def test_the_course_marks_the_peak_retries_and_out_of_memory(training: Training) -> None:
    async with training.app.run_test(size=(160, 50)) as pilot:
        await training.open(pilot, SECONDS)
        text = screen_text(training.app)
        assert "⣿ allocated" in text
        assert "64.0 GiB ┤" in text
        marks = next(line for line in screen_lines(training.app) if "out of memory" in line)
        assert marks.count("R") == 2
        assert "▲ peak 46.0 GiB" in marks
        before = screen_lines(training.app)[1:]
        await pilot.press("z")
        await pilot.pause()
        assert "1 s/col" in screen_text(training.app)
        await pilot.press("x")
        await pilot.pause()
        assert screen_lines(training.app)[1:] == before


# Anything at all


@pytest.mark.long
@pytest.mark.parametrize("size", [(60, 10), (20, 5), (8, 3), (300, 100), (40, 12)])
async def test_every_size(training: Training, size: tuple[int, int]) -> None:
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        await pilot.resize_terminal(*size)
        await pilot.press("down", "down", "enter")
        training.watcher.answer(SegmentMap(segments(), is_cut=False, seconds=0.0))
        await pilot.pause()
        await pilot.press("v", "escape", "escape", "E", "escape", "right_square_bracket", "left_square_bracket")
        await pilot.pause()
        assert isinstance(training.app.screen, MemoryScreen)


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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("theme", ["dark", "ansi"])
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_picture_of_the_memory(snap_compare: Compare, watcher: FakeWatcher, size: tuple[int, int], theme: str) -> None:
    app, press = pictured(Training(watcher, theme), "down", "down", "down")
    assert snap_compare(app, terminal_size=size, run_before=press)
