"""The answers to all samples and logs are those of the golden file."""

import json

from tests.errors.golden_answers import FILE, answer, logs


def test_answers_are_golden() -> None:
    fixes: dict[str, tuple[str, str]] = {}
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    golden = {name: values for name, *values in lines if name != "fix"}
    answers = {name: answer(text, fixes) for name, text in logs()}
    assert {name for name in golden | answers if answers.get(name) != golden.get(name)} == set()
