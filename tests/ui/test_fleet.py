"""The fleet on the screen: its lists, what they copy, a host over time, and a Prometheus that fails."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from textual.pilot import Pilot

from gpumon.fleet.settings import FleetSettings, PrometheusAddress
from gpumon.operations.fleet.queries import FleetList
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.fleet import FleetScreen
from gpumon.ui.screens.fleet_setup import FleetSetupScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView
from tests.fleet.canned import responding
from tests.fleet.fake_prometheus import FakePrometheus, body, serving
from tests.fleet.hosts import mixed_hosts
from tests.fleet.targets import FakeHost
from tests.frames import machine
from tests.ui.fakes import FakeLive, Refreshes, screen_lines, screen_text, until


class Shown(NamedTuple):
    """An app that shows the fleet."""

    app: GpumonApp
    pilot: Pilot[None]
    stream: FakeLive

    @property
    def screen(self) -> FleetScreen:
        assert isinstance(self.app.screen, FleetScreen)
        return self.app.screen

    async def until(self, holds: Callable[[], bool]) -> None:
        await until(self.pilot, holds)

    async def text(self, expected: str) -> str:
        """The screen, once it contains a text."""
        await self.until(lambda: expected in screen_text(self.app))
        return screen_text(self.app)

    def row(self, name: str) -> str:
        return next(line for line in screen_lines(self.app) if name in line)


@asynccontextmanager
async def shown(url: str, size: tuple[int, int] = (120, 40), interval: float = 1.0) -> AsyncIterator[Shown]:
    stream = FakeLive()
    settings = FleetSettings(PrometheusAddress(url), interval_seconds=interval)
    app = GpumonApp(stream, fleet=settings, opens_fleet=True)
    try:
        async with app.run_test(size=size) as pilot:
            stream.put(machine(2))
            yield Shown(app, pilot, stream)
    finally:
        app.session.close()


@asynccontextmanager
async def canned(
    hosts: Sequence[FakeHost], size: tuple[int, int] = (120, 40), interval: float = 1.0
) -> AsyncIterator[tuple[Shown, FakePrometheus]]:
    with serving(responding(hosts)) as fake:
        async with shown(fake.url, size, interval) as view:
            await view.text("on ")
            yield view, fake


async def test_every_list_has_rows_and_its_promql() -> None:
    async with canned(mixed_hosts(16), (160, 50)) as (view, _):
        await view.text("128 GPUs on 16 hosts   96 busy")
        seen = {}
        for kind in FleetList:
            assert view.screen.front is kind
            if kind is FleetList.USERS:
                await view.text("No exporter names users here")
            else:
                await view.until(lambda: view.screen._tables[view.screen.front].selected is not None)
            table = view.screen._tables[kind]
            assert table.table.has_focus
            seen[kind] = len(table.table.rows)
            query = view.screen.text_to_copy
            assert query[:60] in screen_text(view.app)
            await view.pilot.press("y")
            await view.until(lambda query=query: view.app.clipboard == query)  # type: ignore[misc]
            await view.pilot.press("v")
            await view.pilot.pause()
        assert view.screen.front is FleetList.MAP
    assert seen[FleetList.MAP] == seen[FleetList.HOSTS] == 16
    assert (seen[FleetList.GPUS], seen[FleetList.JOBS], seen[FleetList.USAGE]) == (128, 4, 5)


async def test_the_map_shows_the_values_of_each_gpu_and_what_stands_out() -> None:
    hosts = mixed_hosts(8)
    async with canned(hosts, (160, 50)) as (view, _):
        await view.text("64 GPUs")
        values = [int(word.rstrip("%")) for word in view.row("node0004").split() if word.endswith("%")]
        assert values[:8] == [hosts[4].value("DCGM_FI_DEV_GPU_UTIL", gpu) for gpu in range(8)]
        assert view.row("node0006").count("!") == 1
        await view.pilot.press("s")
        await view.text("GPUs by memory")
        assert " 61%" in view.row("node0000"), "85 of 140 GB"
        await view.pilot.press("s", "s", "s")
        await view.text("idle first")
        rows = [line for line in screen_lines(view.app) if "node0" in line]
        assert "node0003" in rows[0]


async def test_a_job_leads_to_its_gpus_and_a_gpu_to_its_charts() -> None:
    async with canned(mixed_hosts(8)) as (view, _):
        await view.text("64 GPUs")
        await view.pilot.press("v", "v", "v")
        await view.until(lambda: view.screen._tables[FleetList.JOBS].selected is not None)
        await view.pilot.press("enter")
        await view.text("24 of 64")
        await view.until(lambda: view.screen._tables[FleetList.GPUS].selected is not None)
        assert view.screen.front is FleetList.GPUS
        await view.pilot.press("down", "enter")
        await view.until(
            lambda: isinstance(view.app.screen, DeviceScreen) and "GPU utilization" in screen_text(view.app)
        )
        assert isinstance(view.app.screen, DeviceScreen)
        await view.until(lambda: any(chart.summary is not None for chart in view.app.screen.charts))  # type: ignore[attr-defined]
        await view.pilot.press("escape")
        await view.until(lambda: isinstance(view.app.screen, OverviewScreen))
        await view.pilot.press("escape")
        await view.until(lambda: isinstance(view.app.screen, FleetScreen))
        assert view.screen.front is FleetList.GPUS


async def test_a_host_opens_on_the_screens_of_this_host_and_esc_returns() -> None:
    hosts = mixed_hosts(8)
    async with canned(hosts) as (view, fake):
        await view.text("64 GPUs")
        await view.pilot.press("down", "enter")
        await view.until(lambda: "node0001" in screen_text(view.app) and "62%" in screen_text(view.app))
        assert isinstance(view.app.screen, OverviewScreen)
        assert view.app.session.shows_host
        processes = view.app.session.store.frame.devices[0].problems["processes"]  # type: ignore[union-attr]
        assert processes.reason == "The exporter does not report it."
        rows = view.app.screen.query_one("#devices", LineTable).rows
        assert len(rows) == 8
        assert any("query_range" in fields.get("step", "") or "step" in fields for fields in fake.queries)
        await view.pilot.press("9")
        assert view.screen.front is FleetList.MAP
        await view.until(lambda: not view.app.session.shows_host)
        await view.pilot.press("escape")
        await view.until(lambda: len(view.app.screen.query_one("#devices", LineTable).rows) == 2)


async def test_the_last_values_stay_with_a_sentence() -> None:
    async with canned(mixed_hosts(4)) as (view, fake):
        await view.text("32 GPUs")
        good = fake.respond
        fake.respond = body(b"", 401)
        text = await view.text("refuses access (HTTP 401)")
        assert "32 GPUs on 4 hosts" in text
        assert "old values" in text
        assert "node0002" in text
        fake.respond = good
        await view.until(lambda: "HTTP 401" not in screen_text(view.app))


async def test_nothing_is_painted_while_nothing_changes_and_one_row_for_one_host() -> None:
    hosts = mixed_hosts(16)
    async with canned(hosts, interval=0.5) as (view, fake):
        await view.text("128 GPUs")
        table = view.screen.query_one("#fleet-map", LineTable)
        await view.pilot.pause(0.5)
        spy = Refreshes(table)
        count = len(fake.queries)
        await view.until(lambda: len(fake.queries) > count + 2)
        assert [row for row in spy.rows if row != 5] == []
        hosts[5].values["DCGM_FI_DEV_GPU_UTIL", 0] = 3.0
        await view.until(lambda: " 3%" in view.row("node0005") or "▁" in view.row("node0005"))
        assert set(spy.rows) <= {5}


async def test_the_usage_is_queried_only_while_it_is_shown() -> None:
    async with canned(mixed_hosts(8)) as (view, fake):
        await view.text("64 GPUs")
        await view.pilot.pause(0.5)
        assert not any("count_over_time" in fields["query"] for fields in fake.queries)
        await view.pilot.press("shift+tab")
        await view.text("1 MWh")
        assert "150.0" in view.row("4700")
        ranges = [fields["query"] for fields in fake.queries if "count_over_time" in fields["query"]]
        assert len(ranges) == 1
        assert "[86400s:300s]" in ranges[0]
        await view.pilot.press("z")
        await view.text("Usage 6h")
        await view.until(lambda: any("[21600s:75s]" in fields["query"] for fields in fake.queries))


@pytest.mark.long
@pytest.mark.parametrize("size", [(60, 10), (80, 24), (300, 100)])
async def test_every_list_fits_every_size(size: tuple[int, int]) -> None:
    async with canned(mixed_hosts(40), size) as (view, _):
        await view.text("320 GPUs")
        for _kind in FleetList:
            await view.pilot.press("tab")
            await view.pilot.pause()
            assert max(map(len, screen_lines(view.app))) <= size[0]
            assert len(view.screen.query(TableView).filter(f"#{_focused(view)}-view")) == 1


def _focused(view: Shown) -> str | None:
    focused = view.screen.focused
    return None if focused is None else focused.id


async def test_without_a_fleet_the_digit_says_how_to_add_one() -> None:
    stream = FakeLive()
    app = GpumonApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(machine(2))
        assert "Fleet" not in screen_text(app)
        await pilot.press("9")
        assert isinstance(app.screen, FleetSetupScreen)
