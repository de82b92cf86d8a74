"""What a text file says of a hang: lines of NCCL's watchdog, the failed rank of torchrun, and Python stacks."""

import re
from collections.abc import Iterator
from typing import Any, Final

from gpumon.core.stacks import MAX_FRAMES
from gpumon.core.text import safe_text
from gpumon.probe.stack_file import parse_stacks

_MAX_WORKS: Final = 100_000
_GROUP: Final = (
    r"\[(?:PG (?:ID )?(?P<pg>\w{1,40})(?: PG GUID (?P<guid>\w{1,40})(?:\((?P<desc>[^)\n]{0,80})\))?)? )?"
    r"Rank (?P<rank>\d{1,6})\]"
)
_TIMEOUT: Final = re.compile(
    _GROUP + r"\s+Watchdog caught collective operation timeout: Work\w*\((?:SeqNum|seq)=(?P<sequence>\d{1,12}), "
    r"OpType=(?P<name>\w{1,40})(?:, NumelIn=(?P<elements>\d{1,15}))?(?:, NumelOut=\d{1,15})?,"
    r"[^)\n]{0,40}\)?[^)\n]{0,40}\) ran for (?P<milliseconds>\d{1,12}) milliseconds"
)
_STATUS: Final = re.compile(
    _GROUP + r"[^\n]{0,300}?(?:at work(?: sequence id)?: (?P<sequence>\d{1,12})[^\n]{0,60}?)?"
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,12}), "
    r"last completed (?:NCCL )?work: (?P<completed>-?\d{1,12})"
)
_ROOT_CAUSE: Final = re.compile(
    r"Root Cause \(first observed failure\):\n(?:.*\n){0,4}?"
    r".*?\brank +: (?P<rank>\d{1,6}) .*\n.*?exitcode +: (?P<code>-?\d{1,3})"
)
_TRACEBACK: Final = re.compile(r"^(?P<prefix>.{0,120}?)Traceback \(most recent call last\):$", re.MULTILINE)
_TRACEBACK_LINE: Final = re.compile(
    r'  File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9}), in (?P<function>.{1,200})'
)
_RANK_PREFIX: Final = re.compile(r"\[(?:default|rank|trainer|worker)[ :]?(\d{1,6})\]")
_SPY_PROCESS: Final = re.compile(r"^Process (\d{1,10}): ", re.MULTILINE)
_SPY_THREAD: Final = re.compile(
    r'^Thread (?:0x)?[0-9A-Fa-f]{1,20} \((?P<state>[a-z+]{1,20})\)(?:: "(?P<name>.{0,100})")?$'
)
_SPY_FRAME: Final = re.compile(r"^ {4}(?P<function>\S.{0,200}?) \((?P<file>.{1,500}):(?P<line>\d{1,9})\)$")
_MAIN: Final = "MainThread"


def read_text(text: str) -> dict[str, Any]:
    """What a text says, as the fields of a message: works, statuses, exits, failures and stacks."""
    return {
        "works": [_fields(match) for match in _matches(_TIMEOUT, text)],
        "statuses": [_fields(match) for match in _matches(_STATUS, text)],
        "exits": [[int(match["rank"]), int(match["code"])] for match in _matches(_ROOT_CAUSE, text)],
        "failures": list(_failures(text)),
        "stacks": list(_stacks(text)),
    }


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    for _, match in zip(range(_MAX_WORKS), pattern.finditer(text), strict=False):
        yield match


def _fields(match: re.Match[str]) -> dict[str, Any]:
    fields = match.groupdict()
    number, description = fields.pop("guid") or fields["pg"], fields.pop("desc")
    del fields["pg"]
    is_named = description and description != "undefined"
    group = "" if number is None else f"{number} ({safe_text(description, 80)})" if is_named else number
    numbers = {key: int(value) for key, value in fields.items() if key != "name" and value is not None}
    return {"group": group, **({"name": fields["name"]} if "name" in fields else {}), **numbers}


def _failures(text: str) -> Iterator[list[Any]]:
    """The last traceback of each rank in the text: the rank, or None without a prefix, and the frames."""
    last = {match["prefix"]: match for match in _matches(_TRACEBACK, text)}
    for prefix, match in last.items():
        frames = []
        for line in text[match.end() + 1 : match.end() + 100_000].splitlines():
            rest = line.removeprefix(prefix)
            if frame := _TRACEBACK_LINE.fullmatch(rest):
                frames.append([safe_text(frame["file"], 500), int(frame["line"]), safe_text(frame["function"], 200)])
            elif not rest.startswith("    "):
                break
        rank = _RANK_PREFIX.search(prefix)
        if frames:
            yield [None if rank is None else int(rank[1]), frames[-MAX_FRAMES:][::-1]]


def _stacks(text: str) -> Iterator[dict[str, Any]]:
    """The main threads in what py-spy and faulthandler print."""
    starts = [match.start() for match in _matches(_SPY_PROCESS, text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        if (stack := _spy_stack(text[start:end])) is not None:
            yield stack
    if not starts:
        threads = parse_stacks(text)
        if threads:  # faulthandler begins with the newest thread; the main thread is the oldest
            frames = [[frame.file, frame.line, frame.function] for frame in [*threads.values()][-1]]
            yield {"state": "", "frames": frames}


def _spy_stack(text: str) -> dict[str, Any] | None:
    threads: dict[str, tuple[str, list[list[Any]]]] = {}
    name = ""
    for line in text.splitlines():
        if thread := _SPY_THREAD.match(line):
            name = thread["name"] or ("" if threads else _MAIN)
            threads.setdefault(name, (thread["state"], []))
        elif (frame := _SPY_FRAME.match(line)) and name in threads and len(threads[name][1]) < MAX_FRAMES:
            position = [safe_text(frame["file"], 500), int(frame["line"]), safe_text(frame["function"], 200)]
            threads[name][1].append(position)
    if _MAIN not in threads:
        return None
    state, frames = threads[_MAIN]
    return {"state": "R" if "active" in state else "S", "frames": frames}
