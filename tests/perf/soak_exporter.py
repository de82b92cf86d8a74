"""Scrapes `gpumon exporter` every second for minutes: ``python -m tests.perf.soak_exporter --csv FILE``.

The exporter runs on the stand-in for the NVIDIA library, so a C compiler is needed and a GPU is not. Every half minute
the stand-in shows many processes more, or few again, and slow clients stay connected until the exporter ends their
connections. Once a minute, memory, descriptors and threads become a line of the file, which `--slope` reads again.
The exit status is 1 if a scrape failed.
"""

import argparse
import csv
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import create_connection, socket
from typing import Final, NamedTuple
from urllib.request import urlopen

from tests.nvml_mock import build
from tests.perf.bench import sleepers
from tests.perf.measure import pss
from tests.processes import PROC, threads, tree

_CHURN_SECONDS: Final = 30
_SLOW_CLIENTS: Final = 8
_MEBIBYTE: Final = 1 << 20


class ExporterSample(NamedTuple):
    """What the exporter uses at the end of a minute, and its scrapes until then."""

    minutes: float
    rss_mebibytes: float
    pss_mebibytes: float
    children_pss_mebibytes: float
    descriptors: int
    threads: int
    scrapes: int
    failed: int
    slowest_seconds: float


class Scraper:
    """Scrapes once a second, and keeps slow clients connected.

    Args:
        url: The page.
    """

    def __init__(self, url: str) -> None:
        self.done = 0
        self.failed = 0
        self.slowest_seconds = 0.0
        self._url = url
        self._port = int(url.rpartition(":")[2].partition("/")[0])
        self._slow: list[socket] = []

    def scrape(self) -> None:
        """Read the page once; every tenth time, replace the slow clients."""
        start = time.monotonic()
        try:
            with urlopen(self._url, timeout=10) as answer:
                self.failed += b"\ngpumon_up 1.0\n" not in answer.read()
        except (OSError, http.client.HTTPException):
            self.failed += 1
        self.done += 1
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - start)
        if self.done % 10 == 0:
            for client in self._slow:
                client.close()
            self._slow = [create_connection(("127.0.0.1", self._port), 5) for _ in range(_SLOW_CLIENTS)]
        for client in self._slow:
            with suppress(OSError):
                client.send(b"X")


def main() -> int:
    """Run the soak, or print the slope of a file."""
    options = _options()
    if options.slope:
        with options.csv.open(newline="") as file:
            rows = [ExporterSample(*(float(cell) for cell in row)) for row in list(csv.reader(file))[1:]]  # type: ignore[arg-type]
    else:
        with tempfile.TemporaryDirectory(prefix="gpumon-soak-") as folder, sleepers(64) as pids:
            rows = _run(options, Path(folder), pids)
    print(_table(rows, options.warm))
    return 1 if rows[-1].failed else 0


def _run(options: argparse.Namespace, folder: Path, pids: Sequence[int]) -> list[ExporterSample]:
    control = folder / "faults"
    control.write_text("")
    rows = []
    with ExitStack() as stack:
        file = stack.enter_context(options.csv.open("w", newline=""))
        environment = build(folder).environment(8, pids, control=control, NVML_MOCK_PROCS="2")
        pid, url = stack.enter_context(_exporter(environment))
        writer = csv.writer(file)
        writer.writerow(ExporterSample._fields)
        scraper = Scraper(url)
        start = time.monotonic()
        for second in range(1, int(60 * options.minutes) + 1):
            control.write_text("manyprocs:60" if second // _CHURN_SECONDS % 2 else "")
            scraper.scrape()
            if second % 60 == 0:
                rows.append(_sample(pid, scraper, (time.monotonic() - start) / 60))
                writer.writerow(rows[-1])
                file.flush()
            time.sleep(max(0.0, start + second - time.monotonic()))
    return rows


@contextmanager
def _exporter(environment: dict[str, str]) -> Iterator[tuple[int, str]]:
    """A running exporter: its PID and the address of its page."""
    command = [sys.executable, "-m", "gpumon", "exporter", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.pid, process.stderr.readline().split()[1]
        finally:
            process.terminate()


def _sample(pid: int, scraper: Scraper, minutes: float) -> ExporterSample:
    pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    return ExporterSample(
        round(minutes, 2),
        round(pages * os.sysconf("SC_PAGE_SIZE") / _MEBIBYTE, 2),
        round(pss(pid), 2),
        round(sum(map(pss, tree(pid)[1:])), 2),
        len(list((PROC / str(pid) / "fd").iterdir())),
        threads(pid),
        scraper.done,
        scraper.failed,
        round(scraper.slowest_seconds, 3),
    )


def _table(rows: Sequence[ExporterSample], warm_minutes: float) -> str:
    """The results in Markdown; the slopes are those of a least-squares line through the samples after the warm-up."""
    warm = [row for row in rows if row.minutes > warm_minutes]
    lines = ["| result | start of the slope | end | peak | slope |", "|---|--:|--:|--:|--:|"]
    for name in ("rss_mebibytes", "pss_mebibytes", "children_pss_mebibytes", "descriptors", "threads"):
        values = [getattr(row, name) for row in warm]
        slope = statistics.linear_regression([row.minutes / 60 for row in warm], values).slope
        lines.append(f"| {name} | {values[0]:g} | {values[-1]:g} | {max(values):g} | {slope:+.2f}/h |")
    last = rows[-1]
    lines.append(f"\n{last.scrapes:.0f} scrapes, {last.failed:.0f} failed, the slowest {last.slowest_seconds:g} s.")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.soak_exporter", description=__doc__)
    parser.add_argument("--minutes", type=float, default=70.0, help="length (%(default)s)")
    parser.add_argument("--warm", type=float, default=10.0, help="minutes before the slope is measured (%(default)s)")
    parser.add_argument("--csv", type=Path, metavar="FILE", required=True, help="the samples")
    parser.add_argument("--slope", action="store_true", help="print the results of a file that is there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
