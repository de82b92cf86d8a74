"""Disks that fill up, folders that go away, and files larger than any memory: what was recorded stays readable."""

import gzip
import os
import shutil
import subprocess
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.core.frames import MAX_LINE_BYTES, encode
from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, ExitCode
from gpumon.streams import lines
from gpumon.streams.recording import RecordingReader, RecordingWriter
from tests.builders import device, frame, process
from tests.cli.running import GPUMON, PATIENCE_SECONDS
from tests.nvml_mock import NvmlMock

NAMES = pytest.mark.parametrize("name", ["day.jsonl", "day.jsonl.gz"])
ON_SMALL_DISK = """
mount -t tmpfs -o size=128k none "$1" || exit 99
head -c 100k /dev/zero > "$1/other"
"$2" record "$1/$3" --interval 0.1 --duration 60
echo $?
cp "$1/$3" "$4"
"""


def moments(count: int) -> Iterator[Frame]:
    return (frame(monotonic_seconds=100.0 + number) for number in range(count))


def seconds_of(path: Path) -> list[float]:
    reader = RecordingReader(path)
    try:
        return [record.seconds for record in reader]
    finally:
        reader.close()


@NAMES
@pytest.mark.parametrize("whole_folder", [True, False])
def test_a_file_that_is_removed_ends_its_recording(tmp_path: Path, name: str, whole_folder: bool) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    writer = RecordingWriter(folder / name)
    writer.write(frame())
    if whole_folder:
        shutil.rmtree(folder)
    else:
        (folder / name).unlink()
    with pytest.raises(CommandError, match="ended early: its file was removed") as caught:
        writer.write(frame())
    writer.close()
    assert caught.value.exit_code is ExitCode.BAD_VERDICT


@NAMES
def test_a_file_that_is_given_another_name_is_written_on(tmp_path: Path, name: str) -> None:
    writer = RecordingWriter(tmp_path / name)
    for place, moment in enumerate(moments(3)):
        if place == 1:
            (tmp_path / name).rename(tmp_path / "other")
        writer.write(moment)
    writer.close()
    assert seconds_of(tmp_path / "other") == [0, 1, 2]


@pytest.mark.sampled(1)
@NAMES
def test_a_disk_that_fills_up_ends_the_recording(nvml_mock: NvmlMock, tmp_path: Path, name: str) -> None:
    disk, kept = tmp_path / "disk", tmp_path / name
    disk.mkdir()
    script = ["sh", "-c", ON_SMALL_DISK, "sh", str(disk), GPUMON, name, str(kept)]
    ran = subprocess.run(
        ["unshare", "--map-root-user", "--mount", *script],
        env=nvml_mock.environment(gpus=8),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS + 60,
    )
    if not ran.stdout:
        pytest.skip(f"needs a mount namespace: {ran.stderr.strip()}")
    assert ran.stdout.strip() == str(int(ExitCode.BAD_VERDICT))
    assert "ended early: no space left on device. The frames recorded so far can be replayed." in ran.stderr
    assert len(seconds_of(kept)) > 1


def test_a_hole_of_ten_gigabytes_is_the_end_and_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(lines, "MAX_SKIPPED_BYTES", 8 << 20)
    path = tmp_path / "day.jsonl"
    path.write_text("".join(f"{encode(moment)}\n" for moment in moments(3)))
    whole = path.stat().st_size
    os.truncate(path, 10 << 30)
    tracemalloc.start()
    try:
        reader = RecordingReader(path)
        assert [record.seconds for record in reader] == [0, 1, 2]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert reader.problem is not None
    assert f"first at byte {whole}" in reader.problem.reason
    assert "no line ends there" in reader.problem.reason
    reader.scan(lambda: False)
    reader.close()
    assert reader.duration_seconds == 2


def read_traced(path: Path) -> tuple[list[float], RecordingReader, int]:
    """The times of the frames of a recording, its reader, and the peak of the memory in bytes."""
    tracemalloc.start()
    try:
        reader = RecordingReader(path)
        return [record.seconds for record in reader], reader, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("filler", ["{}", "[]", "1.5", '"ab"', "null", '{"a":1}'])
def test_a_line_of_countless_values_is_not_decoded(tmp_path: Path, filler: str) -> None:
    first, second = (f"{encode(moment)}\n" for moment in moments(2))
    count = (MAX_LINE_BYTES - 1000) // (len(filler) + 1)
    path = tmp_path / "day.jsonl"
    crowded = f'{{"schema":1,"monotonic_seconds":100,"devices":[{",".join([filler] * count)}]}}\n'
    path.write_text(f"{first}{crowded}{second}")
    seconds, reader, peak = read_traced(path)
    assert seconds == [0, 1]
    assert str(reader.problem) == f"1 damaged line was skipped, the first at byte {len(first)}."
    assert peak < 4 * MAX_LINE_BYTES
    reader.close()


def test_a_frame_of_thousands_of_processes_is_read(tmp_path: Path) -> None:
    processes = tuple(process(pid) for pid in range(1000, 2000))
    crowded = frame(devices=tuple(device(index, processes=processes) for index in range(8)))
    path = tmp_path / "day.jsonl"
    path.write_text(f"{encode(crowded)}\n")
    with closing(RecordingReader(path)) as reader:
        assert next(iter(reader)).frame == crowded


@pytest.mark.sampled(2)
@NAMES
@pytest.mark.parametrize("line", ["\n", " \n", "foreign\n"])
def test_a_gap_without_frames_ends_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: str
) -> None:
    monkeypatch.setattr(lines, "MAX_SKIPPED_BYTES", 1 << 20)
    monkeypatch.setattr(lines, "MAX_FOREIGN_LINES", 1000)
    first, second = (f"{encode(moment)}\n".encode() for moment in moments(2))
    write = gzip.compress if name.endswith("gz") else bytes
    path = tmp_path / name
    path.write_bytes(write(first + line.encode() * 900 + second))
    assert seconds_of(path) == [0, 1]
    path.write_bytes(write(first + line.encode() * (2 << 20) + second))
    seconds, reader, peak = read_traced(path)
    assert seconds == [0]
    assert reader.problem is not None
    assert "Nothing can be read after byte" in reader.problem.reason
    assert peak < 1 << 20
    reader.scan(lambda: False, 1 << 62)
    reader.close()
    assert reader.duration_seconds == 0
    path.write_bytes(write(line.encode() * (2 << 20)))
    with pytest.raises(CommandError, match="is not a recording"):
        RecordingReader(path)
