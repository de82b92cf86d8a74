"""What a thread does, by the files, functions and source lines of its stack.

The tables are tried in order. A call into C has no frame, so the source line of the innermost frame names
it: ``loss.item()``, ``os.fsync(file)``.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.stacks import StackFrame
from gpumon.core.step_classes import ANOMALY, BACKWARD, FORWARD, LOGGING, OPTIMIZER, PREPARATION, PYTHON, SYNC
from gpumon.stacks.tables import (
    ANYWHERE,
    ARITHMETIC,
    AROUND,
    AROUND_FUNCTIONS,
    AUTOGRAD,
    BACKWARD_FUNCTION,
    BY_SOURCE,
    COLLECTIVES_MODULE,
    DATA_FUNCTION,
    INNERMOST,
    OPTIMIZER_MODULE,
    TENSOR_HINT,
    WAITING_FUNCTIONS,
    WRAPPER_FUNCTIONS,
    WRAPPER_MODULES,
    StackRule,
    line_text,
    place_of,
    program_frame,
)

SourceOf = Callable[[str, int], str]
"""The source line of a file at a line number; empty if it cannot be read."""


class SampleClass(NamedTuple):
    """What a sample belongs to.

    Attributes:
        name: The class, one of `SAMPLED_CLASSES`.
        kind: A finer name, such as ``item``; may be empty.
        line: The line of the program, such as ``train.py:41``.
        text: What it does: the source line of that line, or the function.
    """

    name: str
    kind: str
    line: str
    text: str


OVERHEAD: Final = "overhead"
"""The finer name of samples in torch's Python code around operators."""
_MAX_FRAMES: Final = 16_384


def classify(frames: Sequence[StackFrame], source_of: SourceOf, *, has_gpu: bool) -> SampleClass:
    """What the main thread does in a sample."""
    stack = tuple(frames)
    own = program_frame(stack)
    line = line_text(own)
    text = "" if own is None else source_of(own.file, own.line).strip()
    text = text or (stack[0] if own is None and stack else own or StackFrame("", 0, "")).function
    name, kind = _class_of(stack, source_of, has_gpu=has_gpu)
    if name == LOGGING and _is_preparing(stack):
        name, kind = PREPARATION, "main_process"
    return SampleClass(name, kind, line, text)


def _class_of(stack: tuple[StackFrame, ...], source_of: SourceOf, *, has_gpu: bool) -> tuple[str, str]:
    """The class and the finer name."""
    if not stack:
        return PYTHON, ""
    by_stack = _rule_of(stack)
    if by_stack is not None:
        return by_stack.name, by_stack.kind
    leaf = _innermost(stack)
    place = place_of(leaf.file)
    for rule in INNERMOST:
        is_match = rule.module.search(place.module) and rule.function.search(leaf.function)
        if is_match and (has_gpu or rule.name != SYNC):
            return rule.name, rule.kind
    source = _source_of_call(stack, source_of)
    for source_rule in BY_SOURCE if source else ():
        if (has_gpu or not source_rule.needs_gpu) and source_rule.source.search(source):
            return source_rule.name, source_rule.kind
    return _work(stack, source)


def class_within(stack: Sequence[StackFrame]) -> str:
    """The class that a frame anywhere in a stack decides, such as `DATA` or `COMPILATION`; empty if none does."""
    rule = _rule_of(stack)
    return "" if rule is None else rule.name


def collective_function(stack: Sequence[StackFrame]) -> str:
    """The function of `torch.distributed` that the program called; empty if the stack is in none."""
    names = [frame.function for frame in stack if place_of(frame.file).module == COLLECTIVES_MODULE]
    return next((name for name in reversed(names) if name not in WRAPPER_FUNCTIONS), "")


def is_in_backward(stack: Sequence[StackFrame]) -> bool:
    """Whether the innermost frame calls the autograd engine; DistributedDataParallel waits there for its all_reduce."""
    if not stack:
        return False
    kind, module = place_of(stack[0].file)
    return kind == "torch" and module.startswith(AUTOGRAD) and bool(BACKWARD_FUNCTION.search(stack[0].function))


def is_in(stack: Sequence[StackFrame], modules: re.Pattern[str]) -> bool:
    """Whether a frame of a stack is in one of the modules that a pattern names; see `Place.module`."""
    return any(modules.search(place_of(frame.file).module) for frame in stack)


def is_waiting(stack: Sequence[StackFrame]) -> bool:
    """Whether a thread waits in a function of the standard library, and needs no GIL."""
    return not stack or (place_of(stack[0].file).kind == "standard" and stack[0].function in WAITING_FUNCTIONS)


def _rule_of(stack: Sequence[StackFrame]) -> StackRule | None:
    """The first rule that a frame of a stack matches."""
    has_torch = any(place_of(frame.file).kind == "torch" for frame in stack[1:])
    number = min((_rule_number(frame.file, frame.function, has_torch) for frame in stack), default=len(ANYWHERE))
    return ANYWHERE[number] if number < len(ANYWHERE) else None


@lru_cache(maxsize=_MAX_FRAMES)
def _rule_number(file: str, function: str, has_torch: bool) -> int:
    """The number of the first rule that a frame matches; that of anomaly detection needs torch in the stack."""
    kind, module = place_of(file)
    return next(
        (
            number
            for number, rule in enumerate(ANYWHERE)
            if (has_torch or rule.name != ANOMALY)
            and (rule.module.pattern or kind in {"program", "library"})
            and rule.module.search(module)
            and rule.function.search(function)
        ),
        len(ANYWHERE),
    )


def _source_of_call(stack: tuple[StackFrame, ...], source_of: SourceOf) -> str:
    """The source line that called into C or the standard library; empty if torch did."""
    for frame in stack:
        kind = place_of(frame.file).kind
        if kind in {"program", "library"}:
            return source_of(frame.file, frame.line).strip()
        if kind != "standard":
            break
    return ""


def _work(stack: tuple[StackFrame, ...], source: str) -> tuple[str, str]:
    """Forward, backward, optimizer, preparing data, or Python."""
    places = [place_of(frame.file) for frame in stack]
    modules = {place.module for place in places}
    is_in_module = "torch/nn/modules/module.py" in modules
    is_backward = any(
        place.kind == "torch" and place.module.startswith(AUTOGRAD) and BACKWARD_FUNCTION.search(frame.function)
        for frame, place in zip(stack, places, strict=True)
    )
    kind = OVERHEAD if AROUND.search(places[0].module) or stack[0].function in AROUND_FUNCTIONS else ""
    if is_backward or ".backward(" in source:
        return BACKWARD, kind
    if not is_in_module and any(OPTIMIZER_MODULE.search(module) for module in modules):
        return OPTIMIZER, kind
    if not is_in_module and _is_preparing(stack):
        return PREPARATION, "main_process"
    if places[0].kind in {"torch", "generated"} or TENSOR_HINT.search(source):
        return FORWARD, kind
    if is_in_module and ARITHMETIC.fullmatch(source.partition("#")[0].strip()):
        return FORWARD, kind
    return PYTHON, "python"


def _is_preparing(stack: tuple[StackFrame, ...]) -> bool:
    """Whether a function of the program whose name says so prepares data."""
    return any(place_of(frame.file).kind == "program" and DATA_FUNCTION.search(frame.function) for frame in stack)


def _innermost(stack: tuple[StackFrame, ...]) -> StackFrame:
    """The innermost frame that is not one of torch's wrappers of functions."""
    return next((frame for frame in stack if not place_of(frame.file).module.startswith(WRAPPER_MODULES)), stack[0])
