"""Events are read one by one from any valid JSON, and from the intact part of any other file."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.source_file import UnreadableError
from gpumon.traces import event_stream
from gpumon.traces.event_stream import EventStream
from tests.traces.maker import table_of, training


class Pieces:
    """A file of which each read returns little, wherever that ends."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data = data
        self._most = most
        self._random = random.Random(1)

    def read(self, _size: int) -> bytes:
        size = self._random.randint(1, self._most)
        piece, self._data = self._data[:size], self._data[size:]
        return piece


def events(data: bytes, most: int = 1 << 20) -> tuple[list[Any], EventStream]:
    stream = EventStream(Pieces(data, most))
    return list(stream.events()), stream


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("most", [1, 7, 100, 10_000])
def test_where_pieces_end_makes_no_difference(indent: int | None, most: int) -> None:
    document = training(2, deviceProperties=[{"id": 0}], displayTimeUnit="µs \ud83d\ude00").document
    read, stream = events(json.dumps(document, indent=indent, ensure_ascii=False).encode("utf-8", "replace"), most)
    assert read == document["traceEvents"]
    assert (stream.damage, stream.header["traceName"]) == ("", "x.json")
    assert stream.header["deviceProperties"] == [{"id": 0}]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(_JSON, max_size=6), st.integers(1, 30))
def test_any_json(values: list[Any], most: int) -> None:
    read, stream = events(json.dumps({"before": values, "traceEvents": values, "after": 12}).encode(), most)
    assert read == values
    assert (stream.header, stream.damage) == ({"before": values, "after": 12}, "")
    assert events(json.dumps(values).encode(), most)[0] == values


@pytest.mark.parametrize("most", [100, 1 << 20])
@pytest.mark.parametrize(
    ("value", "reason"), [("[" * 50_000 + "]" * 50_000, "nested too deeply"), ("9" * 5000, "digits")]
)
def test_what_is_valid_and_not_read_is_named(value: str, reason: str, most: int) -> None:
    data = f'{{"a": 1, "traceEvents": [{{"ph": "X"}}, {{"args": {value}}}, {{"ph": "X"}}]}}'
    read, stream = events(data.encode(), most)
    assert read == [{"ph": "X"}]
    assert reason in stream.damage
    with pytest.raises(UnreadableError, match=reason):
        events(f'{{"a": {value}, "traceEvents": []}}'.encode(), most)


def test_a_truncated_file_has_the_events_up_to_there() -> None:
    document = training(2).document
    data = json.dumps(document).encode()
    for end in range(data.index(b'"ph"'), data.index(b'"traceName"') - 4, 211):
        read, stream = events(data[:end], 64)
        assert read == document["traceEvents"][: len(read)]
        assert len(read) >= data[:end].count(b'{"ph"') - 1
        assert "truncated" in stream.damage


def test_events_after_damage_are_not_read() -> None:
    data = json.dumps(training(2).document).encode().replace(b'"ProfilerStep#1"', b"oops")
    read, stream = events(data)
    assert 0 < len(read) < len(training(2).events)
    assert stream.damage


def test_a_huge_event_ends_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    assert event_stream._MAX_VALUE_CHARACTERS >= 1 << 25
    monkeypatch.setattr(event_stream, "_MAX_VALUE_CHARACTERS", 1 << 20)
    read, stream = events(b'{"traceEvents": [{"ph": "X"}, {"name": "' + b"x" * (3 << 20))
    assert read == [{"ph": "X"}]
    assert "larger than any" in stream.damage


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"\x80\x04]", "does not begin as JSON"),
        (b'{"a": 1}', "has no traceEvents"),
        (b'{"a": ', "has no traceEvents"),
        (b"{" * 10_000, "has no traceEvents"),
        (b'{"traceEvents": 5}', "has no traceEvents"),
    ],
)
def test_other_files(data: bytes, word: str) -> None:
    with pytest.raises(UnreadableError, match=word):
        events(data)


@pytest.mark.parametrize(
    "change",
    [
        {"ts": None},
        {"ts": "soon"},
        {"ts": 1e300},
        {"ts": float("nan")},
        {"ts": [1]},
        {"dur": -1},
        {"dur": 10**400},
        {"name": 5},
        {"name": None},
        {"pid": {"a": 1}},
        {"tid": [2]},
        {"cat": ["kernel"]},
        {"args": [1]},
        {"args": 7},
    ],
)
def test_events_with_impossible_values_are_left_out(change: dict[str, Any]) -> None:
    maker = training(1)
    count = len(table_of(json.dumps(maker.document).encode())[0])
    bad = {**next(event for event in maker.events if event["cat"] == "kernel"), **change}
    events: list[object] = [*maker.events, bad, bad, "text", 5, None, [], {}]
    table, _ = table_of(json.dumps({"traceEvents": events}).encode())
    assert len(table) == count
    assert table.rejected >= 6
    assert len({len(table.begins), len(table.ends), len(table.names), len(table.lanes), len(table.kinds)}) == 1


def test_names_are_made_safe() -> None:
    maker = training(1)
    maker.operator("evil\x1b[2J\ud800" + "x" * 5000, 0, 1)
    table, _ = table_of(json.dumps(maker.document).encode())
    assert not any("\x1b" in text or len(text) > 400 for text in table.texts)
