"""The screen of a snapshot: reading it, the tree, the search, the views, the keys, and pictures of them."""

import asyncio
import pickle
import signal
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpumon.core.allocator import Segment
from gpumon.core.file_reader import FileReader, Progress
from gpumon.core.holes import SegmentLayout
from gpumon.core.problems import CommandError
from gpumon.present.paint.line import plain
from gpumon.present.snapshot import totals_lines, who_text
from gpumon.present.snapshot_view import View
from gpumon.snapshots.model import Snapshot
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.reading import ReadingScreen, progress_lines
from gpumon.ui.screens.snapshot import SnapshotScreen
from gpumon.ui.viewer_app import ViewerApp, snapshot_app
from gpumon.ui.widgets.line_table import LineTable
from tests.snapshots.files import block, event, loaded, real_bytes, segment
from tests.ui.fakes import screen_lines, screen_text, until
from tests.ui.test_snapshots import Compare


def shown(snapshot: Snapshot, earlier: Snapshot | None = None, theme: str = "dark") -> ViewerApp:
    """The app with a snapshot that was read already."""

    return ViewerApp("Snapshot", SnapshotScreen(snapshot, earlier), legend=SnapshotScreen.LEGEND, theme=theme)


def real() -> Snapshot:
    return loaded(real_bytes())


def made() -> Snapshot:
    """Two devices, one of them with a failed allocation, and a name that an enemy gave."""
    oom = {"action": "oom", "device_free": 77, "size": 5 << 30, "time_us": 9000, "frames": []}
    trace = [event("alloc", 0, 1 << 20, "[/]\x1b[2J", "main", time_us=1000), oom]
    segments = [segment(block(0, 1 << 20)), segment(block(9 << 20, 1 << 30, "active_allocated", "other"), device=1)]
    return loaded({"segments": segments, "device_traces": [trace]})


def table(app: ViewerApp) -> LineTable:
    return app.screen.query_one("#rows", LineTable)


def rows(app: ViewerApp) -> list[str]:
    return [plain(row.line) for row in table(app).rows]


def keys(app: ViewerApp) -> dict[str, str]:
    """What the footer shows."""
    return {key: item.binding.description for key, item in app.screen.active_bindings.items() if item.binding.show}


async def test_a_file_is_read_then_shown(tmp_path: Path) -> None:
    path = tmp_path / "real.pickle"
    path.write_bytes(real_bytes())
    app = snapshot_app([path])
    async with app.run_test(size=(120, 40)) as pilot:
        assert isinstance(app.screen, ReadingScreen)
        reading = app.screen
        await pilot.press("?")
        await until(pilot, lambda: bool(reading._results))
        assert isinstance(app.screen, HelpScreen), "the help stays until it is closed"
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, SnapshotScreen))
        await pilot.pause()
        assert "946 MiB in 226 blocks" in screen_text(app)
        assert "▼ peak 1.88 GiB" in screen_text(app)


async def test_two_files_are_compared(tmp_path: Path) -> None:
    first, second = tmp_path / "first.pickle", tmp_path / "second.pickle"
    first.write_bytes(pickle.dumps({"segments": [segment(block(0, 1 << 20, "active_allocated", "old"))]}))
    second.write_bytes(pickle.dumps({"segments": [segment(block(0, 3 << 20, "active_allocated", "new"))]}))
    app = snapshot_app([first, second])
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, SnapshotScreen))
        await pilot.pause()
        assert "second.pickle" in screen_lines(app)[0]
        assert "compared with" in screen_lines(app)[0]
        assert [row.split()[0] for row in rows(app)] == ["+3.00", "-1.00"]


async def test_one_that_cannot_be_read_ends_the_app(tmp_path: Path) -> None:
    path = tmp_path / "bad.pickle"
    path.write_bytes(b"hello")
    app = snapshot_app([path])
    async with app.run_test() as pilot:
        await until(pilot, lambda: not app.is_running or app.failure is not None)
    assert isinstance(app.failure, CommandError)
    assert "does not start like a pickle" in str(app.failure)


@pytest.mark.parametrize("key", ["q", "escape", "ctrl+c"])
async def test_reading_can_be_given_up(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "real.pickle"
    path.write_bytes(real_bytes())
    original = FileReader.start

    def start_and_pause(reader: FileReader[object]) -> None:
        original(reader)
        assert reader._process is not None
        reader._process.send_signal(signal.SIGSTOP)  # so that it is still reading when the key comes

    monkeypatch.setattr(FileReader, "start", start_and_pause)
    app = snapshot_app([path])
    async with app.run_test() as pilot:
        screen = app.screen
        assert isinstance(screen, ReadingScreen)
        reading = screen._reader
        assert reading is not None
        await pilot.press(key)
    reading.inbox.arrived.wait(20.0)
    while reading.outcome is None:
        await asyncio.sleep(0.01)
    assert isinstance(reading.outcome, CommandError)
    assert app.failure is None


async def test_an_empty_table_says_why() -> None:
    app = shown(real(), real())
    async with app.run_test(size=(80, 24)) as pilot:
        assert "No stack has changed." in screen_text(app)
        await pilot.press("v")
        assert "No stack has changed" not in screen_text(app)
        await pilot.press("slash", "z", "z", "z")
        await pilot.pause()
        assert "No stack contains 'zzz'." in screen_text(app)


async def test_blocks_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    original = SegmentLayout.__init__

    def count(layout: SegmentLayout, segments: list[Segment], ordinal: int) -> None:
        counted.append(layout)
        original(layout, segments, ordinal)

    app = shown(real())
    async with app.run_test(size=(80, 24)) as pilot:
        monkeypatch.setattr(SegmentLayout, "__init__", count)
        await pilot.press("down", "enter", "i", "v", "slash", "s", "t", "e", "p")
        await pilot.pause()
    assert not counted


async def test_a_frame_opens_down_to_where_it_parts() -> None:
    app = shown(real())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("i")
        assert "innermost first" in screen_text(app)
        before = len(rows(app))
        closed = next(place for place, row in enumerate(rows(app)) if "▶" in row)
        await pilot.press(*["down"] * closed, "enter")
        assert len(rows(app)) > before
        await pilot.press("enter")
        assert len(rows(app)) == before


async def test_the_frame_under_the_cursor_is_named_in_full() -> None:
    app = shown(real())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("down")
        assert "/home/user/train/train1.py:60" in screen_lines(app)[-2]


async def test_every_view() -> None:
    app = shown(real(), made())
    async with app.run_test(size=(160, 50)) as pilot:
        screen = app.screen
        assert isinstance(screen, SnapshotScreen)
        assert "[difference]" in screen_text(app)
        for view in (View.NOW, View.PEAK, View.EVER, View.SEGMENTS):
            await pilot.press("v")
            await pilot.pause()
            assert screen.view_state.view is view
            assert f"[{view.value}]" in screen_text(app)
            assert rows(app)
            assert table(app).cursor == 0
        assert "fragmentation 94%" in screen_text(app)
        assert not {"enter", "i", "slash"} & set(keys(app))
        await pilot.press("v", "down", "enter", "u", "right_square_bracket")
        assert "[difference]" in screen_text(app)


async def test_devices() -> None:
    app = shown(made())
    async with app.run_test(size=(120, 40)) as pilot:
        assert "cuda:0" in screen_text(app)
        assert "! Out of memory once, last" in screen_text(app)
        assert "✗" in screen_text(app)
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert "cuda:1  1.00 GiB in 1 block" in screen_text(app)
        assert "No history was recorded" in screen_text(app)
        assert "at the peak" not in screen_text(app)
        await pilot.press("v")
        assert "at the peak" not in screen_text(app)
        await pilot.press("left_square_bracket")
        assert "cuda:0" in screen_text(app)
    app = shown(real())
    async with app.run_test() as pilot:
        assert "right_square_bracket" not in keys(app)


async def test_the_chart_over_time() -> None:
    app = shown(real())
    async with app.run_test(size=(120, 40)) as pilot:
        assert "5,054 events" in screen_text(app)
        await pilot.press("u")
        await pilot.pause()
        assert "3.97 s" in screen_text(app)
        assert "(u: events axis)" in screen_text(app)


@pytest.mark.long
@pytest.mark.parametrize("size", [(20, 6), (40, 12), (300, 80)])
async def test_every_size(size: tuple[int, int]) -> None:
    app = shown(real(), made())
    async with app.run_test(size=size) as pilot:
        await pilot.press("v", "v", "down", "enter", "v", "v", "u")
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert max(map(len, screen_lines(app))) <= 60


def test_totals_fit_and_say_it_all() -> None:
    snapshot = real()
    for width in (30, 80, 160):
        result = [plain(row) for row in totals_lines(snapshot, snapshot.devices[0], width)]
        assert max(map(len, result)) <= width
    assert "fragmentation 94%" in " ".join(result)
    assert "4.00 MiB allocated before the first one" in " ".join(result)
    assert len(totals_lines(snapshot, snapshot.devices[0], 80, is_brief=True)) == 2


def test_who_allocated() -> None:
    snapshot = real()
    texts = {who_text(snapshot.frames_of(use.stack)) for use in snapshot.devices[0].uses}
    assert "dropout nn/functional.py:1443, called by step train/train1.py:60" in texts
    assert "allocated before the history began" in texts


def test_progress() -> None:
    half = [plain(row) for row in progress_lines(Progress(1 << 29, 1 << 30, 12.3), 80)]
    assert half[1].count("█") == 20
    assert half[3] == "  512 MiB of 1.00 GiB read, 12s"
    assert "evaluating" in plain(progress_lines(Progress(5, 5, 1), 80)[3])
    assert progress_lines(Progress(0, 0, 0), 5)


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
@pytest.mark.parametrize(
    ("name", "pressed"),
    [("peak", ["down", "enter"]), ("segments", ["v", "v"]), ("search", ["i", "slash", *"drop"]), ("difference", [])],
)
def test_pictures(snap_compare: Compare, size: tuple[int, int], name: str, pressed: list[str]) -> None:
    async def press(pilot: Pilot[None]) -> None:
        await pilot.press(*pressed)
        await pilot.pause()

    app = shown(real(), made() if name == "difference" else None)
    assert snap_compare(app, terminal_size=size, run_before=press)
