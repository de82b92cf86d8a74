"""The reader of pickles as data: it reads what Python's pickle reads, and executes nothing."""

import io
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.source_file import UnreadableError
from gpumon.snapshots.loader import SnapshotLoader
from gpumon.snapshots.pickle_reader import PickleReader, PickleValue
from tests.snapshots.files import Calls, event, hostile, loaded, real_bytes, segment

_LEAVES = st.none() | st.booleans() | st.integers(-(1 << 80), 1 << 80) | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner, max_size=5)
    ),
    max_leaves=30,
)


class Dribble(io.BytesIO):
    """Gives a few bytes at a time, as a slow file may."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(7, 7 if size is None or size < 0 else size))


def held(data: bytes) -> PickleValue:
    return PickleReader(io.BytesIO(data)).run()


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_it_reads_what_pickle_reads(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert held(data) == value
    assert PickleReader(Dribble(data)).run() == value


@pytest.mark.long
def test_a_list_of_thousands_in_pieces() -> None:
    value = {"a": [{"n": number, "text": f"text {number}"} for number in range(50_000)], "again": None}
    value["again"] = value["a"]
    result = held(pickle.dumps(value))
    assert result == value
    assert result["again"] is result["a"]


def test_a_cycle_is_read() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    result = held(pickle.dumps(cycle))
    assert result[0] is result


def test_every_prefix_of_a_file_is_truncated() -> None:
    data = pickle.dumps({"segments": [segment()], "device_traces": [[event("alloc", 1, 2, "f")]], "x": 1 << 40})
    for length in range(1, len(data)):
        with pytest.raises(UnreadableError, match=r"truncated|does not start"):
            loaded(data[:length])


@given(st.data())
def test_damage_is_refused_or_read_and_never_anything_else(data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps({"segments": [segment()], "device_traces": [[event("alloc", 1, 2, "f")] * 3]}))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(2, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        loaded(bytes(whole))
    except UnreadableError:
        return


@given(st.binary(max_size=200))
def test_noise_is_refused_or_read_and_never_anything_else(noise: bytes) -> None:
    try:
        loaded(b"\x80\x04" + noise)
    except UnreadableError:
        return


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", hostile(Path("/nowhere")))
def test_hostile_pickles_are_refused_in_this_process_too(name: str, canary: Path) -> None:
    data, word = hostile(canary)[name]
    if data[:1] == b"\x80":
        with pytest.raises(UnreadableError, match=word):
            loaded(data)
    assert not canary.exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_no_function_is_called(protocol: int, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    data = pickle.dumps({"segments": [Calls(open, str(canary), "w")]}, protocol)
    with pytest.raises(UnreadableError, match="no function was called"):
        held(data)
    assert not canary.exists()
    pickle.loads(data)["segments"][0].close()
    assert canary.exists()  # it would have worked


def test_the_offset_of_damage_is_told() -> None:
    data = real_bytes()
    with pytest.raises(UnreadableError, match=r"near byte 30000\d:"):
        loaded(data[:299_999] + b"\xff" * 100)


def test_progress_is_told_with_every_piece() -> None:
    sizes: list[int] = []
    data = real_bytes()
    SnapshotLoader(io.BytesIO(data), sizes.append).run()
    assert sizes[-1] == len(data)
