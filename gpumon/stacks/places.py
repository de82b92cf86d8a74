"""Where a frame of a Python stack is: in the program, in torch, in another library, or in the standard library."""

from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.stacks import StackFrame
from gpumon.stacks.tables import PLACES, PROBE_MODULES

_MAX_PLACES: Final = 16_384


class Place(NamedTuple):
    """Where a file belongs.

    Attributes:
        kind: ``program``, ``torch``, ``library``, ``standard``, ``generated`` or ``native``.
        module: Path within the package folder or the standard library, such as ``torch/optim/adam.py``; of a file of
            the program its complete path.
    """

    kind: str
    module: str


@lru_cache(maxsize=_MAX_PLACES)
def place_of(file: str) -> Place:
    """Where a source file belongs.

    Kineto's paths are relative to the folder of packages.
    """
    for kind, pattern in PLACES:
        match = pattern.search(file)
        if match is not None:
            return Place(kind, match[1] if pattern.groups else file)
    return Place("program", file)


def program_frame(frames: tuple[StackFrame, ...]) -> StackFrame | None:
    """The innermost frame of the program; of a program that only libraries consist of, their innermost frame."""
    library = None
    for frame in frames:
        kind = place_of(frame.file).kind
        if kind == "program":
            return frame
        if kind == "library" and library is None and place_of(frame.file).module != PROBE_MODULES:
            library = frame
    return library


def is_program(file: str) -> bool:
    """Whether a source file belongs to the program, and not to a library, torch or Python."""
    return place_of(file).kind == "program"


def file_text(file: str) -> str:
    """A source file as people write it: the path within its package, or else its name."""
    place = place_of(file)
    return place.module if place.kind in {"library", "torch"} else file.rpartition("/")[2]


def line_text(frame: StackFrame | None) -> str:
    """A frame as people write it: ``train.py:41``; with the folder for a library; empty for None."""
    return "" if frame is None else f"{file_text(frame.file)}:{frame.line}"
