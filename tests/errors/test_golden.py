"""The answers to all samples and logs are those of the golden file."""

import json

from tests.errors.golden_answers import FILE, answer, logs


def test_answers_are_golden() -> None:
    fixes: dict[str, tuple[str, str]] = {}
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    golden = {name: values for name, *values in lines if name != "fix"}
    assert {name: answer(text, fixes) for name, text in logs()} == golden
    assert fixes == {key: tuple(fix) for name, key, *fix in (line for line in lines if line[0] == "fix")}
