"""The first fix of a message about types of tensors: by the types in it."""

import re
from collections.abc import Sequence
from typing import Final

from gpumon.diagnosis.known import Fix

_INTEGERS: Final = r"(?:long(?: int)?|int|byte|char|short|bool)"
_FLOATS: Final = r"(?:float|half|bfloat16|c10::half|c10::bfloat16)"
_LABELS: Final = Fix("Convert indices and labels to integers.", "target = target.long()  # and indices: indices.long()")
_FLOATING: Final = Fix("Convert the integers to floating point.", "inputs, target = inputs.float(), target.float()")
_FROM_NUMPY: Final = Fix(
    "Convert what comes from NumPy, whose numbers are double, to float32.", "inputs = inputs.float()"
)
_IN_PLACE: Final = Fix(
    "An operation in place keeps the type of its tensor: convert it first, or write the result to a new tensor.",
    "total = total.float() + value",
)
_SAME_AS_DESTINATION: Final = Fix(
    "Convert the values to the type of the tensor that is written.", "values[index] = source.to(values.dtype)"
)
_ADVICE: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), fix)
    for pattern, fix in (
        (r"source and destination dtypes match", _SAME_AS_DESTINATION),
        (r"can't be cast to the desired output type", _IN_PLACE),
        (rf"(?:expected scalar type|scalar types?:?) {_INTEGERS}\b[^\n]{{0,20}} but (?:found|got) \S*float", _LABELS),
        (r"\bdouble\b|float64|\.DoubleTensor", _FROM_NUMPY),
        (rf"expected scalar type {_FLOATS} but found {_INTEGERS}\b", _FLOATING),
        (rf"found dtype {_INTEGERS} but expected {_FLOATS}\b", _FLOATING),
        (rf"input type \((?:{_INTEGERS}|unsigned char)\) and (?:bias|weight) type \({_FLOATS}\)", _FLOATING),
        (r"\.(?:Long|Byte|Int)Tensor\) and (?:bias|weight) type \(\S{1,30}\.(?:Half|Float)Tensor\)", _FLOATING),
    )
)
"""What to do by the types in the message; the first form that fits counts."""


def type_fixes(message: str, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a message about types, first the one for its types, if there is one.

    Args:
        message: The message, and the values in it.
        fixes: The fixes of the entry.
    """
    first = next((fix for pattern, fix in _ADVICE if pattern.search(message) is not None), None)
    return tuple(fixes) if first is None else (first, *(fix for fix in fixes if fix.text != first.text))
