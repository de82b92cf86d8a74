"""What gpumon costs: read from /proc and from its own counters, and shown with what it means."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot

from gpumon.core.model import Sweep
from gpumon.ui import app as app_module
from gpumon.ui.app import GpumonApp
from gpumon.ui.costs import Costs, ProcessCost, collectors, measure, process_cost
from gpumon.ui.feed import Feed
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.terminal import counting, sent_bytes
from gpumon.ui.view.cost import cost_entries
from tests import builders
from tests.ui.fakes import FakeLive, app_on, machine, screen_text
from tests.ui.test_snapshots import Compare

MIB = 1 << 20
BEFORE = Costs(90.0, 50.0, ProcessCost(10, 1.0, 60 * MIB), (ProcessCost(11, 2.0, 30 * MIB),), 40, 0, 0, 40_960)
COSTS = Costs(100.0, 60.0, ProcessCost(10, 1.2, 61 * MIB), (ProcessCost(11, 2.1, 31 * MIB),), 50, 2, 1, 51_200)


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
        (folder / "stat").write_text(f"{pid} (a ) name) S " + " ".join(["0"] * 10) + " 150 50 0 0")
        (folder / "statm").write_text("5000 1000 0 0")
    for thread, children in ((10, "12 13"), (15, "11")):
        (root / "10" / "task" / str(thread)).mkdir(parents=True)
        (root / "10" / "task" / str(thread) / "children").write_text(children)
    return root


def test_processes_are_read_from_proc(tmp_path: Path) -> None:
    found = proc(tmp_path)
    assert collectors(10, found) == [11]
    cost = process_cost(11, found)
    assert cost is not None
    assert cost.cpu_seconds == 200 / os.sysconf("SC_CLK_TCK")
    assert cost.memory_bytes == 1000 * os.sysconf("SC_PAGE_SIZE")
    assert process_cost(99, found) is None
    assert collectors(99, found) == []


def test_this_very_process_can_be_measured() -> None:
    stream = FakeLive()
    feed = Feed(stream)
    stream.put(machine(), machine(), machine())
    feed.take()
    stream.inbox.lost = 4
    costs = measure(feed, None)
    assert costs.own is not None
    assert costs.own.memory_bytes > MIB
    assert (costs.frames_taken, costs.frames_merged, costs.frames_lost) == (3, 2, 4)


def test_figures_and_rates() -> None:
    frame = builders.frame(sweep=Sweep(0.0042, 360, 3, 1))
    shown = {label: value for label, value, _ in cost_entries(COSTS, BEFORE, frame)}
    assert shown == {
        "Last sweep": "4.2 ms, 0.42 % of the time",
        "NVML calls": "360",
        "NVML errors": "3",
        "Threads stuck": "1",
        "Frames taken in": "50",
        "Frames merged": "2",
        "Frames lost": "1",
        "Sent to the terminal": "50.0 KiB, 1.00 KiB/s",
        "gpumon CPU": "1.20 s, 2.0 %",
        "gpumon memory": "61.0 MiB",
        "Collector CPU": "2.10 s, 1.0 %",
        "Collector memory": "31.0 MiB",
        "Running": "60s",
    }


def test_what_is_not_there_says_why() -> None:
    costs = COSTS._replace(own=None, collectors=(), terminal_bytes=None)
    shown = {label: (value, note) for label, value, note in cost_entries(costs, costs, builders.frame())}
    for label in ("gpumon CPU", "gpumon memory", "Collector", "Sent to the terminal"):
        assert shown[label][0] == "–"
        assert shown[label][1]


async def test_the_driver_counts_what_it_sends() -> None:
    sent: list[str] = []

    class Driver(HeadlessDriver):
        def write(self, data: str) -> None:
            sent.append(data)

    app = GpumonApp(FakeLive())
    assert sent_bytes(app) is None
    driver = counting(Driver)(app)
    app._driver = driver
    driver.write("héllo")
    driver.write("\x1b[2J")
    assert sent_bytes(app) == 10
    assert sent == ["héllo", "\x1b[2J"]


async def test_it_opens_with_c_and_by_the_palette_and_goes_away() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        stream.put(machine())
        await pilot.press("c")
        await pilot.pause()
        assert any(isinstance(screen, CostScreen) for screen in app.screen_stack)
        assert re.search(r"NVML calls +36 ", screen_text(app))
        await pilot.press("escape")
        await pilot.pause()
        assert "Cost" in {command.title for command in app.get_system_commands(app.screen)}
        await pilot.press("c", "c")
        await pilot.pause()
        assert app.screen.query("#devices"), "c opens it and closes it"


def test_picture_of_the_costs(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = iter([BEFORE])
    monkeypatch.setattr(app_module, "measure", lambda *_: next(measured, COSTS))
    stream = FakeLive()
    stream.put(machine())

    async def press(pilot: Pilot[Any]) -> None:
        await pilot.press("c")
        await pilot.pause()
        stream.put(machine())
        await pilot.pause()

    assert snap_compare(app_on(stream), terminal_size=(120, 30), run_before=press)
