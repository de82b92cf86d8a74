"""`gpumon attach` as root: no file of another user, and no file of a container, is executed with the rights of root."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError
from gpumon.probe.attach import attach, interpreter
from gpumon.probe.attach.target import Target, read_target
from tests.nvml_mock import compiler

USER = 12345
IMPOSTOR = Path(__file__).with_name("impostor.c").read_text()

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose rights are at stake"),
    pytest.mark.skipif(compiler() is None, reason="needs a C compiler (cc or gcc)"),
]
needs_unshare = pytest.mark.skipif(
    subprocess.run(
        ["unshare", "-Urm", "true"], check=False, capture_output=True, user=USER, group=USER, extra_groups=[]
    ).returncode
    != 0
    if os.geteuid() == 0 and shutil.which("unshare")
    else True,
    reason="needs unshare, and user namespaces for every user",
)


class Hideout:
    """A folder of another user with a program named as an interpreter, and the mark that the program leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.chmod(0o777)
        self._processes: list[subprocess.Popen[str]] = []

    def start(
        self, *, owner: int = USER, namespace: tuple[str, ...] = (), at: str | None = None, is_removed: bool = True
    ) -> Target:
        """Run the program.

        Args:
            owner: The user that runs it.
            namespace: Options of unshare.
            at: Where the folder is mounted in that namespace.
            is_removed: Whether the program removes its own file.
        """
        home = self.folder / "bin"
        home.mkdir()
        seen = Path(at or home)
        program, library = seen / "python3.11", seen / "libpython3.99.so"
        (home / library.name).write_bytes(bytes(4096))
        (self.folder / "impostor.c").write_text(IMPOSTOR)
        defines = {"FOLDER": self.folder, "LIBRARY": library, "PROGRAM": program}
        options = [f'-D{name}="{value}"' for name, value in defines.items()] + [f"-DUNLINK={int(is_removed)}"]
        command = [str(compiler()), *options, "-o", str(home / program.name), str(self.folder / "impostor.c")]
        subprocess.run(command, check=True, capture_output=True)
        for path in (home, *home.iterdir()):
            os.chown(path, owner, owner)
        argv = [str(program)]
        if namespace:
            mount = f"mount --bind {home} {at}; " if at else ""
            argv = ["unshare", *namespace, "sh", "-c", f"{mount}exec {program}"]
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, text=True, user=owner, group=owner, extra_groups=[], cwd="/"
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        return read_target(process.pid)

    def marks(self) -> list[str]:
        """What ran on gpumon's behalf: user, group, number of additional groups, no_new_privs."""
        canary = self.folder / "canary"
        return canary.read_text().splitlines() if canary.exists() else []

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        shutil.rmtree(self.folder)


@pytest.fixture
def hideout(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hideout]:
    hideout = Hideout(Path(tempfile.mkdtemp(prefix="gpumon-", dir="/tmp")))
    monkeypatch.setattr(tempfile, "tempdir", str(hideout.folder))
    yield hideout
    hideout.close()


def refused(target: Target) -> str:
    with pytest.raises(CommandError) as error:
        attach(target.pid, 0.1)
    return str(error.value)


@needs_unshare
@pytest.mark.parametrize("is_removed", [True, False])
def test_a_file_of_a_user_mounted_over_that_of_the_system(hideout: Hideout, is_removed: bool) -> None:
    target = hideout.start(namespace=("-Urm",), at="/usr/bin", is_removed=is_removed)
    assert target.program == "/usr/bin/python3.11"
    assert "runs in another file system" in refused(target)
    assert hideout.marks() == []
    with pytest.raises(CommandError):
        interpreter.remote_exec(target, Path("/dev/null"))
    assert {mark.split()[0] for mark in hideout.marks()} <= {str(USER)}


@needs_unshare
def test_a_file_of_a_container_that_runs_as_root(hideout: Hideout) -> None:
    target = hideout.start(owner=0, namespace=("-m",), at="/usr/bin")
    assert not target.is_foreign
    assert "runs in another file system" in refused(target)
    assert hideout.marks() == []


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_file_of_a_user_runs_as_that_user(hideout: Hideout, is_removed: bool) -> None:
    target = hideout.start(is_removed=is_removed)
    refused(target)
    assert hideout.marks() == [f"{USER} {USER} 0 1"]
