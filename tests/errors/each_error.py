"""Tests of every error of the catalogue, many errors in each: to start thousands of tests takes longer than they do."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final

import pytest

from gpumon.errors.explain import finder
from gpumon.errors.load import ERRORS
from gpumon.errors.scan import blocks

_GROUP: Final = 60
_ERRORS: Final = list(ERRORS)
_GROUPS: Final = [_ERRORS[start : start + _GROUP] for start in range(0, len(_ERRORS), _GROUP)]
_SPREAD: Final = _ERRORS[7 :: len(_ERRORS) // 15]
"""Errors from all files, for what takes long: the groups are then `long`."""


def found_in(text: str) -> set[str]:
    """The ids of the errors whose wordings a text has, whatever they mean for the run."""
    return {hit.error.id for block in blocks([text.encode("utf-8", "replace")]) for hit in finder().hits(block)}


def every_error(test: Callable[..., None]) -> Callable[..., None]:
    """Call a test with each error as ``error``; a failure names the error."""
    return _grouped(test, _GROUPS)


def some_errors(test: Callable[..., None]) -> Callable[..., None]:
    """Call a test with 15 errors of all files by default, and with each error with ``-m long``."""
    grouped: Callable[..., None] = pytest.mark.sampled(1)(_grouped(test, [_SPREAD, *_GROUPS]))
    return grouped


def _grouped(test: Callable[..., None], groups: Sequence[Sequence[str]]) -> Callable[..., None]:
    @pytest.mark.parametrize("group", groups, ids=lambda group: group[0])
    @wraps(test)
    def run(group: Sequence[str], **fixtures: object) -> None:
        for error in map(ERRORS.__getitem__, group):  # not at collection, which every worker does
            try:
                test(error=error, **fixtures)
            except AssertionError as failure:
                raise AssertionError(f"{error.id}: {failure}") from failure

    others = [item for item in inspect.signature(test).parameters.values() if item.name != "error"]
    group = inspect.Parameter("group", inspect.Parameter.KEYWORD_ONLY)
    setattr(run, "__signature__", inspect.Signature([*(item.replace(kind=group.kind) for item in others), group]))  # noqa: B010
    grouped: Callable[..., None] = run
    return grouped
