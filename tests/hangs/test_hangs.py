"""A few of the planted hangs and healthy jobs; ``python -m tests.hangs`` runs all of them."""

import importlib.util
import sys

import pytest

from gpumon.stacks import outside
from tests.hangs.cases import HANGS, Case
from tests.hangs.runner import mistakes, run

CASES = {case.name: case for case in HANGS}

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch"),
    pytest.mark.skipif(sys.platform != "linux", reason="no /proc"),
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("hangs"),
]


@pytest.mark.long
@pytest.mark.parametrize("name", ["different_collective", "gil_in_c"])
def test_a_hang_is_explained(name: str) -> None:
    case: Case = CASES[name]
    outcome = run(case)
    assert mistakes(case, outcome) == [], (outcome.verdict, outcome.output)


@pytest.mark.long
@pytest.mark.skipif(outside.program() is None, reason="py-spy is not installed")
def test_a_hang_of_a_job_that_was_not_prepared_is_explained() -> None:
    case: Case = CASES["sleeping"]
    outcome = run(case, is_plain=True)
    assert mistakes(case, outcome, is_plain=True) == [], (outcome.verdict, outcome.output)
