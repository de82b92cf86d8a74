"""The screen of a trace: reading it, the account, the timeline, the tables, and the ranks."""

from pathlib import Path

import pytest

from gpumon.core.problems import CommandError
from gpumon.present import trace_timeline
from gpumon.present.paint.line import Role, plain
from gpumon.present.trace_timeline import TraceTimeline, lane_line
from gpumon.traces.reader import OpenTrace
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.reading import ReadingScreen
from gpumon.ui.screens.trace import TraceScreen
from gpumon.ui.viewer_app import ViewerApp, trace_app
from gpumon.ui.widgets.line_table import LineTable
from tests.traces.maker import GEMM, NCCL, TraceMaker, training
from tests.ui.fakes import screen_lines, screen_text, until

LANES = 100


def shown(*traces: OpenTrace) -> ViewerApp:
    """The app with traces that were read already."""

    return ViewerApp("Trace", TraceScreen(traces), legend=TraceScreen.LEGEND)


def keys(app: ViewerApp) -> set[str]:
    """What the footer shows."""
    return {item.binding.description for item in app.screen.active_bindings.values() if item.binding.show}


async def test_files_are_read_then_shown(tmp_path: Path) -> None:
    paths = [training().write(tmp_path / "rank0.json"), training().write(tmp_path / "rank1.json.gz")]
    app = trace_app(paths)
    async with app.run_test(size=(120, 40)) as pilot:
        assert isinstance(app.screen, ReadingScreen)
        await until(pilot, lambda: isinstance(app.screen, TraceScreen))
        await pilot.pause()
        assert "rank0.json" in screen_lines(app)[0]
        assert "file 1, 1 of 2" in screen_lines(app)[0]
        await pilot.press("right_square_bracket")
        assert "rank1.json.gz" in screen_lines(app)[0]


async def test_one_that_cannot_be_read_ends_the_app(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text("hello")
    app = trace_app([path])
    async with app.run_test() as pilot:
        await until(pilot, lambda: not app.is_running or app.failure is not None)
    assert isinstance(app.failure, CommandError)
    assert "is not a trace" in str(app.failure)


@pytest.mark.long
async def test_reading_shows_what_was_found_so_far(tmp_path: Path) -> None:
    app = trace_app([training(6_000).write(tmp_path / "long.json")])
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "kernels" in screen_text(app))
        assert isinstance(app.screen, ReadingScreen)
        await pilot.press("escape")
    assert app.failure is None


async def test_the_account() -> None:
    app = shown(training().opened())
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        assert "without it, a step takes 860 µs at best instead of 1.00 ms" in screen_text(app)
        assert "compute on tensor cores        200 µs  20.0%" in screen_text(app)
        assert "1×  ncclDevKernel_AllReduce" in screen_text(app), "the largest cause is open"
        assert GEMM[:30] not in screen_text(app)
        table = app.screen.query_one("#account", LineTable)
        row = next(index for index, row in enumerate(table.rows) if row.key == "tensor_cores")
        await pilot.press(*["down"] * row, "enter")
        assert GEMM[:30] in screen_text(app)
        await pilot.press("enter")
        assert GEMM[:30] not in screen_text(app)


async def test_no_verdict_says_why() -> None:
    maker = TraceMaker()
    maker.operator("aten::mm", 0, 100)
    app = shown(maker.opened())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        assert "No verdict. The trace has no work on a GPU" in screen_text(app)
        assert "operators" in screen_lines(app)[3]
        assert "gaps" not in screen_lines(app)[3]


async def test_the_timeline_shows_what_is_under_the_cursor() -> None:
    app = shown(training().opened())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("v")
        await pilot.pause()
        assert "1.20 ms in view" in screen_text(app)
        assert any(row.startswith("▸critical path") for row in screen_lines(app))
        await pilot.press("down")
        assert any(row.startswith("▸GPU 0 stream 7") for row in screen_lines(app))
        screen = app.screen
        assert isinstance(screen, TraceScreen)
        screen._timeline.go_to(2_100_000)
        await pilot.press("left")
        assert "compute on tensor cores" in screen_text(app)
        assert GEMM in screen_text(app)
        assert "step 2" in screen_text(app)
        assert {"Zoom", "Time", "Find"} <= keys(app)


async def test_moving_and_zooming() -> None:
    app = shown(training().opened())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("v")
        screen = app.screen
        assert isinstance(screen, TraceScreen)
        view = screen._timeline
        length, cursor = view.end - view.begin, view.cursor
        await pilot.press("z", "z")
        assert view.end - view.begin == length // 4
        assert view.begin <= view.cursor <= view.end
        await pilot.press("right")
        assert view.cursor > cursor
        await pilot.press(*["x"] * 12)
        assert (view.begin, view.end) == (0, screen._opened.trace.duration_ns)
        await pilot.press(*["z"] * 30)
        assert view.end - view.begin == trace_timeline._MIN_VIEW_NS
        await pilot.press(*["left"] * 60)
        assert view.begin <= view.cursor <= view.end


async def test_finding_an_event() -> None:
    app = shown(training().opened())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("v", "slash", *"nccl", "enter")
        screen = app.screen
        assert isinstance(screen, TraceScreen)
        assert screen._timeline.cursor == 3_250_000
        await pilot.press("enter")
        assert screen._timeline.cursor == 250_000, "after the last one comes the first one"
        assert NCCL[:30] in screen_text(app)
        await pilot.press("x", "x")
        assert "No event contains 'ncclxx'" not in screen_text(app)
        await pilot.press("enter")
        assert "No event contains 'ncclxx'" in screen_text(app)
        await pilot.press("escape")
        assert "No event contains" not in screen_text(app)
        assert isinstance(app.focused, LineTable)


async def test_the_table_of_kernels_is_sorted_and_filtered() -> None:
    app = shown(training().opened())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("v", "v")
        rows = app.screen.query_one("#kernels", LineTable).rows
        assert [plain(row.line).split()[0] for row in rows[:3]] == ["800", "800", "720"]
        await pilot.press("slash", *"nccl", "enter")
        assert len(app.screen.query_one("#kernels", LineTable).rows) == 1
        await pilot.press("slash", "escape", "s", "c")
        assert "Count▼" in screen_text(app)


async def test_a_gap_is_shown_on_the_timeline() -> None:
    app = shown(training().opened())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("v", "v", "v")
        assert "waiting for data" in screen_text(app) or "synchronization" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "[timeline]" in screen_lines(app)[3]


async def test_ranks() -> None:
    late = training(4, distributedInfo={"rank": 1, "world_size": 2})
    for event in late.events:
        if event["name"] == NCCL:
            event |= {"ts": event["ts"] + 50, "dur": event["dur"] - 50}
    app = shown(training(4, distributedInfo={"rank": 0, "world_size": 2}).opened(), late.opened())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("v", "v", "v", "v")
        assert "Slowest: rank 1; the others wait for it in collectives." in screen_text(app)
        assert "The others wait 50.0 µs per step for rank 1, which comes last in 4 of 4 collectives" in screen_text(app)


async def test_help() -> None:
    app = shown(training().opened())
    async with app.run_test(size=(100, 60)) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        assert "at each moment the first one that applies" in screen_text(app)


@pytest.mark.long
@pytest.mark.parametrize("size", [(60, 10), (80, 24), (160, 50), (300, 100)])
async def test_every_view_fits_every_size(size: tuple[int, int]) -> None:
    maker = training(4)
    for thread in range(LANES):
        maker.operator("[bold]evil\x1b[2J", 100, 500, 1000 + thread)
    app = shown(maker.opened(), training(4).opened())
    async with app.run_test(size=size) as pilot:
        for _ in range(5):
            await pilot.press("v", "down", "end", "home")
            await pilot.pause()
            assert len(screen_lines(app)) == size[1]
            assert max(map(len, screen_lines(app))) <= size[0]
            assert "?" in screen_lines(app)[-1]
            assert "\x1b" not in screen_text(app)


def test_cells_from_shares_are_those_from_events(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = training(50).opened()
    timeline = TraceTimeline(opened)
    while timeline.end - timeline.begin < opened.trace.duration_ns:
        timeline.zoom(-1)
    exact = [timeline.cells(index, 100) for index in range(len(opened.trace.lanes))]
    monkeypatch.setattr(trace_timeline, "_MAX_EXACT", 0)
    for index, cells in enumerate(exact):
        for (share, _), (other, _) in zip(cells, timeline.cells(index, 100), strict=True):
            assert share == pytest.approx(other, abs=0.05)


def test_a_lane_has_the_role_of_its_class_and_the_cursor() -> None:
    opened = training().opened()
    timeline = TraceTimeline(opened)
    index = next(index for index, lane in enumerate(opened.trace.lanes) if "stream 20" in lane.label)
    spans = lane_line(timeline, opened, index, 120)
    assert {Role.SERIES_7, Role.CURSOR} <= {span.role for span in spans}
    assert sum(len(span.text) for span in spans) == 120
