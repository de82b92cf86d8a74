"""Speed and memory of `gpumon explain` on ordinary and hostile logs: ``python -m tests.perf.explain [MEGABYTES]``.

Prints a Markdown table with a row per log: a training run, the same with a rank before every line, blank lines, one
line without an end, all needles of the entries in every line, and others. Then it reads, for every pattern, a training
run with its error, or an incomplete one, in every 13 kB, and for every needle a log full of it, and prints the slowest
ten, and those that a tenth, two tenths and so on are slower than. Every log is explained in a separate process, and
those of the patterns, which are short, in another one; the speed is per second of CPU time, and the memory is the peak
of the process, with Python and gpumon. The exit status is 1 if a log is slower than 10 MB/s or needs more than 64 MiB.
On a busy host, all speeds are lower.
"""

import argparse
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.errors.explain import explain, explain_text
from gpumon.errors.patterns import squeezed
from tests.errors.corpus import noise
from tests.errors.hostile import PATTERNS, all_needles, almost, matched, needle_of, repeated
from tests.errors.texts import DATA, WORDINGS

_MEGABYTE: Final = 1_000_000
_DEFAULT_MEGABYTES: Final = 20
_PIECE: Final = 13_000
_PIECES: Final = 6
_LINES_OF_NEEDLES: Final = 48
_TRIES: Final = 3
"""How often the logs that took longest are read again: another process may have disturbed the first time."""
_MIN_SPEED: Final = 10.0
"""Megabytes per second."""
_MAX_MEMORY: Final = 64
"""MiB."""
_SLOWEST_PATTERNS: Final = 10
_CHUNK_BYTES: Final = 1 << 20
_NOISE_LINES: Final = 200_000
_TIME: Final = "2026-11-20T12:00:01.123456789Z"
_TRACEBACK: Final = 'Traceback (most recent call last):\n  File "a.py", line {0}, in f\n    g()\nKeyError: {0}\n'


class _Row(NamedTuple):
    """A measured log.

    Attributes:
        name: What it consists of.
        megabytes: Its size.
        speed: Megabytes per second of CPU time.
        memory: The peak, in MiB.
    """

    name: str
    megabytes: float
    speed: float
    memory: int

    def print(self) -> None:
        """Prints the row of the table."""
        print(f"| {self.name} | {self.megabytes:g} | {self.speed:.1f} | {self.memory} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("megabytes", type=int, nargs="?", default=_DEFAULT_MEGABYTES)
    parser.add_argument("--only", choices=("logs", "patterns"))
    options = parser.parse_args()
    explain_text("\n".join(text for _, text in WORDINGS))  # compiles the patterns before a child is measured
    print("| log | MB | MB/s | peak MiB |\n|---|---:|---:|---:|")
    rows = []
    for log in () if options.only == "patterns" else _logs():
        rows.append(_measured(*log, options.megabytes))
        rows[-1].print()
    patterns = [] if options.only == "logs" else sorted(_pattern_rows(), key=lambda row: row.speed)
    count = len(patterns)
    for row in (*patterns[:_SLOWEST_PATTERNS], *patterns[count // 10 :: count // 10 or 1]):
        row.print()
    rows += patterns
    slow = sum(row.speed < _MIN_SPEED for row in rows)
    print(f"\n{len(rows)} logs, {slow} slower than {_MIN_SPEED} MB/s, the slowest {min(row.speed for row in rows):.1f}")
    sys.exit(slow > 0 or max(row.memory for row in rows) > _MAX_MEMORY)


def _xid(number: int) -> str:
    return (
        f"Nov 20 12:{number // 60 % 60:02}:{number % 60:02} node1 kernel: [{12345 + number}.678901] NVRM: Xid "
        f"(PCI:0000:{number % 200:02x}:00): 13, pid={1000 + number}, name=python, ESR 0x5"
    )


def _noise() -> Iterator[str]:
    return (f"{line}\n" for line in noise(_NOISE_LINES, 1))


def _logs() -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    """Names of logs, with the texts that each repeats."""
    needles = [needle_of(pattern) for _, pattern in PATTERNS]
    yield "training run", _noise
    yield "training run of eight ranks", lambda: (f"[rank{n % 8}]: {line}" for n, line in enumerate(_noise()))
    yield (
        "training run in records of a container",
        lambda: (json.dumps({"log": line, "stream": "stdout", "time": _TIME}) + "\n" for line in _noise()),
    )
    yield "other ordinary logs", (DATA / "ordinary_logs.txt").read_text
    yield "blank lines", lambda: "\n"
    yield "lines of one letter", lambda: "a\n"
    yield "one line", lambda: "x"
    yield "Xids", lambda: (f"{_xid(number)}\n" for number in range(10_000))
    yield (
        "one error, every line from another rank",
        lambda: (f"[rank{n}]: RuntimeError: CUDA error: device-side assert triggered\n" for n in range(50_000)),
    )
    yield "all needles in every line", lambda: f"{all_needles()}\n"
    yield "all needles, with a number", lambda: (f"{needle} {number}\n" for number in range(200) for needle in needles)
    yield "all errors", lambda: (f"{text}\n" for _, text in WORDINGS)
    yield "all incomplete errors", lambda: (f"{almost(pattern)}\n" for _, pattern in PATTERNS)
    yield "tracebacks", lambda: (_TRACEBACK.format(number) for number in range(10_000))


def _pattern_logs() -> Iterator[tuple[str, bytes]]:
    """For every pattern, a log with its error and one with an incomplete one, and for every needle one full of it."""
    text = "".join(_noise())[: _PIECES * _PIECE]
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    yield "training run, in pieces", "\n".join(pieces).encode()
    for name, pattern in PATTERNS:
        yield f"{name}: error", f"\n{matched(pattern)}\n".join(pieces).encode()
        yield f"{name}: almost", f"\n{almost(pattern)}\n".join(pieces).encode()
    for name, pattern in {squeezed(needle_of(item[1])): item for item in PATTERNS}.values():
        yield f"{name}: needles", f"{repeated(pattern)}\n".encode() * _LINES_OF_NEEDLES


def _measured(name: str, texts: Callable[[], Iterable[str]], megabytes: int) -> _Row:
    """Explains a log in a child; another child writes the log, so that its texts are not in the measured memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        _in_child(name, lambda: _write(path, "".join(texts()), megabytes * _MEGABYTE))
        usage = _in_child(name, lambda: _read(path))
    return _Row(name, megabytes, megabytes / (usage.ru_utime + usage.ru_stime), usage.ru_maxrss >> 10)


def _pattern_rows() -> Iterator[_Row]:
    """Explains the logs of all patterns in one child."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "speeds")
        usage = _in_child("patterns", lambda: _write_pattern_speeds(path))
        rows: list[tuple[str, float, float]] = json.loads(path.read_text())
    return (_Row(*row, usage.ru_maxrss >> 10) for row in rows)


def _write_pattern_speeds(path: Path) -> None:
    rows = {name: (name, len(data) / _MEGABYTE, _speed(data)) for name, data in _pattern_logs()}
    slowest = set(sorted(rows, key=lambda name: rows[name][2])[: 2 * _SLOWEST_PATTERNS])
    for name, data in _pattern_logs():
        if name in slowest:
            rows[name] = (*rows[name][:2], max(_speed(data) for _ in range(_TRIES)))
    path.write_text(json.dumps(list(rows.values())))


def _speed(data: bytes) -> float:
    start = time.process_time()
    explain([data])
    return len(data) / _MEGABYTE / (time.process_time() - start)


def _in_child(name: str, action: Callable[[], None]) -> resource.struct_rusage:
    gc.collect()
    child = os.fork()
    if child == 0:
        action()
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{name}: the child ended with {os.waitstatus_to_exitcode(status)}")
    return usage


def _write(path: Path, text: str, size: int) -> None:
    path.write_bytes((text * (size // len(text) + 1)).encode()[:size])


def _read(path: Path) -> None:
    with path.open("rb") as file:
        explain(iter(lambda: file.read(_CHUNK_BYTES), b""))


if __name__ == "__main__":
    main()
