"""Loading a snapshot: events read by pattern equal those that pickle reads, for every layout that torch writes."""

import io
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.allocator import BlockState
from gpumon.snapshots.loader import SnapshotLoader
from gpumon.snapshots.model import Amount, SnapshotFrame
from gpumon.snapshots.trace_table import ACTIONS, Action, TraceEvents
from tests.perf.snapshot_file import write
from tests.snapshots.files import block, device_of, event, frame, loaded, real_bytes, segment

Told = tuple[int, int, int, int, tuple[SnapshotFrame, ...]]


def by_pickle(data: bytes) -> list[Told]:
    """The events of the first device, as pickle reads them."""
    result = []
    for entry in pickle.loads(data)["device_traces"][0]:
        frames = tuple(SnapshotFrame(raw["name"], raw["filename"], raw["line"]) for raw in entry.get("frames", ()))
        action = ACTIONS.get(entry["action"], Action.OTHER)
        result.append((int(action), entry.get("device_free", entry["addr"]), entry["size"], entry["time_us"], frames))
    return result


def by_loader(loader: SnapshotLoader, events: TraceEvents) -> list[Told]:
    """The events, as the loader has taken them."""
    frames = list(loader.stacks.frames)
    stacks = [tuple(frames[number] for number in stack) for stack in loader.stacks.stacks]
    stacks[0] = ()
    columns = (events.actions, events.addresses, events.sizes, events.times)
    return [(*row, stacks[stack]) for *row, stack in zip(*columns, events.stacks, strict=True)]  # type: ignore[misc]


def count_slow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts the events that no pattern has taken."""
    slow: list[str] = []
    original = SnapshotLoader._add_event

    def take(loader: SnapshotLoader, filled: dict[str, Any]) -> None:
        slow.append(filled["action"])
        original(loader, filled)

    monkeypatch.setattr(SnapshotLoader, "_add_event", take)
    return slow


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["real", "made"])
def test_events_are_those_that_pickle_reads(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = count_slow(monkeypatch)
    path = tmp_path / "made.pickle"
    if name == "made":
        write(path, 2_000_000)
    data = real_bytes() if name == "real" else path.read_bytes()
    loader = SnapshotLoader(io.BytesIO(data))
    root = loader.run()
    (listed,) = root["device_traces"]
    events = loader.events_of(listed)
    assert events is not None
    assert by_loader(loader, events) == by_pickle(data)
    assert len(slow) < 50 + len(events) // 50  # else a gigabyte would take minutes


def test_texts_of_its_own_that_a_later_event_refers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = count_slow(monkeypatch)
    events: list[dict[str, Any]] = []
    for number in range(3000):
        context = f"context {number}" if number % 3 else events[-1]["compile_context"] if events else "first"
        more = {"time_us": 5 + number, "compile_context": context}
        raw = event("alloc", 4096 * number, 512, **more)
        raw["frames"] = [frame(f"f{number % 7}")] if number % 2 else []
        events.append({**{key: value for key, value in raw.items() if key != "frames"}, "frames": raw["frames"]})
    data = pickle.dumps({"segments": [], "device_traces": [events]})
    loader = SnapshotLoader(io.BytesIO(data))
    root = loader.run()
    result = loader.events_of(root["device_traces"][0])
    assert result is not None
    assert by_loader(loader, result) == by_pickle(data)
    assert len(slow) < 3000


def without_frames(raw: dict[str, Any], number: int) -> dict[str, Any]:
    """An event that was recorded without a stack, every third one."""
    return raw if number % 3 else {key: value for key, value in raw.items() if key != "frames"}


@pytest.mark.parametrize(
    "change",
    [
        lambda raw, number: {**raw, "pool_id": (number % 2 << 8, 0)},
        lambda raw, number: {**raw, "pool_id": (0, -1 - number // 3000), "compile_context": f"context {number}"},
        without_frames,
        lambda raw, number: without_frames({**raw, "pool_id": (0, number)}, 3),
        lambda raw, number: {**raw, "frames": raw["frames"][:1]},
        lambda raw, number: {**raw, "device_free": 7} if number % 2 else raw,
    ],
)
def test_events_of_other_kinds(change: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    slow = count_slow(monkeypatch)
    shared = [frame(f"f{number}") for number in range(9)]
    plain = [
        {**event("alloc", 4096 * number, 512 + number, time_us=5 + number), "frames": shared[: number % 9]}
        for number in range(3000)
    ]
    events = [change(raw, number) for number, raw in enumerate(plain)]
    events = [dict(sorted(raw.items(), key=lambda item: item[0] == "frames")) for raw in events]
    data = pickle.dumps({"segments": [], "device_traces": [events], "again": [raw.get("pool_id") for raw in events]})
    loader = SnapshotLoader(io.BytesIO(data))
    root = loader.run()
    result = loader.events_of(root["device_traces"][0])
    assert result is not None
    assert by_loader(loader, result) == by_pickle(data)
    assert root["again"] == [raw.get("pool_id") for raw in events]
    assert len(slow) < (1600 if "device_free" in events[1] else 100)


def test_totals_are_those_of_the_file() -> None:
    raw = pickle.loads(real_bytes())
    blocks = [block for one in raw["segments"] for block in one["blocks"]]
    held = [block for block in blocks if block["state"] == "active_allocated"]
    device = device_of(real_bytes())
    now = sum((use.now for use in device.uses), Amount())
    assert now == Amount(sum(item["requested_size"] for item in held), len(held))
    assert len(device.segments) == len(raw["segments"])
    states = Counter(block.state.value for one in device.segments for block in one.blocks)
    assert states == Counter(block["state"] for block in blocks)
    assert sum(one.size_bytes for one in device.segments) == sum(one["total_size"] for one in raw["segments"])


def test_who_holds_what_in_the_end() -> None:
    snapshot = loaded(real_bytes())
    raw = pickle.loads(real_bytes())
    traced = {entry["addr"]: entry["frames"] for entry in raw["device_traces"][0] if entry["action"] == "alloc"}
    wanted: Counter[tuple[str, ...]] = Counter()
    for entry in (entry for one in raw["segments"] for entry in one["blocks"] if entry["state"] == "active_allocated"):
        frames = entry["frames"] or traced.get(entry["address"])
        names = tuple(one["name"] for one in frames or ())
        missing = "no stack was recorded" if frames is not None else "allocated before the history began"
        wanted[names or (missing,)] += entry["requested_size"]
    result: Counter[tuple[str, ...]] = Counter()
    for use in snapshot.devices[0].uses:
        if use.now.blocks:
            result[tuple(one.name for one in snapshot.frames_of(use.stack))] += use.now.bytes
    assert result == wanted


def test_blocks_of_torch_2_0() -> None:
    old = {
        "size": 1024,
        "state": "active_allocated",
        "history": [{"addr": 5, "real_size": 1000, "frames": [frame("f")]}],
    }
    snapshot = loaded({"segments": [segment({**old, "address": 4096}, total_size=2048)]})
    (use,) = snapshot.devices[0].uses
    assert use.now == Amount(1000, 1)
    assert snapshot.frames_of(use.stack) == (SnapshotFrame("f", "/home/user/train.py", 1),)
    (result,) = snapshot.devices[0].segments
    assert [(block.size_bytes, block.requested_bytes) for block in result.blocks] == [(1024, 1000)]


def test_what_is_missing_or_unknown_is_passed_over() -> None:
    bare = {"state": "active_allocated", "size": 512}
    made = {"segments": [{"blocks": [bare, {"state": "of the future", "size": 1}]}, "no segment", None], "new": [1]}
    device = device_of({**made, "device_traces": [[{"action": "new"}, {"action": "alloc"}], "no trace"]})
    assert device.ordinal == 0
    assert [segment.state for segment in device.segments[0].blocks] == [BlockState.ALLOCATED, BlockState.INACTIVE]
    assert device.history is not None
    assert device.history.events == 2


def test_of_a_stack_without_end_the_innermost_frames_are_kept() -> None:
    deep = [frame("f", number) for number in range(3000)]
    snapshot = loaded({"segments": [segment({**block(0, 64), "frames": deep})]})
    (use,) = snapshot.devices[0].uses
    assert [item.line for item in snapshot.frames_of(use.stack)] == list(range(1000))


def test_frames_are_made_safe() -> None:
    evil = {"name": "\x1b]52;c;x\x07[/]", "filename": "\u202e" * 1000, "line": "7"}
    snapshot = loaded({"segments": [segment({**block(0, 64), "frames": [evil]})]})
    (use,) = snapshot.devices[0].uses
    (result,) = snapshot.frames_of(use.stack)
    assert result.name == "\ufffd]52;c;x\ufffd[/]"
    assert len(result.file) <= 400
    assert result.file.isprintable()
    assert result.line == 0
