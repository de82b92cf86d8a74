"""The Python stacks of this process: of all threads now, and where no thread can run, those from faulthandler."""

from __future__ import annotations

import _thread
import os
import sys
from contextlib import suppress

from .debug import log_exception
from .no_collections import NoCollections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

MAX_FRAMES = 64
MAX_THREADS = 256
_MAX_NAME_LENGTH = 64
_MAX_SYSTEM_CALL_LENGTH = 64
FIRE_AFTER_SECONDS = 5.0
"""A timer that is not set again for this long writes the stacks."""
SET_AGAIN_SECONDS = 2.5
_LOOK_AGAIN_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 1.0
_MIN_DESCRIPTOR = 500
"""A high number: should the program close all descriptors, its next files get low ones."""


def all_stacks() -> dict[str, Any]:
    """The stacks of all threads but this one: the fields of the answer to ``stacks``."""
    threads = known_threads()
    main = _main_identifier(threads)
    with NoCollections():
        frames = sys._current_frames()
        frames.pop(_thread.get_ident(), None)
        identifiers = sorted(frames, key=lambda identifier: identifier != main)[:MAX_THREADS]
        return {"threads": [_stack(identifier, frames[identifier], threads, main) for identifier in identifiers]}


def _stack(identifier: int, frame: FrameType, threads: dict[int, Any], main: int) -> dict[str, Any]:
    thread, is_main = threads.get(identifier), identifier == main
    native_id = getattr(thread, "_native_id", None) or (os.getpid() if is_main else None)
    return {
        "name": str(getattr(thread, "_name", ""))[:_MAX_NAME_LENGTH],
        "is_main": is_main,
        "native_id": native_id,
        "frames": stack_of(frame),
        "system_call": _system_call(native_id) if is_main else "",
    }


def stack_of(frame: FrameType | None) -> list[list[object]]:
    """The frames of a stack as ``[file, line, function]``, innermost first, at most `MAX_FRAMES`."""
    frames: list[list[object]] = []
    while frame is not None and len(frames) < MAX_FRAMES:
        code = frame.f_code
        frames.append([code.co_filename, frame.f_lineno or 0, code.co_name])
        frame = frame.f_back
    return frames


def known_threads() -> dict[int, Any]:
    """The threads of `threading`, by identifier, without its lock, which the main thread may hold forever."""
    threading = sys.modules.get("threading")
    return dict(getattr(threading, "_active", {}))


def _main_identifier(threads: dict[int, Any]) -> int:
    main = next((key for key, thread in threads.items() if type(thread).__name__ == "_MainThread"), None)
    return 0 if main is None else main


def _system_call(native_id: int | None) -> str:
    """Number and first arguments of the system call in which a thread is: other processes may not read it."""
    path = f"/proc/self/task/{native_id}/syscall"
    with suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        return " ".join(file.read(_MAX_SYSTEM_CALL_LENGTH).split()[:2])
    return ""


class StackTimer:
    """Has faulthandler write the stacks of all threads to a file in memory when the probe's thread cannot run.

    A thread that holds the GIL in C code keeps the probe from answering. The timer of faulthandler needs no GIL; it is
    set again and again, so that it fires only then, and once. There is one timer in a process. A program that has
    imported faulthandler may use it, which cannot be seen, so that the probe leaves it alone from then on.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None
        self._module: Any = None
        self._next_set = 0.0
        self._has_failed = False
        self._is_set = False
        self._setting = _thread.allocate_lock()

    def facts(self) -> dict[str, Any] | None:
        """Where a client finds the stacks, for the message ``hello``; None if there are none."""
        if self._has_failed or not self._open():
            return None
        return {"descriptor": self._descriptor, "main_thread": _main_identifier(known_threads())}

    def keep(self, now: float) -> float:
        """Set the timer again if that is due and the program is distributed.

        Args:
            now: Monotonic seconds.

        Returns:
            When to call this next.
        """
        if now < self._next_set:
            return self._next_set
        is_distributed = _is_distributed()
        self._next_set = now + (SET_AGAIN_SECONDS if is_distributed else _LOOK_AGAIN_SECONDS)
        if is_distributed and not self._has_failed and self._setting.acquire(False):
            try:
                self._set()
            except Exception:
                self._has_failed = True
                log_exception()
            finally:
                self._setting.release()
        return self._next_set

    def pause(self) -> None:
        """Cancel the timer until `resume`: a child that is forked while it is set would wait for it forever at exit."""
        self._setting.acquire(timeout=_MAX_PAUSE_SECONDS)
        self._cancel()

    def resume(self) -> None:
        """Let `keep` set the timer again."""
        with suppress(RuntimeError):  # another thread forks too
            self._setting.release()

    def close(self) -> None:
        """Cancel the timer and close the file."""
        self._cancel()
        self.abandon()

    def _cancel(self) -> None:
        """Cancel the timer, unless the program may have set its own since."""
        if self._is_set and "faulthandler" not in sys.modules:
            self._module.cancel_dump_traceback_later()
        self._is_set = False

    def abandon(self) -> None:
        """Close the file in a forked child, which has no timer."""
        self._is_set = False
        if self._is_intact():
            os.close(self._descriptor)
        self._descriptor, self._has_failed = -1, True

    def _set(self) -> None:
        if "faulthandler" in sys.modules or not self._open():
            self._has_failed = True
            return
        if os.fstat(self._descriptor).st_size:
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._is_set = True
        self._module.dump_traceback_later(FIRE_AFTER_SECONDS, file=self._descriptor)

    def _open(self) -> bool:
        """Create the file, and load faulthandler without leaving it in `sys.modules`; return whether there is one."""
        if self._descriptor >= 0:
            return self._is_intact()
        is_gil_enabled = getattr(sys, "_is_gil_enabled", None)
        if is_gil_enabled is not None and not is_gil_enabled():
            return False
        try:
            import fcntl
            from importlib.machinery import BuiltinImporter
            from importlib.util import module_from_spec

            spec = None if "faulthandler" in sys.modules else BuiltinImporter.find_spec("faulthandler")
            if spec is None or not hasattr(os, "memfd_create"):
                return False
            self._module = module_from_spec(spec)
            BuiltinImporter.exec_module(self._module)
            sys.modules.pop("faulthandler", None)  # Python 3.8 and 3.9 put it there
            descriptor = os.memfd_create("gpumon-stacks")
            try:
                self._descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _MIN_DESCRIPTOR)
            finally:
                os.close(descriptor)
        except (OSError, ImportError):
            log_exception()
            return False
        status = os.fstat(self._descriptor)
        self._identity = status.st_dev, status.st_ino
        return True

    def _is_intact(self) -> bool:
        """Whether the descriptor is still that of the file: a program may close all descriptors."""
        with suppress(OSError):
            if self._descriptor >= 0:
                status = os.fstat(self._descriptor)
                return (status.st_dev, status.st_ino) == self._identity
        return False


def _is_distributed() -> bool:
    """Whether the program has made its process group."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    return bool(getattr(module, "_pg_map", None))
