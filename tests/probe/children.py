"""Programs with a probe in them: real processes, with a stand-in for torch, under any Python."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from gpumon.cli.watch import watched_environment

FAKE_TORCH = Path(__file__).with_name("fake_torch")
PATIENCE = 20.0


@cache
def pythons() -> list[str]:
    """The interpreters to try: this one, then those on PATH and in GPUMON_TEST_PYTHONS, the oldest first.

    None is started, since every worker of pytest asks; a script may be a shim for a version that is not there.
    """
    names = [f"python3.{minor}" for minor in range(8, 15) if minor != sys.version_info.minor]
    programs = [path for path in map(shutil.which, names) if path and _is_program(path)]
    given = filter(None, map(shutil.which, os.environ.get("GPUMON_TEST_PYTHONS", "").split(os.pathsep)))
    return list(dict.fromkeys((sys.executable, *programs, *given)))


def python2() -> str | None:
    """A Python 2.7, if there is one on PATH."""
    path = shutil.which("python2.7")
    return path if path and _is_program(path) else None


def _is_program(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(2) != b"#!"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a program that is watched; its sockets and files are in the folder."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("GPUMON_", "PYTHON", "XDG_"))}
    own = {
        "GPUMON_PROBE_DIR": str(folder / "sockets"),
        "GPUMON_PROBE_DEBUG": str(folder / "complaints"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(FAKE_TORCH),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return watched_environment({**base, **own, **more}, has_recorder=False)


def complaints(folder: Path) -> str:
    """The exceptions in the probe, except those of clients that disconnect."""
    path = folder / "complaints"
    return path.read_text() if path.exists() else ""


def sockets(folder: Path) -> list[Path]:
    return sorted((folder / "sockets").glob("*.sock"))


class Probe:
    """A connection to a program's probe."""

    def __init__(self, path: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(PATIENCE)
        self.connection.connect(str(path))
        self._lines = self.connection.makefile("rb")

    def line(self) -> dict[str, Any]:
        """The next line."""
        text = self._lines.readline()
        assert text, "the probe has hung up"
        message: dict[str, Any] = json.loads(text)
        return message

    def until(self, event: str) -> dict[str, Any]:
        """The next line of a kind."""
        return next(message for message in iter(self.line, None) if message["event"] == event)

    def ask(self, what: str, **more: object) -> dict[str, Any]:
        """The answer; a probe that rests is asked again."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.send({"ask": what, "id": 1, **more})
            answer = self.until("answer")
            if "in a moment" not in answer["reason"]:
                return answer
            time.sleep(0.05)
        raise AssertionError("no answer")

    def send(self, request: object) -> None:
        self.connection.sendall(json.dumps(request).encode() + b"\n")

    def close(self) -> None:
        self._lines.close()
        self.connection.close()


class Program:
    """A program that runs, with its standard streams."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.probes: list[Probe] = []

    def say(self, text: str) -> None:
        """Lets it go on from where it reads a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def probe(self, pid: int | None = None) -> Probe:
        """A connection to its probe, or that of its child, which may not be there yet."""
        self.probes.append(Probe(self.socket(pid)))
        return self.probes[-1]

    def socket(self, pid: int | None = None) -> Path:
        wanted = self.process.pid if pid is None else pid
        path: Path = waited(
            lambda: next((socket for socket in sockets(self.folder) if socket.name.startswith(f"{wanted}-")), None)
        )
        return path

    def end(self) -> tuple[int, str, str]:
        """Exit code, and what it printed."""
        out, err = self.process.communicate("", PATIENCE)
        return self.process.returncode, out, err


def running(folder: Path, code: str, *, python: str = sys.executable, **more: str) -> AbstractContextManager[Program]:
    """A program."""
    process = subprocess.Popen(
        [python, "-c", code],
        env=environment(folder, **more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    return connected(process, folder)


@contextmanager
def connected(process: "subprocess.Popen[str]", folder: Path) -> Iterator[Program]:
    """A program that was started; in the end it is killed if it still runs, and the connections to it are closed."""
    with process:
        program = Program(process, folder)
        try:
            yield program
        finally:
            for probe in program.probes:
                probe.close()
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def waited(look: Any) -> Any:  # noqa: ANN401 - whatever is waited for
    """What is there as soon as it is there."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        result = look()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError("it did not come")
