"""Starts gpumon by forking a process that has imported it: the import takes longer than most commands do.

What the child inherits is what a shell would give it: arguments, variables, working directory, standard streams, and
signals. A new interpreter is started where the variables change the interpreter itself, such as its encoding.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from gpumon.streams import child
from tests import forked_collector

_START_VARIABLES: Final = ("LC_", "LANG", "PYTHON")
"""Beginnings of the variables that an interpreter reads when it starts."""
_FOLLOWED: Final = frozenset({"PYTHONPATH"})
"""Those that a fork obeys as a new interpreter does."""
_MAX_REQUEST: Final = 1 << 18
_PACKAGES: Final = ("cli", "core", "errors", "health", "insight", "operations", "probe", "session", "streams")


class ForkServer:
    """The process that forks, started at the first use, one for each process of the tests."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def serves(self, variables: Mapping[str, str]) -> bool:
        """Whether a fork of the server is what a new interpreter with these variables would be."""
        return start_variables(variables) == start_variables(os.environ)

    def start(self, argv: Sequence[str], variables: Mapping[str, str], files: Sequence[int]) -> socket.socket:
        """Start a command.

        Args:
            argv: Its arguments.
            variables: Its environment.
            files: Its standard input, output and error.

        Returns:
            A socket that receives the wait status when the command has ended; its end without one is a failure.
        """
        ours, theirs = socket.socketpair()
        request = json.dumps({"argv": list(argv), "variables": dict(variables), "folder": str(Path.cwd())}).encode()
        assert len(request) < _MAX_REQUEST
        with theirs:
            socket.send_fds(self._requests(), [request], [*files, theirs.fileno()])
        return ours

    def _requests(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_REQUEST)
            with theirs:
                command = [sys.executable, "-m", "tests.cli.fork_server", str(theirs.fileno())]
                subprocess.run(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], check=True)
        return self._socket


def start_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that make an interpreter another one."""
    names = [name for name in variables if name.startswith(_START_VARIABLES) and name not in _FOLLOWED]
    return {name: variables[name] for name in names}


def serve(requests: socket.socket) -> None:
    """Fork for each request, until the tests have ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # each watcher of a command is its own
    gc.freeze()
    while True:
        data, files, _, _ = socket.recv_fds(requests, _MAX_REQUEST, 4)
        if not data:
            return
        request = json.loads(data)
        if "config" in request["argv"]:
            importlib.import_module("gpumon.ui.app")  # for its keys; a second, which other commands need not wait
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            vars(child)["subprocess"] = forked_collector.replaced()
            _watch(request, files)
        for file in files:
            os.close(file)


def _watch(request: dict[str, object], files: Sequence[int]) -> NoReturn:
    """Fork the command, wait for it and send its status."""
    pid = os.fork()
    if pid == 0:
        _become(request, files)
    for file in files[:3]:
        os.close(file)
    with socket.socket(fileno=files[3]) as answer:
        answer.sendall(b"%d\n" % pid)
        answer.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _become(request: dict[str, object], files: Sequence[int]) -> NoReturn:
    """The command itself: it starts with nothing but what its request says."""
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    os.environ.clear()
    os.environ.update(request["variables"])  # type: ignore[call-overload]
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *sys.path]
    time.tzset()
    os.chdir(str(request["folder"]))
    sys.modules["__main__"].__package__ = None  # else click names the module of this server
    sys.argv = ["gpumon", *request["argv"]]  # type: ignore[misc]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as the interpreter opens them
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    code: object = 1
    try:
        from gpumon.cli import main

        main()
    except SystemExit as end:
        code = end.code
    finally:
        import atexit
        import threading

        threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as an interpreter does at its end
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _import_all() -> None:
    """Import what commands import late, as each of them would."""
    for room in _PACKAGES:
        package = importlib.import_module(f"gpumon.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


if __name__ == "__main__":
    _import_all()
    if os.fork():
        os._exit(0)  # the server is no child of the tests: some look for what they left
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)
