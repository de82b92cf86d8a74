"""The answers to every sample and to logs of several errors, as they were: a change of code must not change them.

`python -m tests.errors.golden_answers` writes the file again, after a change that is meant.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gpumon.errors.explain import explain_text
from tests.errors.texts import DATA, WORDINGS, samples_of

FILE: Final = Path(__file__).with_name("golden") / "answers.jsonl"
"""Fixes, by a hash of their texts, then one line per log: its text or the name of its sample, the answer."""
LOGS: Final = FILE.with_name("logs.jsonl")
"""Logs that are no samples: several errors, programs, platforms, ranks."""


def logs() -> Iterator[tuple[str, str]]:
    """The name and the text of every log."""
    for error_id in dict.fromkeys(name for name, _ in WORDINGS):
        yield from ((f"{error_id} {number}", text) for number, text in enumerate(samples_of(error_id)))
    for name, texts in json.loads((DATA / "error_samples.json").read_text()).items():
        yield from ((f"error_samples {name} {number}", text) for number, text in enumerate(texts))
    for number, text in enumerate(map(json.loads, LOGS.read_text().splitlines())):
        yield f"logs {number}", text


def answer(text: str, fixes: dict[str, tuple[str, str]]) -> list[Any]:
    """The id of the cause, or else of the first notice, the hash of its first fix, and its values.

    Args:
        text: The log.
        fixes: Gets the fix, by its hash.
    """
    explanation = explain_text(text)
    match = explanation.cause or next(iter(explanation.matches), None)
    if match is None:
        return [None]
    fix = match.fixes[0].text, match.fixes[0].code
    key = hashlib.sha256("\n".join(fix).encode()).hexdigest()[:8]
    fixes[key] = fix
    return [match.error.id, key, dict(match.values)]


def main() -> None:
    """Writes the file."""
    fixes: dict[str, tuple[str, str]] = {}
    answers = [[name, *answer(text, fixes)] for name, text in logs()]
    lines = [["fix", key, *fixes[key]] for key in sorted(fixes)] + answers
    FILE.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))


if __name__ == "__main__":
    main()
