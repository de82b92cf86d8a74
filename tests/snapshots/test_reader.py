"""Reading in a child with limits: any file ends in time with a snapshot or with a one-sentence error."""

import gzip
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.snapshots import reader as reader_module
from gpumon.snapshots.model import Amount, Snapshot
from gpumon.snapshots.reader import SnapshotReader, read
from tests.perf.snapshot_file import write
from tests.snapshots.files import block, hostile, loaded, real_bytes, segment

PATIENCE_SECONDS = 60.0
"""Bounds a failure; on an idle host nothing here takes more than two seconds."""
MAX_MEMORY = 1 << 30
SILENT_READER = """
import os, time
from contextlib import suppress
from gpumon.core.limited_child import MessageWriter, run_limited
def read():
    with suppress(BrokenPipeError):
        os.write(1, b"reading\\n")
    time.sleep(90)
run_limited(read, MessageWriter(1000), 1 << 30, 60)
"""


def ended(reading: SnapshotReader, patience: float = PATIENCE_SECONDS) -> Snapshot | CommandError:
    """Waits for the outcome."""
    deadline = time.monotonic() + patience
    while reading.outcome is None:
        assert time.monotonic() < deadline, "it does not end"
        reading.inbox.arrived.wait(0.1)
        reading.inbox.drain()
    return reading.outcome


def refusal(path: Path) -> CommandError:
    with pytest.raises(CommandError) as caught:
        read(path)
    return caught.value


def test_the_child_finds_what_is_found_here(real: Path) -> None:
    result, here = read(real, 20), loaded(real_bytes(), 20)
    assert result.devices == here.devices
    assert (result.frames, result.stacks) == (here.frames, here.stacks)
    assert (result.name, result.size_bytes) == (str(real), len(real_bytes()))


@pytest.mark.long
def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "real.pickle.gz"
    path.write_bytes(gzip.compress(real_bytes()))
    assert read(path).devices == loaded(real_bytes()).devices


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", hostile(Path("/nowhere")))
def test_a_hostile_file_ends_in_one_sentence(name: str, tmp_path: Path, canary: Path) -> None:
    path = tmp_path / "hostile.pickle"
    data, word = hostile(canary)[name]
    path.write_bytes(data)
    begun, other_children = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    error = refusal(path)
    assert word in error.problem.reason
    assert error.problem.reason.startswith(f"{path} ")
    assert error.problem.reason.endswith(".")
    assert "\n" not in str(error)
    assert error.exit_code == ExitCode.USAGE
    assert time.monotonic() - begun < PATIENCE_SECONDS
    assert not canary.exists()
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10 <= max(other_children, MAX_MEMORY)


def test_a_file_that_takes_too_long_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_MIN_SECONDS", 1)
    path = tmp_path / "bomb.pickle"
    frames = [{"name": f"f{number}", "filename": "f", "line": number} for number in range(1000)]
    blocks = [block(number, 1, "active_allocated", frames=frames) for number in range(30_000)]
    path.write_bytes(pickle.dumps({"segments": [segment(*blocks)]}))
    begun = time.monotonic()
    error = refusal(path)
    assert "takes longer to read than 1 s" in error.problem.reason
    assert time.monotonic() - begun < PATIENCE_SECONDS


def test_reading_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "large.pickle"
    write(path, 10_000_000)
    reading = SnapshotReader(path)
    reading.start()
    reading.inbox.arrived.wait(PATIENCE_SECONDS)
    reading.cancel()
    outcome = ended(reading)
    assert isinstance(outcome, CommandError)
    assert "was cancelled" in str(outcome)


@pytest.mark.parametrize("is_reading", [True, False])
def test_the_reader_does_not_outlive_gpumon(*, is_reading: bool) -> None:
    """Where it writes nothing, no write fails: it has to notice that gpumon was killed, perhaps before it began."""
    with subprocess.Popen([sys.executable, "-c", SILENT_READER], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        if is_reading:
            reader.stdout.readline()
        reader.stdout.close()
        assert reader.wait(PATIENCE_SECONDS) == 1


def test_a_message_is_complete_although_signals_interrupt_its_write() -> None:
    """The pipe is full while the timer of the reader fires; many containers set PYTHONUNBUFFERED."""
    code = (
        "from gpumon.core.limited_child import MessageWriter, run_limited\n"
        "run_limited(lambda: {'text': 'x' * (1 << 20)}, MessageWriter(1 << 21), 1 << 30, 60)"
    )
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as reader:
        assert reader.stdout is not None
        first = reader.stdout.read(1)
        time.sleep(1.2)
        assert len(json.loads(first + reader.stdout.read())["text"]) == 1 << 20


def test_more_than_gpumon_can_show_is_refused(real: Path) -> None:
    code = "from gpumon.snapshots import __main__ as reader; reader.MAX_BYTES = 5000; reader.main()"
    command = [sys.executable, "-c", code, "--memory=1000000000", "--seconds=60"]
    with real.open("rb") as file:
        done = subprocess.run(command, check=True, stdin=file, capture_output=True, timeout=PATIENCE_SECONDS)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "event": "refused",
        "reason": "contains more than gpumon can show",
    }


@pytest.mark.long
def test_progress_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "large.pickle"
    truth = write(path, 10_000_000)
    reading = SnapshotReader(path)
    reading.start()
    progress = []
    while reading.outcome is None:
        reading.inbox.arrived.wait(PATIENCE_SECONDS)
        progress += reading.inbox.drain()
    sizes = [item.read_bytes for item in progress]
    assert sizes == sorted(sizes)
    assert sizes[-1] == reading.size_bytes == path.stat().st_size
    assert len(progress) >= 2
    assert isinstance(reading.outcome, Snapshot)
    (device,) = reading.outcome.devices
    history = device.history
    assert history is not None
    assert (history.events, history.earlier_bytes) == (truth.events, truth.weights_bytes)
    assert history.peak == Amount(truth.peak_bytes, truth.peak_blocks)
    assert history.by_time.allocated[-1].mean == history.by_event.allocated[-1].mean == truth.end_bytes
    assert history.by_time.reserved[-1].mean == truth.reserved_bytes
    assert max(item.high for item in history.by_time.allocated) == truth.peak_bytes
    assert max(item.high for item in history.by_event.allocated) == truth.peak_bytes


def test_a_child_that_dies(real: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader = tmp_path / "reader.py"
    monkeypatch.setattr(reader_module, "READER", reader)
    reader.write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert f"signal {int(signal.SIGKILL)} ended the reader" in str(refusal(real))
    reader.write_text("raise OSError('no room \\x1b[2J')")
    assert "OSError: no room" in str(refusal(real))
    assert "\x1b" not in str(refusal(real))
    reader.write_text("print('{torn', end='')")
    assert "exit code" in str(refusal(real))


def test_not_there(tmp_path: Path) -> None:
    error = refusal(tmp_path / "none.pickle")
    assert error.exit_code == ExitCode.MISSING_PREREQUISITE
    assert error.problem.code is ProblemCode.NOT_FOUND


def test_not_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe, Path("/dev/null")):
        error = refusal(path)
        assert (error.exit_code, "is not a regular file" in str(error)) == (ExitCode.USAGE, True)


def test_what_the_probe_left(tmp_path: Path) -> None:
    one = {"ordinal": 1, "address": 4096, "size_bytes": 3072, "stream": 0, "pool": [0, 0], "is_large": True}
    blocks = [[1024, 1000, 0], [512, 512, 1], [1536, 0, 2]]
    document = {
        "schema": 1,
        "kind": "gpumon-oom",
        "time_seconds": 1_795_000_000.0,
        "process": {"pid": 4242},
        "device": {"ordinal": 1, "uuid": None, "name": "NVIDIA H200", "total_bytes": 1 << 37},
        "request": {"bytes": 2 << 30, "limit_bytes": 1 << 37, "free_bytes": 5},
        "settings": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        "stack": [["/home/user/train.py", 12, "step\x1b"]],
        "segments": [{**one, "is_expandable": True, "blocks": blocks}],
        "cut": True,
    }
    path = tmp_path / "oom.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    result = read(path)
    (device,) = result.devices
    assert device.ordinal == 1
    assert device.history is None
    assert [use.now for use in device.uses] == [Amount(1000, 1)]
    assert [segment.size_bytes for segment in device.segments[0].blocks] == [1024, 512, 1536]
    assert result.settings == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert "step\ufffd (/home/user/train.py:12) requested 2,147,483,648 bytes." in result.notes
