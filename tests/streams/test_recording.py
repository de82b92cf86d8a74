import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.frames import encode
from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.streams.recording import RecordingReader, RecordingWriter
from tests.builders import frame

NAMES = pytest.mark.parametrize("name", ["day.jsonl", "day.jsonl.gz"])


def series(count: int, start: float = 100.0, step: float = 1.0) -> list[Frame]:
    return [frame(monotonic_seconds=start + place * step, devices=()) for place in range(count)]


def write(path: Path, frames: list[Frame]) -> Path:
    writer = RecordingWriter(path)
    for item in frames:
        writer.write(item)
    writer.close()
    return path


def text(frames: list[Frame]) -> bytes:
    return b"".join(encode(item).encode() + b"\n" for item in frames)


def read(path: Path) -> tuple[list[Frame], RecordingReader]:
    reader = RecordingReader(path)
    frames = [record.frame for record in reader]
    reader.close()
    return frames, reader


def never() -> bool:
    return False


@NAMES
def test_what_was_written_is_read(tmp_path: Path, name: str) -> None:
    frames = [frame(), frame(monotonic_seconds=101.0)]
    path = write(tmp_path / name, frames)
    result, reader = read(path)
    assert result == frames
    assert reader.problem is None
    assert reader.duration_seconds == 1.0
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_compression_is_told_by_content_and_not_by_name(tmp_path: Path) -> None:
    packed = write(tmp_path / "a.gz", series(3)).rename(tmp_path / "a.jsonl")
    plain = write(tmp_path / "b.jsonl", series(3)).rename(tmp_path / "b.gz")
    assert read(packed)[0] == read(plain)[0] == series(3)


@NAMES
def test_every_frame_can_be_read_while_the_next_is_awaited(tmp_path: Path, name: str) -> None:
    writer = RecordingWriter(tmp_path / name)
    for count, item in enumerate(series(3), 1):
        writer.write(item)
        assert read(tmp_path / name)[0] == series(3)[:count]
    writer.close()


@NAMES
def test_a_recording_torn_anywhere_in_its_last_record_keeps_the_others(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    writer = RecordingWriter(path)
    for item in series(3):
        writer.write(item)
    whole = path.stat().st_size
    writer.write(frame(monotonic_seconds=103.0, devices=()))
    data = path.read_bytes()
    writer.close()
    for length in range(whole, len(data)):
        path.write_bytes(data[:length])
        result, _ = read(path)
        assert result[:3] == series(3)
        assert len(result) == 3 or length >= len(data) - 6  # all of the text may be there before its end is


def test_a_torn_line_is_counted_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    first, second, third = (text([item]) for item in series(3))
    path.write_bytes(first + second[:50] + b"\n" + b"foreign\n\n" + third)
    result, reader = read(path)
    assert result == [series(3)[0], series(3)[2]]
    assert reader.problem is not None
    assert reader.problem.code is ProblemCode.DAMAGED
    assert str(reader.problem) == f"2 damaged lines were skipped, the first at byte {len(first)}."


@settings(max_examples=60)
@given(st.data())
def test_flipped_bits_cost_at_most_the_lines_they_are_in(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(text(series(5)))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("flip") / "day.jsonl"
    path.write_bytes(whole)
    result, _ = read(path)
    assert len(set(map(encode, result)) & set(map(encode, series(5)))) >= 3


def test_a_recording_of_a_newer_gpumon_says_so(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    path.write_bytes(text(series(1)).replace(b'"schema":1', b'"schema":2'))
    with pytest.raises(CommandError, match="schema 2") as caught:
        RecordingReader(path)
    assert caught.value.problem.code is ProblemCode.NEWER_SCHEMA
    path.write_bytes(text(series(1)) + path.read_bytes())
    result, reader = read(path)
    assert result == series(1)
    assert reader.problem is not None
    assert reader.problem.code is ProblemCode.NEWER_SCHEMA


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b"hello\n", bytes(range(256)) * 300, b"{}\n[]\nnull\n", b"\x1f\x8bnot gzip"]
)
def test_what_is_no_recording_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "day.jsonl"
    path.write_bytes(data)
    with pytest.raises(CommandError, match=r"day\.jsonl is not a recording") as caught:
        RecordingReader(path)
    assert caught.value.exit_code is ExitCode.USAGE


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    for path, reason in [(tmp_path, "is a directory"), (tmp_path / "none", "no such file")]:
        with pytest.raises(CommandError, match=reason) as caught:
            RecordingReader(path)
        assert caught.value.exit_code is ExitCode.USAGE


@NAMES
def test_a_pipe_with_a_name_can_be_read(tmp_path: Path, name: str) -> None:
    data = write(tmp_path / name, series(5)).read_bytes()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(data,))
    writer.start()
    result, reader = read(fifo)
    writer.join()
    assert result == series(5)
    assert not reader.seekable


@NAMES
def test_a_window_gives_the_frames_before_a_time_and_goes_on_from_there(tmp_path: Path, name: str) -> None:
    reader = RecordingReader(write(tmp_path / name, series(500)))
    for start, end in [(300.0, 310.0), (20.0, 25.0), (0.0, 0.0), (490.0, 499.0), (200.5, 200.9)]:
        result = [record.seconds for record in reader.window(start, end, 1.0, never)]
        assert result == ([200.0] if start == 200.5 else [float(item) for item in range(int(start), int(end) + 1)])
        following = reader.read()
        assert (following.seconds if following else None) == (None if end == 499.0 else result[-1] + 1)
    reader.close()


def test_a_window_thins_out_but_keeps_the_last_frame(tmp_path: Path) -> None:
    reader = RecordingReader(write(tmp_path / "day.jsonl", series(100, step=0.1)))
    result = [round(record.seconds, 3) for record in reader.window(0.0, 7.75, 1.0, never)]
    assert result == pytest.approx([0, 1, 2, 3, 4, 5, 6, 7, 7.7], abs=0.11)
    assert result[-1] == 7.7
    reader.close()


@NAMES
def test_a_scan_finds_the_duration_and_moves_nothing(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, series(200))
    reader = RecordingReader(path)
    before = reader.duration_seconds
    reader.scan(never)
    assert (before, reader.duration_seconds) == (None, 199.0)
    assert [record.frame for record in reader] == series(200)
    reader.close()
    short = RecordingReader(path)
    short.scan(never, limit=1000)
    assert short.duration_seconds is None
    assert [record.frame for record in short] == series(200)
    short.close()


@NAMES
def test_an_existing_recording_is_not_overwritten(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, series(1))
    before = path.read_bytes()
    with pytest.raises(CommandError, match="already exists") as caught:
        RecordingWriter(path)
    assert caught.value.exit_code is ExitCode.USAGE
    assert path.read_bytes() == before
    (tmp_path / "empty").touch()
    assert read(write(tmp_path / "empty", series(2)))[0] == series(2)


def test_a_file_that_another_user_puts_in_the_place_of_an_empty_one_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim, real = tmp_path / "run.jsonl", tmp_path / "victim", os.open
    path.touch()
    victim.write_text("root:x:0:0")

    def replaced(file: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not flags & os.O_EXCL:
            file.unlink()
            file.symlink_to(victim)
        return real(file, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(CommandError, match="already exists"):
        RecordingWriter(path)
    assert victim.read_text() == "root:x:0:0"


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    for path, reason in [(tmp_path, "is a directory"), (tmp_path / "no" / "file", "no such file")]:
        with pytest.raises(CommandError, match=reason) as caught:
            RecordingWriter(path)
        assert caught.value.exit_code is ExitCode.USAGE


def test_a_full_disk_is_said() -> None:
    writer = RecordingWriter(Path("/dev/full"))
    with pytest.raises(CommandError, match="no space left") as caught:
        writer.write(frame())
    writer.close()
    assert caught.value.exit_code is ExitCode.BAD_VERDICT


FILL = """
import resource, signal, sys
from pathlib import Path
from gpumon.core.problems import CommandError
from gpumon.streams.recording import RecordingWriter
from tests.builders import frame
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
writer = RecordingWriter(Path(sys.argv[1]))
count = 0
try:
    while True:
        writer.write(frame(monotonic_seconds=100.0 + count))
        count += 1
except CommandError as error:
    print(count)
writer.close()
"""


@NAMES
def test_a_file_that_can_grow_no_more_ends_with_a_whole_record(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ran = subprocess.run([sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=True)
    result, reader = read(path)
    assert len(result) == int(ran.stdout) > 0
    assert reader.problem is None or "cut off" in reader.problem.reason


def test_the_end_of_a_reader_is_noticed() -> None:
    reading, writing = os.pipe()
    writer = RecordingWriter(io.FileIO(writing, "w", closefd=False))
    before = writer.is_reader_gone()
    os.close(reading)
    assert (before, writer.is_reader_gone()) == (False, True)
    with pytest.raises(BrokenPipeError):
        writer.write(frame())
    os.close(writing)
