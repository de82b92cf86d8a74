"""Queries of a snapshot: the tree, the search, the changes, the documents and the trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.problems import CommandError
from gpumon.snapshots import build, documents
from gpumon.snapshots.documents import snapshot_document
from gpumon.snapshots.model import Amount, Snapshot
from gpumon.snapshots.stack_tree import Measure, StackNode, child_nodes, stack_amounts, stack_changes
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


def summarized(roots: tuple[StackNode, ...]) -> list[Any]:
    """A tree as names, bytes and what is under it."""
    return [(node.frame.name, node.amount.bytes, summarized(node.children)) for node in roots]


def test_outermost_first(layers: Snapshot) -> None:
    result = child_nodes(stack_amounts(layers, layers.devices[0], Measure.NOW, innermost_first=False))
    assert summarized(result) == [
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
    assert result[0].has_children
    assert not result[0].children[0].children[0].has_children


def test_innermost_first(layers: Snapshot) -> None:
    result = child_nodes(stack_amounts(layers, layers.devices[0], Measure.NOW, innermost_first=True))
    assert [(node.frame.name, node.amount) for node in result] == [("linear", Amount(150, 2)), ("adam", Amount(30, 1))]
    assert [node.frame.name for node in result[0].children] == ["layer", "head"]


@pytest.mark.parametrize(("wanted", "stacks"), [("HEAD", 1), ("linear", 2), ("train.py:1", 3), ("nothing", 0), ("", 3)])
def test_search(layers: Snapshot, wanted: str, stacks: int) -> None:
    result = stack_amounts(layers, layers.devices[0], Measure.NOW, innermost_first=True, pattern=wanted)
    assert len(result) == stacks


def test_every_node_has_at_least_what_is_under_it() -> None:
    snapshot = loaded(real_bytes())
    for innermost_first in (True, False):
        waiting = list(
            child_nodes(stack_amounts(snapshot, snapshot.devices[0], Measure.PEAK, innermost_first=innermost_first))
        )
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
    result = stack_changes((layers, layers.devices[0]), (after, after.devices[0]), Measure.NOW, innermost_first=True)
    assert {item.frames[0].name: item.amount.bytes - item.before.bytes for item in result} == {
        "adam": 60,
        "linear": -50,
        "new": 5,
    }
    assert [node.frame.name for node in child_nodes(result)] == ["adam", "linear", "new"]
    none = stack_changes((layers, None), (after, after.devices[0]), Measure.NOW, innermost_first=True)
    assert sum(item.amount.bytes for item in none) == 195


def test_stacks_without_number_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MAX_USES", 3)
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
    assert [change["change_bytes"] for change in device["changes"]] == [-100, -50]
    assert device["history"] is None


def test_the_trace() -> None:
    snapshot = loaded(real_bytes(), 40)
    events = list(documents.trace_events(snapshot))
    assert {event["ph"] for event in events} == {"M", "C", "i", "b", "e"}
    counters = [event for event in events if event["ph"] == "C" and event["name"] == "allocated"]
    assert max(counter["args"]["bytes"] for counter in counters) == 2_017_775_272
    begins = {event["id"]: event for event in events if event["ph"] == "b"}
    ends = {event["id"]: event for event in events if event["ph"] == "e"}
    assert len(begins) == len(ends) == 40
    assert all(ends[number]["ts"] >= begin["ts"] for number, begin in begins.items())


def test_the_trace_is_written_whole_and_over_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    count = documents.save(loaded(real_bytes(), 5), path)
    assert len(json.loads(path.read_text())["traceEvents"]) == count
    before = path.read_bytes()
    with pytest.raises(CommandError, match="exists already"):
        documents.save(loaded(real_bytes(), 1), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_failed_allocations_are_in_the_trace_and_in_the_document() -> None:
    oom = {"action": "oom", "device_free": 77, "size": 5 << 30, "time_us": 8, "frames": []}
    snapshot = loaded({"segments": [], "device_traces": [[event("alloc", 0, 10, "a", time_us=5), oom]]})
    assert [event["name"] for event in documents.trace_events(snapshot)].count("out of memory") == 1
    (result,) = snapshot_document(snapshot, 5)["devices"][0]["history"]["ooms"]
    assert (result["requested_bytes"], result["free_bytes"]) == (5 << 30, 77)
