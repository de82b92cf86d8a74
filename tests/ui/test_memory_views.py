"""What the screens of memory are made of: courses, layers of a chart, bars, and maps of blocks."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.allocator import BlockState
from gpumon.ui.memory_course import MarkKind, MemoryCourse, Series
from gpumon.ui.paint.layers import layers
from gpumon.ui.paint.line import Role, Span, cut, line, plain, width_of
from gpumon.ui.probes import ProbeBoard
from gpumon.ui.view.memory import extents
from gpumon.ui.view.memory_history import marks_text, round_above
from gpumon.ui.view.segments import ACTIVE, HOLE, MIXED, PENDING, block_map
from gpumon.ui.view.window import Window
from tests.ui.probing import BEGAN, GIB, PID, FakeWatcher, gpu, moment, probe, segment, silent, statistics

SIZES = st.integers(0, 1 << 40)


def course_of(*told: tuple[float, int]) -> MemoryCourse:
    course = MemoryCourse()
    for seconds, size in told:
        course.add(Series.ALLOCATED, seconds, size)
    return course


def test_a_column_is_the_highest_of_its_time() -> None:
    course = course_of((100.1, 5), (100.9, 7), (101.5, 3), (104.0, 4))
    assert course.columns(Series.ALLOCATED, 99, 6, 1.0, 0.0) == [None, 7, 3, None, None, 4]
    assert course.columns(Series.ALLOCATED, 49, 4, 2.0, 0.0) == [None, 7, None, 4]
    assert course.columns(Series.RESERVED, 99, 2, 1.0, 0.0) == [None, None]


def test_a_value_holds_until_the_next_one_but_not_for_long() -> None:
    course = course_of((100.0, 5), (103.0, 6))
    assert course.columns(Series.ALLOCATED, 99, 9, 1.0, 2.5) == [None, 5, 5, 5, 6, 6, 6, None, None]
    assert course.columns(Series.ALLOCATED, 101, 2, 1.0, 2.5) == [5, 5], "also what began before the left edge"


def test_an_hour_is_remembered_and_what_is_late_is_dropped() -> None:
    course = course_of((100.0, 5), (3699.0, 6))
    assert course.columns(Series.ALLOCATED, 100, 1, 1.0, 0.0) == [5]
    course.add(Series.ALLOCATED, 3700.0, 7)
    course.add(Series.ALLOCATED, 3000.0, 99)
    assert course.columns(Series.ALLOCATED, 100, 1, 1.0, 0.0) == [None]
    assert course.columns(Series.ALLOCATED, 3000, 1, 1.0, 0.0) == [None]
    course.add(Series.ALLOCATED, 1e6, 8)
    assert not any(course.columns(Series.ALLOCATED, 3690, 20, 1.0, 0.0))


def test_what_was_counted_before_is_no_mark_and_a_peak_may_be_reset() -> None:
    course = MemoryCourse()
    course.tell(1.0, statistics(alloc_retries_count=7, ooms_count=2, allocated_peak_bytes=9))
    course.tell(2.0, statistics(alloc_retries_count=9, ooms_count=2, allocated_peak_bytes=9))
    course.tell(3.0, statistics(alloc_retries_count=None, ooms_count=None, allocated_peak_bytes=None))
    course.tell(4.0, statistics(alloc_retries_count=10, ooms_count=3, allocated_peak_bytes=4))
    assert list(course.marks) == [(2.0, MarkKind.RETRY, 2)], "what was not told meanwhile is not known"
    assert course.peak == (4, 4.0)
    course.tell(5.0, statistics(alloc_retries_count=10, ooms_count=4, allocated_peak_bytes=4))
    assert course.marks[-1] == (5.0, MarkKind.OOM, 1)


def test_marks_in_words_do_not_overlap() -> None:
    course = MemoryCourse()
    for second in range(60):
        course.tell(second, statistics(alloc_retries_count=second // 20, ooms_count=second // 50))
    text = marks_text(course, Window(59, 60, 1.0))
    assert len(text) == 60
    assert (text[0], text[20], text[40], text[50]) == ("▲", "R", "R", "X")
    assert "peak 57.0 GiB" in text
    assert marks_text(course, Window(500, 60, 1.0)).strip() == ""


def test_a_pid_that_comes_again_is_another_process() -> None:
    watcher = FakeWatcher()
    board = ProbeBoard(lambda: watcher, lambda: None, lambda work, then: then(work()))
    key = gpu().key
    board.start()
    watcher.inbox.put(probe(PID, statistics()))
    board.take()
    board.watch(moment(0.0))
    before = board.course(PID, key)
    assert before is not None
    watcher.inbox.put(probe(PID, statistics(), at=BEGAN + 1))
    board.take()
    assert board.course(PID, key) is before
    assert before.columns(Series.HELD, int(BEGAN), 1, 1.0, 0.0) == [61 * GIB]
    watcher.inbox.put(silent(probe(PID, statistics())))
    board.take()
    assert board.probes == {}
    assert board.course(PID, key) is before, "it may still be looked at"
    watcher.inbox.put(probe(PID, statistics(), process={"command": "python another.py"}))
    board.take()
    assert board.course(PID, key) is None


def test_layers_are_told_apart_by_form() -> None:
    rows = layers([None, 4, 4, 8], [None, 8, 8, 8], [None, 12, 12, 12], 16, 4)
    assert (plain(rows[0]), plain(rows[3])) == ("    ", " ⣿⣿⣿")
    assert {span.role for span in rows[3] if span.text.strip()} == {Role.MEMORY_HISTORY}
    solid, dotted = plain(rows[2])[2], plain(rows[1])[2]
    assert bin(ord(solid) - 0x2800).count("1") == 2 * bin(ord(dotted) - 0x2800).count("1")


@given(st.lists(st.none() | SIZES, min_size=1, max_size=40), st.integers(0, 1 << 40), st.integers(1, 8))
def test_layers_fill_their_box_exactly(values: list[int | None], top: int, height: int) -> None:
    rows = layers(values, values, values, top, height)
    assert [width_of(plain(row)) for row in rows] == [len(values)] * height


@given(st.lists(SIZES, max_size=30), st.integers(1, 200))
def test_parts_of_a_bar_lie_side_by_side(sizes: list[int], width: int) -> None:
    found = extents(sizes, sum(sizes), width)
    begin = 0
    for extent, size in zip(found, sizes, strict=True):
        assert extent.begin == begin <= extent.end <= width
        assert not size or extent.end > extent.begin or begin == width
        begin = extent.end
    assert begin == width or not any(sizes)


@given(st.lists(st.tuples(st.integers(1, 1 << 30), st.sampled_from(BlockState)), min_size=1, max_size=50))
def test_a_map_has_its_width_whatever_lies_in_it(blocks: list[tuple[int, BlockState]]) -> None:
    drawn = block_map(segment(0, *blocks), 37)
    assert len(drawn) == 37
    assert set(drawn) <= {ACTIVE, PENDING, HOLE, MIXED}
    if len({state for _, state in blocks}) == 1:
        assert set(drawn) == {
            {"active_allocated": ACTIVE, "active_pending_free": PENDING}.get(blocks[0][1].value, HOLE)
        }


@given(st.floats(1, 1e13))
def test_the_top_of_a_chart_is_near_and_above(value: float) -> None:
    top = round_above(value)
    assert value <= top
    assert top <= max(2 * value, 1 << 20)


@given(st.lists(st.text("a漢█…", max_size=9), max_size=6), st.integers(0, 30))
def test_a_line_that_is_cut_fits(texts: list[str], width: int) -> None:
    whole = line(*(Span(text, role) for text, role in zip(texts, Role, strict=False)))
    assert width_of(plain(cut(whole, width))) <= width
    assert cut(whole, 1000) == whole
