"""The process table: order, unattributed memory, and process lists that cannot be read."""

import pytest

from gpumon.core.model import Device, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.present.paint.line import Role, Span, plain
from gpumon.present.paint.table import fit_columns
from gpumon.present.process_table import PROCESS_COLUMNS, process_key, process_line, process_rows
from tests import builders
from tests.present.helpers import only_span
from tests.present.split import split_frame

GIB = 1 << 30
REFUSED = Problem(ProblemCode.NO_PERMISSION, "Permission denied by the driver.")
COLUMNS = fit_columns(PROCESS_COLUMNS, 138)


def refused(index: int, problem: Problem = REFUSED) -> Device:
    return builders.device(index, processes=None, problems={"processes": problem})


def lines(*devices: Device) -> list[str]:
    return [plain(process_line(COLUMNS, row)).rstrip() for row in process_rows(builders.frame(devices=devices))]


def test_the_largest_process_stands_first_and_small_changes_move_no_row() -> None:
    held = [builders.process(pid, memory_bytes=size) for pid, size in ((9, GIB), (7, 5 * GIB), (8, 5 * GIB + 4096))]
    held.append(builders.process(6, memory_bytes=None))
    rows = process_rows(builders.frame(devices=(builders.device(processes=tuple(held)),)))
    assert [row.process.pid for row in rows if row.process] == [7, 8, 9, 6]


def test_unattributed_memory_has_a_row() -> None:
    device = builders.device(readings={"memory_unattributed_bytes": 5 << 30})
    *_, row = process_rows(builders.frame(devices=(device,)))
    assert row.process is None
    assert process_key(row) == f"{device.key}/"
    shown = plain(process_line(COLUMNS, row))
    assert " 5.0 " in shown
    assert "! unattributed: no visible process owns this memory" in shown


def test_a_command_is_shown_without_the_folder_of_its_program() -> None:
    process = builders.process(77, command="/opt/venv/bin/python train.py --data /mnt/data")
    assert lines(builders.device(processes=(process,)))[0].endswith(" train.py --data /mnt/data")


def test_a_process_stands_on_its_instance() -> None:
    rows = process_rows(split_frame())
    assert [(row.device.label, row.process.pid) for row in rows if row.process is not None] == [
        ("0", 4000),
        ("1:0", 5000),
        ("1:1", 5001),
    ]
    (column,) = (column for column in PROCESS_COLUMNS if column.heading == "GPU")
    assert [only_span(column.cell(row, 3)).text for row in rows] == ["0", "1:0", "1:1"]


def test_a_refused_process_list_is_one_row_with_the_reason() -> None:
    assert lines(refused(0), refused(1)) == ["! Process list not available: Permission denied by the driver."]
    (row,) = process_rows(builders.frame(devices=(refused(0),)))
    assert process_line(COLUMNS, row)[0].role is Role.WARNING
    assert process_key(row) == f"{refused(0).key}/", "the row leads to the device"


def test_lists_refused_for_different_reasons_name_their_gpus() -> None:
    other = Problem(ProblemCode.UNKNOWN, "NVML returned: Unknown Error.", "Try again.")
    *_, first, second = lines(builders.device(0), refused(1), refused(2, other), refused(3))
    assert first == "! Process list of GPU 1, 3 not available: Permission denied by the driver."
    assert second == "! Process list of GPU 2 not available: NVML returned: Unknown Error. Try again."


@pytest.mark.parametrize("state", [DeviceState.LOST, DeviceState.UNRESPONSIVE])
def test_the_row_of_a_gpu_shows_that_it_is_lost_and_the_process_table_does_not(state: DeviceState) -> None:
    lost = builders.device(1, state=state, processes=None, problems={"processes": REFUSED})
    assert [text.split()[1] for text in lines(builders.device(0), lost)] == ["4000"]
    assert lines(refused(0), lost) == ["! Process list not available: Permission denied by the driver."]


def test_a_last_list_of_processes_is_still_shown() -> None:
    stale = Problem(ProblemCode.STALE, "NVML returned: Timeout.")
    device = builders.device(0, problems={"processes": stale})
    assert [text.split()[1] for text in lines(device)] == ["4000"]


def test_a_long_reason_is_cut_at_the_width_of_the_table() -> None:
    columns = fit_columns(PROCESS_COLUMNS, 60)
    (row,) = process_rows(builders.frame(devices=(refused(0, Problem(ProblemCode.UNKNOWN, "x" * 500)),)))
    (span,) = process_line(columns, row)
    assert span == Span("! Process list not available: " + "x" * 29 + "…", Role.WARNING)
