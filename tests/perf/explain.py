"""Speed and memory of `gpumon explain` on ordinary and hostile logs: ``python -m tests.perf.explain [MEGABYTES]``.

Prints a table with a row per log: a training run, the same with a rank before every line, blank lines, one line without
an end, all needles of the catalogue in every line, and for every pattern a log whose lines repeat its needle and a log
whose lines almost match it. Every log is explained in a separate process; the speed is per second of its CPU time, and
the memory is its peak, with Python and gpumon. The exit status is 1 if a log is slower than 5 MB/s.
"""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Final

from gpumon.diagnosis.explain import explain, explain_text
from tests.diagnosis.corpus import noise
from tests.diagnosis.hostile import ALL_NEEDLES, PATTERNS, almost, repeated
from tests.diagnosis.texts import DATA, WORDINGS

_MEGABYTE: Final = 1_000_000
_DEFAULT_MEGABYTES: Final = 100
_PATTERN_MEGABYTES: Final = 4
_MIN_SPEED: Final = 5.0
"""Megabytes per second."""
_CHUNK_BYTES: Final = 1 << 20
_XID: Final = (
    "Nov 20 12:00:01 node1 kernel: [12345.678901] NVRM: Xid (PCI:0000:17:00): 13, pid=1234, name=python, ESR 0x5"
)


def main() -> None:
    """Print the table."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else _DEFAULT_MEGABYTES
    explain_text("\n".join(text for _, text in WORDINGS))  # compiles the patterns before a child is measured
    print(f"{'log':<44} {'MB':>5} {'MB/s':>7} {'peak MiB':>9}")
    speeds = [_measured(name, unit, megabytes) for name, unit in _logs()]
    speeds += [_measured(name, unit, _PATTERN_MEGABYTES) for name, unit in _pattern_logs()]
    print(f"slowest: {min(speeds):.1f} MB/s")
    sys.exit(min(speeds) < _MIN_SPEED)


def _logs() -> Iterator[tuple[str, str]]:
    """Names of logs, with the text that each repeats."""
    lines = noise(20_000, 1)
    yield "training run", "\n".join(lines) + "\n"
    yield "training run of eight ranks", "".join(f"[rank{n % 8}]: {line}\n" for n, line in enumerate(lines))
    yield "other ordinary logs", (DATA / "ordinary_logs.txt").read_text()
    yield "blank lines", "\n"
    yield "blank lines of Windows", "\r\n"
    yield "lines of one letter", "a\n"
    yield "one line", "x"
    yield "one line of words", "the quick brown fox "
    yield "one line of incomplete Xids", "NVRM: Xid (PCI:a"
    yield "one line of Xids with escaped line ends", rf"{_XID}\n"
    yield "Xids", f"{_XID}\n"
    yield "all needles in every line", f"{ALL_NEEDLES}\n"
    yield "all needles, each on its line", "".join(f"{pattern.needle}\n" for _, pattern in PATTERNS)
    yield "all errors in every line", " ".join(text.replace("\n", " ") for _, text in WORDINGS) + "\n"
    yield "all errors", "".join(f"{text}\n" for _, text in WORDINGS)
    yield "all incomplete errors", "".join(f"{almost(pattern)}\n" for _, pattern in PATTERNS)


def _pattern_logs() -> Iterator[tuple[str, str]]:
    for name, pattern in PATTERNS:
        yield f"{name}: needle repeated", f"{repeated(pattern)}\n"
        yield f"{name}: almost", f"{almost(pattern)}\n"


def _measured(name: str, unit: str, megabytes: int) -> float:
    """Explains a log in a child, prints its row, and returns the speed in megabytes per second."""
    size = megabytes * _MEGABYTE
    gc.collect()
    child = os.fork()
    if child == 0:
        explain(_chunks(unit.encode(), size))
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{name}: the child ended with {os.waitstatus_to_exitcode(status)}")
    speed = megabytes / (usage.ru_utime + usage.ru_stime)
    print(f"{name:<44} {megabytes:>5} {speed:>7.1f} {usage.ru_maxrss >> 10:>9}", flush=True)
    return speed


def _chunks(unit: bytes, size: int) -> Iterator[bytes]:
    """A log of the given size that repeats a text, in chunks."""
    piece = unit * max(1, _CHUNK_BYTES // len(unit))
    for _ in range(max(1, size // len(piece))):
        yield piece


if __name__ == "__main__":
    main()
