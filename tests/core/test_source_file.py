"""Files that the user names: no pipe is waited for without end, and no compressed file fills time or memory."""

import gzip
import io
import os
from pathlib import Path

import pytest

from gpumon.core import source_file
from gpumon.core.problems import CommandError
from gpumon.core.source_file import BoundedGzipFile, ExpansionError, open_input
from gpumon.errors.source import log_pieces, open_log
from gpumon.fleet.prometheus import read_secret
from gpumon.operations.fleet.ssh import parse_hosts
from gpumon.operations.hang_files.files import find_files
from gpumon.operations.run_report.journal import load_report
from gpumon.operations.trace_diff import is_trace


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_file, "_WRITER_SECONDS", 0.05)


def test_a_pipe_without_a_writer_and_a_device_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no process writes to this pipe"):
        open_input(pipe)
    with pytest.raises(OSError, match="it is not a regular file"):
        open_input(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        open_input(tmp_path)


def test_a_pipe_with_a_writer_is_read_to_its_end() -> None:
    """As <(command) of the shell; the writer may be silent at first."""
    reading, writing = os.pipe()
    with (
        os.fdopen(reading),
        os.fdopen(writing, "wb", buffering=0) as writer,
        open_input(Path(f"/dev/fd/{reading}")) as file,
    ):
        writer.write(b"one")
        assert file.read(3) == b"one"
        writer.close()
        assert file.read() == b""


def test_a_file_that_expands_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_file, "_MIN_EXPANDED_BYTES", 1000)
    honest = gzip.compress(os.urandom(2000) * 10)
    assert len(BoundedGzipFile(io.BytesIO(honest), 100).read()) == 20_000
    with pytest.raises(ExpansionError, match="expands to more than 100 times its size"):
        BoundedGzipFile(io.BytesIO(gzip.compress(bytes(1 << 20))), 100).read()


def test_a_log_that_expands_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_file, "_MIN_EXPANDED_BYTES", 1000)
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"Epoch 1\n" * (1 << 20)))
    with open_log(path) as log, pytest.raises(CommandError, match=r"log\.gz expands to more than .* zcat LOG\.gz"):
        list(log_pieces(log, str(path)))


def test_every_reader_of_a_named_file_refuses_a_pipe_without_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert not is_trace(pipe)
    assert find_files([tmp_path]) == []
    for read in (load_report, lambda path: parse_hosts(None, path), lambda path: read_secret(path, "")):
        with pytest.raises(CommandError, match="no process writes to this pipe"):
            read(pipe)
