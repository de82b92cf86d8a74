"""A log as blocks of clean lines: nothing lost, nothing twice, numbers and ranks right, sizes bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.diagnosis import scan
from gpumon.diagnosis.prefixes import Clock, moment_of, split_prefixes
from gpumon.diagnosis.scan import Block, blocks


def decided(text: str, size: int = 1 << 16) -> list[tuple[int, str]]:
    """Every line with its number, as each is decided on in one block."""
    data = text.encode()
    return [
        (block.numbers[place], block.lines[place])
        for block in blocks(data[start : start + size] for start in range(0, len(data), size))
        for place in range(block.first, block.end)
    ]


def only(text: str) -> Block:
    (block,) = blocks([text.encode()])
    return block


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK_BYTES", 64)
    monkeypatch.setattr(scan, "OVERLAP_LINES", 4)


@given(lines=st.lists(st.text("ab1: ", max_size=30), max_size=60), size=st.integers(1, 200))
def test_every_line_is_decided_on_once(lines: list[str], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BLOCK_BYTES", 64)
        patch.setattr(scan, "OVERLAP_LINES", 4)
        found = decided("".join(line + "\n" for line in lines), size)
    assert found == list(enumerate(lines, 1))


@pytest.mark.usefixtures("small_blocks")
def test_what_is_decided_on_has_the_lines_around_it_in_the_same_block() -> None:
    data = "".join(f"line {number}\n" for number in range(100)).encode()
    for block in blocks([data]):
        is_last = block.lines[-1] == "line 99"
        assert block.first == 0 or block.first >= scan.OVERLAP_LINES
        assert is_last or len(block.lines) - block.end == scan.OVERLAP_LINES


def test_a_block_is_bounded_whatever_is_read() -> None:
    size = 8 * scan.BLOCK_BYTES
    most = scan.BLOCK_BYTES + 2 * scan.OVERLAP_LINES * scan.LONGEST_LINE
    for data in (b"x" * size, b"\r" * size, b"line of a log\n" * (size // 14)):
        for block in blocks([data]):
            assert sum(map(len, block.lines)) <= most
            assert max(map(len, block.lines)) <= scan.LONGEST_LINE


def test_pieces_of_one_line_have_its_number() -> None:
    assert decided("a\r 10%\r 20%\nb\r\nc") == [(1, "a"), (1, " 10%"), (1, " 20%"), (2, "b"), (3, "c")]
    long = "x" * (scan.LONGEST_LINE + 5)
    assert decided(f"{long}\nend") == [(1, "x" * scan.LONGEST_LINE), (1, "xxxxx"), (2, "end")]


@pytest.mark.parametrize(
    "escape", ["\x1b[31m", "\x1b[38;2;1;2;3m", "\x1b[2K", "\x1b]0;title\x07", "\x1b]8;;u\x1b\\", "^[[1m"]
)
def test_colors_are_taken_off(escape: str) -> None:
    assert only(f"one {escape}two{escape}").lines == ["one two"]


def test_lines_of_a_rank_are_together_and_bare_lines_go_with_those_before() -> None:
    block = only("start\n[rank0]: a\n[rank1]: b\ngoes on\n[rank0]: c")
    assert [lane.texts for lane in block.lanes()] == [["start"], ["a", "c"], ["b", "goes on"]]
    assert block.ranks == [None, 0, 1, None, 0]


def test_what_is_no_text_is_read_as_far_as_it_goes() -> None:
    assert only("ok \udcff".encode("utf-8", "surrogateescape").decode("latin-1")).lines
    assert next(blocks([b"a\xff\xfe\nb"])).lines == ["a\ufffd\ufffd", "b"]


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ("[rank3]: RuntimeError: x", 3, "RuntimeError: x"),
        ("[rank3]:[E1120 12:00:01.123 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog", 3, "Watchdog"),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 12] Timeout", 12, "Timeout"),
        ("[default2]:text", 2, "text"),
        ("[1,5]<stderr>:text", 5, "text"),
        ("trainer-1  | 2026-11-20T12:00:00Z text", None, "text"),
        ("[pod/trainer-0/main] text", None, "text"),
        ("(RayTrainWorker pid=1, ip=10.0.0.1) text", None, "text"),
        ("Nov 20 12:00:01 node1 kernel: [12345.678901] NVRM: text", None, "NVRM: text"),
        ("[Fri Nov 20 12:00:01 2026] NVRM: text", None, "NVRM: text"),
        ("2026-11-20 12:00:01,123 ERROR text", None, "text"),
        ("ERROR: text", None, "text"),
        ("Error 802: system not yet initialized", None, "Error 802: system not yet initialized"),
        ("WARNINGS are no level", None, "WARNINGS are no level"),
        ("12:30 is no clock", None, "12:30 is no clock"),
        ("ERROR when calling", None, "ERROR when calling"),
        ("00:01:00): 13, 0005", None, "00:01:00): 13, 0005"),
    ],
)
def test_prefixes(line: str, rank: int | None, text: str) -> None:
    assert split_prefixes([line]) == ([rank], [text])


def test_a_number_is_a_rank_where_every_line_has_one() -> None:
    assert split_prefixes([" 7: text", "11: of srun"]) == ([7, 11], ["text", "of srun"])
    assert split_prefixes(["Error", "3: initialization error"]) == ([None, None], ["Error", "3: initialization error"])
    assert split_prefixes(["0: [rank0]: text"]) == ([0], ["text"])


@pytest.mark.parametrize(
    ("line", "clock", "written"),
    [
        ("[2026-11-20 12:00:01,123] x", Clock.FULL, "2026-11-20 12:00:01,123"),
        ("[Fri Nov 20 12:00:01 2026] x", Clock.FULL, "Nov 20 12:00:01 2026"),
        ("E1120 12:00:01.5 1 a.cpp:1] x", Clock.WITHOUT_YEAR, "E1120 12:00:01.5"),
        ("Nov 20 12:00:01 node1 x", Clock.WITHOUT_YEAR, "Nov 20 12:00:01"),
        ("INFO 11-20 12:00:01 a.py:1] x", Clock.WITHOUT_YEAR, "11-20 12:00:01"),
        ("[12:00:01] x", Clock.TIME_OF_DAY, "12:00:01"),
        ("[  12.345678] x", Clock.UPTIME, "12.345678"),
    ],
)
def test_moments(line: str, clock: Clock, written: str) -> None:
    found = moment_of(line)
    assert found is not None
    assert (found.clock, found.text) == (clock, written)


@pytest.mark.parametrize("line", ["no time", "9999-99-99 99:99:99 x", "ratio 12:34", "a" * 300 + " 12:00:01"])
def test_no_moments(line: str) -> None:
    assert moment_of(line) is None


def test_wordings_of_one_moment_are_equal() -> None:
    year_less = [moment_of(line) for line in ("Nov 20 12:00:01 x", "E1120 12:00:01 x", "11-20 12:00:01 x")]
    assert len({each.seconds for each in year_less if each}) == 1
