"""Reading in a child with limits: any file ends in time with a trace or with a one-sentence error."""

import gc
import gzip
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError, ExitCode
from gpumon.traces import reader as reader_module
from gpumon.traces.columns import CRITICAL_PATH, TIMELINE_CLASSES
from gpumon.traces.reader import TraceReader, read
from tests.traces.maker import ACCOUNT, GEMM, PROCESS, times, training

PATIENCE_SECONDS = 20.0


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_child_finds_what_is_found_here(name: str, tmp_path: Path) -> None:
    path = training().write(tmp_path / name)
    trace = read(path).trace
    assert times(trace) == ACCOUNT
    assert (trace.name, trace.size_bytes) == (str(path), path.stat().st_size)


def test_the_columns_of_the_timeline(tmp_path: Path) -> None:
    trace, columns = read(training(2).write(tmp_path / "trace.json"))
    stream = next(lane for lane in trace.lanes if lane.label == "GPU 0 stream 7")
    first = stream.first
    assert trace.texts[columns.names[first]] == GEMM
    assert (columns.begins[first], columns.ends[first]) == (10_000, 210_000)
    assert TIMELINE_CLASSES[columns.classes[first]] == "tensor_cores"
    assert [lane.is_device for lane in trace.lanes] == sorted((lane.is_device for lane in trace.lanes), reverse=True)
    busy = columns.shares(trace.lanes.index(stream))
    assert busy[0] == 0
    assert busy[100] == 255
    assert trace.lanes[0].label == CRITICAL_PATH
    assert sum(lane.count for lane in trace.lanes[1:]) == len(training(2).events)


def test_names_of_threads(tmp_path: Path) -> None:
    maker = training(1)
    maker.events.append({"ph": "M", "name": "thread_name", "pid": PROCESS, "tid": 101, "args": {"name": "main thread"}})
    assert "main thread" in [lane.label for lane in read(maker.write(tmp_path / "t.json")).trace.lanes]


def refusal(path: Path) -> str:
    begun = time.monotonic()
    with pytest.raises(CommandError) as caught:
        read(path)
    assert time.monotonic() - begun < PATIENCE_SECONDS
    assert caught.value.exit_code == ExitCode.USAGE
    reason = caught.value.problem.reason
    assert reason.startswith(str(path))
    assert "\n" not in reason
    return reason


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "is empty"),
    "text": (lambda: b"garbage", "is not a trace"),
    "noise": (lambda: random.Random(1).randbytes(100_000), "is not a trace"),
    "no events": (lambda: b'{"traceEvents": []}', "contains no events"),
    "deep": (lambda: b'{"traceEvents": [' + b"[" * 100_000, "nested too deeply"),
    "truncated": (lambda: gzip.compress(b'{"traceEvents": [')[:-9], "truncated"),
    "bomb of spaces": (lambda: gzip.compress(b'{"traceEvents": [' + b" " * (200 << 20)), "expands to more than 300"),
    "bomb of text": (lambda: gzip.compress(b'{"a": "' + b"x" * (100 << 20)), "no traceEvents"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.json"
    data, word = HOSTILE[name]
    path.write_bytes(data())
    assert word in refusal(path)


def test_a_truncated_trace_has_an_account_and_no_verdict(tmp_path: Path) -> None:
    path = training(4).write(tmp_path / "trace.json")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    trace = read(path).trace
    assert "truncated" in trace.problems[0]
    assert sum(item.time_ns for item in trace.classes) == trace.step_ns


@pytest.mark.long
def test_more_than_its_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_MIN_MEMORY_BYTES", 100 << 20)
    monkeypatch.setattr(reader_module, "_MEMORY_PER_FILE_BYTE", 0)
    path = tmp_path / "large.json"
    names = (json.dumps({"ph": "X", "cat": "cpu_op", "name": f"{number}{'x' * 390}"}) for number in range(300_000))
    path.write_text(
        '{"traceEvents": [' + ",".join(f'{name[:-1]}, "ts": 1, "pid": 1, "tid": 1}}' for name in names) + "]}"
    )
    assert "needs more memory" in refusal(path)


def test_a_file_with_too_many_events_is_refused_at_its_first_ones(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "pid": 1, "tid": 1},'
    path.write_text('{"traceEvents": [' + event * 60_000)
    os.truncate(path, 10 << 30)
    assert "events; gpumon reads up to" in refusal(path)


@pytest.mark.long
def test_reading_can_be_cancelled(tmp_path: Path) -> None:
    path = training(5000).write(tmp_path / "trace.json")
    reading = TraceReader(path)
    reading.start()
    reading.inbox.arrived.wait(PATIENCE_SECONDS)
    reading.cancel()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while reading.outcome is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    reading.close()
    assert "was cancelled" in str(reading.outcome)


def test_an_open_trace_has_one_descriptor(tmp_path: Path) -> None:
    path = training(1).write(tmp_path / "trace.json")
    before = files_of_traces()
    opened = [read(path) for _ in range(3)]
    new = files_of_traces() - before
    assert sum(new.values()) == 3
    lane = opened[1].trace.lanes[-1]
    assert opened[1].columns.ends[lane.first] == 1_000_000
    del opened
    assert not files_of_traces() & new


def files_of_traces() -> Counter[int]:
    """The inodes of the files of open traces, with the number of descriptors; other tests may have some, too."""
    gc.collect()
    inodes: Counter[int] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed since
            if "gpumon-trace" in os.path.realpath(link):
                inodes[link.stat().st_ino] += 1
    return inodes
