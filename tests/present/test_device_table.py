"""The device table: its columns, marks, missing and old values, MIG instances, and GPUs without SM work."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpumon.core.frames import decode, encode
from gpumon.core.model import Device, DeviceState, Frame, Sweep
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.store import Store
from gpumon.core.units import MISSING
from gpumon.present.device import title_text
from gpumon.present.device_table import DEVICE_COLUMNS, device_rows
from gpumon.present.entries import device_entries
from gpumon.present.paint.line import Role, Span, plain
from gpumon.present.paint.table import fit_columns, headings, row_line
from gpumon.present.process_table import PROCESS_COLUMNS, process_line, process_rows
from tests import builders
from tests.present.helpers import device_cells, device_texts, only_span, view
from tests.present.split import GIB, NOT_REPORTED, split_frame

INVALID = Problem(ProblemCode.INVALID_VALUE, "The driver answered 4e+09, which cannot be true.")
OLD = Problem(ProblemCode.STALE, "NVML answered: unknown. This is the last value before.")
SHARED = Problem(ProblemCode.MEMORY_SHARED, "This GPU has no separate memory.")
METRICS = {
    "Util": "utilization_gpu_percent",
    "Memory GiB": "memory_used_bytes",
    "Temp": "temperature_celsius",
    "Power W": "power_watts",
    "SM MHz": "clock_sm_hertz",
    "MemMHz": "clock_memory_hertz",
}


def state_of(**changes: Any) -> Span:  # noqa: ANN401
    (state,) = device_cells(builders.frame(devices=(builders.device(**changes),)), "State")
    return state


def texts(frame: Frame, heading: str) -> list[str]:
    return [span.text for span in device_cells(frame, heading)]


@given(st.integers(0, 400), st.text(max_size=60))
def test_no_row_is_wider_than_the_table(width: int, text: str) -> None:
    device = builders.device(name=text, processes=(builders.process(user=text, command=text),))
    unread = builders.device(1, processes=None, problems={"processes": Problem(ProblemCode.UNKNOWN, text)})
    frame = builders.frame(devices=(device, unread))
    device_columns = fit_columns(DEVICE_COLUMNS, width)
    process_columns = fit_columns(PROCESS_COLUMNS, width)
    lines = [row_line(device_columns, row) for row in device_rows(view(frame))]
    lines += [process_line(process_columns, row) for row in process_rows(frame)]
    lines += [headings(device_columns), headings(process_columns)]
    assert all(cell_len(plain(line)) <= width + 1 for line in lines)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200, 300])
def test_the_most_important_columns_fit_at_every_width(width: int) -> None:
    devices = {item.column.heading for item in fit_columns(DEVICE_COLUMNS, width)}
    assert devices >= {"GPU", "Util", "Memory GiB", "Temp", "Power W", "State"}
    processes = {item.column.heading for item in fit_columns(PROCESS_COLUMNS, width)}
    assert processes >= {"GPU", "PID", "GPU GiB", "Command"}


def test_every_missing_value_is_a_dash_and_never_a_zero() -> None:
    cells = device_texts(Device(index=3))
    assert cells.pop("GPU") == "3"
    assert set(cells.values()) == {MISSING}


def test_values_near_or_beyond_their_limits_are_marked_in_text() -> None:
    readings = {"temperature_celsius": 93.0, "pcie_width": 8, "memory_used_bytes": 143000 << 20}
    readings |= {"utilization_gpu_percent": 100.0}
    cells = device_texts(builders.device(readings=readings, throttle_reasons=("hw_thermal_slowdown",)))
    assert cells["Temp"] == "!93°"
    assert cells["PCIe"] == "!5x8"
    assert cells["Memory GiB"].startswith("!")
    assert cells["State"] == "!too hot"


@pytest.mark.parametrize(("percent", "role"), [(95.0, Role.PLAIN), (95.1, Role.WARNING)])
def test_memory_is_marked_when_it_is_nearly_full(percent: float, role: Role) -> None:
    readings = {"memory_total_bytes": 100 * GIB, "memory_used_bytes": percent * GIB}
    (cell,) = device_cells(builders.frame(devices=(builders.device(readings=readings),)), "Memory GiB")
    assert cell == Span(f"{'!' if role is Role.WARNING else ''}{percent:.1f}/100", role)


@pytest.mark.parametrize(
    ("reasons", "label"),
    [
        ((), ""),
        (None, MISSING),
        (("sw_power_cap",), "power cap"),
        (("gpu_idle",), "idle"),
        (("sw_power_cap", "hw_slowdown"), "!hw slowdown +1"),
        (("a_reason_of_tomorrow",), ""),
    ],
)
def test_the_state_shows_why_clocks_are_low(reasons: tuple[str, ...] | None, label: str) -> None:
    assert state_of(throttle_reasons=reasons).text == label


@pytest.mark.parametrize(
    ("state", "age", "label"),
    [
        (DeviceState.UNRESPONSIVE, 12.4, "UNRESPONSIVE 12s"),
        (DeviceState.UNRESPONSIVE, None, "UNRESPONSIVE"),
        (DeviceState.UNRESPONSIVE, 4000.0, "UNRESPONSIVE 1h06"),
        (DeviceState.LOST, 3.0, "LOST 3s"),
        (DeviceState.LOST, None, "LOST"),
    ],
)
def test_a_device_that_does_not_respond_shows_its_state_and_age(
    state: DeviceState, age: float | None, label: str
) -> None:
    assert state_of(state=state, age_seconds=age) == Span(label, Role.ERROR)


def test_everything_is_old_while_no_frame_arrives() -> None:
    frame = builders.frame(devices=(builders.device(0, age_seconds=1.0),))
    (row,) = device_rows(view(frame)._replace(silence_seconds=20.0))
    cells = {str(column.heading): only_span(column.cell(row, column.width)) for column in DEVICE_COLUMNS}
    assert cells["State"] == Span("STALE 21s", Role.WARNING)
    assert cells["Util"].role is Role.DIM


# Missing values, untrue values, and values of an earlier moment


def frame_with(problem: Problem, *, has_values: bool = False) -> Frame:
    """A GPU whose metrics all have the same problem."""
    readings = {} if has_values else dict.fromkeys(METRICS.values())
    problems = dict.fromkeys(METRICS.values(), problem)
    return decode(encode(builders.frame(devices=(builders.device(readings=readings, problems=problems),))))


def cells_of(frame: Frame) -> dict[str, Span]:
    return {name: device_cells(frame, name)[0] for name in (*METRICS, "State")}


def entries_of(frame: Frame) -> dict[str, tuple[str, str]]:
    return {label: (value, note) for label, value, note in device_entries(frame.devices[0])}


@pytest.mark.parametrize(("problem", "mark"), [(INVALID, "?"), (NOT_REPORTED, MISSING)])
def test_a_missing_value_is_a_dash_and_an_untrue_one_a_question_mark(problem: Problem, mark: str) -> None:
    cells = cells_of(frame_with(problem))
    assert [cells[name].text.partition("/")[0] for name in METRICS] == [mark] * len(METRICS)
    assert entries_of(frame_with(problem))["Power"] == (mark, problem.reason)


def test_a_last_value_is_shown_and_marked() -> None:
    cells, fresh = cells_of(frame_with(OLD, has_values=True)), cells_of(builders.frame(devices=(builders.device(),)))
    for name in METRICS:
        assert cells[name] == Span(fresh[name].text, Role.DIM)
        assert fresh[name].role is Role.PLAIN
    assert cells["State"].text == "STALE"
    assert entries_of(frame_with(OLD, has_values=True))["Power"] == ("612.5 of 700.0 W", OLD.reason)


def test_the_number_of_refused_values_is_part_of_a_frame() -> None:
    assert decode(encode(builders.frame(sweep=Sweep(refused=7)))).sweep.refused == 7


# MIG instances


def test_instances_stand_below_their_gpu() -> None:
    assert texts(split_frame(), "GPU") == ["0", "1", "1:0", "1:1"]
    assert texts(split_frame(), "Name") == ["H200", "H200", "└ 1g.18gb", "└ 1g.18gb"]
    assert texts(split_frame(), "Memory GiB")[2:] == ["1.0/18", "2.0/18"]
    assert texts(split_frame(), "Util")[1:] == [MISSING] * 3


def test_the_title_names_the_instance() -> None:
    assert title_text(split_frame().devices[3], split_frame()).startswith("GPU 1:1  H200 MIG 1g.18gb")


def test_an_instance_has_its_own_history() -> None:
    store = Store()
    store.apply(split_frame())
    first, second = split_frame().devices[2:]
    assert store.history(first.key, "memory_used_bytes", 1) == [GIB]
    assert store.history(second.key, "memory_used_bytes", 1) == [2 * GIB]


# GPUs that are busy without work, or share the host's memory


def busy(utilization: float, activity: float | None, reasons: tuple[str, ...] | None = ("sw_power_cap",)) -> Frame:
    readings = {"utilization_gpu_percent": utilization, "sm_activity_percent": activity}
    return builders.frame(devices=(builders.device(0, readings=readings, throttle_reasons=reasons),))


def test_memory_of_the_host_is_marked() -> None:
    shared = builders.device(0, name="NVIDIA GB10", problems={"memory_reserved_bytes": SHARED})
    frame = builders.frame(devices=(shared, builders.device(1)))
    assert texts(frame, "Memory GiB") == ["~69.3/140", "69.3/140"]
    assert "memory shared with the host" in title_text(shared, frame)
    assert "shared" not in title_text(frame.devices[1], frame)
