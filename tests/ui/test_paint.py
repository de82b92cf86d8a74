"""Values to lines, without an app."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpumon.core.model import Device, DeviceState, Frame, ProcessKind
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.store import Store
from gpumon.core.units import MISSING, UNTRUE
from gpumon.diagnosis.health import Alert, Severity
from gpumon.ui.paint.columns import GAP, Align, Column, headings, place, row_line
from gpumon.ui.paint.history import strip
from gpumon.ui.paint.line import Line, Role, Span, changed_width, clipped, line, merged, plain
from gpumon.ui.report import report
from gpumon.ui.scene import Scene
from gpumon.ui.view import around, devices, processes
from tests import builders
from tests.ui.fakes import HOSTILE, machine, troubled

WIDE = "训练模型の学習"


def scene(frame: Frame) -> Scene:
    """A moment of which nothing went before."""
    return Scene(Store(), frame, (), "")


def column(heading: str, width: int, text: str = "", rank: int = 0, **more: Any) -> Column[str]:  # noqa: ANN401
    return Column(heading, width, lambda row, _: Span(text or row), rank, **more)


def named(columns: Sequence[Column[str]], width: int) -> list[str]:
    return [placed.column.title(placed.width) for placed in place(columns, width)]


def cells(columns: Sequence[Column[devices.DeviceRow]], device: Device, width: int = 200) -> dict[str, str]:
    """Heading to text of one device's row."""
    placed = place(columns, width)
    (row,) = devices.device_rows(scene(builders.frame(devices=(device,))))
    return {each.column.title(each.width): each.column.cell(row, each.width).text for each in placed}


def state_of(**changes: Any) -> Span:  # noqa: ANN401
    (row,) = devices.device_rows(scene(builders.frame(devices=(builders.device(**changes),))))
    (state,) = (each for each in devices.DEVICE_COLUMNS if each.heading == "State")
    return state.cell(row, state.width)


def alert(number: int, severity: Severity = Severity.WARNING, action: str = "Mend it.") -> Alert:
    return Alert(f"alert{number}", severity, f"Thing {number} is wrong.", action)


# Columns


def test_columns_of_high_rank_are_dropped_first() -> None:
    columns = [column("a", 4, rank=0), column("b", 4, rank=2), column("c", 4, rank=1)]
    assert named(columns, 14) == ["a", "b", "c"]
    assert named(columns, 13) == ["a", "c"]
    assert named(columns, 8) == ["a"]
    assert named(columns, 3) == []


def test_a_column_that_wants_a_wide_table_waits_for_it() -> None:
    columns = [column("a", 4), column("b", 4, rank=1, least_table_width=100)]
    assert named(columns, 99) == ["a"]
    assert named(columns, 100) == ["a", "b"]


def test_stretching_columns_share_all_that_is_left() -> None:
    columns = [column("a", 4), column("b", 4, stretches=True), column("c", 4, stretches=True)]
    placed = place(columns, 40)
    assert [each.width for each in placed] == [4, 17, 17]
    assert sum(each.width + GAP for each in placed) == 41, "the last gap may hang over the edge"


@pytest.mark.parametrize("align", list(Align))
@pytest.mark.parametrize("text", ["", "x", "a long text that is cut", WIDE, "é" * 20, "🚀" * 9])
def test_a_cell_has_exactly_its_width(text: str, align: Align) -> None:
    for width in range(1, 15):
        placed = place([column("heading", width, align=align)], width)
        assert cell_len(plain(row_line(placed, text))) == width + 1
        assert cell_len(plain(headings(placed))) == width + 1


def test_a_cut_text_says_so() -> None:
    placed = place([column("a", 5, align=Align.LEFT)], 5)
    assert plain(row_line(placed, "abcdef")) == "abcd… "
    assert plain(row_line(placed, "abcde")) == "abcde "


@given(st.integers(0, 400), st.text(max_size=60))
def test_no_row_is_wider_than_the_table(width: int, text: str) -> None:
    device = builders.device(name=text, processes=(builders.process(user=text, command=text),))
    frame = builders.frame(devices=(device,))
    device_columns = place(devices.DEVICE_COLUMNS, width)
    process_columns = place(processes.PROCESS_COLUMNS, width)
    lines = [row_line(device_columns, row) for row in devices.device_rows(scene(frame))]
    lines += [row_line(process_columns, row) for row in processes.process_rows(frame)]
    lines += [headings(device_columns), headings(process_columns)]
    assert all(cell_len(plain(each)) <= width + 1 for each in lines)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200, 300])
def test_what_matters_most_fits_at_every_width(width: int) -> None:
    found = {each.column.heading for each in place(devices.DEVICE_COLUMNS, width)}
    assert found >= {"GPU", "Util", "Memory GiB", "Temp", "Power W", "State"}
    assert {each.column.heading for each in place(processes.PROCESS_COLUMNS, width)} >= {
        "GPU",
        "PID",
        "GPU mem",
        "Command",
    }


# Histories and lines


def test_a_strip_has_a_fixed_scale() -> None:
    assert strip([0, 50, 100], 100) == "_▅█"
    assert strip([1, 2, 3], 100) == "▁▁▁", "small values stay small, whatever the others are"
    assert strip([-5, 0.5, 250], 100) == "__█"


def test_a_strip_shows_gaps_but_nothing_before_the_first_value() -> None:
    assert strip([None, None, 10, None, 90], 100) == "  ▁·█"
    assert strip([None, None], 100) == "  "
    assert strip([], 100) == ""


def test_a_strip_without_a_scale_is_empty() -> None:
    assert strip([1, 2, 3], None) == strip([1, 2, 3], 0) == "   "


@given(st.lists(st.none() | st.floats(0, 1e12)), st.none() | st.floats(0, 1e12))
def test_a_strip_has_a_cell_for_each_value(values: list[float | None], maximum: float | None) -> None:
    assert len(strip(values, maximum)) == len(values)


@given(st.text(max_size=20), st.integers(-1, 12))
def test_clipped_text_fits(text: str, width: int) -> None:
    shown = clipped(text, width)
    assert cell_len(shown) <= max(0, width)
    assert shown == text or width < 1 or shown.endswith("…")


LINES = st.lists(st.builds(Span, st.text("ab训é ", max_size=4), st.sampled_from(list(Role)[:2])), max_size=4).map(tuple)


def drawn(spans: Line) -> list[tuple[str, Role]]:
    """Character and role of each cell; the second cell of a wide character is its own."""
    cells = [(char, role) for text, role in spans for char in text for _ in range(cell_len(char))]
    return cells + [(" ", Role.PLAIN)] * (50 - len(cells))


@given(LINES, LINES)
def test_all_that_changed_lies_within_the_changed_width(before: Line, after: Line) -> None:
    width = changed_width(before, after)
    assert drawn(before)[width:] == drawn(after)[width:]
    assert changed_width(before, before) == 0


def test_the_changed_width_is_no_wider_than_needed() -> None:
    before = line("GPU 0", Span(" 87%", Role.ACCENT), "  612 W")
    after = line("GPU 0", Span(" 88%", Role.ACCENT), "  612 W")
    assert changed_width(before, after) == len("GPU 0 88")


def test_neighbours_of_one_role_become_one_span() -> None:
    assert line("a", Span("b"), Span("", Role.ERROR), Span("c", Role.DIM), Span("d", Role.DIM)) == (
        Span("ab"),
        Span("cd", Role.DIM),
    )
    assert merged([]) == ()


# Devices


def test_every_missing_value_is_a_dash_and_never_a_zero() -> None:
    bare = Device(index=3)
    found = cells(devices.DEVICE_COLUMNS, bare)
    assert found.pop("GPU") == "3"
    histories = [
        found.pop(each.column.title(each.width)) for each in place(devices.DEVICE_COLUMNS, 200) if each.column.stretches
    ]
    assert set(found.values()) == {MISSING}
    assert len(histories) == 2
    assert not any(text.strip() for text in histories)


def test_half_of_a_pair_can_be_missing() -> None:
    found = cells(devices.DEVICE_COLUMNS, builders.device(readings={"power_watts": None, "memory_used_bytes": None}))
    assert found["Power W"] == f"{MISSING}/700"
    assert found["Memory GiB"] == f"{MISSING}/140"


def test_a_sentinel_of_the_driver_never_reaches_a_line() -> None:
    from gpumon.core.frames import decode, encode

    absurd = {
        "utilization_gpu_percent": 4294967295.0,
        "temperature_celsius": -2147483647.0,
        "power_watts": 4294967.295,
        "memory_used_bytes": float(2**64 - 1),
        "clock_sm_hertz": 4294967295e6,
    }
    frame = decode(encode(builders.frame(devices=(builders.device(readings=absurd),))))
    shown = report(frame) + around.totals_text(frame)
    assert not re.search(r"429496|214748|1844674|17592186", shown)
    assert shown.count(UNTRUE) >= len(absurd)


def test_values_that_deserve_a_look_are_marked_in_text() -> None:
    found = cells(
        devices.DEVICE_COLUMNS,
        builders.device(
            readings={"temperature_celsius": 93.0, "pcie_width": 8, "memory_used_bytes": 143000 << 20},
            throttle_reasons=("hw_thermal_slowdown",),
        ),
    )
    assert found["Temp"] == "!93°"
    assert found["PCIe"] == "!5x8"
    assert found["Memory GiB"].startswith("!")
    assert found["State"] == "!too hot"


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ((), ""),
        (None, MISSING),
        (("sw_power_cap",), "power cap"),
        (("gpu_idle",), "idle"),
        (("sw_power_cap", "hw_slowdown"), "!hw slowdown +1"),
        (("a_reason_of_tomorrow",), ""),
    ],
)
def test_state_says_why_the_clocks_are_low(reasons: tuple[str, ...] | None, words: str) -> None:
    assert state_of(throttle_reasons=reasons).text == words


@pytest.mark.parametrize(
    ("state", "age", "words"),
    [
        (DeviceState.UNRESPONSIVE, 12.4, "UNRESPONSIVE 12s"),
        (DeviceState.UNRESPONSIVE, None, "UNRESPONSIVE"),
        (DeviceState.UNRESPONSIVE, 4000.0, "UNRESPONSIVE 1h06"),
        (DeviceState.LOST, 3.0, "LOST 3s"),
        (DeviceState.LOST, None, "LOST"),
    ],
)
def test_a_device_that_does_not_answer_says_so_with_the_age(state: DeviceState, age: float | None, words: str) -> None:
    span = state_of(state=state, age_seconds=age)
    assert span == Span(words, Role.ERROR)


def test_totals_leave_out_and_count_what_does_not_answer() -> None:
    devices = [builders.device(index, readings={"utilization_gpu_percent": 10.0 * index}) for index in range(4)]
    devices[3] = builders.device(3, state=DeviceState.LOST, readings={"utilization_gpu_percent": 100.0})
    text = around.totals_text(builders.frame(devices=tuple(devices)))
    assert text == "3 of 4 answer · util 10% · memory 208 GiB · 1838 W"
    silent = tuple(builders.device(index, state=DeviceState.UNRESPONSIVE) for index in range(2))
    assert around.totals_text(builders.frame(devices=silent)) == "0 of 2 answer"


def test_totals_say_nothing_where_nothing_is_known() -> None:
    assert around.totals_text(builders.frame(devices=(Device(0), Device(1)))) == ""


# Processes


def test_the_largest_process_stands_first_and_rows_do_not_dance() -> None:
    gib = 1 << 30
    held = [builders.process(pid, memory_bytes=size) for pid, size in ((9, gib), (7, 5 * gib), (8, 5 * gib + 4096))]
    held.append(builders.process(6, memory_bytes=None))
    rows = processes.process_rows(builders.frame(devices=(builders.device(processes=tuple(held)),)))
    assert [row.process.pid for row in rows if row.process] == [7, 8, 9, 6]


def test_memory_that_nobody_owns_has_a_row_of_its_own() -> None:
    device = builders.device(readings={"memory_unattributed_bytes": 5 << 30})
    *_, row = processes.process_rows(builders.frame(devices=(device,)))
    assert row.process is None
    assert processes.process_key(row) == f"{device.key}/"
    shown = plain(row_line(place(processes.PROCESS_COLUMNS, 120), row))
    assert "5.00 GiB" in shown
    assert "no visible process owns" in shown


def test_a_process_of_which_only_the_pid_is_known() -> None:
    process = builders.process(
        77,
        user=None,
        command=None,
        memory_bytes=None,
        cpu_percent=None,
        host_memory_bytes=None,
        age_seconds=None,
        kinds=(ProcessKind.COMPUTE, ProcessKind.MPS),
    )
    (row,) = processes.process_rows(builders.frame(devices=(builders.device(processes=(process,)),)))
    shown = plain(row_line(place(processes.PROCESS_COLUMNS, 120), row)).split()
    assert shown[:8] == ["0", "77", MISSING, "CM", MISSING, MISSING, MISSING, MISSING]
    assert " ".join(shown[8:]) == "gone, or in another PID namespace"


# The lines around the tables


@pytest.mark.parametrize("width", [0, 1, 2, 10, 40, 79, 200])
@pytest.mark.parametrize("most", [1, 3])
def test_a_banner_never_overflows(width: int, most: int) -> None:
    for count in range(6):
        alerts = [alert(number, action=WIDE * number) for number in range(count)]
        lines = around.banner(alerts, width, most, 0.0)
        assert len(lines) <= max(most, 1)
        assert all(cell_len(plain(each)) <= width for each in lines)


def test_a_banner_counts_what_it_leaves_out() -> None:
    lines = around.banner([alert(number) for number in range(5)], 80, 3, 0.0)
    assert [plain(each) for each in lines] == [
        " ! Thing 0 is wrong. Mend it.",
        " ! Thing 1 is wrong. Mend it.",
        " ! Thing 2 is wrong. Mend it. (+2 more)",
    ]
    (one,) = around.banner([alert(number, action="x" * 60) for number in range(5)], 60, 1, 0.0)
    assert plain(one) == " ! Thing 0 is wrong. (+4 more)"


def test_a_banner_keeps_the_count_when_the_text_is_cut() -> None:
    (one,) = around.banner([Alert("a", Severity.CRITICAL, WIDE * 20), alert(1)], 60, 1, 0.0)
    assert plain(one).endswith("… (+1 more)")
    assert one[0].role is Role.ERROR


def test_the_remedy_of_a_single_alert_gets_a_line_of_its_own() -> None:
    lines = around.banner([alert(0, action="y" * 70)], 80, 3, 0.0)
    assert [plain(each).strip() for each in lines] == ["! Thing 0 is wrong.", "y" * 70]
    assert around.banner([], 80, 3, 0.0) == []


def test_an_empty_machine_is_all_dashes() -> None:
    frame = Frame(0.0, 0.0, 1.0)
    assert " ".join(plain(around.host_line(frame)).split()) == "host CPU –% of – load – memory – of – up –"
    assert around.versions(frame) == "", "how many GPUs there are is not known"
    assert around.versions(builders.frame(devices=())) == "driver 580.95.05 · CUDA 13.0 · 0 GPUs"


# The report


def test_the_report_is_plain_text() -> None:
    from gpumon.core.frames import decode, encode

    evil = builders.device(name=HOSTILE, processes=(builders.process(user=HOSTILE, command=HOSTILE),))
    for frame in (machine(), troubled(), decode(encode(builders.frame(devices=(evil,))))):
        text = report(frame)
        assert all(char.isprintable() for row in text.split("\n") for char in row)
        assert all(row == row.rstrip() for row in text.split("\n"))


def test_the_report_names_every_gpu_every_process_and_what_is_wrong() -> None:
    text = report(troubled())
    rows = text.splitlines()
    assert sum(row.split()[1:2] == ["H200"] for row in rows) == 8
    assert re.search(r"^ +1 .* LOST$", text, re.MULTILINE)
    assert re.search(r"^ +2 .* UNRESPONSIVE 12s$", text, re.MULTILINE)
    assert "4007" in text
    assert "! GPU 1 is lost: The GPU has fallen off the bus." in text


def test_the_report_without_processes_has_no_empty_table() -> None:
    problem = Problem(ProblemCode.NOT_SUPPORTED, "No lists here.")
    text = report(builders.frame(devices=(builders.device(processes=None, problems={"processes": problem}),)))
    assert "PID" not in text
