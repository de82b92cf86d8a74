"""Time from a key to the bytes that answer it, on thousands of processes: ``python -m tests.perf.keys``.

Runs gpumon in a pseudo-terminal on a stand-in for the NVIDIA library, which needs a C compiler. The process table of
all GPUs has the focus. First gpumon is paused, so that every byte after a key belongs to its answer: the time ends with
the last byte before a silence. Then gpumon is live at one sample per second: the time ends with the first byte. CPU
time is that of gpumon for the answer; unlike the other times, it does not depend on what else runs on this host.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.nvml_mock import build
from tests.perf.bench import sleepers
from tests.terminal import Terminal

LIMIT_MILLISECONDS: Final = 100.0
_QUIET_SECONDS: Final = 0.12
_TIMEOUT_SECONDS: Final = 5.0
_SETTLE_SECONDS: Final = 5.0
"""The first updates take longer."""
_POLL_SECONDS: Final = 0.001
_PAGE_DOWN: Final = "\x1b[6~"
_PAGE_UP: Final = "\x1b[5~"
_DOWN: Final = "\x1b[B"
_END: Final = "\x1b[F"
_HOME: Final = "\x1b[H"
_ESCAPE: Final = "\x1b"
_ESCAPE_SECONDS: Final = 0.3
"""Textual waits this long at most for the rest of a key that begins with escape."""


class Action(NamedTuple):
    """What is measured.

    Attributes:
        name: Its row in the table.
        keys: The keys, each of which is one measurement.
        before: Keys that prepare it, without a measurement.
        after: Keys that undo it, without a measurement.
    """

    name: str
    keys: Sequence[str]
    before: Sequence[str] = ()
    after: Sequence[str] = ()


class Answer(NamedTuple):
    """What followed a key.

    Attributes:
        first: Milliseconds until the first byte.
        last: Milliseconds until the last byte.
        cpu: Milliseconds of CPU time.
        sent_bytes: Bytes.
    """

    first: float
    last: float
    cpu: float
    sent_bytes: int


class KeyTimes(NamedTuple):
    """The answers to the keys of one action; ``milliseconds`` of each are those that count."""

    name: str
    milliseconds: list[float]
    answers: list[Answer]


ACTIONS: Final = (
    Action("cursor down", [_DOWN] * 60, before=[_HOME]),
    Action("page down", [_PAGE_DOWN] * 30, before=[_HOME]),
    Action("page up", [_PAGE_UP] * 15),
    Action("last, first row", [_END, _HOME] * 8),
    Action("type a filter (words)", list("sleep 1000"), before=["/"], after=[_ESCAPE]),
    Action("type a filter (expressions)", list("gpu:2-5 mem>1M cmd~sl"), before=["/"], after=[_ESCAPE]),
    Action("sort by a column", ["s", "m"] * 9),
)
LIVE_ACTIONS: Final = (ACTIONS[0]._replace(name="cursor down, live"), ACTIONS[4]._replace(name="type a filter, live"))


def main() -> None:
    """Measures every action, prints a Markdown table, and fails if a median is above the limit."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="gpumon-keys-") as folder, sleepers(options.processes) as pids:
        mock = build(Path(folder))
        environment = mock.environment(options.gpus, pids, NVML_MOCK_PROCS=str(options.processes))
        environment |= {"XDG_CONFIG_HOME": folder, "XDG_STATE_HOME": folder, "HOME": folder}
        with Terminal([sys.executable, "-m", "gpumon"], environment, options.rows, options.cols) as terminal:
            results = _measured(terminal, options.prepare.split(","))
    print(f"{options.gpus * options.processes} processes, {options.cols}x{options.rows}, {os.cpu_count()} processors\n")
    print("| key | median ms | longest ms | median CPU ms | longest CPU ms | median bytes | keys |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for result in results:
        columns = (result.milliseconds, [answer.cpu for answer in result.answers])
        cells = [f"{number:.0f}" for values in columns for number in (statistics.median(values), max(values))]
        cells.append(f"{statistics.median(answer.sent_bytes for answer in result.answers):.0f}")
        print(f"| {result.name} | {' | '.join(cells)} | {len(result.answers)} |")
    if options.json is not None:
        options.json.write_text(json.dumps([result._asdict() for result in results]) + "\n")
    if any(statistics.median(result.milliseconds) > LIMIT_MILLISECONDS for result in results):
        sys.exit(f"A median is above {LIMIT_MILLISECONDS:.0f} ms.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.keys", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=375, help="on each GPU (%(default)s)")
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--cols", type=int, default=160)
    parser.add_argument("--prepare", default="\t,g", help="keys that show all processes and focus their table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every measurement to this file")
    return parser.parse_args()


def _measured(terminal: Terminal, prepare: Sequence[str]) -> list[KeyTimes]:
    terminal.wait_for("sleep 1000")
    time.sleep(_SETTLE_SECONDS)
    for key in (*prepare, " "):
        answer_to_key(terminal, key)
    results = [_action_times(terminal, action, is_paused=True) for action in ACTIONS]
    answer_to_key(terminal, " ")
    results += [_action_times(terminal, action, is_paused=False) for action in LIVE_ACTIONS]
    terminal.send("\x03")
    terminal.wait_exit()
    return results


def _action_times(terminal: Terminal, action: Action, *, is_paused: bool) -> KeyTimes:
    for key in action.before:
        answer_to_key(terminal, key)
    answers = [answer for answer in (answer_to_key(terminal, key) for key in action.keys) if answer.sent_bytes]
    for key in action.after:
        answer_to_key(terminal, key)
        time.sleep(_ESCAPE_SECONDS)
    answers = answers or [Answer(0.0, 0.0, 0.0, 0)]
    return KeyTimes(action.name, [answer.last if is_paused else answer.first for answer in answers], answers)


def answer_to_key(terminal: Terminal, key: str) -> Answer:
    """Types a key, and waits for the end of what it changes; without a change, all times are 0."""
    before, seen, cpu_before = terminal.written, len(terminal.arrivals), _cpu_seconds(terminal.pid)
    sent_at = time.monotonic()
    terminal.send(key)
    while time.monotonic() - sent_at < _TIMEOUT_SECONDS:
        time.sleep(_POLL_SECONDS)
        arrivals = terminal.arrivals[seen:]
        silence = time.monotonic() - (terminal.started + arrivals[-1][0] if arrivals else sent_at)
        if silence > _QUIET_SECONDS and (arrivals or silence > 4 * _QUIET_SECONDS):
            break
    if not arrivals:
        return Answer(0.0, 0.0, 0.0, 0)
    offset = terminal.started - sent_at
    seconds = (arrivals[0][0] + offset, arrivals[-1][0] + offset, _cpu_seconds(terminal.pid) - cpu_before)
    first, last, cpu = (1000 * value for value in seconds)
    return Answer(first, last, cpu, terminal.written - before)


def _cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, in nanoseconds where the kernel counts them."""
    tasks = Path("/proc", str(pid), "task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


if __name__ == "__main__":
    main()
