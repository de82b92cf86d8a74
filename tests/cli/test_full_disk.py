"""A disk that is full ends a command with a sentence, and leaves no incomplete file under the final name."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import GPUMON, is_one_line, shell
from tests.limits import file_size_limit
from tests.nvml_mock import NvmlMock

LIMIT_BYTES = 1000


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("record {}/frames.jsonl --duration 5 --interval 0.1", "frames.jsonl"),
        ("config --init", "gpumon/config.toml"),
        ("man --install", "man/man1/gpumon.1"),
    ],
)
def test_a_full_disk(nvml_mock: NvmlMock, tmp_path: Path, line: str, name: str) -> None:
    folders = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), str(tmp_path))
    with file_size_limit(LIMIT_BYTES):
        done = shell(
            '"$@"',
            *line.replace("{}", str(tmp_path)).split(),
            env={**nvml_mock.environment(PYTHONDONTWRITEBYTECODE="1"), **folders},
        )
    assert done.returncode in {1, 2}
    assert is_one_line(done.stderr), done.stderr
    assert "file too large" in done.stderr.lower()
    file = tmp_path / name
    assert not file.exists() or not file.read_bytes()  # a recording ends after its last complete frame


def test_a_recorder_goes_on_without_a_full_disk(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    command = [GPUMON, "recorder", "--dir", str(tmp_path / "ring")]
    environment = nvml_mock.environment(XDG_STATE_HOME=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    with file_size_limit(LIMIT_BYTES):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=20)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert "ended early: file too large" in lines[1], lines
    assert "Traceback" not in rest
