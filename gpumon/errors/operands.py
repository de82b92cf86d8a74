"""The names of the values with which a line of Python computes, as a traceback shows the line."""

from keyword import iskeyword
from typing import Final

from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.signs import has_sign

_TARGET: Final = lazy_pattern(r"^(?:[^=(\"']{1,100} = |for .{1,100}? in )")
_SUBSCRIPT: Final = r"(?:\[[\w'\":, .+-]{1,30}\])*"
_NAME: Final = lazy_pattern(
    r"#.*|[rbfRBF]?(['\"]).*?(?:\1|$)|(?<![\w.)\]])"
    rf"([A-Za-z_][\w.]*{_SUBSCRIPT}(?![\w.(\['\"]|\s*=(?!=))|[A-Za-z_][\w.]*{_SUBSCRIPT}(?=\.(?!backward\()[A-Za-z_]\w*\())"
)
_MAX_NAMES: Final = 4


def operands(code: str) -> list[str]:
    """The first names of values in a line of code, without those of functions, modules and parameters."""
    names = (match[2] for match in _NAME.finditer(_TARGET.sub("", code)) if match[2])
    values = (name for name in names if not iskeyword(name) and not has_sign("no value", name))
    return list(dict.fromkeys(values))[:_MAX_NAMES]
