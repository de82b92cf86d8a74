"""Recognizes errors by the place of an exception: a package uses what another package, or the data set, lacks.

Any class, function and argument can be missing, so that the message alone is not known. What shows the cause is that
the code of an installed package, rather than the user's, refers to it.
"""

import re
from typing import Final

from gpumon.diagnosis.explanation import Match
from gpumon.diagnosis.unknown import MODEL_CODE, UnknownError
from gpumon.errors.load import ERRORS

_IDS: Final = {"TypeError": "library-arguments", "AttributeError": "library-attribute"}
_OTHER_ID: Final = "package-version"
_COLUMNS_ID: Final = "dataset-columns"
_NOT_TOKENIZED: Final = re.compile(r"KeyError: '(?P<name>input_ids)'")
"""A function that trains was given texts; in the user's own code, the key can be one of anything."""
_CACHE: Final = re.compile(r"past_key_values?|cache|seen_tokens")
"""Code of models about the key-value cache, whose form changes between versions of transformers."""
_BUILT_IN: Final = (
    r"NoneType|str|bytes|dict|list|tuple|set|int|float|bool|function|method|generator|coroutine|Tensor|ndarray|"
    r"DataFrame|Series|Response|(?:Distributed)?DataParallel|FullyShardedDataParallel"
)
"""Such an object is a wrong value, or the user's wrapper, more often than a class of another version."""
_CALL: Final = r"TypeError: (?P<module>[\w.<>]{1,120})\(\)"
_NAME: Final = r"'(?P<name>\w{1,80})'"
_MISSING: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"ImportError: cannot import name (?!'csrc'|'_C'){_NAME} from '(?P<module>[\w.]{{1,120}})'",
        r"ModuleNotFoundError: No module named '(?P<module>\w{1,60}(?:\.\w{1,60}){1,6})'",
        rf"AttributeError: (?:module|type object) '(?P<module>[\w.]{{1,120}})' has no attribute {_NAME}",
        rf"AttributeError: '(?P<module>(?!(?:{_BUILT_IN})')[\w.]{{1,120}})' object has no attribute {_NAME}",
        rf"{_CALL} got an unexpected keyword argument {_NAME}",
        rf"{_CALL} missing \d{{1,2}} required (?:positional |keyword-only )?arguments?: {_NAME}",
        rf"{_CALL} takes (?:from )?\d{{1,2}} (?:to \d{{1,2}} )?positional arguments? but \d",
    )
)


def version_skew(error: UnknownError) -> Match | None:
    """The mismatch of versions or data that caused an unknown error, or None if nothing shows one.

    Args:
        error: The error; the package that raised it is known only from a traceback.
    """
    if not error.package:
        return None
    column = _NOT_TOKENIZED.match(error.text)
    matches = (pattern.match(error.text) for pattern in _MISSING)
    match = column or next((match for match in matches if match is not None), None)
    if match is None and not _is_about_cache(error):
        return None
    values = {"raised_by": error.package, **({} if match is None else match.groupdict())}
    error_id = _COLUMNS_ID if column is not None else _IDS.get(error.name, _OTHER_ID)
    return Match.of_unknown(error, ERRORS[error_id], values)


def _is_about_cache(error: UnknownError) -> bool:
    """Whether the code of a model, which came with its weights, expects another key-value cache."""
    code = "" if error.frame is None else error.frame.code
    return error.package == MODEL_CODE and error.name in _IDS and _CACHE.search(code) is not None
