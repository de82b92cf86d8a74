"""A disk that is full ends a command with a sentence, and leaves no incomplete file under the final name."""

from pathlib import Path

import pytest

from tests.cli.running import is_one_line, shell
from tests.limits import file_size_limit
from tests.nvml_mock import NvmlMock

LIMIT_BYTES = 1000


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
        done = shell('"$@"', *line.replace("{}", str(tmp_path)).split(), env={**nvml_mock.environment(), **folders})
    assert done.returncode in {1, 2}
    assert is_one_line(done.stderr), done.stderr
    assert "file too large" in done.stderr.lower()
    file = tmp_path / name
    assert not file.exists() or not file.read_bytes()  # a recording ends after its last complete frame
