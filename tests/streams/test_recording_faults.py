"""Disks that fill up, folders that go away, and files larger than any memory: what was recorded stays readable."""

import os
import shutil
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.frames import encode
from gpumon.core.model import Frame
from gpumon.streams import lines
from gpumon.streams.recording import RecordingReader, RecordingWriter
from tests.builders import frame
from tests.cli.running import GPUMON, PATIENCE_SECONDS
from tests.nvml_mock import NvmlMock

NAMES = pytest.mark.parametrize("name", ["day.jsonl", "day.jsonl.gz"])
ON_SMALL_DISK = """
mount -t tmpfs -o size=128k none "$1" || exit 99
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
    assert "ended early: no space left on device. What was recorded until now can be replayed." in ran.stderr
    assert len(seconds_of(kept)) > 1


def test_a_hole_of_ten_gigabytes_is_the_end_and_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(lines, "MOST_PASSED_BYTES", 8 << 20)
    path = tmp_path / "day.jsonl"
    path.write_text("".join(f"{encode(each)}\n" for each in moments(3)))
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
    assert reader.duration_seconds == 2
