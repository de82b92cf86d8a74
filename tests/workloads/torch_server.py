"""A server that has imported torch and forks for every program: an import costs two seconds, and a fork nothing.

    python torch_server.py SOCKET PYTHON OWNER

PYTHON is how programs name their interpreter, ``sys.executable``; with the process OWNER, the server ends.

`CLIENT` is the text of that interpreter: a program that passes its arguments, environment and files on to the server.
"""

import atexit
import fcntl
import gc
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

CLIENT = """#!{python} -IS
import _signal, _socket, array, marshal, os, sys

connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
connection.connect({address!r})
fds = [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd != connection.fileno() and os.path.exists(f"/proc/self/fd/{{fd}}")]
program = {{"argv": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(), "fds": fds}}
connection.sendmsg([marshal.dumps(program)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds))])
os.closerange(3, connection.fileno())
pid = int(connection.recv(100))
for number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(number, lambda number, _: os.kill(pid, number))
code = int(connection.recv(100))
if code < 0:
    if -code != _signal.SIGKILL:
        _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""  # noqa: E501
"""Without the modules json, signal and socket, it starts in half the time."""
_FIRST_SPARE_FD = 200


def main(address: str, python: str, owner: str) -> None:
    """Serves as long as its owner lives."""
    import torch  # noqa: TID251  # in a separate process

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # the first optimizer imports as much again
    gc.freeze()
    owner_ended: int | socket.socket = os.pidfd_open(int(owner))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while owner_ended not in select.select([listener, owner_ended], [], [])[0]:
        connection, _ = listener.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            message, fds, _, _ = socket.recv_fds(connection, 1 << 20, 100)
            program = marshal.loads(message)
            pid = os.fork()
            if pid:
                _supervise(connection, pid)
            _run_to_its_end(program, fds, python)
        connection.close()
    shutil.rmtree(Path(address).parent, ignore_errors=True)
    os._exit(0)


def _supervise(connection: socket.socket, pid: int) -> None:
    """Reports the end of a program to its client, and kills the program when the client has gone."""
    connection.send(str(pid).encode())
    ended = os.pidfd_open(pid)
    if ended not in select.select([connection.fileno(), ended], [], [])[0]:
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        connection.send(str(code).encode())
    finally:
        os._exit(0)


def _run_to_its_end(program: dict[str, Any], fds: list[int], python: str) -> NoReturn:
    """Ends as an interpreter does, but leaves the memory to the kernel: to free torch piece by piece takes long."""
    code: object = None
    try:
        _run(program, fds, python)
    except SystemExit as end:
        code = end.code
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            code = -signal.SIGINT
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        file.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run(program: dict[str, Any], fds: list[int], python: str) -> None:
    """Runs a program as an interpreter does."""
    os.setsid()
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_SPARE_FD) for fd in fds]
    os.closerange(0, _FIRST_SPARE_FD)
    for fd, wanted in zip(spare, program["fds"], strict=True):
        os.dup2(fd, wanted)
    os.closerange(_FIRST_SPARE_FD, _FIRST_SPARE_FD + len(spare))
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    sys.executable = python
    first, *others = program["argv"]
    if first == "-c":
        sys.argv, sys.path[0] = ["-c", *others[1:]], ""
        main_module = sys.modules["__main__"] = ModuleType("__main__")
        exec(others[0], main_module.__dict__)
    elif first == "-m":
        sys.argv, sys.path[0] = others, ""
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [first, *others], str(Path(first).absolute().parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
