"""What gpumon costs: read from /proc and from its own counters, and shown with what it means."""

import os
import re
from pathlib import Path

import pytest

from gpumon.core.model import CallCost, Sweep
from gpumon.present.cost import CALL_COLUMNS, CallRow, call_note, call_rows, cost_entries
from gpumon.present.paint.line import plain
from gpumon.present.paint.table import fit_columns, row_line
from gpumon.present.table_state import visible_columns
from gpumon.session.costs import CallCosts, CostSample, ProcessCost, collectors, process_cost
from gpumon.session.frame_session import FrameSession
from gpumon.session.table_memory import TableState
from gpumon.ui.commands import GpumonCommands
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.widgets.line_table import LineTable
from tests import builders
from tests.frames import machine
from tests.ui.fakes import FakeLive, app_on, screen_text

MIB = 1 << 20
BEFORE = CostSample(90.0, 50.0, ProcessCost(10, 1.0, 60 * MIB), (ProcessCost(11, 2.0, 30 * MIB),), 40, 0, 0, 40_960)
COSTS = CostSample(100.0, 60.0, ProcessCost(10, 1.2, 61 * MIB), (ProcessCost(11, 2.1, 31 * MIB),), 50, 2, 1, 51_200, 4)
POWER, CLOCK, INIT = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo", "nvmlInitWithFlags"
CALLS_BEFORE = CallCosts(
    100.0, (CallCost(POWER, 80, 0, 0.1, 0.004), CallCost(CLOCK, 160, 0, 0.0002, 9e-6), CallCost(INIT, 1, 0, 0.9, 0.9))
)
CALLS = CallCosts(
    110.0, (CallCost(POWER, 160, 8, 0.3, 0.012), CallCost(CLOCK, 320, 0, 0.0004, 9e-6), CallCost(INIT, 1, 0, 0.9, 0.9))
)


class CountingLive(FakeLive):
    """A stream that counts driver calls."""

    def __init__(self) -> None:
        super().__init__()
        self.demands: list[bool] = []

    def set_call_stats(self, enabled: bool) -> None:
        self.demands.append(enabled)


def proc(root: Path) -> Path:
    """A process with a collector, a workload and a child that has ended just now."""
    for pid, command in (
        (10, b"gpumon"),
        (11, b"python\0/somewhere/collect/__main__.py\0"),
        (12, b"python\0matmul.py\0"),
    ):
        folder = root / str(pid)
        folder.mkdir(parents=True)
        (folder / "cmdline").write_bytes(command)
        (folder / "stat").write_text(f"{pid} (a ) name) S {'0 ' * 10}150 50 {'0 ' * 8}1000{' 0' * 30}")
    for thread, children in ((10, "12 13"), (15, "11")):
        (root / "10" / "task" / str(thread)).mkdir(parents=True)
        (root / "10" / "task" / str(thread) / "children").write_text(children)
    return root


def test_processes_are_read_from_proc(tmp_path: Path) -> None:
    folder = proc(tmp_path)
    assert collectors(10, folder) == [11]
    cost = process_cost(11, folder)
    assert cost is not None
    assert cost.cpu_seconds == 200 / os.sysconf("SC_CLK_TCK")
    assert cost.memory_bytes == 1000 * os.sysconf("SC_PAGE_SIZE")
    assert process_cost(99, folder) is None
    assert collectors(99, folder) == []


def test_figures_and_rates() -> None:
    frame = builders.frame(sweep=Sweep(0.0042, 360, 3, 1))
    shown = {label: value for label, value, _ in cost_entries(COSTS, BEFORE, frame)}
    assert shown == {
        "Last sweep": "4.20 ms, 0.42 % of the interval", "NVML calls": "360", "NVML errors": "3",
        "Values refused": "0", "Threads stuck": "1", "Frames received": "50", "Frames merged": "2",
        "Frames late": "4", "Frames lost": "1", "Sent to the terminal": "50.0 KiB, 1.00 KiB/s",
        "gpumon CPU": "1.20 s, 2.0 %", "gpumon memory": "61.0 MiB", "Collector CPU": "2.10 s, 1.0 %",
        "Collector memory": "31.0 MiB", "Running": "60s",
    }  # fmt: skip


def test_frames_whose_reading_outlasts_the_interval_are_late() -> None:
    stream = FakeLive()
    feed = FrameSession(stream)
    for seconds in (None, 0.4, 1.0, 1.01, 7.0):
        stream.put(machine(sweep=Sweep(seconds)))
    feed.drain()
    assert feed.costs(None).frames_late == 2


def test_calls_stand_in_the_order_of_the_time_that_they_took_lately() -> None:
    power, clock, init = call_rows(CALLS, CALLS_BEFORE)
    assert [row.total.call for row in (power, clock, init)] == [POWER, CLOCK, INIT]
    assert power.per_second == 8.0
    assert power.share == pytest.approx(0.02)
    assert power.mean_seconds == pytest.approx(0.0025)
    assert (init.per_second, init.share, init.mean_seconds) == (0.0, 0.0, 0.9), "not called lately: values of before"
    lines = [cells(row) for row in (power, clock, init)]
    assert lines == [
        ["DeviceGetPowerUsage", "8.0", "2.50", "ms", "12.0", "ms", "2.0%"],
        ["DeviceGetClockInfo", "16", "1.25", "µs", "9.00", "µs", "0.002%"],
        ["InitWithFlags", "0.0", "900", "ms", "900", "ms", "0.000%"],
    ]
    assert call_note(power) == f"{POWER}: 160 calls since the collector started (8 failed), 300 ms in total."


@pytest.mark.parametrize("before", [CALLS, CALLS._replace(seconds=50.0, calls=(CallCost(POWER, 999, 0, 9.0, 9.0),))])
def test_a_first_look_and_a_new_collector_have_no_rates_yet(before: CallCosts) -> None:
    rows = {row.total.call: row for row in call_rows(CALLS, before)}
    assert rows[POWER].per_second is None
    assert rows[POWER].share is None
    assert rows[POWER].mean_seconds == pytest.approx(0.3 / 160)
    assert "–" in cells(rows[POWER])


def cells(row: CallRow) -> list[str]:
    """The words of a row of the table of calls."""
    return plain(row_line(fit_columns(visible_columns(CALL_COLUMNS, TableState()), 78), row)).split()


async def test_calls_are_counted_while_the_screen_is_open_and_no_longer() -> None:
    stream = CountingLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine())
        await pilot.pause()
        assert stream.demands[-1:] == [False]
        await pilot.press("C")
        await pilot.pause()
        assert stream.demands[-1:] == [True]
        assert re.search(r"Driver calls +–", screen_text(app))
        stream.put(machine(sweep=Sweep(0.001, 36, 0, 0, CALLS_BEFORE.calls), monotonic_seconds=100.0))
        await pilot.pause()
        stream.put(machine(sweep=Sweep(0.001, 72, 0, 0, CALLS.calls), monotonic_seconds=110.0))
        await pilot.pause()
        await pilot.press("tab", "end")
        await pilot.pause()
        assert "DeviceGetPowerUsage" in screen_text(app)
        assert "InitWithFlags" in screen_text(app)
        assert "nvmlInitWithFlags: 1 call since" in screen_text(app)
        await pilot.press("s", "d", "slash", *"mean<1s max>0", "enter")
        await pilot.pause()
        assert [row.key for row in app.screen.query_one("#calls", LineTable).rows] == [CLOCK, POWER, INIT]
        await pilot.press("shift+tab", "shift+tab")
        await pilot.pause()
        assert "Driver calls since the collector started" not in screen_text(app)
        assert "nvmlInitWithFlags: 1 call since" not in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert stream.demands[-1:] == [False]


def test_what_is_not_there_says_why() -> None:
    costs = COSTS._replace(own=None, collectors=(), terminal_bytes=None)
    shown = {label: (value, note) for label, value, note in cost_entries(costs, costs, builders.frame())}
    for label in ("gpumon CPU", "gpumon memory", "Collector", "Sent to the terminal"):
        assert shown[label][0] == "–"
        assert shown[label][1]


async def test_it_opens_with_its_key_and_by_the_palette_and_goes_away() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine())
        await pilot.press("C")
        await pilot.pause()
        assert any(isinstance(screen, CostScreen) for screen in app.screen_stack)
        assert re.search(r"NVML calls +36 ", screen_text(app))
        await pilot.press("escape")
        await pilot.pause()
        assert "Cost" in {command.title for command in GpumonCommands(app.screen).actions()}
        await pilot.press("C", "C", "escape")
        await pilot.pause()
        assert app.screen.query("#devices"), "it opens once"
