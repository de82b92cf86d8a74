"""The machine that reads pickles as data: it reads what pickle reads, and can do nothing else."""

import io
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.snapshots.loader import Loader
from gpumon.snapshots.machine import Machine, Plain, UnreadableError
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


def held(data: bytes) -> Plain:
    return Machine(io.BytesIO(data)).run()


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_it_reads_what_pickle_reads(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert held(data) == value
    assert Machine(Dribble(data)).run() == value


def test_a_list_of_thousands_in_pieces() -> None:
    value = {"a": [{"n": number, "text": f"text {number}"} for number in range(50_000)], "again": None}
    value["again"] = value["a"]
    found = held(pickle.dumps(value))
    assert found == value
    assert found["again"] is found["a"]


def test_a_cycle_is_read() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    found = held(pickle.dumps(cycle))
    assert found[0] is found


def test_every_beginning_of_a_file_is_cut_off() -> None:
    data = pickle.dumps({"segments": [segment()], "device_traces": [[event("alloc", 1, 2, "f")]], "x": 1 << 40})
    for length in range(1, len(data)):
        with pytest.raises(UnreadableError, match=r"cut off|does not begin"):
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


@pytest.mark.parametrize("name", hostile(Path("/nowhere")))
def test_hostile_pickles_are_refused_in_this_process_too(name: str, tmp_path: Path) -> None:
    data, word = hostile(tmp_path / "canary")[name]
    if data[:1] == b"\x80":
        with pytest.raises(UnreadableError, match=word):
            loaded(data)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_is_called(protocol: int, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    data = pickle.dumps({"segments": [Calls(open, str(canary), "w")]}, protocol)
    with pytest.raises(UnreadableError, match="nothing was called"):
        held(data)
    assert not canary.exists()
    pickle.loads(data)["segments"][0].close()
    assert canary.exists()  # it would have worked


def test_the_offset_of_damage_is_told() -> None:
    data = real_bytes()
    with pytest.raises(UnreadableError, match=r"near byte 30000\d:"):
        loaded(data[:299_999] + b"\xff" * 100)


def test_progress_is_told_with_every_piece() -> None:
    told: list[int] = []
    data = real_bytes()
    Loader(io.BytesIO(data), told.append).run()
    assert told[-1] == len(data)
