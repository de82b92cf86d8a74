"""The memory of a GPU as a bar and rows."""

from typing import Any

import pytest

from gpumon.operations.waterfall import waterfall
from gpumon.present.memory_bar import bar_line, memory_groups
from gpumon.present.paint.line import plain, width_of
from gpumon.present.probe_text import waiting_text
from gpumon.present.waterfall_rows import MemoryRow, headline, memory_rows, note_lines, pane_lines, table_heading
from gpumon.probe.messages import Probe
from tests.present.helpers import texts
from tests.ui.probing import BEGAN, PID, gpu, probe, statistics


def rows_of(width: int, *probes: Probe) -> list[MemoryRow]:
    known = {item.pid: item for item in probes}
    fall = waterfall(gpu(), known)
    return list(memory_rows(fall, memory_groups(fall, width), known, BEGAN, width))


def test_a_process_with_a_probe_has_a_heading_and_a_row_per_part() -> None:
    rows = rows_of(120, probe(PID, statistics()))
    heading = next(row for row in rows if row.key == f"process/{PID}")
    assert plain(heading.line).startswith(f"A  PID {PID}")
    assert "61.0 GiB" in plain(heading.line)
    assert {row.key for row in rows} >= {f"{PID}/allocated", f"{PID}/releasable", "/free", "5000/unprobed"}
    assert {row.pid for row in rows if row.key.startswith(f"{PID}/")} == {PID}


@pytest.mark.parametrize("width", [1, 30, 60, 80, 117, 118, 119, 200])
def test_rows_and_headings_fit_at_every_width(width: int) -> None:
    device, known = gpu(), {PID: probe(PID, statistics())}
    fall = waterfall(device, known)
    for row in rows_of(width, probe(PID, statistics())):
        assert width_of(plain(row.line)) <= max(width, 45)
    assert width_of(plain(table_heading(width, fall.total_bytes, width - 2))) == width


def test_the_headline_and_the_bar_add_up() -> None:
    fall = waterfall(gpu(), {PID: probe(PID, statistics())})
    (text,) = texts([headline(fall, 80)])
    assert " in use" in text
    assert text.endswith(" free ")
    assert width_of(text) == 80
    assert width_of(plain(bar_line(memory_groups(fall, 80), fall.total_bytes, 80)).rstrip()) == 79


def test_notes_that_are_left_out_are_counted() -> None:
    assert texts(note_lines(["a", "b"], 40)) == [" ! a", " ! b"]
    assert texts(note_lines(["a", "b", "c", "d"], 40)) == [" ! a", " ! b (+2 more)"]
    assert texts(note_lines(["a", "x" * 90, "c"], 40))[1].endswith("… (+1 more)")


def test_a_note_fills_its_pane_and_a_long_one_is_cut() -> None:
    assert texts(pane_lines("tensors: live tensors.", 40, 3)) == [" tensors: live tensors.", "", ""]
    lines = texts(pane_lines("tensors: " + "word " * 50, 40, 3))
    assert len(lines) == 3
    assert lines[2].endswith("…")
    assert all(width_of(line) <= 40 for line in lines)


@pytest.mark.parametrize(("changes", "text"), [({}, "PID 41"), ({"process": {"rank": 3}}, "PID 41 rank 3")])
def test_a_process_is_named_with_its_rank(changes: dict[str, Any], text: str) -> None:
    assert any(plain(row.line).strip().startswith(text) for row in rows_of(120, probe(41, **changes)))


def test_an_old_request_explains_why_there_is_no_response() -> None:
    assert waiting_text(2.4) == "Waiting for the response."
    assert waiting_text(7).startswith("No response after 7s: ")
