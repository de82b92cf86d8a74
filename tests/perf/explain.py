"""Speed and memory of `gpumon explain` on ordinary and hostile logs: ``python -m tests.perf.explain [MEGABYTES]``.

Prints a Markdown table with a row per log: a training run, the same with a rank before every line, blank lines, one
line without an end, all needles of the entries in every line, and others. Then it reads, for every pattern, a log
whose lines repeat its needle and a log whose lines almost match it, and prints the slowest ones. Every log is explained
in a separate process, and those of the patterns, which are short, in another one; the speed is per second of CPU time,
and the memory is the peak of the process, with Python and gpumon. The exit status is 1 if a log is slower than 5 MB/s
or needs more than 64 MiB. On a busy host, all speeds are lower.
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
from tests.errors.corpus import noise
from tests.errors.hostile import PATTERNS, all_needles, almost, needle_of, repeated
from tests.errors.texts import DATA, WORDINGS

_MEGABYTE: Final = 1_000_000
_DEFAULT_MEGABYTES: Final = 20
_PATTERN_BYTES: Final = 100_000
_TRIES: Final = 3
"""How often a short log is read at most; the best time counts: another process may have disturbed the others."""
_MIN_SPEED: Final = 5.0
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
    parser.add_argument("--ordinary", action="store_true", help="only the training run")
    options = parser.parse_args()
    explain_text("\n".join(text for _, text in WORDINGS))  # compiles the patterns before a child is measured
    print("| log | MB | MB/s | peak MiB |\n|---|---:|---:|---:|")
    rows = []
    for log in _logs():
        rows.append(_measured(*log, options.megabytes))
        rows[-1].print()
        if options.ordinary:
            return
    patterns = sorted(_pattern_rows(), key=lambda row: row.speed)
    for row in patterns[:_SLOWEST_PATTERNS]:
        row.print()
    rows += patterns
    print(f"\n{len(rows)} logs, the slowest {min(row.speed for row in rows):.1f} MB/s")
    sys.exit(any(row.speed < _MIN_SPEED or row.memory > _MAX_MEMORY for row in rows))


def _xid(number: int) -> str:
    return (
        f"Nov 20 12:{number // 60 % 60:02}:{number % 60:02} node1 kernel: [{12345 + number}.678901] NVRM: Xid "
        f"(PCI:0000:{number % 200:02x}:00): 13, pid={1000 + number}, name=python, ESR 0x5"
    )


def _needles() -> list[str]:
    return [needle_of(pattern) for _, pattern in PATTERNS]


def _noise() -> Iterator[str]:
    return (f"{line}\n" for line in noise(_NOISE_LINES, 1))


def _logs() -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    """Names of logs, with the texts that each repeats."""
    yield "training run", _noise
    yield "training run of eight ranks", lambda: (f"[rank{n % 8}]: {line}" for n, line in enumerate(_noise()))
    yield (
        "training run, every line from another rank",
        lambda: (f"[rank{n % 100_000}]: {line}" for n, line in enumerate(_noise())),
    )
    yield (
        "training run in records of a container",
        lambda: (json.dumps({"log": line, "stream": "stdout", "time": _TIME}) + "\n" for line in _noise()),
    )
    yield "training run with the word Error in every line", lambda: (f"Error {line}" for line in _noise())
    yield "other ordinary logs", (DATA / "ordinary_logs.txt").read_text
    yield "blank lines", lambda: "\n"
    yield "blank lines of Windows", lambda: "\r\n"
    yield "lines of one letter", lambda: "a\n"
    yield "one line", lambda: "x"
    yield "one line of words", lambda: "the quick brown fox "
    yield "one line of incomplete Xids", lambda: "NVRM: Xid (PCI:a"
    yield "one line of Xids with escaped line ends", lambda: (rf"{_xid(number)}\n" for number in range(10_000))
    yield "Xids", lambda: (f"{_xid(number)}\n" for number in range(10_000))
    yield (
        "one error, every line from another rank",
        lambda: (f"[rank{n}]: RuntimeError: CUDA error: device-side assert triggered\n" for n in range(50_000)),
    )
    yield "all needles in every line", lambda: f"{all_needles()}\n"
    yield "all needles, each on its line", lambda: (f"{needle}\n" for needle in _needles())
    yield (
        "all needles, each on its line with a number",
        lambda: (f"{needle} {number}\n" for number in range(200) for needle in _needles()),
    )
    yield "all needles, broken at every space", lambda: (needle.replace(" ", "\n") + "\n" for needle in _needles())
    yield "all needles in lower case, each on its line", lambda: (f"{needle.lower()}\n" for needle in _needles())
    yield "all errors in every line", lambda: " ".join(text.replace("\n", " ") for _, text in WORDINGS) + "\n"
    yield "all errors", lambda: (f"{text}\n" for _, text in WORDINGS)
    yield "all errors in lower case", lambda: (f"{text.lower()}\n" for _, text in WORDINGS)
    yield "all incomplete errors", lambda: (f"{almost(pattern)}\n" for _, pattern in PATTERNS)
    yield "tracebacks", lambda: (_TRACEBACK.format(number) for number in range(10_000))


def _pattern_logs() -> Iterator[tuple[str, Callable[[], Iterable[str]]]]:
    for name, pattern in PATTERNS:
        yield f"{name}: needle repeated", lambda pattern=pattern: f"{repeated(pattern)}\n"  # type: ignore[misc]
        yield f"{name}: almost", lambda pattern=pattern: f"{almost(pattern)}\n"  # type: ignore[misc]


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
        speeds: dict[str, float] = json.loads(path.read_text())
    for name, speed in speeds.items():
        yield _Row(name, _PATTERN_BYTES / _MEGABYTE, speed, usage.ru_maxrss >> 10)


def _write_pattern_speeds(path: Path) -> None:
    speeds: dict[str, float] = {}
    for name, texts in _pattern_logs():
        text = "".join(texts()).encode()
        data = (text * (_PATTERN_BYTES // len(text) + 1))[:_PATTERN_BYTES]
        speeds[name] = 0.0
        for _ in range(_TRIES):
            if speeds[name] < 2 * _MIN_SPEED:
                start = time.process_time()
                explain([data])
                speeds[name] = max(speeds[name], len(data) / _MEGABYTE / (time.process_time() - start))
    path.write_text(json.dumps(speeds))


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
    piece = (text * max(1, _CHUNK_BYTES // len(text))).encode()
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(piece[: size - file.tell()])


def _read(path: Path) -> None:
    with path.open("rb") as file:
        explain(iter(lambda: file.read(_CHUNK_BYTES), b""))


if __name__ == "__main__":
    main()
