"""Time until `gpumon explain` answers: ``python -m tests.perf.explain_start [--other FOLDER]``.

Prints, for this checkout and another one, alternately: the wall time of the command for a traceback of 3 kB, and for
comparison that of `gpumon --version`; the CPU time to prepare the first search, imports of the search included; and the
megabytes per second of CPU time of an ordinary log. The best of all rounds counts: another process may have disturbed
the others. The exit status is 1 if this checkout misses a target: 0.4 s, 60 ms, or 10 MB/s.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.errors.corpus import noise
from tests.errors.texts import samples_of

_HERE: Final = Path(__file__).resolve().parents[2]
_TRACEBACK_BYTES: Final = 3000
_LOG_BYTES: Final = 20_000_000
_LINES: Final = 200_000
_MAX_SECONDS: Final = 0.4
_MAX_PREPARATION: Final = 0.06
_MIN_SPEED: Final = 10.0
_TRACEBACK_LINE: Final = '  File "/home/user/train.py", line {0}, in step\n    loss = self.layer_{0}(batch)\n'
_COMMAND: Final = "import sys\nfrom gpumon.cli import main\nsys.exit(main())"
_PREPARATION: Final = """\
import time
start = time.process_time()
from gpumon.errors import explain
explain.finder()
print(time.process_time() - start)
"""
_SPEED: Final = """\
import sys, time
from gpumon.errors.explain import explain, explain_text
explain_text("a")
data = open(sys.argv[1], "rb").read()
start = time.process_time()
assert not explain(data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20)).matches
print(len(data) / 1e6 / (time.process_time() - start))
"""


class _Result(NamedTuple):
    """What was measured, in seconds of wall time, seconds of CPU time, and megabytes per second."""

    command: float
    version: float
    preparation: float
    speed: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--other", type=Path, help="the folder of another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folders = [_HERE, *([options.other] if options.other else [])]
    with tempfile.TemporaryDirectory() as folder:
        traceback, log = Path(folder, "traceback.txt"), Path(folder, "log.txt")
        lines = "".join(_TRACEBACK_LINE.format(number) for number in range(100))[: _TRACEBACK_BYTES - 600]
        traceback.write_text(f"Traceback (most recent call last):\n{lines}\n{samples_of('oom')[0]}\n")
        text = "\n".join(noise(_LINES, 1))
        log.write_text((text * (_LOG_BYTES // len(text) + 1))[:_LOG_BYTES])
        rounds = [[_measured(other, traceback, log) for other in folders] for _ in range(options.rounds)]
    print("| checkout | explain 3 kB, s | --version, s | preparation, ms of CPU | MB/s |\n|---|---:|---:|---:|---:|")
    best = [_best(results) for results in zip(*rounds, strict=True)]
    for name, result in zip(("this", "other"), best, strict=False):
        print(
            f"| {name} | {result.command:.2f} | {result.version:.2f} | {1000 * result.preparation:.0f}"
            f" | {result.speed:.1f} |"
        )
    if len(best) > 1:
        ratios = [one / other for one, other in zip(*best, strict=True)]
        print("| ratio | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    own = best[0]
    sys.exit(own.command > _MAX_SECONDS or own.preparation > _MAX_PREPARATION or own.speed < _MIN_SPEED)


def _best(results: Sequence[_Result]) -> _Result:
    return _Result(
        min(result.command for result in results),
        min(result.version for result in results),
        min(result.preparation for result in results),
        max(result.speed for result in results),
    )


def _measured(folder: Path, traceback: Path, log: Path) -> _Result:
    return _Result(
        _seconds(folder, "explain", "--no-live", str(traceback)),
        _seconds(folder, "--version"),
        float(_run(folder, _PREPARATION)),
        float(_run(folder, _SPEED, str(log))),
    )


def _seconds(folder: Path, *arguments: str) -> float:
    start = time.perf_counter()
    _run(folder, _COMMAND, *arguments)
    return time.perf_counter() - start


def _run(folder: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
