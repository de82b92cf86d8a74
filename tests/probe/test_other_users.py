"""Root and the probes of other users: all that can be loaded can be read and ended, and nothing is followed as root."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpumon.core.acting_user import acting_as, open_file_of
from gpumon.operations.recorded_file import _local_path
from gpumon.probe.attach import attach, detach
from gpumon.probe.attach.handshake import listening_in
from gpumon.probe.attach.target import read_target
from gpumon.probe.client import Answer, ProbeWatcher
from gpumon.probe.socket_dir import FolderError, opened
from tests.probe.children import waited

USER = 12345
SECRET = "trace-01234567_1.json"


def _python_of_all() -> str:
    """An interpreter that every user can run, as one in the home of root cannot."""
    code = "import sys; sys.exit(not (3, 8) <= sys.version_info < (3, 14))"
    for path in filter(None, map(shutil.which, ("python3", "/usr/bin/python3"))):
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([path, "-c", code], user=USER, group=USER, extra_groups=[], cwd="/", check=True)
            return path
    return ""


if os.geteuid() != 0:
    pytest.skip("needs root, whose rights are at stake", allow_module_level=True)
PYTHON = _python_of_all()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the user."""
    folder = Path(tempfile.mkdtemp(prefix="gpumon-", dir="/tmp"))
    os.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def pid(home: Path) -> Iterator[int]:
    """A Python process of the user."""
    if not PYTHON:
        pytest.skip("no Python 3.8 to 3.13 that other users can run")
    code = "import time; print('on', flush=True)\nwhile True: time.sleep(0.02)"
    with subprocess.Popen(
        [PYTHON, "-c", code],
        stdout=subprocess.PIPE,
        env={"GPUMON_PROBE_DIR": str(home / "sockets")},
        cwd="/",
        user=USER,
        group=USER,
        extra_groups=[],
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_root_reads_and_ends_what_it_has_loaded(pid: int, home: Path) -> None:
    assert attach(pid).folder == home / "sockets"
    watcher = ProbeWatcher()
    watcher.start()
    try:
        probe = waited(lambda: watcher.probes.get(pid))
        assert (probe.process.own_pid, probe.is_foreign) == (pid, True)
        number = watcher.ask(pid, "stacks")
        answers = waited(lambda: [one for one in watcher.inbox.drain() if isinstance(one, Answer)])
        assert [(answer.id, answer.problem) for answer in answers] == [(number, None)]
    finally:
        watcher.close()
    assert detach(pid) is not None
    assert detach(pid) is None


def test_a_folder_that_only_root_can_reach_is_not_touched(pid: int, home: Path) -> None:
    own = home / "own"
    own.mkdir(0o700)
    dead = own / f"{pid}-01234567.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))
    (home / "sockets").symlink_to(own)
    target = read_target(pid)
    assert listening_in(target) is None
    (home / "sockets").unlink()
    own.rename(home / "sockets")
    assert listening_in(target) is None
    assert (home / "sockets" / dead.name).exists()
    with pytest.raises(FolderError, match="Permission denied"), opened(home / "sockets", USER):
        pass


def test_only_a_file_of_the_user_is_taken(pid: int, home: Path) -> None:
    own = home / SECRET
    own.write_text("secret")
    own.chmod(0o644)
    assert _local_path(pid, str(own)) is None
    link = home / "memory-01234567_1.pickle"
    link.symlink_to("/etc/shadow")
    assert _local_path(pid, str(link)) is None
    os.mkfifo(home / "trace-00000000_1.json")
    assert _local_path(pid, str(home / "trace-00000000_1.json")) is None
    os.chown(own, USER, USER)
    copy = _local_path(pid, str(own))
    assert copy is not None
    assert (copy.read_text(), copy.stat().st_uid, copy.stat().st_mode & 0o777) == ("secret", 0, 0o600)
    assert not own.exists()
    copy.unlink()


def test_another_user_for_files_is_one_for_this_block_alone(home: Path) -> None:
    with acting_as(USER), pytest.raises(PermissionError):
        Path("/etc/shadow").read_bytes()
    assert Path("/etc/shadow").read_bytes()
    with pytest.raises(PermissionError):
        open_file_of(USER, Path("/etc/passwd"))
