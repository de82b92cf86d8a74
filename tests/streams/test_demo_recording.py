"""The tool that makes the bundled recording, as far as it runs without a GPU; see `tests.gpu.record_demo`."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.streams.recording import RecordingWriter
from tests.builders import device, frame
from tests.gpu.record_demo import PROGRAMS as PROGRAM_FILE
from tests.gpu.record_demo import SETS, frames, merge


def test_two_recordings_become_one_host_with_the_gpus_of_both(tmp_path: Path) -> None:
    gpus = tuple(device(index, uuid=f"GPU-00000000-0000-0000-0000-{index:012d}") for index in range(4))
    for name, count in (("one.jsonl.gz", 3), ("two.jsonl.gz", 2)):
        writer = RecordingWriter(tmp_path / name)
        for number in range(count):
            writer.write(frame(monotonic_seconds=100.0 + number, devices=gpus))
        writer.close()
    merge(tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz", tmp_path / "both.jsonl.gz")
    merged = list(frames(tmp_path / "both.jsonl.gz"))
    assert [item.monotonic_seconds for item in merged] == [100.0, 101.0]
    assert [gpu.index for gpu in merged[0].devices] == list(range(8))
    processes = [process.pid for gpu in merged[0].devices for process in gpu.processes or ()]
    for identity in ([gpu.uuid for gpu in merged[0].devices], [gpu.pci_bus_id for gpu in merged[0].devices], processes):
        assert len(set(identity)) == 8


@pytest.mark.long
@pytest.mark.parametrize("program", sorted({job.program for jobs in SETS.values() for job in jobs}))
def test_the_programs_run_on_the_cpu(program: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / f"{program}.py"
    script.write_bytes(PROGRAM_FILE.read_bytes())
    command = [sys.executable, str(script), "--seconds", "8", "--device", "cpu"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if program == "finetune":
        assert "OutOfMemoryError" in ended.stderr
    elif program == "pretrain_ddp":  # its only rank is the one that waits until the timer ends it
        assert "Traceback" not in ended.stderr
    else:
        assert not ended.returncode, ended.stderr
