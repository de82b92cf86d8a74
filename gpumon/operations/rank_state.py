"""What /proc shows of the main thread of a rank: its state, its system call, and what it has used."""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.procfs import read_same_stat, read_small, read_stat, read_thread_times
from gpumon.core.text import safe_bytes, safe_text

_FREQUENCY: Final = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
_HAS_FREQUENCY: Final = Path(_FREQUENCY.format(0)).exists()
_PATH_LENGTH: Final = 120
_MAX_SOCKETS_BYTES: Final = 4 << 20
_CALLS_X86: Final = {
    0: "read", 1: "write", 7: "poll", 17: "pread64", 19: "readv", 20: "writev", 23: "select", 35: "nanosleep",
    42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl",
    73: "flock", 74: "fsync", 75: "fdatasync", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid",
    257: "openat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4",
}  # fmt: skip
_CALLS_ARM: Final = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "readv", 66: "writev",
    67: "pread64", 72: "pselect6", 73: "ppoll", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex",
    101: "nanosleep", 115: "clock_nanosleep", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
    211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4",
}  # fmt: skip
_CALLS: Final = {"x86_64": _CALLS_X86, "aarch64": _CALLS_ARM}.get(platform.machine(), {})
_WITH_DESCRIPTOR: Final = frozenset({
    "read", "write", "pread64", "readv", "writev", "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg",
    "recvmsg", "fcntl", "flock", "fsync", "fdatasync",
})  # fmt: skip
_BY_KERNEL_FUNCTION: Final = {
    "futex": "futex", "hrtimer_nanosleep": "clock_nanosleep", "do_nanosleep": "clock_nanosleep", "pipe_read": "read",
    "anon_pipe_read": "read", "n_tty_read": "read", "unix_stream_read": "recvfrom", "sk_wait_data": "recvfrom",
    "wait_woken": "recvfrom", "do_wait": "wait4", "flock": "flock", "locks_lock": "flock", "ep_poll": "epoll_wait",
    "do_select": "select", "poll_schedule_timeout": "poll", "do_poll": "poll",
}  # fmt: skip
"""Where the system call may not be read: what begins so in ``wchan`` is such a call."""
_KERNEL_TARGETS: Final = {
    "pipe_read": "a pipe",
    "anon_pipe_read": "a pipe",
    "n_tty_read": "the terminal",
    "unix_stream_read_generic": "a Unix socket",
}


class RankState(NamedTuple):
    """A main thread at one moment.

    Attributes:
        state_code: Its state, such as ``S``; empty if the process is gone.
        kernel_function: Where it sleeps in the kernel.
        system_call: Its system call, by name.
        target: What the call is about.
        cpu_seconds: CPU time that it has used.
        io_bytes: Bytes that the process has read and written; None if hidden.
        core_wait_seconds: Time in which it could run and had no core; None if the kernel does not count it.
        cpu_hertz: Clock of the core on which it ran last; None on hosts that do not report it.
        exit_status: Exit code of a process that has ended and was not waited for, or minus its signal.
    """

    state_code: str = ""
    kernel_function: str = ""
    system_call: str = ""
    target: str = ""
    cpu_seconds: float = 0.0
    io_bytes: int | None = None
    core_wait_seconds: float | None = None
    cpu_hertz: float | None = None
    exit_status: int | None = None


def read_state(pid: int, start_ticks: int, call_text: str = "", proc: Path = Path("/proc")) -> RankState:
    """Read the state of the main thread of a process.

    ``start_ticks`` distinguishes it from a later process with its PID. ``call_text`` is the system call as the process
    itself has read it, where this process may not.
    """
    folder = f"{proc}/{pid}"
    task = f"{folder}/task/{pid}"
    try:
        stat = read_same_stat(folder, start_ticks)
        if stat.has_ended:
            return RankState("Z", exit_status=os.waitstatus_to_exitcode(stat.wait_status))
        stat = read_stat(task)
    except OSError:
        return RankState()
    function = _text(f"{task}/wchan")
    function = "" if function == "0" else function
    name, target = _system_call(folder, _text(f"{task}/syscall") or call_text)
    if not name:
        name = next((call for start, call in _BY_KERNEL_FUNCTION.items() if function.startswith(start)), "")
        target = _KERNEL_TARGETS.get(function, "")
    return RankState(
        state_code=stat.state,
        kernel_function=function,
        system_call=name,
        target=target,
        cpu_seconds=stat.cpu_seconds,
        io_bytes=_io_bytes(folder),
        core_wait_seconds=_core_wait_seconds(task),
        cpu_hertz=_clock_hertz(stat.last_core) if _HAS_FREQUENCY else None,
    )


def _core_wait_seconds(task: str) -> float | None:
    with suppress(OSError):
        return read_thread_times(task).queued_seconds
    return None


def _clock_hertz(core: int) -> float | None:
    """The clock of a core, which the kernel reports in kHz."""
    with suppress(OSError, ValueError):
        return int(read_small(_FREQUENCY.format(core))) * 1e3
    return None


def _text(path: str) -> str:
    try:
        return safe_bytes(read_small(path).strip())
    except OSError:
        return ""


def _system_call(folder: str, text: str) -> tuple[str, str]:
    """The name of the call in a line of ``syscall``, and what it is about."""
    number, *arguments = text.split() or [""]
    name = _CALLS.get(int(number), "") if number.isdecimal() else ""
    if name in _WITH_DESCRIPTOR and arguments:
        try:
            return name, _target(folder, int(arguments[0], 16))
        except ValueError:
            return name, ""
    return name, ""


def _target(folder: str, descriptor: int) -> str:
    """What a descriptor is."""
    try:
        link = str(Path(f"{folder}/fd/{descriptor}").readlink())
    except OSError:
        return ""
    suffix = " (standard input)" if descriptor == 0 else ""
    if link.startswith("pipe:"):
        return "a pipe" + suffix
    if link.startswith("socket:["):
        return _socket_text(folder, link[len("socket:[") : -1])
    if link.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return "the terminal"
    return safe_text(link, _PATH_LENGTH)


@lru_cache(maxsize=1024)
def _socket_text(folder: str, inode: str) -> str:
    """Where a socket leads; searched once, because the table of a host with many connections takes 30 ms."""
    for table in ("tcp", "tcp6"):
        try:
            with Path(f"{folder}/net/{table}").open("rb") as file:
                lines = file.read(_MAX_SOCKETS_BYTES).decode(errors="replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[9] == inode:
                return f"a socket to {_address(fields[2])}"
    return "a Unix socket"


def _address(text: str) -> str:
    """An address such as ``0100007F:1F90``, as people write it."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8)]
    raw = b"".join(words)
    if raw.startswith(b"\0" * 10 + b"\xff\xff"):
        raw = raw[12:]
    host = ".".join(map(str, raw)) if len(raw) == 4 else f"[{raw.hex(':', 2)}]"
    return f"{host}:{int(port, 16)}"


def _io_bytes(folder: str) -> int | None:
    values: Mapping[bytes, bytes] = {}
    try:
        pairs = (line.partition(b": ") for line in read_small(f"{folder}/io").splitlines())
        values = {name: value for name, _, value in pairs}
        return int(values[b"rchar"]) + int(values[b"wchar"])
    except (OSError, KeyError, ValueError):
        return None
