"""Runs a context manager around the body of a function of PyTorch, in place.

A wrapper would be visible in tracebacks of the program's errors, and in the place that a warning reports. Here the
function keeps its identity, name, file and lines; only its code has a ``with`` statement more. That also takes effect
in loops that already run.
"""

from __future__ import annotations

import ast
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FunctionType
    from typing import Any

_MARK = "gpumon.probe: the context manager"
_FUTURE_FLAGS = 0x1FF0000
"""Flags of a code object that stand for ``from __future__ import``."""


class InstrumentedFunction:
    """A function with a context manager around its body, until `restore`.

    Args:
        function: The function; its only free variable may be the class that ``super()`` needs.
        manager: The context manager; it returns nothing from ``__exit__``.

    Raises:
        ValueError: The source of the function is not that of its code, or cannot be found.
        OSError: The source cannot be read.
    """

    def __init__(self, function: FunctionType, manager: Any) -> None:
        self._function = function
        self._original = function.__code__
        self._code = _with_manager(self._original, function.__qualname__, manager)
        function.__code__ = self._code

    def restore(self) -> None:
        """Give the function its own code back, unless something else has changed it."""
        if self._function.__code__ is self._code:
            self._function.__code__ = self._original


def _with_manager(code: CodeType, name: str, manager: Any) -> CodeType:
    """The code with the context manager.

    Raises:
        ValueError: The source is not that of the code.
        OSError: The source cannot be read.
    """
    tree, definition = _parse(code, name)
    flags = code.co_flags & _FUTURE_FLAGS
    unchanged = _compile(tree, code, flags)
    if _traits(unchanged) != _traits(code) or code.co_freevars not in {(), ("__class__",)}:
        raise ValueError("the source is not that of the code")
    has_docstring = ast.get_docstring(definition, clean=False) is not None
    head, body = definition.body[:has_docstring], definition.body[has_docstring:]
    first = body[0]
    item = ast.withitem(context_expr=ast.copy_location(ast.Constant(_MARK, kind=None), first), optional_vars=None)
    block = ast.copy_location(ast.With(items=[item], body=body, type_comment=None), first)
    definition.body = [*head, block]
    result = _compile(tree, code, flags)
    return result.replace(co_consts=tuple(manager if constant == _MARK else constant for constant in result.co_consts))


def _parse(code: CodeType, name: str) -> tuple[ast.Module, ast.FunctionDef]:
    """The syntax tree of the function, within its class, with the lines of its file."""
    import inspect  # torch has imported it
    import tokenize

    with tokenize.open(code.co_filename) as file:
        lines = inspect.getblock(file.readlines()[code.co_firstlineno - 1 :])
    class_name = name.rpartition(".")[0]
    tree = ast.parse("".join([f"class {class_name}:\n" if class_name else "", *lines]))
    body: Any = tree.body[0] if not class_name else tree.body[0].body[0]  # type: ignore[attr-defined]
    assert isinstance(body, ast.FunctionDef)
    body.decorator_list.clear()
    ast.increment_lineno(tree, code.co_firstlineno - 1 - bool(class_name))
    return tree, body


def _traits(code: CodeType) -> tuple[Any, ...]:
    """What differs between the codes of two sources. Instructions also depend on the rest of the module."""
    import dis  # with inspect

    constants = [constant for constant in code.co_consts if not isinstance(constant, type(code))]
    lines = sorted({line for _, line in dis.findlinestarts(code) if line is not None})
    names = code.co_names, code.co_varnames, code.co_freevars
    return code.co_name, names, code.co_argcount, code.co_flags, constants, lines


def _compile(tree: ast.Module, code: CodeType, flags: int) -> CodeType:
    """The code of the only function in a tree.

    Raises:
        ValueError: There is none.
    """
    compiled = compile(tree, code.co_filename, "exec", flags=flags, dont_inherit=True, optimize=sys.flags.optimize)
    pending = [compiled]
    while pending:
        for constant in pending.pop().co_consts:
            if isinstance(constant, type(code)):
                if constant.co_name == code.co_name:
                    return constant
                pending.append(constant)
    raise ValueError("the source is not that of the code")
