"""Every table of gpumon sorts, filters and chooses its columns with the same keys, and remembers it."""

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.present.alerts import ALERT_COLUMNS
from gpumon.present.cost import CALL_COLUMNS
from gpumon.present.fleet import FLEET_USAGE_COLUMNS
from gpumon.present.fleet_map import FleetMetric, map_columns
from gpumon.present.fleet_tables import (
    FLEET_FINDING_COLUMNS,
    FLEET_GPU_COLUMNS,
    FLEET_HOST_COLUMNS,
    FLEET_JOB_COLUMNS,
    FLEET_USER_COLUMNS,
)
from gpumon.present.jobs import JOB_COLUMNS
from gpumon.present.overview_table import OVERVIEW_COLUMNS
from gpumon.present.paint.table import Column
from gpumon.present.process_list import LISTED_COLUMNS
from gpumon.present.process_table import PROCESS_COLUMNS
from gpumon.present.ranks import RANK_COLUMNS
from gpumon.present.trace_tables import GAP_COLUMNS, KERNEL_COLUMNS
from gpumon.present.workloads import RUN_COLUMNS, WORKLOAD_COLUMNS
from gpumon.session.table_memory import TableState, load_tables
from gpumon.ui.app import GpumonApp
from gpumon.ui.widgets.table_view import HeadingLine, TableView
from tests.frames import machine
from tests.ui.fakes import FakeLive, app_on, screen_lines, until

TABLES: dict[str, tuple[Column[Any], ...]] = {
    "alerts": ALERT_COLUMNS, "all-processes": LISTED_COLUMNS, "calls": CALL_COLUMNS, "devices": OVERVIEW_COLUMNS,
    "fleet-findings": FLEET_FINDING_COLUMNS, "fleet-gpus": FLEET_GPU_COLUMNS, "fleet-hosts": FLEET_HOST_COLUMNS,
    "fleet-jobs": FLEET_JOB_COLUMNS, "fleet-map": tuple(map_columns(None, FleetMetric.UTILIZATION)),
    "fleet-usage": FLEET_USAGE_COLUMNS, "fleet-users": FLEET_USER_COLUMNS, "gaps": GAP_COLUMNS, "jobs": JOB_COLUMNS,
    "kernels": KERNEL_COLUMNS, "processes": PROCESS_COLUMNS, "ranks": RANK_COLUMNS, "runs": RUN_COLUMNS,
    "workloads": WORKLOAD_COLUMNS,
}  # fmt: skip


@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
def test_ids_and_aliases_name_one_column(columns: tuple[Column[object], ...]) -> None:
    names = [name for column in columns for name in (column.id, *column.aliases)]
    assert len(set(names)) == len(names)
    assert all(name and name == name.lower() and " " not in name for name in names)
    assert any(column.sort_key is not None for column in columns)


def view(app: GpumonApp) -> TableView[Any]:
    return app.screen.query(TableView).first()


async def opened(pilot: Pilot[Any], key: str) -> TableView[Any]:
    """Opens the screen of a key, and waits for the rows of its first table."""
    await pilot.press(key)
    app = pilot.app
    assert isinstance(app, GpumonApp)
    await until(pilot, lambda: len(app.screen.query(TableView)) > 0 and view(app).table.has_focus)
    return view(app)


async def test_sorting_and_columns_are_kept_for_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(100, 30)) as pilot:
        stream.put(machine())
        table = await opened(pilot, "6")
        await pilot.click(HeadingLine, offset=(screen_lines(app)[3].index("GPU"), 0))
        await pilot.press("c", "down", "down", "enter", "escape")
        await pilot.press("slash", "x", "enter")
        await until(pilot, lambda: "alerts" in load_tables() and bool(load_tables()["alerts"].state.columns))
        kept = table.state
    assert kept.sort_column == "gpu"
    assert "since" not in kept.columns
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(100, 30)) as pilot:
        stream.put(machine())
        table = await opened(pilot, "6")
        await until(pilot, lambda: table.state != TableState())
        assert table.state == kept._replace(filter_text=""), "a filter is not kept"
        assert "Since" not in screen_lines(app)[3]


async def test_the_configuration_names_the_columns_of_the_start() -> None:
    stream = FakeLive()
    stream.start()
    app = GpumonApp(stream, columns={"alerts": ("gpu", "what")})
    async with app.run_test(size=(100, 30)) as pilot:
        stream.put(machine())
        table = await opened(pilot, "6")
        await until(pilot, lambda: bool(table.state.columns))
        await pilot.pause()
        assert screen_lines(app)[3].split() == ["GPU", "What"]
