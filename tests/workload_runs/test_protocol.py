"""Events come from a process that may say anything: what is one is understood, what is none is counted."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.workload_runs.protocol import MAX_EVENT_BYTES, EventReader, RunEvent, RunEventKind, VerdictKind, parse

FIGURE = {"name": "throughput", "value": 701.5, "unit": "TFLOP/s", "repetitions": 40, "limit": 989, "limit_source": "p"}
FIELDS: dict[RunEventKind, dict[str, Any]] = {
    RunEventKind.HELLO: {"workload": "matmul", "pid": 4321, "python": "CPython 3.11.7"},
    RunEventKind.PLAN: {
        "torch": "2.9.0",
        "device": "cuda:0",
        "chip": {"uuid": "GPU-1", "capability": [9, 0]},
        "uses": {"memory_bytes": 1 << 30, "seconds": 10.0, "peers": False},
        "parameters": {"size": 8192, "dtype": "bf16"},
    },
    RunEventKind.PROGRESS: {"done": 3, "total": 10.5},
    RunEventKind.METRIC: {"name": "throughput", "value": 1.5, "unit": "TFLOP/s"},
    RunEventKind.MEMORY: {"allocated_bytes": 0, "reserved_bytes": 2 << 20, "summary": "a\nb"},
    RunEventKind.TIMING: {"name": "launch", "host_seconds": 4e-6, "device_seconds": 0.01},
    RunEventKind.STEP: {"text": "Filling up."},
    RunEventKind.ERROR: {"class": "OutOfMemoryError", "text": "CUDA out of memory.", "expected": True},
    RunEventKind.RESULT: {"verdict": "ok", "why": "Fine.", "figures": [FIGURE]},
    RunEventKind.BYE: {},
}


def said(kind: RunEventKind = RunEventKind.STEP, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"schema": 1, "event": kind.value, "time_seconds": 1_800_000_000.25, **FIELDS[kind], **changes}


def line(kind: RunEventKind = RunEventKind.STEP, **changes: Any) -> bytes:  # noqa: ANN401
    return json.dumps(said(kind, **changes)).encode()


def without(kind: RunEventKind, name: str) -> bytes:
    return json.dumps({key: value for key, value in said(kind).items() if key != name}).encode()


@pytest.mark.parametrize("kind", RunEventKind)
def test_an_event_of_every_kind_comes_through_as_it_was_said(kind: RunEventKind) -> None:
    event = parse(line(kind))
    assert event == RunEvent(kind, 1_800_000_000.25, FIELDS[kind])
    assert event.document() == said(kind)
    assert parse(json.dumps(event.document()).encode()) == event


@pytest.mark.parametrize("verdict", VerdictKind)
def test_every_verdict_is_known(verdict: VerdictKind) -> None:
    assert parse(line(RunEventKind.RESULT, verdict=verdict.value)) is not None


REQUIRED = [(kind, name) for kind, fields in FIELDS.items() for name in fields if kind is not RunEventKind.MEMORY]
OPTIONAL = {"python", "chip", "expected"}


@pytest.mark.parametrize(("kind", "name"), [field for field in REQUIRED if field[1] not in OPTIONAL])
def test_an_event_without_a_field_that_readers_rely_on_is_none(kind: RunEventKind, name: str) -> None:
    assert parse(without(kind, name)) is None
    wrongs: list[Any] = [None, True, {} if name == "figures" else [[]], float("nan"), float("inf")]
    for wrong in wrongs:
        assert parse(line(kind, **{name: wrong})) is None, wrong


@pytest.mark.parametrize("name", ["schema", "event", "time_seconds"])
def test_an_event_without_its_frame_is_none(name: str) -> None:
    assert parse(without(RunEventKind.STEP, name)) is None


@pytest.mark.parametrize(
    "foreign",
    [
        b"", b"null", b"7", b'"step"', b"[]", b"{}", b"NCCL INFO Bootstrap : Using eth0", b"\xff\xfe\x00",
        line()[:-1], line()[1:], line() + line(), line(schema=2), line(schema="1"), line(schema=None),
        line(event="frame"), line(event=["step"]), line(event=None), line(time_seconds=float("nan")),
        line(time_seconds=float("-inf")), line(time_seconds=None), line(time_seconds=10**400),
        line(RunEventKind.PROGRESS, done="3"), line(RunEventKind.PROGRESS, done=10**400),
        line(RunEventKind.METRIC, value=-(10**400)), line(RunEventKind.RESULT, verdict="fine"),
        line(RunEventKind.RESULT, figures=[7]),
        line(RunEventKind.RESULT, figures=[{**FIGURE, "value": float("nan")}]),
        line(RunEventKind.RESULT, figures=[{**FIGURE, "value": True}]),
        line(RunEventKind.RESULT, figures=[{**FIGURE, "limit": "much"}]),
        line(RunEventKind.RESULT, figures=[{**FIGURE, "limit": 10**400}]),
        line(RunEventKind.RESULT, figures=[{**FIGURE, "limit_source": 7}]),
        line(RunEventKind.RESULT, figures=[{"name": "throughput", "value": 1.0, "unit": "W"}]),
        b"[" * MAX_EVENT_BYTES,
        b'{"a":' * 40_000,
    ],
    ids=lambda foreign: repr(foreign[-24:]),
)  # fmt: skip
def test_what_is_no_event_is_none(foreign: bytes) -> None:
    assert parse(foreign) is None


def test_numbers_that_no_float_can_hold_are_missing() -> None:
    event = parse(line(RunEventKind.PLAN, uses={"seconds": 10**400, "memory_bytes": float("nan")}))
    assert event is not None
    assert event.fields["uses"] == {"seconds": None, "memory_bytes": None}


def test_a_figure_may_have_no_limit() -> None:
    figure = {name: value for name, value in FIGURE.items() if not name.startswith("limit")}
    assert parse(line(RunEventKind.RESULT, figures=[figure, {**figure, "limit": None, "limit_source": ""}])) is not None


def test_texts_lose_what_could_drive_the_terminal_and_keep_their_lines() -> None:
    event = parse(
        line(RunEventKind.MEMORY, summary="|\x1b[2J===|\r\n| \u202eGPU\x07 |\n", **{"\x1b]0;name": ["\x9b31m"]})
    )
    assert event is not None
    assert event.fields["summary"] == "|\ufffd[2J===| \n| \ufffdGPU\ufffd |\n"
    assert event.fields["\ufffd]0;name"] == ["\ufffd31m"]


def test_everything_in_an_event_is_bounded() -> None:
    deep: Any = "bottom"
    for _ in range(50):
        deep = {"in": [deep]}
    event = parse(line(text="a" * 100_000, many=list(range(10_000)), deep=deep))
    assert event is not None
    assert len(event.fields["text"]) <= 4096
    assert len(event.fields["many"]) <= 4096
    assert "bottom" not in repr(event.fields["deep"])


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 16])
def test_an_oversized_line_is_counted_once_and_the_next_one_is_read(size: int) -> None:
    reader, events = EventReader(), []
    whole = line(text="x" * MAX_EVENT_BYTES) + b"\n" + line(RunEventKind.BYE) + b"\n"
    step = size if size > 1 else MAX_EVENT_BYTES // 3
    for start in range(0, len(whole), step):
        events += reader.feed(whole[start : start + step])
        assert len(reader._partial) <= MAX_EVENT_BYTES, "an endless line takes no memory"
    reader.end()
    assert [event.kind for event in events] == [RunEventKind.BYE]
    assert reader.invalid_lines == 1


def test_a_torn_last_line_is_counted_and_empty_lines_are_not() -> None:
    reader = EventReader()
    assert [event.kind for event in reader.feed(b"\n \n" + line() + b"\n" + line()[:20])] == [RunEventKind.STEP]
    assert reader.invalid_lines == 0
    reader.end()
    reader.end()
    assert reader.invalid_lines == 1


LINES = st.lists(
    st.one_of(
        st.sampled_from([line(kind) for kind in RunEventKind]),
        st.sampled_from([line()[:30], b"NCCL", b"", b"  ", line(schema=9), line(text="\x1b[2J\n")]),
        st.binary(max_size=20),
    ),
    max_size=8,
)


@given(lines=LINES, cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_events_are_the_same_however_the_bytes_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(lines)
    whole, pieces = EventReader(), EventReader()
    expected = whole.feed(data)
    result: list[RunEvent] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data) + 2000], strict=True):
        result += pieces.feed(data[start:end])
    whole.end()
    pieces.end()
    assert result == expected
    assert pieces.invalid_lines == whole.invalid_lines


@given(data=st.binary(max_size=300))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    reader = EventReader()
    reader.feed(data + b"\n")
    reader.end()
    parse(data)
