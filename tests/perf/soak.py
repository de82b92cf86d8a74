"""Runs gpumon for minutes in a terminal while keys and faults come at random: ``python -m tests.perf.soak``.

gpumon runs on the stand-in for the NVIDIA library, so a C compiler is needed and a GPU is not. With ``--faults``, the
driver fails in random ways and heals; with ``--keys``, screens are opened and closed at random. Once a minute every
fault is healed, and the overview must show every GPU and process again. Afterwards a series of short runs is ended with
``q`` at random moments. The last table is Markdown. The exit status is 1 if anything stayed broken after it was healed.

The number of live widgets is not measured, but widgets that are never released show in the slope of the PSS.
"""

import argparse
import csv
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.nvml_mock import build
from tests.perf.bench import sleepers
from tests.perf.measure import QUIT_TIMEOUT_SECONDS, pss
from tests.processes import PROC, kill, threads, tree
from tests.terminal import Terminal, ended_within

SAMPLE_SECONDS: Final = 2.0
HEAL_SECONDS: Final = 60.0
RECOVERY_TIMEOUT_SECONDS: Final = 60.0
"""A collector that was replaced often is started again after 30 s at most."""
RECOVERY_CHECK_SECONDS: Final = 4.0
KEY_SECONDS: Final = 0.15
"""Longer than the time after which a lone escape byte is the escape key."""
FAULT_SECONDS: Final = (1.0, 6.0)
SHORT_RUN_SECONDS: Final = (0.2, 5.0)
KILL_COLLECTOR: Final = "kill"
FAULTS: Final = (
    "lost:{gpu}", "unknown:{gpu}", "timeout:{gpu}", "flaky:{gpu}=0.3", "hang:{gpu}=3", "hangall=2", "slow:pcie=20000",
    "noperm:procs", "notsupported:procs", "count:4", "uninit", "manyprocs:500", "garbage:temp", KILL_COLLECTOR,
)  # fmt: skip
"""Faults of the stand-in. Left out: NOT_SUPPORTED of metrics, which gpumon queries again only after five minutes."""

_ROWS: Final = 70
"""So that the rows of every GPU and of every process are visible together."""
_MAX_LISTED: Final = 16
"""More GPUs are a map, in which each has its number and its utilization, and their processes need more rows."""
_UP, _DOWN, _RIGHT, _LEFT, _PAGE_DOWN, _PAGE_UP = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[6~", "\x1b[5~"
_HOME, _END, _ESCAPE, _ENTER, _TAB, _INTERRUPT = "\x1b[H", "\x1b[F", "\x1b", "\r", "\t", "\x03"
_REDRAW = "\x0c"
ONE_GPU: Final = " g: all GPUs "
"""On the overview while its process table shows the selected GPU alone."""
_MOVES: Final = (_UP, _DOWN, _PAGE_UP, _PAGE_DOWN, _HOME, _END)


class Visit(NamedTuple):
    """A screen that random keys open.

    Attributes:
        opening: Keys that open the screen from the overview.
        keys: Keys that are pressed there at random.
        closing: Keys that lead back to the overview from wherever ``keys`` lead.
        quit_key: The key that ends gpumon there.
    """

    opening: tuple[str, ...]
    keys: tuple[str, ...] = _MOVES
    closing: tuple[str, ...] = (_ESCAPE,)
    quit_key: str = "q"


VISITS: Final = (
    Visit((), (*_MOVES, "T", "[", "]", _TAB), ()), Visit((_ENTER,), (*_MOVES, _LEFT, _RIGHT, "z", "x", "n", "[", "]")),
    Visit((_TAB, _ENTER), _MOVES, (_ESCAPE, _TAB)), Visit(("3",), ("[", "]", "z", "x")), Visit(("6",)),
    Visit(("7",), (*"CUDA error", _ENTER, _TAB), (_ESCAPE, _ESCAPE), quit_key=_INTERRUPT),
    Visit(("8",), (*_MOVES, "r")), Visit(("?",), (_UP, _DOWN), quit_key=_INTERRUPT), Visit(("C",)), Visit(("5",)),
    Visit(("?", _ENTER), (*_MOVES, _TAB), (_ESCAPE, _ESCAPE), quit_key=_INTERRUPT),
    Visit(("6", "5", "8", "3"), ("1", "3", "5", "6", "8")), Visit((" ",), _MOVES, (" ",)),
    Visit(("d",), (*_MOVES, ",", "."), ("d",)),
)  # fmt: skip
"""Left out: keys that start workloads, write files, send signals, change the interval, or hide columns."""


class Sample(NamedTuple):
    """What gpumon uses at one moment; its children are the collector, and processes that screens start."""

    seconds: float
    pss_mebibytes: float
    children_pss_mebibytes: float
    descriptors: int
    threads: int
    processes: int


class Player:
    """Presses random keys and flips random faults on a running gpumon.

    Attributes:
        keys: Number of keys pressed.
        faults: Number of faults toggled.
        recent_faults: The last faults since `heal`, oldest first.
        visit: The screen that is open.
        tour: What is visited first.
        quit_key: The key that ends gpumon there, also if the screen before it has not closed yet.

    Args:
        terminal: The terminal in which gpumon runs.
        control: The stand-in's file of faults.
        options: The options of the command line.
        source: The source of randomness.
    """

    def __init__(self, terminal: Terminal, control: Path, options: argparse.Namespace, source: random.Random) -> None:
        self.keys = 0
        self.faults = 0
        self.recent_faults: list[str] = []
        self.visit = VISITS[0]
        self.quit_key = self.visit.quit_key
        self._terminal = terminal
        self._control = control
        self._options = options
        self._random = source
        self._script: Iterator[str] = iter(())
        self.tour: Iterator[Visit] = iter(())
        self._fault_due = 0.0

    def play(self, seconds: float) -> None:
        """Press keys and flip faults for a time.

        Raises:
            RuntimeError: gpumon ended.
        """
        deadline = time.monotonic() + seconds
        while (now := time.monotonic()) < deadline:
            if self._options.faults and now >= self._fault_due:
                self._fault_due = now + self._random.uniform(*FAULT_SECONDS)
                self._flip_fault()
            if self._options.keys:
                self._press(self._next_key())
            self._pause()

    def heal(self, pattern: str) -> float:
        """Heal every fault and go back to the overview; return the seconds until the screen shows ``pattern``.

        Raises:
            AssertionError: The screen does not show it in time.
            RuntimeError: gpumon ended.
        """
        self._control.write_text("")
        self._fault_due = 0.0
        self.recent_faults = []
        healed = time.monotonic()
        for key in (*self._script, _ESCAPE, _ESCAPE):
            self._press(key)
            self._pause()  # what gpumon said at its end is forgotten next
        self._terminal.forget()
        self._press(_REDRAW)
        while True:
            try:
                self._terminal.wait_for(pattern, RECOVERY_CHECK_SECONDS)
            except AssertionError:
                if time.monotonic() - healed > RECOVERY_TIMEOUT_SECONDS:
                    raise
                self._undo_keys()
            else:
                return time.monotonic() - healed

    def _undo_keys(self) -> None:
        """Leave the states in which a key that came before its screen was ready has left gpumon."""
        screen = self._terminal.screen()
        self._press(_ESCAPE)  # a notice may hide that a screen is open, which refuses the other keys
        self._pause()
        for mark, key in ((" REPLAY ", "d"), (" PAUSED ", " "), (ONE_GPU, "g")):
            if mark in screen:
                self._press(key)

    def _next_key(self) -> str:
        while (key := next(self._script, None)) is None:
            before, self.visit = self.visit, next(self.tour, None) or self._random.choice(VISITS)
            self.quit_key = _INTERRUPT if _INTERRUPT in {before.quit_key, self.visit.quit_key} else "q"
            wandering = self._random.choices(self.visit.keys, k=self._random.randrange(8))
            self._script = iter((*self.visit.opening, *wandering, *self.visit.closing))
        return key

    def _press(self, key: str) -> None:
        self._terminal.send(key)
        self.keys += 1

    def _pause(self) -> None:
        time.sleep(KEY_SECONDS)
        if (code := self._terminal.process.poll()) is not None:
            raise RuntimeError(f"gpumon ended with {code}:\n{self._terminal.screen()}")

    def _flip_fault(self) -> None:
        """Replace the faults by a random one, or heal them."""
        gpu = self._random.randrange(self._options.gpus)
        fault = self._random.choice(("", "", *FAULTS)).format(gpu=gpu)
        if fault:
            self.faults += 1
            self.recent_faults = [*self.recent_faults[-3:], fault]
        if fault == KILL_COLLECTOR:
            for pid in tree(self._terminal.pid)[1:]:
                if b"gpumon/collect" in _command_line(pid):
                    kill(pid)
            return
        self._control.write_text(fault)


class Results:
    """What a soak has measured.

    Attributes:
        samples: Of the long run, oldest first.
        recoveries: Seconds from the healing of the faults to a complete overview.
        stuck: What the screen showed where it did not recover.
        quits: Seconds from the quit key to the end of gpumon.
        keys: Number of keys pressed in the long run.
        faults: Number of faults toggled in the long run.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.recoveries: list[float] = []
        self.stuck: list[str] = []
        self.quits: list[float] = []
        self.keys = 0
        self.faults = 0

    def table(self, warm_seconds: float) -> str:
        """The results in Markdown; the slope is that of the samples after ``warm_seconds``."""
        warm = [sample for sample in self.samples if sample.seconds >= warm_seconds]
        quarter = max(1, len(warm) // 4)
        medians = [statistics.median(sample.pss_mebibytes for sample in warm[part]) for part in _ends(quarter)]
        rows = {
            "length of the long run": f"{self.samples[-1].seconds / 60:.1f} min",
            "keys pressed, faults toggled": f"{self.keys}, {self.faults}",
            "PSS of gpumon: start, end, peak": f"{self._range('pss_mebibytes', '.1f')} MiB",
            "slope of PSS after the warm-up": f"{_slope(warm):.1f} MiB/h",
            "median of its first and last quarter": " and ".join(f"{median:.1f} MiB" for median in medians),
            "PSS of its children: start, end, peak": f"{self._range('children_pss_mebibytes', '.1f')} MiB",
            "descriptors: start, end, peak": self._range("descriptors", "d"),
            "threads: start, end, peak": self._range("threads", "d"),
            "processes: start, end, peak": self._range("processes", "d"),
            "recoveries: number, median, longest": _times(self.recoveries),
            "screens that did not recover": str(len(self.stuck)),
            "quit: number, median, longest": _times(self.quits),
        }
        return "\n".join(
            ["| result | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
        )

    def _range(self, field: str, form: str) -> str:
        values = [getattr(sample, field) for sample in self.samples]
        return ", ".join(format(value, form) for value in (values[0], values[-1], max(values)))


class Soak:
    """The runs of gpumon with the same options, on one stand-in.

    Args:
        options: The options of the command line.
        control: The stand-in's file of faults.
        environment: The environment of gpumon.
        pids: The processes that the stand-in shows.
    """

    def __init__(
        self, options: argparse.Namespace, control: Path, environment: Mapping[str, str], pids: Sequence[int]
    ) -> None:
        self.results = Results()
        self._options = options
        self._control = control
        self._environment = environment
        self._complete = _complete_overview(options.gpus, pids)
        self._random = random.Random(options.seed)

    def run_long(self) -> None:
        """Take samples for the chosen time, heal all faults once a minute, and quit."""
        results = self.results
        with self._opened() as terminal:
            player = Player(terminal, self._control, self._options, self._random)
            player.tour = iter(VISITS)  # what a screen needs when it first opens belongs to the warm-up
            started = healed = time.monotonic()
            while time.monotonic() - started < 60 * self._options.minutes:
                player.play(SAMPLE_SECONDS)
                if time.monotonic() - healed >= HEAL_SECONDS:
                    self._check_recovery(player)
                    healed = time.monotonic()
                results.samples.append(_sample(terminal.pid, time.monotonic() - started))
            self._check_recovery(player)
            results.samples.append(_sample(terminal.pid, time.monotonic() - started))
            results.keys, results.faults = player.keys, player.faults
            results.quits.append(_seconds_to_exit(terminal, "q"))

    def run_short(self) -> None:
        """Quit a new gpumon at a random moment."""
        with self._opened() as terminal:
            player = Player(terminal, self._control, self._options, self._random)
            player.play(self._random.uniform(*SHORT_RUN_SECONDS))
            self.results.quits.append(_seconds_to_exit(terminal, player.quit_key))

    @contextmanager
    def _opened(self) -> Iterator[Terminal]:
        """Run a new gpumon without faults, and wait until it shows values."""
        self._control.write_text("")
        options = ("--interval", str(self._options.interval), "--history", self._options.history)
        command = (sys.executable, "-m", "gpumon", *options)
        with Terminal(command, self._environment, rows=_ROWS, cols=160) as terminal:
            terminal.wait_for(ONE_GPU, RECOVERY_TIMEOUT_SECONDS)
            terminal.send("g")
            terminal.wait_for(self._complete, RECOVERY_TIMEOUT_SECONDS)
            yield terminal

    def _check_recovery(self, player: Player) -> None:
        faults = player.recent_faults
        try:
            seconds = player.heal(self._complete)
        except AssertionError as error:
            self.results.stuck.append(str(error))
            print(error, file=sys.stderr)
        else:
            self.results.recoveries.append(seconds)
            print(f"# complete {seconds:.1f} s after {', '.join(faults) or 'no fault'}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the soak and print the results."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="gpumon-soak-") as folder, sleepers(2 * options.gpus) as pids:
        control = Path(folder, "faults")
        soak = Soak(options, control, _environment(Path(folder), options.gpus, control, pids), pids)
        soak.run_long()
        for _ in range(options.quits):
            soak.run_short()
    print(soak.results.table(60 * options.warm))
    if options.csv:
        _write(options.csv, soak.results.samples)
    return 1 if soak.results.stuck else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the long run (%(default)s)")
    parser.add_argument("--keys", action="store_true", help="open and close screens at random")
    parser.add_argument("--faults", action="store_true", help="flip faults of the stand-in driver at random")
    parser.add_argument("--interval", type=float, default=0.1, help="gpumon's interval in seconds (%(default)s)")
    parser.add_argument("--history", default="1m", help="gpumon's history, which must be full early (%(default)s)")
    parser.add_argument("--warm", type=float, help="minutes before the slope is measured (20, or half of a short run)")
    parser.add_argument("--quits", type=int, default=20, help="short runs that are ended with q (%(default)s)")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1, help="of the random keys, faults and moments (%(default)s)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the samples of the long run to a file")
    options = parser.parse_args()
    if options.warm is None:  # until then, caches of a fixed size fill
        options.warm = min(20.0, options.minutes / 2)
    if options.minutes <= options.warm:
        parser.error("--minutes must be longer than --warm")
    return options


def _write(path: Path, samples: Sequence[Sample]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Sample._fields)
        writer.writerows(samples)


def _environment(folder: Path, gpus: int, control: Path, pids: Sequence[int]) -> dict[str, str]:
    home = folder / "home"
    home.mkdir()
    environment = build(folder).environment(gpus, pids, control=control, NVML_MOCK_PROCS="2")
    return environment | {"HOME": str(home), "XDG_CONFIG_HOME": str(home)}


def _complete_overview(gpus: int, pids: Sequence[int]) -> str:
    """A pattern of the overview with the utilization of every GPU, and every process that there is room for."""
    if gpus > _MAX_LISTED:
        pids = ()
    rows = "".join(rf"(?=[\s\S]*[\n▸ ] *{gpu} +[━╸─▁▂▃▄▅▆▇█]+ +\d+%)" for gpu in range(gpus))
    processes = "".join(rf"(?=[\s\S]* {pid} )" for pid in pids)
    return rf"\A(?![\s\S]* respond)(?=.*● live){processes}{rows}"


def _seconds_to_exit(terminal: Terminal, key: str) -> float:
    pressed = time.monotonic()
    terminal.send(key)
    if not ended_within(terminal.pid, QUIT_TIMEOUT_SECONDS):
        print(f"the program still runs:\n{terminal.screen()}", file=sys.stderr)
    return time.monotonic() - pressed


def _sample(pid: int, seconds: float) -> Sample:
    pids = tree(pid)
    return Sample(
        seconds=round(seconds, 1),
        pss_mebibytes=round(pss(pid), 2),
        children_pss_mebibytes=round(sum(map(pss, pids[1:])), 2),
        descriptors=sum(map(_descriptors, pids)),
        threads=sum(map(_threads, pids)),
        processes=len(pids),
    )


def _descriptors(pid: int) -> int:
    with suppress(OSError):
        return len(list((PROC / str(pid) / "fd").iterdir()))
    return 0


def _threads(pid: int) -> int:
    with suppress(OSError):
        return threads(pid)
    return 0


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes()
    return b""


def _slope(samples: Sequence[Sample]) -> float:
    """MiB per hour of a least-squares line through the PSS of gpumon."""
    hours = [sample.seconds / 3600 for sample in samples]
    return statistics.linear_regression(hours, [sample.pss_mebibytes for sample in samples]).slope


def _ends(count: int) -> tuple[slice, slice]:
    """The first and the last ``count`` of a sequence."""
    return slice(count), slice(-count, None)


def _times(seconds: Sequence[float]) -> str:
    if not seconds:
        return "0"
    return f"{len(seconds)}, {statistics.median(seconds):.2f} s, {max(seconds):.2f} s"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no process behind
    sys.exit(main())
