"""What is known about an error that the catalogue does not have: its kind, its frame, and what a report of it needs."""

import re
from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.entry import Fix
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.load import shared_fixes
from gpumon.errors.reading import LogFailure
from gpumon.errors.tracebacks import MODEL_CODE

_ROWS: Final = [row.split(" | ", 2) for row in table("gpumon.errors", "kinds")]
KIND_SENTENCES: Final = {kind: sentence for kind, sentence, *_ in _ROWS}
_KINDS: Final = [(kind, lazy_pattern(pattern, re.IGNORECASE)) for kind, _, *patterns in _ROWS for pattern in patterns]
_FAULTS: Final = frozenset({"UnboundLocalError", "NameError"})
"""Exceptions whose cause is the code that raised them, rather than a value that it was given."""


def kind_of(failure: LogFailure) -> str:
    """What failed, as a public name: what the text of an error names, or else how it reads."""
    other = "program" if " " in failure.name else "python"  # the name of an exception has no spaces
    return next((kind for kind, pattern in _KINDS if pattern.search(failure.first_text) is not None), other)


def next_steps(failure: LogFailure) -> tuple[Fix, ...]:
    """What to do first about an unknown error."""
    steps = shared_fixes(f"unknown-{kind_of(failure)}")
    if failure.name not in _FAULTS or failure.package in {"", MODEL_CODE}:
        return steps
    text = f"The code of {failure.package} has a fault, or does not fit other packages: use its newest version."
    return Fix(text, f"python -m pip install --upgrade {failure.package}"), *steps
