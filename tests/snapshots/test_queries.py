"""What can be asked of a snapshot: the tree, the search, the difference, the documents and the trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.exits import CommandError, ExitCode
from gpumon.snapshots import compact, perfetto
from gpumon.snapshots.difference import changes
from gpumon.snapshots.documents import snapshot_document
from gpumon.snapshots.model import Amount, Snapshot
from gpumon.snapshots.tree import Measure, Node, nodes, shares
from tests.snapshots.files import block, event, loaded, real_bytes, segment


def made(*blocks: dict[str, Any]) -> Snapshot:
    return loaded({"segments": [segment(*blocks)]})


@pytest.fixture
def layers() -> Snapshot:
    return made(
        block(0, 100, "active_allocated", "linear", "layer", "main"),
        block(100, 50, "active_allocated", "linear", "head", "main"),
        block(150, 30, "active_allocated", "adam", "step", "main"),
        block(180, 20, "inactive"),
    )


def told(roots: tuple[Node, ...]) -> list[Any]:
    """A tree as names, bytes and what is under it."""
    return [(node.frame.name, node.amount.bytes, told(node.children)) for node in roots]


def test_outermost_first(layers: Snapshot) -> None:
    found = nodes(shares(layers, layers.devices[0], Measure.NOW, innermost_first=False))
    assert told(found) == [
        (
            "main",
            180,
            [
                ("layer", 100, [("linear", 100, [])]),
                ("head", 50, [("linear", 50, [])]),
                ("step", 30, [("adam", 30, [])]),
            ],
        )
    ]
    assert found[0].has_children
    assert not found[0].children[0].children[0].has_children


def test_innermost_first(layers: Snapshot) -> None:
    found = nodes(shares(layers, layers.devices[0], Measure.NOW, innermost_first=True))
    assert [(node.frame.name, node.amount) for node in found] == [("linear", Amount(150, 2)), ("adam", Amount(30, 1))]
    assert [node.frame.name for node in found[0].children] == ["layer", "head"]


@pytest.mark.parametrize(("wanted", "stacks"), [("HEAD", 1), ("linear", 2), ("train.py:1", 3), ("nothing", 0), ("", 3)])
def test_search(layers: Snapshot, wanted: str, stacks: int) -> None:
    found = shares(layers, layers.devices[0], Measure.NOW, innermost_first=True, wanted=wanted)
    assert len(found) == stacks


def test_every_node_has_at_least_what_is_under_it() -> None:
    snapshot = loaded(real_bytes())
    for innermost_first in (True, False):
        waiting = list(nodes(shares(snapshot, snapshot.devices[0], Measure.PEAK, innermost_first=innermost_first)))
        keys = []
        while waiting:
            node = waiting.pop()
            keys.append(node.key)
            under = sum(child.amount.bytes for child in node.children)
            assert node.amount.bytes >= under  # a stack may end where others go on
            assert bool(under) == node.has_children
            waiting += node.children
        assert len(keys) == len(set(keys))


def test_difference(layers: Snapshot) -> None:
    after = made(
        block(0, 100, "active_allocated", "linear", "layer", "main"),
        block(150, 90, "active_allocated", "adam", "step", "main"),
        block(300, 5, "active_allocated", "new"),
    )
    found = changes((layers, layers.devices[0]), (after, after.devices[0]), Measure.NOW, innermost_first=True)
    assert {each.frames[0].name: each.amount.bytes - each.before.bytes for each in found} == {
        "adam": 60,
        "linear": -50,
        "new": 5,
    }
    assert [node.frame.name for node in nodes(found)] == ["adam", "linear", "new"]
    none = changes((layers, None), (after, after.devices[0]), Measure.NOW, innermost_first=True)
    assert sum(each.amount.bytes for each in none) == 195


def test_a_snapshot_does_not_differ_from_itself() -> None:
    one, other = loaded(real_bytes()), loaded(real_bytes())
    for measure in Measure:
        assert changes((one, one.devices[0]), (other, other.devices[0]), measure, innermost_first=True) == []


def test_stacks_without_number_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "MOST_USES", 3)
    snapshot = made(*[block(number, 10 + number, "active_allocated", f"f{number}") for number in range(10)])
    (device,) = snapshot.devices
    assert len(device.uses) == 4
    assert sum(use.now.bytes for use in device.uses) == sum(range(10, 20))
    assert snapshot.frames_of(device.uses[-1].stack)[0].name.startswith("all other stacks")


def test_the_document() -> None:
    document = snapshot_document(loaded(real_bytes()), 3)
    json.dumps(document)
    assert (document["schema"], document["file"], document["compared_with"]) == (1, "test", None)
    (device,) = document["devices"]
    assert device["device"] == 0
    assert device["segments"]["allocated_bytes"] == 991_973_376
    assert device["segments"]["fragmentation_ratio"] == pytest.approx(0.9417)
    assert device["history"]["peak_bytes"] == 2_017_775_272
    assert (device["stacks_count"], len(device["stacks"])) == (26, 3)
    assert set(device["stacks"][0]["frames"][0]) == {"name", "file", "line"}


def test_the_document_of_a_difference(layers: Snapshot) -> None:
    after = made(block(0, 7, "active_allocated", "new"))
    document = snapshot_document(after, 2, layers)
    (device,) = document["devices"]
    assert [each["change_bytes"] for each in device["changes"]] == [-100, -50]
    assert device["history"] is None


def test_the_trace() -> None:
    snapshot = loaded(real_bytes(), 40)
    events = list(perfetto.trace_events(snapshot))
    assert {each["ph"] for each in events} == {"M", "C", "i", "b", "e"}
    counters = [each for each in events if each["ph"] == "C" and each["name"] == "allocated"]
    assert max(each["args"]["bytes"] for each in counters) == 2_017_775_272
    begins = {each["id"]: each for each in events if each["ph"] == "b"}
    ends = {each["id"]: each for each in events if each["ph"] == "e"}
    assert len(begins) == len(ends) == 40
    assert all(ends[number]["ts"] >= begin["ts"] for number, begin in begins.items())


def test_the_trace_is_written_whole_and_over_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    count = perfetto.save(loaded(real_bytes(), 5), path)
    assert len(json.loads(path.read_text())["traceEvents"]) == count
    before = path.read_bytes()
    with pytest.raises(CommandError, match="is there already"):
        perfetto.save(loaded(real_bytes(), 1), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_trace_of_no_history(layers: Snapshot, tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        perfetto.save(layers, tmp_path / "trace.json")
    assert caught.value.exit_code == ExitCode.BAD_VERDICT
    assert list(tmp_path.iterdir()) == []


def test_the_trace_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        perfetto.save(loaded(real_bytes()), tmp_path / "none" / "trace.json")


def test_failed_allocations_are_in_the_trace_and_in_the_document() -> None:
    oom = {"action": "oom", "device_free": 77, "size": 5 << 30, "time_us": 8, "frames": []}
    snapshot = loaded({"segments": [], "device_traces": [[event("alloc", 0, 10, "a", time_us=5), oom]]})
    assert [each["name"] for each in perfetto.trace_events(snapshot)].count("out of memory") == 1
    (found,) = snapshot_document(snapshot, 5)["devices"][0]["history"]["ooms"]
    assert (found["requested_bytes"], found["free_bytes"]) == (5 << 30, 77)


def test_slices_of_two_devices_are_not_taken_for_each_other() -> None:
    traces = [[event("alloc", 1, 100 + device, "f", time_us=7)] for device in range(2)]
    events = list(perfetto.trace_events(loaded({"segments": [], "device_traces": traces}, 5)))
    assert all({"ph", "pid"} <= each.keys() and (each["ph"] == "M" or each["ts"] >= 0) for each in events)
    begun = [(each["id"], each["pid"]) for each in events if each["ph"] == "b"]
    assert begun == [(each["id"], each["pid"]) for each in events if each["ph"] == "e"]
    assert len({name for name, _ in begun}) == 2
