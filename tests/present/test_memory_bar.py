"""The bar of a GPU's memory: a place, a letter, a color and a glyph for every process that is large enough."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.model import Device
from gpumon.operations.waterfall import PartKind, Waterfall, waterfall
from gpumon.present.memory_bar import OTHERS, bar_line, group_extents, memory_groups, pointer_line
from gpumon.present.paint.line import SERIES_ROLES, Role, plain, width_of
from gpumon.present.waterfall_rows import memory_rows
from tests import builders
from tests.ui.probing import BEGAN, GIB, MIB, PID, probe, statistics

EIGHT = [30 * GIB, 22 * GIB, 9 * GIB, 18 * GIB, 4 * GIB, 12 * GIB, 6 * GIB, 16 * GIB]
WIDTHS = [60, 80, 120, 160, 300]


def device(sizes: list[int], *, free: int | None = None) -> Device:
    """A GPU on which processes 4000, 4001, … hold the given memory; its size, unless ``free`` is given, is 140 GiB."""
    driver = int(builders.READINGS["memory_reserved_bytes"])
    total = int(builders.READINGS["memory_total_bytes"]) if free is None else sum(sizes) + driver + free
    used = sum(sizes)
    readings = {"memory_total_bytes": total, "memory_used_bytes": used, "memory_free_bytes": total - driver - used}
    processes = tuple(builders.process(PID + index, memory_bytes=size) for index, size in enumerate(sizes))
    return builders.device(0, readings=readings, processes=processes)


def memory(sizes: list[int], *, is_probed: bool = False, free: int | None = None) -> Waterfall:
    probes = {
        PID + index: probe(PID + index, statistics(reserved_bytes=size, allocated_bytes=size // 2))
        for index, size in enumerate(sizes if is_probed else [])
    }
    return waterfall(device(sizes, free=free), probes)


def bar_text(fall: Waterfall, width: int) -> str:
    return plain(bar_line(memory_groups(fall, width), fall.total_bytes, width))


@pytest.mark.parametrize("is_probed", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_eight_processes_have_a_letter_each_in_the_order_of_the_rows(width: int, is_probed: bool) -> None:
    fall = memory(EIGHT, is_probed=is_probed)
    groups = memory_groups(fall, width)
    text = bar_text(fall, width)
    assert [letter for letter in text if letter.isalpha()] == list("ABCDEFGH")
    assert width_of(text) == width - 1
    rows = [plain(row.line) for row in memory_rows(fall, groups, {}, BEGAN, width - 2)]
    marks = [(row[0], row.partition("PID ")[2][:4]) for row in rows if "PID " in row]
    assert marks == [(letter, str(PID + index)) for index, letter in enumerate("ABCDEFGH")]


@pytest.mark.parametrize("is_probed", [False, True])
def test_a_process_has_one_color_in_the_bar_and_in_its_rows(is_probed: bool) -> None:
    fall = memory(EIGHT, is_probed=is_probed)
    groups = memory_groups(fall, 120)
    roles = [span.role for span in bar_line(groups, fall.total_bytes, 120) if span.role in SERIES_ROLES]
    assert roles == list(SERIES_ROLES), "adjacent ones differ, and there are eight colors"
    rows = {row.key: row.line for row in memory_rows(fall, groups, {}, BEGAN, 160)}
    keys = [f"process/{PID + index}" if is_probed else f"{PID + index}/unprobed" for index in range(8)]
    assert [rows[key][0].role for key in keys] == list(SERIES_ROLES)
    if is_probed:
        assert rows[f"{PID}/allocated"][0].role is SERIES_ROLES[0]


def test_adjacent_processes_without_a_probe_differ_by_their_glyph_too() -> None:
    fall = memory(EIGHT)
    glyphs = [group.style(group.parts[0]).text for group in memory_groups(fall, 120) if group.mark]
    assert all(one != other for one, other in pairwise(glyphs))


def test_small_processes_are_one_place_in_the_bar_and_have_its_mark_in_their_rows() -> None:
    fall = memory([40 * GIB, 200 * MIB, 30 * GIB, 300 * MIB, 100 * MIB])
    groups = memory_groups(fall, 80)
    assert [group.mark for group in groups] == ["", "A", "B", OTHERS, "", ""]
    assert bar_text(fall, 80).count(OTHERS) == 1
    rows = [plain(row.line) for row in memory_rows(fall, groups, {}, BEGAN, 80)]
    assert [row[0] + row.partition("PID ")[2][:4] for row in rows if "PID" in row] == [
        "A4000", "B4002", "+4001", "+4003", "+4004",
    ]  # fmt: skip
    assert "3 small processes, PID 4003 among them 600 MiB" in plain(
        pointer_line(groups, fall.total_bytes, 120, 4003, "PID 4003")
    )


@given(st.lists(st.integers(0, 40 * GIB), max_size=40), st.integers(0, 200 * GIB), st.booleans(), st.integers(1, 300))
def test_the_bar_fits_and_its_parts_are_adjacent(sizes: list[int], free: int, is_probed: bool, width: int) -> None:
    fall = memory(sizes, is_probed=is_probed, free=free)
    groups = memory_groups(fall, width)
    cells = max(1, width - 2)
    text = plain(bar_line(groups, fall.total_bytes, width))
    assert width_of(text) == 1 + cells
    begin = 0
    for group, extents in zip(groups, group_extents(groups, fall.total_bytes, cells), strict=True):
        for extent in extents[:1] if group.mark == OTHERS else extents:
            assert extent.begin == begin <= extent.end
            begin = extent.end
    assert begin == cells
    for part in fall.parts:
        assert width_of(plain(pointer_line(groups, fall.total_bytes, width, part.pid, "PID 7"))) <= max(width, 3)


def test_the_process_under_the_cursor_is_reversed_and_underlined() -> None:
    fall = memory(EIGHT)
    groups = memory_groups(fall, 120)
    marked = [span.text for span in bar_line(groups, fall.total_bytes, 120, 4003) if span.role is Role.CURSOR]
    assert marked == ["D"]
    bar = bar_text(fall, 120)
    pointer = plain(pointer_line(groups, fall.total_bytes, 120, 4003, "PID 4003 rank 3"))
    underlined = [index for index, char in enumerate(pointer) if char == "▔"]
    assert (underlined[0], underlined[-1]) == (bar.index("D"), bar.index("E") - 1)
    assert pointer.split("▔ ")[-1] == "D PID 4003 rank 3 18.0 GiB"
    last = plain(pointer_line(groups, fall.total_bytes, 120, 4007, "PID 4007 with a rather long description"))
    assert last.strip().startswith("H PID 4007"), "at the left where there is no room at the right"
    assert pointer_line(groups, fall.total_bytes, 120, None, "") == ()


def test_parts_of_a_process_keep_their_glyphs() -> None:
    fall = memory([60 * GIB], is_probed=True)
    (group,) = (group for group in memory_groups(fall, 120) if group.mark)
    glyphs = {part.kind: group.style(part).text for part in group.parts}
    assert len(set(glyphs.values())) == len(glyphs)
    assert glyphs[PartKind.ALLOCATED] == "█"
    assert {"A", "█", "░"} <= set(bar_text(fall, 120))
