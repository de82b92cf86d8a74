"""Where a frame of a stack is, and the tables of what files, functions and source lines mean."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.stacks import StackFrame
from gpumon.core.step_classes import LOCKS
from gpumon.core.text_table import table

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


PROBE_MODULES: Final = "gpumon/probe/"
PLACES: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("generated", r"/torchinductor_[^/]*/|^<eval_with_key>|^<torch_package"),
        ("program", r"^<(?:stdin|ipython-input)"),
        ("standard", r"^<"),
        ("native", r"\.(?:c|cc|cpp|cu|cuh|h|hpp)$|^\?\?$"),
        ("torch", r"(?:^|.*/(?:site|dist)-packages/)(torch/.*)"),
        ("library", r".*/(?:site|dist)-packages/(.*)"),
        ("standard", r"(?:/lib(?:64)?/(?:python|pypy)3(?:\.\d+)?t?/|/lib-dynload/)(.*)"),
        ("standard", r"^(?:threading|contextlib|functools|runpy)\.py$"),  # Kineto leaves out the folder
        ("torch", r"/(torch/(?:nn|optim|autograd|utils/data|distributed)/[\w./-]*\.py)$"),  # a source checkout
        ("library", f"({PROBE_MODULES})"),
    )
)
"""Where a file belongs: the kind and the pattern of the path, whose group is the module; otherwise, to the program."""


class StackRule(NamedTuple):
    """A class that a frame anywhere in a stack decides.

    Attributes:
        name: The class.
        kind: The finer name.
        module: Pattern of the module, see `Place.module`.
        function: Pattern of the function.
    """

    name: str
    kind: str
    module: re.Pattern[str]
    function: re.Pattern[str]


class SourceRule(NamedTuple):
    """A class that the source line of the innermost frame decides.

    Attributes:
        name: The class.
        kind: The finer name.
        source: Pattern of the source line.
        needs_gpu: Whether it only costs time where tensors are on a GPU.
    """

    name: str
    kind: str
    source: re.Pattern[str]
    needs_gpu: bool = False


LOCK_MODULES: Final = re.compile(
    r"^(?:threading|queue|selectors|_pyio)\.py|^(?:concurrent/futures|multiprocessing|asyncio)/"
)
"""Modules whose functions wait for a lock, a queue or another thread."""
POLLING_MODULES: Final = re.compile(r"^(?:socket|ssl|selectors|subprocess)\.py|^multiprocessing/connection\.py")
"""Modules whose functions wait for a file descriptor with poll or select."""
SERVER_MODULES: Final = re.compile(r"^socketserver\.py|^asyncio/base_events\.py")
"""Modules whose loops wait for requests."""
WAITING_FUNCTIONS: Final = frozenset(
    {"wait", "acquire", "select", "poll", "accept", "sleep", "get", "recv", "read", "join"}
)
"""Functions of the standard library in which a thread waits and does not need the GIL."""
COLLECTIVES_MODULE: Final = "torch/distributed/distributed_c10d.py"
POINT_TO_POINT_FUNCTIONS: Final = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
WRAPPER_MODULES: Final = ("torch/utils/_contextlib.py", "torch/distributed/c10d_logger.py", "contextlib.py", "<")
"""Modules of decorators, whose frames lie between a function and its caller."""
WRAPPER_FUNCTIONS: Final = frozenset({"wrapper", "decorate_context", "_fn", "inner"})


def _rules(moment: str) -> Iterator[tuple[str, str, re.Pattern[str], re.Pattern[str], bool]]:
    """The rules for a moment: the class, the finer name, two patterns, and whether a GPU is needed."""
    for row in table("gpumon.stacks", "rules"):
        head, *patterns = row.split(" :: ")
        when, name, kind, *flags = head.split()
        if when == moment:
            first, second = map(re.compile, [*patterns, ""][:2])
            yield name, kind, first, second, bool(flags)


ANYWHERE: Final = tuple(StackRule(*rule[:4]) for rule in _rules("anywhere"))
"""Tried for all frames, the first rule first."""
INNERMOST: Final = (
    *(StackRule(*rule[:4]) for rule in _rules("innermost")),
    StackRule(LOCKS, "lock", LOCK_MODULES, re.compile("")),
)
"""Tried for the innermost frame that is not one of Python's wrappers."""
BY_SOURCE: Final = tuple(
    SourceRule(name, kind, source, needs_gpu) for name, kind, source, _, needs_gpu in _rules("source")
)
"""Tried for the source line of the innermost frame, if that is one of the program or of a library."""
DATA_FUNCTION: Final = re.compile(
    r"^__getitems?__$|^collate|collate(?:_fn)?$|^_?(?:get|load|read|fetch|next|make|prepare|build|sample)_\w*"
    r"(?:batch|data|sample|image|example)"
    r"|^_?(?:decode|augment|tokeni[sz]e|preprocess|transform)(?:_|$)|_transform$"
)
TENSOR_HINT: Final = re.compile(
    r"@|\b(?:torch|F|nn|functional|einops)\.|\bself\.\w+\(|\bmodel\(|\bcriterion\(|\bloss_?f(?:n|unc)?\("
    r"|\.(?:matmul|mm|bmm|einsum|view|reshape|transpose|permute|mean|sum|pow|exp|log|sqrt|softmax|relu|sigmoid|tanh|masked_fill|norm|flatten|chunk|split)\("
)
ARITHMETIC: Final = re.compile(r"(?:return\b|[\w.]+\s*[-+*/@]?=)(?!.*\w\()[\w\s.+\-*/@()]+")
"""A line of operators on names and numbers only; in the forward pass of a module, these are tensors."""
AUTOGRAD: Final = ("torch/autograd/", "torch/_tensor.py")
BACKWARD_FUNCTION: Final = re.compile(r"backward|^grad$")
OPTIMIZER_MODULE: Final = re.compile(
    r"^torch/(?:optim/|amp/grad_scaler|nn/utils/clip_grad)"
    r"|^(?:apex/optimizers|bitsandbytes/optim|deepspeed/ops|timm/optim)/"
)
AROUND: Final = re.compile(
    r"^torch/(?:_compile|_jit_internal|nn/modules/(?:module|container)|autograd/(?:__init__|profiler)|utils/_contextlib"
    r"|_dynamo/\w+)\.py|^contextlib\.py"
)
"""Torch's Python code that calls operators and does no work itself: a large part means that operators are small."""
AROUND_FUNCTIONS: Final = frozenset({"_init_group", "_get_value", "_must_dispatch_in_python", "_verify_batch_size"})
"""Functions of other modules for which the same holds."""
