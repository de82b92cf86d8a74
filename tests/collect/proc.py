"""A /proc of a test's own."""

import os
from pathlib import Path

from gpumon.collect.processes import INITIAL_PID_NAMESPACE

STATE, START = 0, 19


def add_process(
    proc: Path,
    pid: int,
    command: bytes = b"python\0train.py\0",
    comm: bytes = b"python",
    parent: int = 1,
    state: str = "S",
    cpu_ticks: int = 0,
    start_ticks: int = 1,
    pages: int = 1000,
    uid: int | None = None,
) -> Path:
    """Writes what is read of a process; again for the same PID to change it."""
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    set_pid_namespace(proc)
    fields = ["0"] * 50
    fields[STATE], fields[1], fields[11] = state, str(parent), str(cpu_ticks)
    fields[START], fields[21] = str(start_ticks), str(pages)
    stat = f"{pid} (".encode() + comm + f") {' '.join(fields)}\n".encode()
    (folder / "stat").write_bytes(stat)
    (folder / "cmdline").write_bytes(command)
    owner = os.getuid() if uid is None else uid
    (folder / "status").write_bytes(b"Name:\t" + comm + f"\nUid:\t0\t{owner}\t0\t{owner}\n".encode())
    (folder / "comm").write_bytes(comm + b"\n")
    add_thread(folder, pid, stat)
    return folder


def set_pid_namespace(proc: Path, link: str = INITIAL_PID_NAMESPACE, own_pids: str = "7") -> None:
    """Sets the PID namespace of this process, if it is not set yet."""
    if not (proc / "self").exists():
        (proc / "self" / "ns").mkdir(parents=True)
        (proc / "self" / "ns" / "pid").symlink_to(link)
        (proc / "self" / "status").write_text(f"Name:\tpython\nNSpid:\t{own_pids}\n")


def add_thread(folder: Path, thread: int, stat: bytes) -> None:
    """Writes the state of one thread."""
    task = folder / "task" / str(thread)
    task.mkdir(parents=True, exist_ok=True)
    (task / "stat").write_bytes(stat)
