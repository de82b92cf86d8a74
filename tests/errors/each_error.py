"""Tests of every error of the catalogue, many errors in each: to start thousands of tests takes longer than they do."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from gpumon.errors.entry import KnownError
from gpumon.errors.explain import finder
from gpumon.errors.load import ERRORS
from gpumon.errors.scan import blocks

_GROUP: Final = 60
_ERRORS: Final = list(ERRORS.values())
_GROUPS: Final = [_ERRORS[start : start + _GROUP] for start in range(0, len(_ERRORS), _GROUP)]
_SAMPLED: Final = 8
"""Of the tests that take many seconds for all errors, one group in so many runs by default."""


def found_in(text: str) -> set[str]:
    """The ids of the errors whose wordings a text has, whatever they mean for the run."""
    return {hit.error.id for block in blocks([text.encode("utf-8", "replace")]) for hit in finder().hits(block)}


def every_error(test: Callable[..., None]) -> Callable[..., None]:
    """Call a test with each error as ``error``; a failure names the error."""
    return _grouped(test, [pytest.param(group, id=group[0].id) for group in _GROUPS])


def every_error_at_length(test: Callable[..., None]) -> Callable[..., None]:
    """The same for an expensive test: a sample of the errors by default, the others with ``-m long``."""
    marks = [() if place % _SAMPLED == 0 else pytest.mark.long for place in range(len(_GROUPS))]
    return _grouped(
        test, [pytest.param(group, id=group[0].id, marks=mark) for group, mark in zip(_GROUPS, marks, strict=True)]
    )


def _grouped(test: Callable[..., None], groups: Sequence[ParameterSet]) -> Callable[..., None]:
    @pytest.mark.parametrize("group", groups)
    @wraps(test)
    def run(group: Sequence[KnownError], **fixtures: object) -> None:
        for error in group:
            try:
                test(error=error, **fixtures)
            except AssertionError as failure:
                raise AssertionError(f"{error.id}: {failure}") from failure

    others = [item for item in inspect.signature(test).parameters.values() if item.name != "error"]
    group = inspect.Parameter("group", inspect.Parameter.KEYWORD_ONLY)
    setattr(run, "__signature__", inspect.Signature([*(item.replace(kind=group.kind) for item in others), group]))  # noqa: B010
    grouped: Callable[..., None] = run
    return grouped
