"""Where a frame of a Python stack is: in the program, in torch, in another library, or in the standard library."""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.stacks import StackFrame

_MAX_PLACES: Final = 16_384
_PACKAGES: Final = re.compile(r"/(?:site|dist)-packages/")
_STANDARD: Final = re.compile(r"/lib(?:64)?/(?:python|pypy)3(?:\.\d+)?t?/|/lib-dynload/")
_GENERATED: Final = re.compile(r"/torchinductor_[^/]*/|^<eval_with_key>|^<torch_package")
_TORCH: Final = re.compile(r"/(torch(?:_xla|vision|audio|data)?/(?:[\w./-]*)\.py)$")
_PROBE: Final = "gpumon/probe/"


class Place(NamedTuple):
    """Where a file belongs.

    Attributes:
        kind: ``program``, ``torch``, ``library``, ``standard`` or ``generated``.
        module: Path within the package folder or the standard library, such as ``torch/optim/adam.py``; of a file of
            the program its complete path.
    """

    kind: str
    module: str


@lru_cache(maxsize=_MAX_PLACES)
def place_of(file: str) -> Place:
    """Where a source file belongs.

    Args:
        file: Its path, as the frame has it.
    """
    if _GENERATED.search(file):
        return Place("generated", file)
    if file.startswith("<"):
        return Place("standard", file)
    parts = _PACKAGES.split(file)
    if len(parts) > 1:
        module = parts[-1]
        return Place("torch" if module.startswith("torch/") else "library", module)
    match = _STANDARD.search(file)
    if match is not None:
        return Place("standard", file[match.end() :])
    if "/torch/" in file and (match := _TORCH.search(file)) is not None and _is_source_tree(match[1]):
        return Place("torch", match[1])
    return Place("library", _PROBE) if _PROBE in file else Place("program", file)


def _is_source_tree(module: str) -> bool:
    """Whether a path is one of torch's own, as in a source checkout, and not a program's folder called torch."""
    return module.startswith(
        ("torch/nn/", "torch/optim/", "torch/autograd/", "torch/utils/data/", "torch/distributed/")
    )


def program_frame(frames: tuple[StackFrame, ...]) -> StackFrame | None:
    """The innermost frame of the program; of a program that only libraries consist of, their innermost frame."""
    library = None
    for frame in frames:
        kind = place_of(frame.file).kind
        if kind == "program":
            return frame
        if kind == "library" and library is None and place_of(frame.file).module != _PROBE:
            library = frame
    return library


def line_text(frame: StackFrame | None) -> str:
    """A frame as people write it: ``train.py:41``; with the folder for a library; empty for None."""
    if frame is None:
        return ""
    place = place_of(frame.file)
    name = place.module if place.kind == "library" else frame.file.rpartition("/")[2]
    return f"{name}:{frame.line}"
