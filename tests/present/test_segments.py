"""Maps of the allocator's segments."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.allocator import BlockState
from gpumon.core.holes import SegmentLayout
from gpumon.present.segments import ACTIVE, HOLE, MIXED, PENDING, block_map, segment_rows, summary_lines
from tests.present.helpers import texts
from tests.ui.probing import MIB, segment


@given(st.lists(st.tuples(st.integers(1, 1 << 30), st.sampled_from(BlockState)), min_size=1, max_size=50))
def test_a_map_has_its_width_whatever_lies_in_it(blocks: list[tuple[int, BlockState]]) -> None:
    cells = block_map(segment(0, *blocks), 37)
    assert len(cells) == 37
    assert set(cells) <= {ACTIVE, PENDING, HOLE, MIXED}
    if len({state for _, state in blocks}) == 1:
        assert set(cells) == {
            {"active_allocated": ACTIVE, "active_pending_free": PENDING}.get(blocks[0][1].value, HOLE)
        }


def test_a_cell_shows_what_most_of_its_part_is() -> None:
    used, pending, free = BlockState.ALLOCATED, BlockState.PENDING_FREE, BlockState.INACTIVE
    assert block_map(segment(0, (2 * MIB, used), (MIB, pending), (MIB, free)), 4) == ACTIVE * 2 + PENDING + HOLE
    for taken, glyph in ((16, HOLE), (17, MIXED), (83, MIXED), (84, ACTIVE)):
        assert block_map(segment(0, (taken * MIB, used), ((100 - taken) * MIB, free)), 1) == glyph
    for taken, glyph in ((16, HOLE), (17, PENDING), (84, PENDING)):
        assert block_map(segment(0, (taken * MIB, pending), ((100 - taken) * MIB, free)), 1) == glyph
    assert block_map(segment(0, (MIB, used), (19 * MIB, free)), 2) == HOLE * 2
    assert block_map(segment(0, (19 * MIB, used), (MIB, free)), 2) == ACTIVE * 2
    assert block_map(segment(0), 4) == ""


def test_the_summary_counts_and_explains_the_glyphs() -> None:
    used, pending, free = BlockState.ALLOCATED, BlockState.PENDING_FREE, BlockState.INACTIVE
    layout = SegmentLayout((segment(0, (2 * MIB, used), (MIB, pending), (MIB, free)),), 0)
    totals, legend = texts(summary_lines(layout, 120))
    assert totals.startswith(" 1 segment, 4.00 MiB; free 1.00 MiB, largest hole 1.00 MiB")
    assert "▓ freed, waiting for stream 1.00 MiB" in legend
    heading, row = segment_rows(layout, 80)
    assert "shared pool" in texts([heading.line])[0]
    assert ": 1 segment" in texts([heading.line])[0]
    assert set(texts([row.line])[0][31:].strip()) == {ACTIVE, PENDING, HOLE}
