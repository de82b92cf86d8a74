"""The parts of the overview as lines: shared lines of a screen, totals, the chart and its values, and the heat map."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpumon.core.model import Device, DeviceState, Frame, Host
from gpumon.core.ranks import HangKind, HangVerdict
from gpumon.core.store import Store
from gpumon.core.units import MISSING, compact_rate_text
from gpumon.operations.training_jobs.report import TrainingJobReport, TrainingJobState
from gpumon.present.device_table import DeviceRow, device_rows
from gpumon.present.heat_map import HeatMode, heat_heading, heat_map, heat_map_height
from gpumon.present.metric_style import load_role
from gpumon.present.overview_chart import chart_axis, chart_section, panel_lines
from gpumon.present.overview_plan import plan_overview
from gpumon.present.overview_table import overview_columns, overview_line
from gpumon.present.overview_totals import totals_lines, verdict_line
from gpumon.present.paint.line import Role, plain
from gpumon.present.paint.table import fit_columns
from gpumon.session.view_state import JobsState, OomNotice, ProbesState, ViewState
from tests import builders
from tests.frames import machine, troubled
from tests.present.helpers import text, view

GIB = 1 << 30
ACTIVITY = {
    "sm_activity_percent": 71.0,
    "tensor_activity_percent": 44.0,
    "dram_activity_percent": 38.0,
    "sm_occupancy_percent": 52.0,
    "nvlink_receive_bytes_per_second": 212e9,
    "nvlink_transmit_bytes_per_second": 198e9,
    "pcie_receive_bytes_per_second": 2.1e9,
    "pcie_transmit_bytes_per_second": 1.9e9,
}


def rows_of(frame: Frame) -> list[DeviceRow]:
    return device_rows(view(frame))


def table_text(frame: Frame, width: int = 140) -> str:
    columns = fit_columns(
        [column for column in overview_columns(frame.devices, width) if not column.is_optional], width
    )
    return text([overview_line(columns, row) for row in rows_of(frame)])


# The lines of a screen


@given(st.integers(10, 100), st.integers(1, 300), st.integers(0, 3000), st.integers(0, 3))
def test_the_parts_never_want_more_lines_than_there_are(height: int, devices: int, processes: int, banner: int) -> None:
    plan = plan_overview(height, devices, processes, banner, gpus=devices)
    used = 2 + banner + plan.totals + 1 + plan.devices + plan.has_scope + 1 + plan.processes
    used += plan.chart + 2 if plan.chart else 0
    assert plan.devices >= 1
    assert plan.processes >= 1
    assert used <= max(height, 6 + banner + plan.totals)
    assert plan.chart == 0 or plan.chart >= 3


def test_the_chart_takes_what_devices_and_processes_leave() -> None:
    plan = plan_overview(50, 8, 4, 0, gpus=8)
    assert (plan.devices, plan.processes) == (8, 4)
    assert plan.chart == 50 - 2 - 3 - 3 - 8 - 4 - 2
    assert plan_overview(24, 8, 4, 0, gpus=8).devices == 8
    assert plan_overview(40, 1, 500, 0, gpus=1).chart >= 18, "with one GPU half of the screen"


# The device table


def test_bars_are_as_long_as_their_values() -> None:
    readings = {"utilization_gpu_percent": 50.0, "memory_used_bytes": 140 * GIB, "memory_total_bytes": 140 * GIB}
    shown = table_text(builders.frame(devices=(builders.device(readings=readings),)))
    assert "50%" in shown
    assert "!140/140 GiB" in shown
    assert shown.count("━") > 20


def test_a_missing_value_has_no_bar() -> None:
    shown = table_text(builders.frame(devices=(Device(3),)))
    assert "─" not in shown
    assert "━" not in shown
    assert MISSING in shown


def test_a_lost_gpu_says_across_its_row_why_and_where_to_look() -> None:
    shown = table_text(troubled()).splitlines()
    assert "LOST: The GPU has fallen off the bus → 6 shows what to do" in shown[1]
    assert "UNRESPONSIVE 12s" in shown[2]
    assert "!too hot" in shown[3]


def test_a_narrow_table_shows_a_fault_with_the_owner() -> None:
    assert "!too hot" in table_text(troubled(), 78)


def test_a_name_is_shown_where_models_differ() -> None:
    assert "H200" not in table_text(machine(2))
    mixed = builders.frame(devices=(builders.device(0), builders.device(1, name="NVIDIA L4")))
    assert "H200" in table_text(mixed)
    assert "L4" in table_text(mixed)


@pytest.mark.parametrize("width", range(40, 320, 7))
def test_no_row_is_wider_than_the_table(width: int) -> None:
    assert all(cell_len(line) <= width + 1 for line in table_text(troubled(), width).splitlines())


def test_the_load_decides_the_color() -> None:
    roles = [load_role(percent) for percent in (None, 0, 29.9, 30, 79.9, 80, 100)]
    low, medium, high = Role.LOAD_LOW, Role.LOAD_MEDIUM, Role.LOAD_HIGH
    assert roles == [low, low, low, medium, medium, high, high]


# Totals


def test_the_totals_are_sums_over_the_gpus_that_respond() -> None:
    devices = [builders.device(index, readings={"utilization_gpu_percent": 10.0 * index}) for index in range(4)]
    devices[3] = builders.device(3, state=DeviceState.LOST)
    frame = builders.frame(devices=tuple(devices))
    shown = text(totals_lines(view(frame), rows_of(frame), 160, 3))
    for words in ("4×H200", "10%", "208/421 GiB", "1.8/2.1 kW", "! 3 of 4 respond", "580.95.05 CUDA 13.0", "192 CPUs"):
        assert words in shown


def test_the_totals_name_the_free_gpus_and_the_hottest_one() -> None:
    devices = [builders.device(index, processes=()) for index in (0, 1)]
    devices.append(builders.device(2, readings={"temperature_celsius": 91.0}))
    frame = builders.frame(devices=tuple(devices))
    shown = text(totals_lines(view(frame), rows_of(frame), 140, 2))
    assert "free 0-1" in shown
    assert "hottest 2: !91°" in shown
    frame = machine(256)
    idle = builders.frame(devices=tuple(builders.device(gpu.index, processes=()) for gpu in frame.devices[::2]))
    assert "free 128 GPUs" in text(totals_lines(view(idle), rows_of(idle), 140, 2))


def test_what_to_know_now_is_a_line_of_facts_with_their_keys() -> None:
    idle = builders.device(1, readings={"utilization_gpu_percent": 0, "memory_used_bytes": 52 * GIB})
    frame = builders.frame(devices=(builders.device(0, processes=()), idle, builders.device(2)))
    shown = view(frame)
    for second in range(1, 1000, 2):
        shown.store.apply(replace(frame, monotonic_seconds=100.0 + second))
    hang = HangVerdict(HangKind.NOT_ENTERED, True, "Rank 3 has not entered it.", 3, since_seconds=40.0)
    job = TrainingJobReport("1", "1", "llama", "ada", "", 4, TrainingJobState.HANGING, verdict=hang)
    shown = shown._replace(
        frame=replace(frame, monotonic_seconds=1099.0),
        jobs=JobsState((job,), is_read=True),
        probes=ProbesState(ooms=(OomNotice(7, "/oom", frame.time_seconds - 130),)),
    )
    rows = device_rows(shown)
    assert plain(verdict_line(shown, rows, 140)) == (
        " now    free 0 · held but idle 1 (ada, >16m, 52 GiB) · llama: rank 3 hangs 40s (4) · OOM 2m ago (6)"
    )
    assert plain(verdict_line(shown, rows, 64)) == " now    free 0 · llama: rank 3 hangs 40s (4) · OOM 2m ago (6)"
    assert plain(verdict_line(shown, rows, 40)) == " now    llama: rank 3 hangs 40s (4)"


def test_the_time_axis_starts_with_a_minute_and_is_filled_to_two_thirds() -> None:
    store = Store()
    for second in range(600):
        frame = builders.frame(monotonic_seconds=1000.0 + second)
        store.apply(frame)
        axis = chart_axis(device_rows(ViewState(store, frame, (), ""))[0], store, 110)
        assert axis.seconds == 55 or second >= 2 / 3 * axis.seconds
    assert axis.seconds == 440


def test_a_level_shows_by_density_and_color_and_is_never_a_solid_block() -> None:
    store = Store()
    for second in range(0, 600, 4):
        frame = builders.frame(monotonic_seconds=1000.0 + second, interval_seconds=4.0)
        store.apply(frame)
    lines = chart_section(device_rows(ViewState(store, frame, (), ""))[0], store, 80, 12, None).chart
    cells = [plain(line)[40] for line in lines[:9]]
    assert len(set(cells)) >= 4
    assert cells.count("⣿") <= 3
    roles = {span.role for line in lines for span in line}
    assert {Role.LOAD_LOW, Role.LOAD_MEDIUM, Role.LOAD_HIGH, Role.MEMORY_HISTORY} <= roles


def test_the_rates_of_the_host_are_shown() -> None:
    host = replace(
        builders.frame().host,
        network_receive_bytes_per_second=1.2e9,
        network_transmit_bytes_per_second=9e6,
        disk_read_bytes_per_second=3.1e9,
        disk_write_bytes_per_second=0.0,
    )
    frame = builders.frame(host=host)
    shown = text(totals_lines(view(frame), rows_of(frame), 200, 3))
    assert "net ↓1.2G ↑9.0M B/s" in shown
    assert "disk r3.1G w0" in shown


@given(st.integers(10, 320), st.integers(0, 3))
def test_no_line_of_totals_is_wider_than_the_screen(width: int, lines: int) -> None:
    for frame in (troubled(), builders.frame(devices=(Device(0),), host=Host(), driver_version=None)):
        shown = totals_lines(view(frame), rows_of(frame), width, lines)
        assert len(shown) <= lines
        assert all(cell_len(plain(line)) <= width for line in shown)


@pytest.mark.parametrize(
    ("rate", "shown"), [(None, MISSING), (0, "0"), (512, "512"), (9_960, "10k"), (999_900, "1.0M"), (212e9, "212G")]
)
def test_a_rate_has_four_cells(rate: float | None, shown: str) -> None:
    assert compact_rate_text(rate) == shown


# The chart and its values


def section_text(frame: Frame, width: int, height: int) -> str:
    section = chart_section(rows_of(frame)[0], Store(), width, height, None)
    return text([section.heading, *section.chart, *section.panel])


def test_the_values_next_to_the_chart() -> None:
    frame = builders.frame(devices=(builders.device(readings=ACTIVITY, throttle_reasons=("sw_power_cap",)),))
    shown = section_text(frame, 120, 12)
    for words in ("71%", "↓212G", "↑198G", "↓2.1G", "1830/1980 MHz  power cap", "utilization", "memory", "100% ┤"):
        assert words in shown
    assert "71%" not in section_text(frame, 90, 12), "there is no room"


def test_the_panel_of_a_lost_gpu_says_what_to_do() -> None:
    shown = text(panel_lines(rows_of(troubled())[1], 60, 10, None))
    assert "LOST" in shown
    assert "6 shows what to do" in shown


@given(st.integers(60, 320), st.integers(3, 90))
def test_the_chart_has_exactly_its_lines(width: int, height: int) -> None:
    section = chart_section(rows_of(machine(1))[0], Store(), width, height, None)
    assert len(section.chart) == height + 1
    assert len(section.panel) <= height + 1
    assert all(cell_len(plain(line)) <= width for line in (section.heading, *section.chart))


# The heat map


@pytest.mark.parametrize("gpus", [17, 64, 256])
@pytest.mark.parametrize("mode", list(HeatMode))
@pytest.mark.parametrize(("width", "height"), [(60, 4), (80, 12), (160, 25), (300, 40)])
def test_the_map_fits_and_shows_the_selected_gpu(gpus: int, mode: HeatMode, width: int, height: int) -> None:
    rows = rows_of(machine(gpus))
    selected = rows[-1].device.key
    drawn = heat_map(rows, mode, selected, width, height)
    assert len(drawn.lines) <= height
    assert len(drawn.lines) == heat_map_height(rows, width, height)
    assert all(cell_len(plain(line)) <= width for line in drawn.lines)
    assert text(drawn.lines).count("▸") == 1
    x, y = next((plain(line).index("▸"), y) for y, line in enumerate(drawn.lines) if "▸" in plain(line))
    assert drawn.key_at(x, y) == selected


def test_the_map_shows_number_and_value_where_there_is_room() -> None:
    frame = many = machine(32)
    lost = builders.device(1, state=DeviceState.LOST)
    frame = builders.frame(devices=(many.devices[0], lost, *many.devices[2:]))
    shown = text(heat_map(rows_of(frame), HeatMode.UTILIZATION, None, 120, 8).lines)
    assert "✗" in shown
    assert "LOST" in shown
    assert " 26%" in shown
    assert "56°" in text(heat_map(rows_of(frame), HeatMode.TEMPERATURE, None, 120, 8).lines)


def test_free_gpus_come_first_on_request() -> None:
    devices = list(machine(20).devices)
    devices[13] = builders.device(13, processes=())
    rows = rows_of(builders.frame(devices=tuple(devices)))
    assert heat_map(rows, HeatMode.IDLE, None, 120, 8).keys[0] == devices[13].key
    assert heat_map(rows, HeatMode.MEMORY, None, 120, 8).keys[0] == devices[0].key


def test_the_heading_of_the_map_names_the_selected_gpu() -> None:
    rows = rows_of(machine(32))
    heading = plain(heat_heading(rows, HeatMode.UTILIZATION, rows[2].device.key, 100))
    assert heading.startswith(" 32 GPUs by utilization  ▸2 26% ada train")
    assert heading.rstrip().endswith("s: other value  v: table")
