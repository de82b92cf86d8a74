"""The blocks of a log: every line once, correct numbers and ranks, bounded sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import scan
from gpumon.errors.prefixes import ClockKind, split_prefixes, timestamp_of
from gpumon.errors.scan import LogBlock, blocks


def evaluated_lines(text: str, size: int = 1 << 16) -> list[tuple[int, str]]:
    """Every line with its number, from the block that evaluates the line."""
    data = text.encode()
    return [
        (block.numbers[position], block.lines[position])
        for block in blocks(data[start : start + size] for start in range(0, len(data), size))
        for position in range(block.first, block.end)
    ]


def single_block(text: str) -> LogBlock:
    (block,) = blocks([text.encode()])
    return block


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK_BYTES", 64)
    monkeypatch.setattr(scan, "OVERLAP_LINES", 4)


@given(lines=st.lists(st.text("ab1: ", max_size=30), max_size=60), size=st.integers(1, 200))
def test_every_line_is_evaluated_once(lines: list[str], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BLOCK_BYTES", 64)
        patch.setattr(scan, "OVERLAP_LINES", 4)
        lines_read = evaluated_lines("".join(line + "\n" for line in lines), size)
    assert lines_read == list(enumerate(lines, 1))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("padding", ["", "." * 20])
def test_an_evaluated_line_has_its_surrounding_lines_in_the_block(padding: str) -> None:
    data = "".join(f"{padding}line {number}\n" for number in range(100)).encode()
    for block in blocks([data]):
        is_last = block.lines[-1] == f"{padding}line 99"
        if block.first < block.end:
            assert block.numbers[0] <= max(1, block.numbers[block.first] - scan.OVERLAP_LINES)
        assert is_last or padding or len(block.lines) - block.end == scan.OVERLAP_LINES


def test_parts_of_a_line_have_its_number() -> None:
    assert evaluated_lines("a\r 10%\r 20%\nb\r\nc") == [(1, "a"), (1, " 10%"), (1, " 20%"), (2, "b"), (3, "c")]
    long = "x" * (scan.MAX_LINE + 5)
    assert evaluated_lines(f"{long}\nend") == [(1, "x" * scan.MAX_LINE), (1, "xxxxx"), (2, "end")]


@pytest.mark.parametrize(
    "escape", ["\x1b[31m", "\x1b[38;2;1;2;3m", "\x1b[2K", "\x1b]0;title\x07", "\x1b]8;;u\x1b\\", "^[[1m"]
)
def test_colors_are_removed(escape: str) -> None:
    assert single_block(f"one {escape}two{escape}").lines == ["one two"]


def test_lines_by_rank() -> None:
    block = single_block("start\n[rank0]: a\n[rank1]: b\ngoes on\n[rank0]: c")
    lines = block.by_rank
    assert lines.texts == ["start", "a", "c", "b", "goes on"]
    assert list(lines.positions) == [0, 1, 4, 2, 3]
    assert [lines.of_rank(row) for row in range(5)] == [range(1), *[range(1, 3)] * 2, *[range(3, 5)] * 2]
    assert block.ranks == [None, 0, 1, None, 0]
    assert single_block("").lines == []
    two_ranks = single_block("[rank0]: a\n[rank1]: b\n[rank0]: c")
    assert two_ranks.by_rank.texts == ["a", "c", "b"]


def test_invalid_utf8_and_typographic_quotes_are_replaced() -> None:
    assert single_block("argument \u2018model\u2019 of \u201cfit\u201d").lines == ["argument 'model' of \"fit\""]
    assert single_block("ok \udcff".encode("utf-8", "surrogateescape").decode("latin-1")).lines
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


def test_a_number_is_a_rank_if_every_line_has_one() -> None:
    assert split_prefixes([" 7: text", "11: of srun"]) == ([7, 11], ["text", "of srun"])
    assert split_prefixes(["Error", "3: initialization error"]) == ([None, None], ["Error", "3: initialization error"])
    assert split_prefixes(["0: [rank0]: text"]) == ([0], ["text"])


@pytest.mark.parametrize(
    ("line", "clock", "written"),
    [
        ("[2026-11-20 12:00:01,123] x", ClockKind.FULL, "2026-11-20 12:00:01,123"),
        ("[Fri Nov 20 12:00:01 2026] x", ClockKind.FULL, "Nov 20 12:00:01 2026"),
        ("E1120 12:00:01.5 1 a.cpp:1] x", ClockKind.WITHOUT_YEAR, "12:00:01.5"),
        ("Nov 20 12:00:01 node1 x", ClockKind.WITHOUT_YEAR, "Nov 20 12:00:01"),
        ("INFO 11-20 12:00:01 a.py:1] x", ClockKind.WITHOUT_YEAR, "11-20 12:00:01"),
        ("[12:00:01] x", ClockKind.TIME_OF_DAY, "12:00:01"),
        ("[  12.345678] x", ClockKind.UPTIME, "12.345678"),
    ],
)
def test_timestamps(line: str, clock: ClockKind, written: str) -> None:
    timestamp = timestamp_of(line)
    assert timestamp is not None
    assert (timestamp.clock, timestamp.text) == (clock, written)


@pytest.mark.parametrize(
    "line",
    [
        "no time",
        "9999-99-99 99:99:99 x",
        "ratio 12:34",
        "a" * 300 + " 12:00:01",
        "Python 3.10.12 (main, Nov 20 2023, 15:14:05) [GCC 11.4.0] on linux",
        "Python 3.12.3 (main, Feb  4 2025, 14:48:35) [GCC 13.3.0] on linux",
        "Linux node1 5.15.0-94-generic #104-Ubuntu SMP Tue Jan  9 15:25:40 UTC 2024 x86_64 GNU/Linux",
    ],
)
def test_lines_without_timestamps(line: str) -> None:
    assert timestamp_of(line) is None


@pytest.mark.parametrize("month", ["Jan", "Dec"])
def test_forms_of_one_full_timestamp_are_equal(month: str) -> None:
    number = {"Jan": 1, "Dec": 12}[month]
    numbered, named = timestamp_of(f"2026-{number:02}-05 12:00:01 x"), timestamp_of(f"[Mon {month}  5 12:00:01 2026] x")
    assert numbered is not None
    assert named is not None
    assert numbered.seconds == named.seconds


def test_forms_of_one_timestamp_are_equal() -> None:
    year_less = [timestamp_of(line) for line in ("Nov 20 12:00:01 x", "E1120 12:00:01 x", "11-20 12:00:01 x")]
    assert len({timestamp.seconds for timestamp in year_less if timestamp}) == 1
