"""Saving what the charts of a GPU show: the values in sight, in a file that was not there before."""

import csv
import errno
import itertools
import time
from pathlib import Path
from typing import Any, TextIO

import pytest
from textual.pilot import Pilot

from gpumon.core.problems import CommandError
from gpumon.core.timeline import Timeline
from gpumon.operations import csv_table as operation
from gpumon.operations.csv_table import CsvRow, TimeRange, history_table, save
from gpumon.present.device import DEFAULT_METRICS
from gpumon.ui.app import GpumonApp
from tests import builders
from tests.ui.fakes import FakeLive, app_on, until
from tests.ui.test_device import KEY, filled, opened, training

POWER = "power_watts"
TABLE = operation.Table((POWER,), (CsvRow(1.0, 0, "GPU-1", (612.5,)), CsvRow(2.0, 0, "GPU-1", (None,))))


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, and one for results."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return here


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


async def notification(app: GpumonApp, pilot: Pilot[Any], count: int = 1) -> str:
    """The newest notification, once there are this many."""
    await until(pilot, lambda: len(app._notifications) >= count)
    return [shown.message for shown in app._notifications][-1]


# The file


def test_a_table_goes_to_the_folder_that_the_user_stands_in(folders: Path) -> None:
    path = save(TABLE, "gpumon-gpu0")
    assert path.parent == folders
    assert path.read_text() == "time_seconds,index,uuid,power_watts\n1.000,0,GPU-1,612.5\n2.000,0,GPU-1,\n"


def test_nothing_is_ever_overwritten(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda *_: "20260501-143000")
    taken = folders / "gpumon-gpu0-20260501-143000.csv"
    taken.write_text("mine")
    names = [save(TABLE, "gpumon-gpu0").name for _ in range(2)]
    assert names == ["gpumon-gpu0-20260501-143000-2.csv", "gpumon-gpu0-20260501-143000-3.csv"]
    assert taken.read_text() == "mine"


def test_where_the_folder_cannot_be_written_it_goes_to_the_results(folders: Path, tmp_path: Path) -> None:
    folders.rmdir()
    path = save(TABLE, "gpumon-gpu0")
    assert path.parent == tmp_path / "state" / "gpumon"
    assert len(read(path)) == 2


def test_a_full_disk_leaves_no_half_a_table(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(moments: object, columns: object, out: TextIO) -> None:
        out.write("time_seconds")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(operation, "write_table", full)
    with pytest.raises(CommandError, match=r"neither to the current folder nor to .*No space left on device"):
        save(TABLE, "gpumon-gpu0")
    assert not list(itertools.chain(folders.iterdir(), (tmp_path / "state" / "gpumon").iterdir()))


def test_a_user_without_a_home_can_save_here(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(operation, "results_file", homeless)
    assert save(TABLE, "gpumon-gpu0").parent == folders


# What is in it


def test_a_column_tells_its_mean_its_lowest_and_its_highest() -> None:
    timeline = Timeline()
    for second, power in ((100, 300.0), (101, 500.0), (106, 100.1)):
        timeline.add(second, {POWER: power})
    frame = builders.frame(monotonic_seconds=106.0, time_seconds=2000.0)
    table = history_table(timeline, (POWER, "fan_percent"), builders.device(0), frame, TimeRange(40, 53, 2.0))
    assert table.columns[:3] == ("power_watts", "power_watts_lowest", "power_watts_highest")
    nothing = (None, None, None)
    assert [(moment.time_seconds, *moment.values) for moment in table.rows] == [
        (1994.0, 400.0, 300.0, 500.0, *nothing),
        (1996.0, *nothing, *nothing),
        (1998.0, *nothing, *nothing),
        (2000.0, 100.1, 100.1, 100.1, *nothing),
    ]


# The screen


@pytest.mark.long
async def test_the_screen_saves_the_metrics_and_the_time_that_it_shows() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(100, 40)) as pilot:
        filled(stream)
        await opened(app, pilot)
        await pilot.press("z", "S")
        said = await notification(app, pilot)
        assert said.startswith("Saved /")
        lines = read(Path(said.removeprefix("Saved ")))
        assert list(lines[0])[3::3] == list(DEFAULT_METRICS)
        assert {line["uuid"] for line in lines} == {KEY}
        assert len(lines) == 87, "as many as columns of a second have room"
        newest = training(399)
        assert float(lines[-1]["time_seconds"]) == newest.time_seconds
        assert float(lines[-1][POWER]) == newest.devices[0].readings[POWER]
        lost = [float(line["time_seconds"]) - 1_800_000_000 for line in lines if not line[POWER]]
        assert lost == [float(second) for second in range(313, 320)], "a gap stays a gap"


async def test_that_it_cannot_be_saved_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Path:
        raise OSError(errno.EROFS, "Read-only file system [/]")

    monkeypatch.setattr(operation, "_write", refused)
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(100, 40)) as pilot:
        filled(stream, 10)
        await opened(app, pilot)
        await pilot.press("S")
        assert "Read-only file system" in await notification(app, pilot)
