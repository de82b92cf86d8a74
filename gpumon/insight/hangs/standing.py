"""Where the main thread of a rank stands, and what it does there."""

from collections.abc import Callable
from enum import Enum
from typing import Final

from gpumon.core.ranks import HangKind, RankEvidence
from gpumon.core.stacks import StackFrame
from gpumon.core.step_classes import COMPILATION, DATA
from gpumon.core.units import signal_name
from gpumon.stacks.classify import class_within, collective_function, is_in
from gpumon.stacks.tables import LOCK_MODULES, POLLING_MODULES, SERVER_MODULES, line_text, program_frame

_MIN_BUSY_SHARE: Final = 0.3
_MIN_WORKING_SHARE: Final = 0.05
"""On a host whose cores are taken a thread gets little; one that asks for something again and again uses less."""
_MIN_BYTES_PER_SECOND: Final = 1e6
_MIN_FUNCTIONS: Final = 4
"""A thread is seen in this many functions within some seconds only if it makes progress."""


class Standing(str, Enum):
    """What a main thread does."""

    ENDED = "ended"
    STOPPED = "stopped"
    HOLDS_GIL = "holds_gil"
    IN_DISK = "disk"
    IN_CALL = "call"
    SLEEPS = "sleeps"
    WAITS_FOR_DATA = "data"
    IN_COLLECTIVE = "collective"
    WAITS_FOR_LOCK = "lock"
    COMPUTES = "computes"
    UNKNOWN = "unknown"


_KINDS: Final = {
    Standing.ENDED: HangKind.DEAD,
    Standing.STOPPED: HangKind.STOPPED,
    Standing.HOLDS_GIL: HangKind.GIL_HELD,
    Standing.IN_DISK: HangKind.BLOCKED,
    Standing.IN_CALL: HangKind.BLOCKED,
    Standing.WAITS_FOR_DATA: HangKind.WAITING_FOR_DATA,
    Standing.WAITS_FOR_LOCK: HangKind.WAITING_FOR_LOCK,
}
_BLOCKING: Final = {
    call: verb
    for verb, calls in (
        ("reads from", "read readv pread64"),
        ("writes to", "write writev"),
        ("receives from", "recvfrom recvmsg"),
        ("sends to", "sendto sendmsg"),
        ("waits for a connection to", "accept accept4"),
        ("connects to", "connect"),
        ("waits for the lock on", "flock fcntl"),
        ("flushes", "fsync fdatasync"),
        ("opens", "openat"),
        ("waits for a child process", "wait4 waitid"),
    )
    for call in calls.split()
}
_POLLING: Final = frozenset({"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"})


def standing_of(rank: RankEvidence) -> Standing:
    """What the main thread of a rank does."""
    return next((standing for standing, is_so in _CHECKS if is_so(rank)), Standing.UNKNOWN)


def _is_in_call(rank: RankEvidence) -> bool:
    is_polling = rank.system_call in _POLLING and is_in(rank.stack[:3], POLLING_MODULES)
    return rank.system_call in _BLOCKING or is_polling


def kind_of(standing: Standing) -> HangKind:
    """The kind of a hang that a rank causes which stands so."""
    return _KINDS.get(standing, HangKind.NOT_ENTERED)


def is_elsewhere(rank: RankEvidence) -> bool:
    """Whether the main thread certainly does not wait for a collective, whatever is pending."""
    standing = standing_of(rank)
    waits = {Standing.UNKNOWN, Standing.COMPUTES, Standing.WAITS_FOR_LOCK, Standing.IN_COLLECTIVE}
    return standing not in waits and collective_function(rank.stack) == ""


def is_working(rank: RankEvidence) -> bool:
    """Whether a rank that enters no collective makes progress: it writes or reads, or its stack keeps changing."""
    if (rank.io_bytes_per_second or 0.0) >= _MIN_BYTES_PER_SECOND:
        return True
    uses_cpu = (rank.cpu_share or 0.0) >= _MIN_WORKING_SHARE
    return uses_cpu and (class_within(rank.stack) == COMPILATION or (rank.functions_count or 0) >= _MIN_FUNCTIONS)


def is_serving(rank: RankEvidence) -> bool:
    """Whether the main thread waits for a request, as that of a server without work does."""
    waits_for_any = rank.system_call in _POLLING and is_in(rank.stack, SERVER_MODULES)
    return rank.system_call in {"accept", "accept4"} or waits_for_any


def is_waiting_for_data(rank: RankEvidence) -> bool:
    """Whether the main thread waits for its DataLoader."""
    if rank.stack:
        return class_within(rank.stack) == DATA
    return rank.progress is not None and rank.progress.waiting_for_data_since_monotonic is not None


def line_of(rank: RankEvidence) -> str:
    """The innermost line of the user's code, such as ``train.py:214``; empty if the stack is unknown."""
    return line_text(frame_of(rank))


def frame_of(rank: RankEvidence) -> StackFrame | None:
    """The innermost frame of the user's code, or of a stack without one the innermost frame."""
    return program_frame(rank.stack) or next(iter(rank.stack), None)


_CHECKS: Final[tuple[tuple[Standing, Callable[[RankEvidence], bool]], ...]] = (
    (Standing.ENDED, lambda rank: rank.exited or rank.state_code in {"Z", "X"}),
    (Standing.STOPPED, lambda rank: rank.state_code in {"T", "t"}),
    (Standing.HOLDS_GIL, lambda rank: rank.gil_is_held),
    (Standing.IN_DISK, lambda rank: rank.state_code == "D"),
    (Standing.WAITS_FOR_DATA, is_waiting_for_data),
    (Standing.IN_CALL, _is_in_call),
    (Standing.SLEEPS, lambda rank: rank.system_call in {"nanosleep", "clock_nanosleep"}),
    (Standing.IN_COLLECTIVE, lambda rank: collective_function(rank.stack) != ""),
    (Standing.WAITS_FOR_LOCK, lambda rank: rank.system_call == "futex" or is_in(rank.stack[:1], LOCK_MODULES)),
    (Standing.COMPUTES, lambda rank: rank.state_code == "R" or (rank.cpu_share or 0.0) >= _MIN_BUSY_SHARE),
)
"""What shows each standing, the surest first."""


def description(rank: RankEvidence) -> str:
    """What a rank does, as a clause whose subject is the rank."""
    standing, line = standing_of(rank), line_of(rank)
    place = f" in {line}" if line else ""
    if standing is Standing.ENDED:
        return f"its process has ended{_reason(rank.exit_status)}"
    if standing is Standing.STOPPED:
        return f"it is stopped (state {rank.state_code}){place}"
    if standing is Standing.HOLDS_GIL:
        return f"C code holds the GIL{place}"
    if standing is Standing.IN_DISK:
        target = f" on {rank.system_call_target}" if rank.system_call_target else ""
        return f"it waits for a disk or a driver{target} (state D){place}"
    if standing is Standing.IN_CALL:
        return f"it {_call(rank)}{place}"
    verbs = {
        Standing.SLEEPS: "sleeps",
        Standing.WAITS_FOR_DATA: "waits for its DataLoader",
        Standing.IN_COLLECTIVE: f"is in {collective_function(rank.stack)}",
        Standing.WAITS_FOR_LOCK: "waits for a lock or another thread",
        Standing.COMPUTES: "computes",
    }
    return f"it {verbs.get(standing, 'is')}{place or ' at an unknown line'}"


def _call(rank: RankEvidence) -> str:
    verb = _BLOCKING.get(rank.system_call, "waits for")
    if rank.system_call in {"wait4", "waitid"}:
        return verb
    return f"{verb} {rank.system_call_target or 'a file or socket'}"


def _reason(status: int | None) -> str:
    if status is None:
        return ""
    if status >= 0:
        return f" with exit code {status}"
    return f" by {signal_name(-status)}"
