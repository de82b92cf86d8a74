"""Recognizes a value of a wrong kind in the user's own code by the method or attribute that the code expects of it."""

import re
from typing import Final

from gpumon.diagnosis.explanation import Match
from gpumon.diagnosis.unknown import UnknownError
from gpumon.errors.load import ERRORS

_TENSOR_NAMES: Final = (
    r"to|cuda|cpu|detach|device|requires_grad|grad_fn|zero_|squeeze|permute|contiguous|long|half|"
    r"argmax|softmax|log_softmax"
    r"|logits|last_hidden_state|hidden_states|pooler_output"
)
_ARRAY_NAMES: Final = r"shape|size|dtype|ndim|dim|item|numpy|view|reshape|transpose|float|mean|flatten"
"""Names that other objects than tensors have, too."""
_NOT_TENSOR: Final = re.compile(
    r"AttributeError: '(?:(?P<type>tuple|list)' object has no attribute '(?P<name>"
    rf"{_TENSOR_NAMES}|{_ARRAY_NAMES})|(?P<other_type>dict|float|int|str|NoneType)' object has no attribute"
    rf" '(?P<other_name>{_TENSOR_NAMES}))'$"
)
_NOT_MODEL: Final = re.compile(
    r"AttributeError: 'dict' object has no attribute '(?P<name>eval|train|parameters|state_dict|load_state_dict)'$"
)
_UNPACKED: Final = re.compile(r"ValueError: (?:not enough|too many) values to unpack \(expected (?P<expected>\d{1,2})")
_RASTERIZER: Final = re.compile(r"\brasterizer\($")
_FORMS: Final = ((_NOT_MODEL, "state-dict-as-model"), (_NOT_TENSOR, "not-a-tensor"))


def wrong_value(error: UnknownError) -> Match | None:
    """The value of a wrong kind that caused an unknown error, or None if nothing shows one.

    Args:
        error: The error; in the code of an installed package, such a value means something else.
    """
    if error.package:
        return None
    unpacked, code = _UNPACKED.match(error.text), "" if error.frame is None else error.frame.code
    if unpacked is not None and _RASTERIZER.search(code):
        return Match.of_unknown(error, ERRORS["rasterizer-version"], unpacked.groupdict())
    for form, error_id in _FORMS:
        match = form.match(error.text)
        if match is not None:
            values = {name.removeprefix("other_"): value for name, value in match.groupdict().items() if value}
            return Match.of_unknown(error, ERRORS[error_id], values)
    return None
