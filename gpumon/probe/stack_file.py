"""Reads the stacks that faulthandler wrote in a process whose probe cannot answer, because a C call holds the GIL."""

import os
import re
from pathlib import Path
from typing import Final

from gpumon.core.allocator import ProbedProcess
from gpumon.core.stacks import MAX_FRAMES, StackFrame
from gpumon.core.text import safe_text

_MAX_BYTES: Final = 1 << 20
_NAME: Final = "gpumon-stacks"
_THREAD: Final = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def read_stack(process: ProbedProcess, proc: Path = Path("/proc")) -> tuple[StackFrame, ...]:
    """The stack of the main thread, innermost first; empty if none was written, which is so while the probe can run.

    Args:
        process: The process.
        proc: Root of the proc file system.
    """
    if process.stack_descriptor is None:
        return ()
    path = proc / str(process.pid) / "fd" / str(process.stack_descriptor)
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if _NAME not in os.readlink(f"/proc/self/fd/{file.fileno()}"):  # noqa: PTH115 - a file that has no path
                return ()
            text = file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ()
    return parse_stacks(text).get(process.main_thread_id or 0, ())


def parse_stacks(text: str) -> dict[int, tuple[StackFrame, ...]]:
    """Parse what faulthandler writes.

    Returns:
        The frames of each thread, innermost first, by Python's identifier of the thread.
    """
    stacks: dict[int, list[StackFrame]] = {}
    frames: list[StackFrame] = []
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            frames = stacks.setdefault(int(thread[1], 16), [])
        elif (frame := _FRAME.match(line)) and len(frames) < MAX_FRAMES:
            frames.append(StackFrame(safe_text(frame[1], 500), int(frame[2][:9]), safe_text(frame[3], 200)))
    return {identifier: tuple(stack) for identifier, stack in stacks.items()}
