"""`gpumon recorder` on the stand-in driver: what it writes, who may read it, and a second one."""

import os
import signal
import subprocess
import time
from pathlib import Path

from gpumon.streams.ring import RingReader
from tests.cli.running import GPUMON, is_one_line, run
from tests.nvml_mock import NvmlMock


def test_it_records_this_host_and_refuses_a_second_one(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    environment = nvml_mock.environment(gpus=2, pids=[os.getpid()], XDG_STATE_HOME=str(tmp_path))
    command = [GPUMON, "recorder", "--dir", str(folder)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == f"Recording to {folder}\n"
            second = run("recorder", "--dir", str(folder), env=environment)
            assert second.returncode == 3
            assert is_one_line(second.stderr)
            deadline = time.monotonic() + 20
            while not list(folder.glob("*-01s-*")) and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
    files = list(folder.iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    frames = [record.frame for record in RingReader(folder)]
    assert frames
    assert len(frames[0].devices) == 2
    listed = run("last", "--dir", str(folder), env=environment)
    assert listed.returncode == 0, listed.stderr
    assert "Nothing that used a GPU has ended" in listed.stdout
    assert run("--at", "2001-01-01", env={**environment, "XDG_STATE_HOME": str(tmp_path / "none")}).returncode == 3
