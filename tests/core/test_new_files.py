"""New files in folders in which another user moves things around while root writes."""

import ast
import multiprocessing
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import gpumon
from gpumon.core import new_files
from gpumon.core.new_files import PrivateDir, new_file, replace_file, temporary_folder
from gpumon.probe.agent.folders import set_mode
from gpumon.probe.attach.script_dir import ScriptDir
from gpumon.probe.attach.target import read_target
from tests.core.test_ownership import needs_root
from tests.limits import file_size_limit

USER = 12345
MAX_SECONDS = 60.0
REPLACED = 5
AGENT_FOLDERS = "probe/agent/folders.py"
"""Runs where gpumon is not installed, and has its own function for modes."""


def become_user() -> None:
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


def sleep_as_user() -> None:
    become_user()
    time.sleep(60)


class Attacked:
    """A folder of another user, which replaces each new folder in it by a link to a folder of root."""

    def __init__(self, root: Path) -> None:
        self.folder, self.victim = root / "home", root / "victim"
        root.chmod(0o755)
        self.folder.mkdir()
        self.victim.mkdir(mode=0o700)
        os.chown(self.folder, USER, USER)

    def attack(self) -> None:
        become_user()
        os.chdir(self.folder)
        number = 0
        while True:
            for entry in os.scandir():
                if not entry.name.startswith("old-") and entry.is_dir(follow_symlinks=False):
                    number += 1
                    with suppress(OSError):
                        Path(entry.name).rename(f"old-{number}")
                        Path(entry.name).symlink_to(self.victim)

    @contextmanager
    def attacker(self) -> Iterator[None]:
        process = multiprocessing.get_context("fork").Process(target=self.attack, daemon=True)
        process.start()
        yield
        assert process.is_alive()
        process.kill()
        process.join()

    @property
    def replaced(self) -> int:
        """How many folders the attacker has replaced."""
        return sum(entry.is_symlink() for entry in os.scandir(self.folder))

    def is_intact(self) -> bool:
        return self.victim.stat().st_uid == 0 and not list(self.victim.iterdir())


@pytest.fixture
def attacked() -> Iterator[Attacked]:
    root = Path(tempfile.mkdtemp(prefix="gpumon-", dir="/tmp"))
    yield Attacked(root)
    shutil.rmtree(root)


@needs_root
def test_root_gives_away_only_what_it_created(attacked: Attacked) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    with attacked.attacker():
        while attacked.replaced < REPLACED and time.monotonic() < deadline:
            with suppress(OSError):  # the folder was replaced before it was opened
                folder = PrivateDir.create(attacked.folder / secrets.token_hex(8))
                folder.write("script.py", b"content", USER)
                folder.give(USER)
                folder.remove()
                folder.close()
        assert attacked.is_intact()
    assert attacked.replaced >= REPLACED


@needs_root
def test_a_script_for_a_process_is_never_in_a_folder_of_another_user(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(attacked.folder))
    assert temporary_folder() == Path("/tmp")
    child = multiprocessing.get_context("fork").Process(target=sleep_as_user, daemon=True)
    child.start()
    while (status := Path(f"/proc/{child.pid}").stat()).st_uid != USER:
        time.sleep(0.01)
    script_dir = ScriptDir(read_target(child.pid or 0))
    try:
        assert script_dir.folder.parent == Path("/tmp")
        statuses = [path.stat() for path in (script_dir.folder, script_dir.script)]
        assert [(item.st_uid, stat.S_IMODE(item.st_mode)) for item in statuses] == [(USER, 0o700), (USER, 0o600)]
        assert status.st_uid == USER
    finally:
        script_dir.close()
        child.kill()
    assert not script_dir.folder.exists()
    assert list(attacked.folder.iterdir()) == []


@needs_root
def test_a_folder_that_members_of_a_group_can_write_is_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert temporary_folder() == tmp_path
    tmp_path.chmod(0o770)
    assert temporary_folder() == Path("/tmp")
    monkeypatch.setattr(new_files, "_SHARED_FOLDER", tmp_path)
    with pytest.raises(PermissionError, match="other users can replace files in"):
        temporary_folder()


def test_a_replaced_folder_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    folder = PrivateDir.create(tmp_path / "folder")
    folder.path.rename(tmp_path / "moved")
    folder.path.symlink_to(other)
    folder.write("script.py", b"content")
    assert folder.read("script.py", 99) == b"content"
    assert (tmp_path / "moved/script.py").read_bytes() == b"content"
    folder.remove()
    folder.close()
    assert list(other.iterdir()) == list((tmp_path / "moved").iterdir()) == []
    with pytest.raises(NotADirectoryError):
        PrivateDir(folder.path)


def test_links_and_pipes_in_place_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    folder = PrivateDir.create(tmp_path / "folder")
    (folder.path / "symbolic").symlink_to(file)
    (folder.path / "hard").hardlink_to(file)
    os.mkfifo(folder.path / "pipe")
    for name in ("symbolic", "hard", "pipe"):
        with pytest.raises(FileExistsError):
            folder.write(name, b"content")
        with pytest.raises(OSError, match=r"regular|symbolic"):
            folder.read(name, 99)
        with pytest.raises(FileExistsError), new_file(folder.path / name):
            pass
        replace_file(folder.path / name, b"new")
    folder.close()
    assert file.read_text() == "mine"


def test_a_file_is_complete_or_not_there(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("old")
    with file_size_limit(1000):
        with pytest.raises(OSError, match="File too large"), new_file(tmp_path / "new") as file:
            file.write(bytes(2000))
        with pytest.raises(OSError, match="File too large"):
            replace_file(old, bytes(2000))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert old.read_text() == "old"


def test_the_agent_sets_the_mode_of_its_own_files_only(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(PermissionError):
        set_mode(str(tmp_path / "link"), 0o700)
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    set_mode(str(target), 0o700)
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


def test_owner_and_mode_are_changed_by_descriptor_only() -> None:
    """A path can be replaced between its creation and such a call."""
    root = Path(gpumon.__file__).parent
    calls = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "chmod" in (text := path.read_text("utf-8")) or "chown" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Attribute, ast.alias))
        and (node.attr if isinstance(node, ast.Attribute) else node.name)
        in {"chmod", "chown", "lchmod", "lchown", "copymode", "copystat"}
    }
    assert calls == {AGENT_FOLDERS}
    assert 'os.chmod(f"/proc/self/fd/{descriptor}", mode)' in (root / AGENT_FOLDERS).read_text("utf-8")
    owners = {path.name for path in root.rglob("*.py") if "fchown(" in path.read_text("utf-8")}
    assert owners == {Path(new_files.__file__).name}
