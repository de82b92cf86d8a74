"""Reads the known errors from the text files in `entries/`; docs/errors.md describes their format.

`index.json`, which `python -m tests.errors.index` writes, has the needles of all wordings; an entry is read only if
one of its needles is in a log, or if it is asked for.
"""

import json
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from gpumon.errors.entry import Code, ContextState, Fix, KnownError, Values, Wording

ENTRIES: Final = Path(__file__).with_name("entries")
INDEX: Final = Path(__file__).with_name("index.json")
SHARED: Final = frozenset({"fixes", "wordings"})
"""Files without errors, with what several entries use."""

_PART: Final = re.compile(r"\{\{|\}\}|\{(?P<name>\w*):(?P<type>[^{}]*)\}|\{(?P<plain>\w+)\}|(?P<text>[^{}]+|.)")
_MAXIMUM: Final = re.compile(r"\d+(?=\}\??$)")
"""In the regular expression of a type of slots, what a number behind its name replaces."""
_MARK: Final = "\0"
"""Stands before and behind the name of a slot of a fix, and its default after a colon."""
_FIX_SLOT: Final = re.compile(r"\{(\{[a-z_]\w*(?::[^{}\n]*)?\})\}|\{([a-z_]\w*(?::[^{}\n]*)?)\}")
"""A slot in a fix, or text that would be one, in doubled braces."""
_DEFAULTS: Final = {"run": "python train.py"}
_SAFE: Final = re.compile(r"[\w@%+=:,./-]{1,200}")
"""A value of a log that may stand in code."""
_MODES: Final = {"": (False, False), "when": (True, True), "prefer when": (True, False), "only when": (False, True)}
"""Before a condition: whether the fix is first where it holds, and hidden otherwise."""
_WHEN: Final = re.compile(r"((?:prefer |only )?when) ")
_OPEN_CONDITION: Final = re.compile(r"(?:,| and| or| not|\()$")
"""The end of a line after which a condition continues on the next one."""
_RAISED: Final = frozenset({"in-package", "in-model-code", "in-own-code"})
FLAGS: Final = {"says/": {"case", "at-end", *_RAISED}, "says": {"case", "at-end", "word", "start", *_RAISED}}
"""Words that may stand before a wording."""
_KINDS: Final = frozenset({"fatal", "notice", "echo"})
_REQUIRED: Final = ("section", "title", "means")
_SINGLE: Final = (*_REQUIRED, "cache", "seen", "program", "leads", "reasons", "also", "facts", "host")
FIELDS: Final = frozenset((*_SINGLE, "says", "says/", "cause", "fix", "use", "more", "source", "follows", "values"))
"""The fields of an entry; those that may stand in it once come first."""


@dataclass
class _Field:
    """A line with a keyword, and the indented lines below it."""

    keyword: str
    head: str
    where: str
    texts: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text on this line and on the lines below it."""
        return " ".join(filter(None, (self.head, *self.texts)))

    def fail(self, reason: str) -> ValueError:
        return ValueError(f"{self.where}: {reason}")

    def with_condition(self) -> tuple[str, str, str]:
        """The mode and the condition at the start of the text, which may be empty, and the rest of the text."""
        lines, match = [self.head, *self.texts], _WHEN.match(self.head)
        if match is None:
            return "", "", self.text
        condition = lines.pop(0)[match.end() :]
        while _OPEN_CONDITION.search(condition) and lines:
            condition = f"{condition} {lines.pop(0)}"
        return match[1], condition, " ".join(lines)


def _fields(text: str, where: str, first: int = 1) -> list[_Field]:
    """The fields in some lines of a file, of which the first one has a number."""
    fields: list[_Field] = []
    for number, line in enumerate(text.splitlines(), first):
        stripped, place = line.strip(), f"{where}:{number}"
        if not stripped or line.startswith("#"):
            continue
        if not line[0].isspace():
            keyword, _, head = stripped.partition(" ")
            fields.append(_Field(keyword, head.lstrip(), place))
        elif stripped.startswith("|"):
            fields[-1].codes.append(line.lstrip()[1:].removeprefix(" ").rstrip())
        elif fields[-1].codes:
            raise ValueError(f"{place}: text below code: {stripped[:60]!r}")
        else:
            fields[-1].texts.append(stripped)
    return fields


def parse(text: str, where: str, line: int = 1) -> KnownError:
    """Reads an entry of a file, whose first line has a number.

    Raises:
        ValueError: It is not an entry; the text names the file and the line.
    """
    head, *fields = _fields(text, where, line)
    words = head.head.split()
    if head.keyword != "error" or len(words) < 4 or words[-2] != "context" or not _KINDS.issuperset(words[1:-2]):
        raise head.fail("not: error ID KIND context STATE")
    several: dict[str, list[_Field]] = {keyword: [] for keyword in FIELDS}
    for some in fields:
        if some.keyword not in FIELDS or (some.keyword in _SINGLE and several[some.keyword]):
            raise some.fail(f"{'a second' if some.keyword in FIELDS else 'no field is called'} {some.keyword!r}")
        several[some.keyword].append(some)
    texts = {name: some[0].text if some else "" for name, some in several.items()}
    if missing := [name for name in _REQUIRED if not texts[name]]:
        raise head.fail(f"{words[0]} has no {missing[0]!r}")
    causes = [some.with_condition()[1:] for some in several["cause"]]
    context = ContextState(words[-1])
    return KnownError(
        id=words[0],
        section=texts["section"],
        title=texts["title"],
        summary=texts["means"],
        context=context,
        wordings=tuple(_wording(some) for some in fields if some.keyword in FLAGS),
        causes=tuple(text for condition, text in causes if not condition),
        causes_when=tuple((condition, _with_slots(text)) for condition, text in causes if condition),
        fixes=tuple(fix for some in fields if some.keyword in {"fix", "use"} for fix in _fixes(some)),
        empty_cache=texts["cache"] or shared_texts("cache").get(context.value, shared_texts("cache")["other"]),
        see_more=tuple(filter(None, (filled(fix, {}) for some in several["more"] for fix in _fixes(some)))),
        sources=tuple(some.text for some in several["source"]),
        said_by=texts["seen"],
        is_echo="echo" in words[1:-2],
        is_warning="notice" in words[1:-2],
        has_one_reason=bool(texts["reasons"]),
        is_leading=bool(texts["leads"]),
        follows=tuple(pair for some in several["follows"] for pair in _pairs(some, " when ")),
        program=texts["program"],
        borrowed=tuple(pair for some in several["values"] for pair in _pairs(some, " from ")),
        facts=tuple(texts["facts"].split()),
        host=tuple(texts["host"].split()),
    )


def _pairs(some: _Field, word: str) -> Iterator[tuple[str, str]]:
    """Each name before a word, with what stands behind the word."""
    names, _, rest = some.text.partition(word)
    return ((name, rest.strip()) for name in names.split())


def _fixes(some: _Field) -> Iterator[Fix]:
    """A fix, or those of a group, with the condition of the entry."""
    if some.keyword != "use" and not some.head.startswith("use "):
        yield _fix(some)
        return
    name, _, rest = some.head.removeprefix("use ").lstrip().partition(" ")
    if name not in entry_texts("fixes"):
        raise some.fail(f"fixes.txt has no group {name!r}")
    mode, condition, _ = replace(some, head=rest.strip()).with_condition()
    for fix in shared_fixes(name):
        both = f"({fix.when}) and ({condition})" if fix.when and condition else fix.when or condition
        is_first, is_hidden = _MODES[mode] if mode else (fix.is_first, fix.is_hidden_otherwise)
        yield fix._replace(when=both, is_first=is_first, is_hidden_otherwise=is_hidden)


def _fix(some: _Field) -> Fix:
    mode, condition, text = some.with_condition()
    return Fix(_with_slots(text), _with_slots("\n".join(some.codes)), condition, *_MODES[mode])


def _with_slots(text: str) -> str:
    """A text whose slots are marked, and whose doubled braces are single."""
    return _FIX_SLOT.sub(lambda match: match[1] or f"{_MARK}{match[2]}{_MARK}", text) if "{" in text else text


def filled(fix: Fix, values: Values) -> Fix | None:
    """A fix with the values of its slots; None if one is missing, or must not be in code."""
    text, code = filled_text(fix.text, values), filled_text(fix.code, values, is_code=True)
    return None if text is None or code is None else fix._replace(text=text, code=code)


def filled_text(text: str, values: Values, *, is_code: bool = False) -> str | None:
    """A text with the values of its slots; None if one is missing, or must not be in code."""
    parts = text.split(_MARK)
    for index in range(1, len(parts), 2):
        name, colon, default = parts[index].partition(":")
        value = values.get(name)
        if value is None:
            if not colon and name not in _DEFAULTS:
                return None
            value = Code(default if colon else _DEFAULTS[name])
        elif is_code and not isinstance(value, Code) and _SAFE.fullmatch(str(value)) is None:
            return None
        parts[index] = str(value)
    return "".join(parts)


def _wording(some: _Field) -> Wording:
    flags, text = set(), some.head
    while (word := text.partition(" ")[0]) in FLAGS[some.keyword]:
        flags.add(word)
        text = text.partition(" ")[2].lstrip()
    regex = text if some.keyword == "says/" else _PART.sub(lambda part: _part_regex(part, some), text)
    regex = rf"\b{regex}\b" if "word" in flags else f"^{regex}" if "start" in flags else regex
    return Wording(regex, "case" in flags, "".join(flags & _RAISED).removeprefix("in-"), "at-end" in flags)


def _part_regex(part: re.Match[str], some: _Field) -> str:
    """The regular expression for a part of a text: literal, or a slot."""
    name, kind = part["plain"] or part["name"], part["type"] or "word"
    if name is None:
        return re.escape(part["text"] or part[0][0])
    short = kind.rstrip(string.digits)
    piece = shared_texts("slot").get(short) or shared_texts("piece").get(kind)
    if "|" in kind:
        choices = "|".join(map(re.escape, filter(None, kind.split("|"))))
        piece = f"(?:{choices}){'?' if kind.endswith('|') else ''}"
    elif piece is None:
        raise some.fail(f"no type of slots is called {kind!r}")
    elif short != kind and short in shared_texts("slot"):
        piece = _MAXIMUM.sub(kind[len(short) :], piece)
    return f"(?P<{name}>{piece})" if name else piece


@cache
def shared_texts(keyword: str) -> Mapping[str, str]:
    """The texts of `wordings.txt` with a keyword, which several entries use."""
    fields = _fields((ENTRIES / "wordings.txt").read_text("utf-8"), "wordings.txt")
    texts = (some.head.partition(" ") for some in fields if some.keyword == keyword)
    return {name: text for name, _, text in texts}


@cache
def shared_fixes(group: str) -> tuple[Fix, ...]:
    """The fixes of a group of `fixes.txt`."""
    line, text = entry_texts("fixes")[group]
    return tuple(map(_fix, _fields(text, "fixes.txt", line)[1:]))


@cache
def entry_texts(name: str) -> Mapping[str, tuple[int, str]]:
    """The entries of a file, or its groups, by their ids: the number of the first line of each, and its lines."""
    lines = (ENTRIES / f"{name}.txt").read_text("utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(("error ", "group "))]
    places = zip(starts, [*starts[1:], len(lines)], strict=True)
    return {lines[start].split()[1]: (start + 1, "\n".join(lines[start:end])) for start, end in places}


class ErrorCatalogue(Mapping[str, KnownError]):
    """The known errors by their ids; the index is read at the first use, and an entry when it is asked for."""

    def __init__(self) -> None:
        self.read: dict[str, KnownError] = {}
        """The entries that were asked for."""

    @cached_property
    def index(self) -> Mapping[str, Any]:
        """The ids with their files, further ids, the needles, and the entries whose wordings have no needle."""
        index: Mapping[str, Any] = json.loads(INDEX.read_bytes())
        return index

    def __getitem__(self, error_id: str) -> KnownError:
        error_id = self.index["also"].get(error_id, error_id)
        if error_id not in self.read:
            name = self.index["entries"][error_id]
            line, text = entry_texts(name)[error_id]
            self.read[error_id] = parse(text, f"{name}.txt", line)
        return self.read[error_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.index["entries"])

    def __len__(self) -> int:
        return len(self.index["entries"])


ERRORS: Final = ErrorCatalogue()
"""The known errors of gpumon."""
