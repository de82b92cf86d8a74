"""The answers to all samples and logs are those of the golden file."""

import json
from itertools import islice

import pytest

from tests.errors.golden_answers import FILE, answer, logs

PARTS = 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_answers_are_golden(part: int) -> None:
    """One of every four samples, and first of all the logs of several errors, programs and platforms."""
    golden = {name: values for name, *values in map(json.loads, FILE.read_text().splitlines()) if name != "fix"}
    texts = dict(logs())
    assert texts.keys() == golden.keys()
    samples = [name for name in texts if not name.startswith("logs ")]
    some = [*islice(samples, part, None, PARTS), *(texts.keys() - samples if part == 0 else ())]
    assert {name for name in some if answer(texts[name], {}) != golden[name]} == set()
