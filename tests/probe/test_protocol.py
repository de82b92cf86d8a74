"""Messages of a probe are not trusted: valid ones are parsed, all others are rejected."""

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.allocator import (
    AllocatorStatistics,
    BlockState,
    EmptyCacheResult,
    PinnedMemory,
    PoolBytes,
    ProbeCost,
    ProbedProcess,
    ProbeReading,
    ProbeState,
    SegmentBlock,
)
from gpumon.core.problems import ProblemCode
from gpumon.core.stacks import MAX_FRAMES, MAX_SAMPLED_STACKS, StackFrame
from gpumon.core.steps import MAX_STEPS, StepObservation, StepProgress, StepRecord
from gpumon.probe.messages import RequestKind, SegmentMap
from gpumon.probe.protocol import MAX_BLOCKS, ProtocolError, Reply, pace_line, parse, request_line, result_of
from tests.probe.scripted import DEVICE, GIB, SEGMENT, answer, hello, line, statistics


def said(raw: bytes) -> Any:  # noqa: ANN401
    return parse(raw, 4000)


def result(ask: RequestKind, **body: Any) -> Any:  # noqa: ANN401
    return result_of(ask, said(answer(1, **body)))


def test_the_greeting_identifies_the_process() -> None:
    assert said(hello(pid=7, argv=["python", "a\x1b[2J", "b"])) == ProbedProcess(
        pid=4000,
        own_pid=7,
        command="python a\ufffd[2J b",
        python_version="3.12.3",
        rank=3,
        settings={"PYTORCH_ALLOC_CONF": "expandable_segments:False"},
    )


def test_a_complete_reading() -> None:
    pinned = {"allocated_bytes": 9, "active_bytes": 8}
    files = ["/home/a/oom-1-2-3.json.gz", "/etc/passwd", "oom-1-2-3.json.gz", "/a/\x1boom-1-2-3.json.gz"]
    cost = {"share": 0.0001, "seconds": 2e-5, "reads": 12}
    reading = said(statistics(pinned=pinned, cost=cost, oom_files=files))
    assert reading == ProbeReading(
        state=ProbeState.LIVE,
        monotonic_seconds=5.5,
        torch_version="2.11.0+cu130",
        backend="native",
        expandable_segments=False,
        devices=(AllocatorStatistics(**{**DEVICE, "small_pool": PoolBytes(**DEVICE["small_pool"])}),),
        pinned=PinnedMemory(9, 8),
        cost=ProbeCost(0.0001, 2e-5, 12),
        oom_files=("/home/a/oom-1-2-3.json.gz",),
    )  # fmt: skip


TRAINING: dict[str, Any] = {
    "steps_count": 7,
    "batches_count": 8,
    "last_step_monotonic": 5.25,
    "step_seconds": 0.5,
    "data_seconds": 0.25,
    "collection_seconds": 0.0,
    "waiting_for_data_since_monotonic": None,
}


def test_the_progress_of_a_training_run() -> None:
    reading = said(statistics(training=TRAINING))
    assert isinstance(reading, ProbeReading)
    assert reading.training == StepProgress(7, 8, 5.25, 0.5, 0.25, 0.0)
    assert said(statistics(training={"steps_count": 0, "batches_count": 1})).training == StepProgress(0, 1)
    assert said(statistics(training=None)).training is None


SAMPLES: dict[str, Any] = {"seconds": 2.0, "samples_count": 200, "stacks": [[[["/a/b.py", 3, "f\x1b"]], 150]]}
OBSERVED: dict[str, Any] = {
    "samples": SAMPLES,
    "steps": [[5.0, 0.5, 0.1, 0.0]],
    "cpu_seconds": 1.5,
    "process_cpu_seconds": 3.5,
}


def test_an_observation() -> None:
    actual = result(RequestKind.OBSERVE, **OBSERVED)
    assert isinstance(actual, StepObservation)
    assert actual.samples.stacks[0].frames == (StackFrame("/a/b.py", 3, "f\ufffd"),)
    assert (actual.steps, actual.cpu_seconds, actual.process_cpu_seconds) == (
        (StepRecord(5.0, 0.5, 0.1, 0.0),),
        1.5,
        3.5,
    )


@pytest.mark.parametrize("state", ProbeState)
def test_every_state_is_known_and_missing_values_are_none(state: ProbeState) -> None:
    reading = said(line({"event": "statistics", "state": state.value, "monotonic_seconds": 1, "reason": "Old."}))
    assert isinstance(reading, ProbeReading)
    assert reading.state is state
    assert reading.devices == ()
    assert reading.expandable_segments is None
    assert reading.problem is not None
    assert reading.problem.reason == "Old."


def test_unknown_events_and_keys_are_ignored() -> None:
    assert said(line({"event": "weather", "sun": True})) is None
    assert said(line({"no": "event"})) is None
    assert said(statistics(sun=True, devices=[{**DEVICE, "sun": {}}])) == said(statistics())


def test_a_newer_schema() -> None:
    with pytest.raises(ProtocolError) as refused:
        said(hello(schema=2))
    assert refused.value.problem.code is ProblemCode.NEWER_SCHEMA


HUGE = "9" * 5000
WRONGS: list[Any] = [-1, True, "1", 1.5, [], {}, 1 << 65, float("nan"), float("inf")]


def devices(**changes: Any) -> bytes:  # noqa: ANN401
    return statistics(devices=[{**DEVICE, **changes}])


@pytest.mark.parametrize("wrong", WRONGS)
@pytest.mark.parametrize("name", ["ordinal", "allocated_bytes", "reserved_bytes", "active_bytes", "ooms_count"])
def test_an_invalid_value_is_rejected(name: str, wrong: object) -> None:
    with pytest.raises(ProtocolError):
        said(devices(**{name: wrong}))


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"null", b"[]", b"{", b"\xff\xfe", b'{"event":"statistics","state":"\xff"}', b"[" * 50_000,
        b'{"event":"statistics","state":"live","monotonic_seconds":NaN}',
        b'{"event":"statistics","state":"live","monotonic_seconds":1e999}',
        b'{"event":"statistics","state":"live","monotonic_seconds":' + HUGE.encode() + b"}", statistics(state="flying"),
        statistics(devices={}), statistics(devices=[DEVICE, DEVICE]),
        statistics(devices=[{"ordinal": place, "allocated_bytes": 0, "reserved_bytes": 0} for place in range(10_000)]),
        statistics(devices=[{**DEVICE, "reserved_bytes": None}]),
        statistics(devices=[{**DEVICE, "small_pool": {"allocated_bytes": 1}}]), statistics(expandable_segments=1),
        statistics(pinned=[]), statistics(cost={"share": "0"}), statistics(training=[]),
        statistics(training={"steps_count": 1}), statistics(training={**TRAINING, "steps_count": -1}),
        statistics(training={**TRAINING, "step_seconds": "1"}), statistics(training={**TRAINING, "step_seconds": -1.0}),
        statistics(training={**TRAINING, "data_seconds": float("nan")}),
        statistics(oom_files=["/oom-1-2-3.json.gz"] * 17), hello(pid=None), hello(argv="python"), hello(argv=[None]),
        hello(argv=["x"] * 257), hello(settings={str(place): "" for place in range(65)}), hello(settings={"A": 1}),
        hello(rank=-1), answer(None), answer("1"), line({"event": "answer", "id": 1}),
    ],
)  # fmt: skip
def test_invalid_lines_are_rejected(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        said(raw)


def test_json_that_is_large_in_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(json, "loads", never)
    for raw in (b"[" * 1_000_001, b"{" * 1_000_001, b"," * 4_000_001):
        with pytest.raises(ProtocolError, match="too many items"):
            said(raw)


def test_a_reason_for_no_result_is_safe_to_show() -> None:
    reply = said(line({"event": "answer", "id": 3, "ok": False, "reason": "no\x1b[2J"}))
    assert isinstance(reply, Reply)
    assert (reply.id, reply.reason) == (3, "no\ufffd[2J")
    silent = said(line({"event": "answer", "id": 3, "ok": False}))
    assert silent.reason == "The probe gives no reason."


def test_a_summary_keeps_its_lines() -> None:
    assert result(RequestKind.SUMMARY, text="|===|\n| a\tb\x1b |") == "|===|\n| a b\ufffd |"
    assert len(result(RequestKind.SUMMARY, text="x\n" * 5000).split("\n")) == 1000


def test_segments_are_sorted_by_address() -> None:
    lower = {**SEGMENT, "address": 512, "pool": [0, 3], "blocks": []}
    actual = result(RequestKind.SEGMENTS, segments=[SEGMENT, lower], cut=True, seconds=0.01)
    assert isinstance(actual, SegmentMap)
    assert (actual.is_cut, actual.seconds) == (True, 0.01)
    assert [segment.address for segment in actual.segments] == [512, SEGMENT["address"]]
    assert actual.segments[0].pool == (0, 3)
    assert actual.segments[1].blocks == (
        SegmentBlock(1 << 20, BlockState.ALLOCATED, 1000),
        SegmentBlock(1 << 19, BlockState.PENDING_FREE),
        SegmentBlock(1 << 19, BlockState.INACTIVE),
    )


def test_the_effect_of_emptying_the_cache() -> None:
    after = {**DEVICE, "reserved_bytes": 34 * GIB}
    actual = result(RequestKind.EMPTY_CACHE, before=[DEVICE], after=[after], seconds=0.5)
    assert isinstance(actual, EmptyCacheResult)
    assert (actual.before[0].reserved_bytes, actual.after[0].reserved_bytes) == (40 * GIB, 34 * GIB)


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        (RequestKind.SUMMARY, {}),
        (RequestKind.SUMMARY, {"text": 3}),
        (RequestKind.SEGMENTS, {"segments": {}}),
        (RequestKind.SEGMENTS, {"segments": [None]}),
        (RequestKind.SEGMENTS, {"segments": [{}]}),
        (RequestKind.SEGMENTS, {"segments": [{**SEGMENT, "blocks": [[1, 1]]}]}),
        (RequestKind.SEGMENTS, {"segments": [{**SEGMENT, "blocks": [[1, 1, 3]]}]}),
        (RequestKind.SEGMENTS, {"segments": [{**SEGMENT, "blocks": [[1, 1, -1]]}]}),
        (RequestKind.SEGMENTS, {"segments": [{**SEGMENT, "blocks": [[1 << 63, 1, 0]]}]}),
        (RequestKind.SEGMENTS, {"segments": [{**SEGMENT, "blocks": 3}]}),
        (RequestKind.SEGMENTS, {"segments": [{**SEGMENT, "pool": [0]}]}),
        (RequestKind.SEGMENTS, {"segments": [{**SEGMENT, "is_large": 1}]}),
        (RequestKind.SEGMENTS, {"segments": [{**SEGMENT, "blocks": [[1, 1, 0]] * (MAX_BLOCKS + 1)}]}),
        (RequestKind.OBSERVE, {}),
        (RequestKind.OBSERVE, {**OBSERVED, "cpu_seconds": None}),
        (RequestKind.OBSERVE, {**OBSERVED, "steps": [[5.0, 0.5, 0.1]]}),
        (RequestKind.OBSERVE, {**OBSERVED, "steps": [[5.0, 0.5, 0.1, -1.0]]}),
        (RequestKind.OBSERVE, {**OBSERVED, "steps": [[5.0, 0.5, 0.1, 0.0]] * (MAX_STEPS + 1)}),
        (RequestKind.OBSERVE, {**OBSERVED, "samples": {**SAMPLES, "stacks": [[[], 1]] * (MAX_SAMPLED_STACKS + 1)}}),
        (
            RequestKind.OBSERVE,
            {**OBSERVED, "samples": {**SAMPLES, "stacks": [[[["a", 1, "b"]] * (MAX_FRAMES + 1), 1]]}},
        ),
        (RequestKind.OBSERVE, {**OBSERVED, "samples": {**SAMPLES, "stacks": [[[["a", 1]], 1]]}}),
        (RequestKind.EMPTY_CACHE, {"before": [], "after": []}),
        (RequestKind.EMPTY_CACHE, {"before": [], "seconds": 1.0}),
    ],
)
def test_a_result_that_does_not_fit_the_request_is_rejected(ask: RequestKind, body: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        result(ask, **body)


def test_requests_are_encoded_as_probes_read_them() -> None:
    assert json.loads(pace_line(0.5)) == {"ask": "pace", "interval_seconds": 0.5}
    assert json.loads(pace_line(0.001)) == {"ask": "pace", "interval_seconds": 0.1}
    assert json.loads(request_line(RequestKind.SUMMARY, 4, {"ordinal": 1})) == {"ask": "summary", "id": 4, "ordinal": 1}
    assert request_line(RequestKind.SEGMENTS, 4, {}).endswith(b"\n")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda item: st.lists(item, max_size=4) | st.dictionaries(st.text(), item, max_size=4),
    max_leaves=8,
)


FIRST = ["event", "schema", "pid", "argv", "settings", "state", "devices"]
NAMES = [*FIRST, "training", "pinned", "cost", "oom_files", "id", "ok", "reason"]


@given(event=st.sampled_from([hello, statistics, answer]), name=st.sampled_from(NAMES), value=anything)
def test_any_field_is_accepted_or_rejected(event: Callable[..., bytes], name: str, value: object) -> None:
    raw = json.loads(event(1) if event is answer else event())
    try:
        actual = said(line({**raw, name: value}))
    except ProtocolError as error:
        shown = error.problem.reason
    else:
        shown = actual.command if isinstance(actual, ProbedProcess) else ""
    assert not any(unicodedata.category(character) == "Cc" for character in shown)
