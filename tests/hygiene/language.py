"""Finds words that gpumon does not use, in strings, comments, documents and the names of Python code.

`python -m tests.hygiene.language [PATH ...]` prints every one with its place.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
CHECKED: Final = (
    "gpumon",
    "workloads",
    "tests",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "pyproject.toml",
    ".ci/run",
)
SKIPPED: Final = ("tests/hygiene/language.py", "tests/hygiene/test_language.py", "gpumon/data")
"""Texts of other programs, this list, and its own test."""

BANNED: Final = {
    r"mend(s|ed|ing)?": "fix",
    r"tells?|telling|told": "reports, returns, shows, logs",
    r"somebody|someone|nobody|anybody|nobody's": "another process, another user, no process, unattributed",
    r"unowned": "unattributed",
    r"besides?(?! the point)": "in addition to, next to, outside",
    r"anew": "again",
    r"forth": "forward",
    r"all the same": "anyway",
    r"so (much|often|many|long)(?! as| that)": "this much, this often",
    r"of (its|their|his|one's|your|our) own": "its own, separate, custom",
    r"too dear|dearer|dearest": "too expensive",
    r"not asked any ?more|any more": "no longer",
    r"stretch(es)? of": "time range",
    r"in the whole|as a whole": "complete, in total",
    r"leave to (begin|start)|not begun|begun": "confirmation; not started",
    r"glances?|glanced": "idle check",
    r"figures?": "metric, value, result",
    r"(the|this|that|a) machine('s)?": "this host, this GPU",
    r"trainings|(a|the|this|that|your|each) training"
    r"(?=[,.;:)]| (is|in|on|has|was|that|which|with|and|itself)\b|$)": "a training run, a training job",
    r"awaited": "waiting for stream",
    r"neighbou?rs?": "other processes",
    r"seldom": "rarely",
    r"lest|thrice|whilst|thereof|wherein|nought|aught": "plain words",
    r"be (it|they) (for|so|none)": "a plain sentence",
    r"what for|for ever": "why; forever",
    r"wish(es)?": "options, request",
    r"courses?(?<!of course)": "history",
    r"(behavi|col|neighb|fav|hon|lab)our\w*|recogni[sz]ed?(?<=s)"
    r"|(recogni|organi|initiali|summari|minimi|maximi|normali|optimi|serali|utili|reali)"
    r"s(e|es|ed|ing|ation)": "American spelling",
}
"""What is not written, and what to write instead. Patterns match whole words, in any case."""

ALLOWED: Final = (
    r"\bof course\b",
    r"\bstate machine\b",
    r"\bvirtual machine\b",
    r"plotext\.figure|plt\.figure",
    r"\bTELL\b",
    r"\.tell\(\)",
)
"""True uses."""

BANNED_NAMES: Final = re.compile(
    r"each|told|tells?|found|mend(s|ed)?|somebody|nobody|neighbou?rs?|wish(es)?|glances?|anew"
    r"|_?(MOST|LEAST|USUAL|LONGEST|SHORTEST|ENOUGH)_\w+"
)
"""Names that say nothing: a local is called by its noun (`device`, `process`, `match`), a limit MAX_ or MIN_."""


def _whole_words(pattern: str) -> re.Pattern[str]:
    """A pattern for lower-case text: to ignore case in the pattern takes five times as long."""
    return re.compile(rf"\b(?=[a-z])(?<!-)(?:{pattern})(?![\w-])")


_ANY_WORD: Final = _whole_words("|".join(BANNED))
_ADVICE: Final = {_whole_words(pattern): advice for pattern, advice in BANNED.items()}
_TRUE_USES: Final = re.compile("|".join(ALLOWED))
_STRING: Final = r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
_STRINGS_AND_COMMENTS: Final = re.compile(rf"{_STRING}|#[^\n]*")
_STRING_JUNCTION: Final = re.compile(r"""["'][^\S\n]*(?:#[^\n]*)?\n?\s*[rfb]{0,2}["']""", re.IGNORECASE)
_ANY_NAME: Final = re.compile(rf"\b(?:{BANNED_NAMES.pattern})\b")


class Hit(NamedTuple):
    """A word that should not be there.

    Attributes:
        path: The file, relative to the repository.
        line: Its line, from 1.
        word: The word.
        advice: What to write instead.
    """

    path: str
    line: int
    word: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r} -> {self.advice}"


def hits_in_text(text: str) -> Iterator[tuple[int, str, str]]:
    """Line offset, word and advice for every banned word of a prose text."""
    lower = _without_true_uses(text).lower()
    for match in _ANY_WORD.finditer(lower):
        advice = next(advice for word, advice in _ADVICE.items() if word.match(lower, match.start()))
        yield lower.count("\n", 0, match.start()), match[0], advice


def hits_in_python(path: Path) -> Iterator[Hit]:
    """Banned words in the strings, comments and names of a Python file.

    A string without a space is an identifier (a JSON name, a key), which a contract may fix, and is left alone.
    """
    source, name = _without_true_uses(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT))
    if not may_have_hits(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, word, advice in hits_in_text(node.value):
                yield Hit(name, node.lineno + offset, word, advice)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for _, word, advice in hits_in_text(token.string):
                yield Hit(name, token.start[0], word, advice)
        elif token.type == tokenize.NAME and BANNED_NAMES.fullmatch(token.string):
            yield Hit(name, token.start[0], token.string, "a name that says what it is")


def may_have_hits(source: str) -> bool:
    """Whether a Python source can have a banned word: three searches, ten times as fast as parsing it."""
    prose = _STRING_JUNCTION.sub("", source).replace("\\n", "\n").lower()
    return bool(_ANY_WORD.search(prose) or _ANY_NAME.search(_STRINGS_AND_COMMENTS.sub("", source)))


def _without_true_uses(text: str) -> str:
    """The text with underscores in the place of allowed phrases, so that columns and lines stay."""
    return _TRUE_USES.sub(lambda match: "_" * len(match[0]), text)


def hits(paths: list[Path]) -> list[Hit]:
    """Banned words in files and folders: Markdown and TOML as prose, Python by its parts."""
    result: list[Hit] = []
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            relative = str(file.relative_to(ROOT))
            if not file.is_file() or relative.startswith(SKIPPED) or "__pycache__" in relative:
                continue
            if file.suffix == ".py":
                result += hits_in_python(file)
            elif file.suffix in {".md", ".toml", ".tcss"} or relative == ".ci/run":
                text = file.read_text(encoding="utf-8")
                result += [Hit(relative, offset + 1, word, advice) for offset, word, advice in hits_in_text(text)]
    return result


def main(arguments: list[str]) -> int:
    """Prints all hits of the given paths, or of the project; returns how many, at most 1."""
    paths = [Path(argument).resolve() for argument in arguments] or [ROOT / name for name in CHECKED]
    all_hits = hits(paths)
    for hit in all_hits:
        print(hit)
    return bool(all_hits)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
