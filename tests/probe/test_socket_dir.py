"""Only folders and sockets that this user alone can have created are used."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.probe.socket_dir import FolderError, candidates, connect, opened, peer_of, socket_names
from tests.probe.scripted import listening

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder another user's")


def test_every_folder_of_this_user_is_a_candidate_once() -> None:
    uid = os.getuid()
    usual = (Path(f"/run/user/{uid}/gpumon"), Path(f"/tmp/gpumon-{uid}"))
    assert candidates({}) == usual
    assert candidates({"GPUMON_PROBE_DIR": "", "XDG_RUNTIME_DIR": ""}) == usual
    assert candidates({"XDG_RUNTIME_DIR": "/y"}) == (Path("/y/gpumon"), *usual)
    assert candidates({"GPUMON_PROBE_DIR": "/x", "XDG_RUNTIME_DIR": "/y"}) == (Path("/x"),)
    assert candidates({"XDG_RUNTIME_DIR": f"/run/user/{uid}"}) == usual


def test_a_missing_folder_is_not_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), opened(tmp_path / "none"):
        pass


def _link(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


def _file(folder: Path) -> None:
    folder.rmdir()
    folder.touch(0o600)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_link, "not a folder, or is a symbolic link"),
        (_file, "not a folder, or is a symbolic link"),
        (lambda folder: folder.chmod(0o777), "other users can access"),
        (lambda folder: folder.chmod(0o750), "other users can access"),
        pytest.param(lambda folder: os.chown(folder, 65534, 0), "belongs to another user", marks=needs_root),
    ],
)
def test_a_folder_that_others_may_have_created_is_rejected(
    folder: Path, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(folder)
    with pytest.raises(FolderError) as refused, opened(folder):
        pass
    assert words in refused.value.problem.reason
    assert "GPUMON_PROBE_DIR" in refused.value.problem.remedy


def test_only_names_of_probes_count(folder: Path) -> None:
    for name in ("12-0123abcd.sock", "12-0123abcd.part", "x-0123abcd.sock", "12-0123ABCD.sock", "\u0661-0123abcd.sock"):
        (folder / name).touch()
    with opened(folder) as descriptor:
        assert socket_names(descriptor) == ["12-0123abcd.sock"]


def test_the_peer_is_reported_by_the_kernel(folder: Path) -> None:
    with listening(folder) as path, opened(folder) as descriptor:
        connection = connect(descriptor, path.name)
        assert peer_of(connection) == (os.getpid(), os.getuid())
        connection.close()


def test_a_path_may_be_longer_than_a_socket_address(folder: Path) -> None:
    deep = folder / ("x" * 200)
    with listening(folder) as path:
        folder.rename(folder.with_name("moved"))
        folder.mkdir(mode=0o700)
        folder.with_name("moved").rename(deep)
        with opened(deep) as descriptor:
            connect(descriptor, path.name).close()


def test_a_stale_socket_is_removed(folder: Path) -> None:
    stale = folder / "12-0123abcd.sock"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(stale))
    with opened(folder) as descriptor, pytest.raises(ConnectionRefusedError):
        connect(descriptor, stale.name)
    assert not stale.exists()


def test_other_files_are_not_removed(folder: Path) -> None:
    plain, link = folder / "12-0123abcd.sock", folder / "13-0123abcd.sock"
    plain.touch()
    with listening(folder) as path, opened(folder) as descriptor:
        link.symlink_to(path)
        for name in (plain.name, link.name):
            with pytest.raises(OSError, match="not a socket"):
                connect(descriptor, name)
    assert stat.S_ISREG(plain.lstat().st_mode)
    assert link.is_symlink()
