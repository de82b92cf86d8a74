"""Root uses no file that another user can change; an ordinary user only files of that user and of root."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.core import ownership
from gpumon.core.ownership import ownership_problem, root_ownership_problem

OTHER = 4242
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that belongs to the user of the tests."""
    file = tmp_path / "folder" / "file"
    file.parent.mkdir()
    file.touch(mode=0o644)
    return file


def reason(file: Path) -> str:
    problem = ownership_problem(file)
    assert problem is None or problem.remedy
    return "" if problem is None else problem.reason


def give_away(path: Path) -> None:
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def test_own_and_missing_files_are_used(file: Path) -> None:
    assert reason(file) == reason(file.with_name("missing")) == reason(Path("/usr/bin/env")) == ""


@needs_root
@pytest.mark.parametrize("name", ["", "..", "missing"], ids=["file", "folder", "missing file"])
def test_root_refuses_what_another_user_controls(file: Path, name: str) -> None:
    if name == "":
        give_away(file)
        assert reason(file) == f"The file belongs to another user (UID {OTHER})."
    else:
        give_away(file.parent)
        path = file if name == ".." else file.with_name(name)
        assert reason(path) == f"The folder {file.parent} belongs to another user (UID {OTHER})."


@needs_root
@pytest.mark.parametrize(
    "lead",
    [
        lambda link, folder, file: link.symlink_to(file),
        lambda link, folder, file: link.symlink_to(os.path.relpath(file, link.parent)),
        lambda link, folder, file: ((folder / "bin").symlink_to(file.parent), link.symlink_to(folder / "bin/file")),
    ],
    ids=["absolute", "relative", "a link to a link"],
)
def test_root_refuses_a_way_through_the_folder_of_another_user(
    file: Path, tmp_path: Path, lead: Callable[[Path, Path, Path], None]
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    link = (folder if lead.__code__.co_names[0] == "symlink_to" else tmp_path) / "link"
    lead(link, folder, file)
    assert link.exists()
    assert reason(link) == ""
    give_away(folder)
    assert reason(link) == f"The folder {folder} belongs to another user (UID {OTHER})."


@needs_root
def test_root_refuses_a_link_of_another_user(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    give_away(link)
    assert reason(link) == f"The link {link} belongs to another user (UID {OTHER})."


@needs_root
def test_root_refuses_what_every_user_can_write(file: Path) -> None:
    file.parent.chmod(0o777)
    assert reason(file) == f"The folder {file.parent} can be written by every user."
    file.parent.chmod(0o1777)
    assert reason(file) == "", "only the owner of a file removes it from a folder such as /tmp"
    file.chmod(0o666)
    assert reason(file) == "The file can be written by every user."


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert reason(tmp_path / "a") == ""


def test_another_user_uses_own_files_and_those_of_root(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert reason(Path("/usr/bin/env")) == ""
    if owner:
        assert reason(file) == f"The file belongs to another user (UID {owner})."
    assert root_ownership_problem(file) is None


@needs_root
def test_in_a_user_namespace_files_from_outside_belong_to_nobody(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(file, 65534, -1)
    assert "UID 65534" in reason(file)
    (tmp_path / "uid_map").write_text("         0       1000          1\n")
    monkeypatch.setattr(ownership, "_UID_MAP", tmp_path / "uid_map")
    assert reason(file) == ""
