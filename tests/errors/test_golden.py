"""The answers to all samples and logs are those of the golden file."""

import json
from typing import Final

from tests.errors.golden_answers import FILE, answer, logs

_WORSE: Final = {f"logs {number}" for number in (15, 16, 123, 133, 134, 135, 146, 148, 149, 150, 193, 195)} | {
    "llama-init 12"
}
"""Logs whose answer in the file is right, and that get another one: to be empty again."""


def test_answers_are_golden() -> None:
    fixes: dict[str, tuple[str, str]] = {}
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    golden = {name: values for name, *values in lines if name != "fix"}
    answers = {name: answer(text, fixes) for name, text in logs()}
    assert {name for name in golden | answers if answers.get(name) != golden.get(name)} == _WORSE
