"""Python stacks of a process: of its threads at one moment, and of its main thread sampled over a time."""

from dataclasses import dataclass
from typing import Final

from gpumon.core.json_fields import Json, as_count, as_flag, as_list, as_number, as_text, required

MAX_FRAMES: Final = 64
"""Limit on the frames of a stack; the outermost ones are left out."""
MAX_THREADS: Final = 256
MAX_SAMPLED_STACKS: Final = 500


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A frame of a Python stack.

    Attributes:
        file: Path of the source file.
        line: Line number in the file.
        function: Name of the function.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f'File "{self.file}", line {self.line}, in {self.function}'


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """The Python stack of a thread.

    Attributes:
        name: Name of the thread, or an empty string for one that `threading` does not know.
        is_main: Whether it is the main thread.
        frames: The frames, innermost first.
        native_id: Thread ID of the kernel, or None if unknown.
        system_call: The system call in which it is, as in ``/proc/PID/syscall``; empty if unknown.
        owns_gil: Whether it holds the GIL, as far as a reader from outside sees it.
    """

    name: str
    is_main: bool
    frames: tuple[StackFrame, ...]
    native_id: int | None = None
    system_call: str = ""
    owns_gil: bool = False


@dataclass(frozen=True, slots=True)
class SampledStack:
    """A stack of the main thread.

    Attributes:
        frames: The frames, innermost first.
        count: In how many samples the thread had this stack.
    """

    frames: tuple[StackFrame, ...]
    count: int


@dataclass(frozen=True, slots=True)
class StackSamples:
    """The stacks of the main thread over a time.

    Attributes:
        seconds: How long they were sampled.
        samples_count: Number of samples; those of stacks that are not in `stacks` count too.
        stacks: The most frequent stacks, most frequent first.
    """

    seconds: float
    samples_count: int
    stacks: tuple[SampledStack, ...]


def parse_frame(raw: object) -> StackFrame:
    """Parse ``[file, line, function]``.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A number is out of range, or the list has the wrong length.
    """
    file, line, function = as_list(raw)
    return StackFrame(required(as_text(file)), required(as_count(line)), required(as_text(function)))


def parse_frames(raw: object) -> tuple[StackFrame, ...]:
    """Parse the frames of a stack, at most `MAX_FRAMES`.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A number is out of range, or there are too many frames.
    """
    frames = as_list(raw)
    if len(frames) > MAX_FRAMES:
        raise ValueError(f"a stack has {len(frames)} frames")
    return tuple(parse_frame(frame) for frame in frames)


def parse_thread(raw: Json) -> ThreadStack:
    """Parse the stack of a thread.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A number is out of range.
        KeyError: A field is missing.
    """
    return ThreadStack(
        name=as_text(raw.get("name")) or "",
        is_main=required(as_flag(raw["is_main"])),
        frames=parse_frames(raw["frames"]),
        native_id=as_count(raw.get("native_id")),
        system_call=as_text(raw.get("system_call")) or "",
    )


def parse_samples(raw: Json) -> StackSamples:
    """Parse the stacks of the main thread over a time.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A number is out of range, or there are too many stacks.
        KeyError: A field is missing.
    """
    stacks = as_list(raw["stacks"])
    if len(stacks) > MAX_SAMPLED_STACKS:
        raise ValueError(f"there are {len(stacks)} stacks")
    return StackSamples(
        seconds=required(as_number(raw["seconds"])),
        samples_count=required(as_count(raw["samples_count"])),
        stacks=tuple(SampledStack(parse_frames(frames), required(as_count(count))) for frames, count in stacks),
    )
