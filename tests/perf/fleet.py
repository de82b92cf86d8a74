"""Cost of the fleet screen: ``python -m tests.perf.fleet --hosts N[,N...]``, or ``--ssh-hosts N[,N...]``.

A fake Prometheus on loopback, in a separate process, answers the query of the screen with the JSON that a real one
sends for that many hosts with eight GPUs; a test compares the two. Utilization and power of most GPUs change with every
answer. gpumon runs in a pseudo-terminal, started as users start it.

Measured are the time from the answer to the first complete screen, CPU time and memory of gpumon and of its reader at a
refresh of 15 s, bytes to the terminal, and the time from a key to the end of its answer.
"""

import argparse
import gzip
import multiprocessing.connection
import multiprocessing.sharedctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final, NamedTuple

from tests.fleet.canned import answer
from tests.fleet.fake_prometheus import body, serving
from tests.fleet.hosts import mixed_hosts
from tests.perf.fleet_hosts import measure_hosts
from tests.perf.keys import answer_to_key
from tests.processes import cpu_seconds, tree
from tests.terminal import Terminal

_INTERVAL_SECONDS: Final = 15
_MAX_WAIT_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 3.0
_KEYS: Final = {"down": "\x1b[B", "page down": "\x1b[6~", "last row": "\x1b[F", "first row": "\x1b[H", "next list": "v"}
_ANSWERS: Final = 4
"""Different answers, which take turns."""


class Cost(NamedTuple):
    """What one size costs.

    Attributes:
        hosts: Number of hosts.
        first_seconds: From the last byte of the first answer to the screen.
        cpu_percent: CPU time of gpumon, its reader and its collector, of one core.
        reader_percent: That of the reader alone.
        memory_bytes: Resident memory of gpumon.
        reader_bytes: That of the reader.
        sent_bytes: Bytes to the terminal per refresh.
        key_milliseconds: Longest median of a key.
        key_cpu_milliseconds: Longest median of the CPU time of a key.
        filter_milliseconds: Median of a character of a filter on the list of all GPUs.
        answer_bytes: Size of an answer.
    """

    hosts: int
    first_seconds: float
    cpu_percent: float
    reader_percent: float
    memory_bytes: int
    reader_bytes: int
    sent_bytes: float
    key_milliseconds: float
    key_cpu_milliseconds: float
    filter_milliseconds: float
    answer_bytes: int


def main() -> None:
    """Measure every size, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.fleet", description=__doc__)
    parser.add_argument("--hosts", default="2048", help="numbers of hosts, separated by commas (%(default)s)")
    parser.add_argument("--refreshes", type=int, default=4, help="refreshes to measure (%(default)s)")
    parser.add_argument("--ssh-hosts", default="", help="measure these numbers of hosts through ssh instead")
    parser.add_argument("--seconds", type=float, default=30, help="time to measure through ssh (%(default)s)")
    options = parser.parse_args()
    if options.ssh_hosts:
        print("| hosts | CPU of gpumon | memory | to the terminal | quit |\n|--:|--:|--:|--:|--:|", flush=True)
        for hosts in map(int, options.ssh_hosts.split(",")):
            print(measure_hosts(hosts, options.seconds), flush=True)
        return
    print("| GPUs | answer | first screen | CPU | reader | memory | reader | per refresh | key | its CPU | filter |")
    print("|--:" * 11 + "|", flush=True)
    for hosts in map(int, options.hosts.split(",")):
        cost = measure(hosts, options.refreshes)
        memory, sent = (cost.memory_bytes >> 20, cost.reader_bytes >> 20), cost.sent_bytes / 1e3
        print(f"| {8 * hosts:,} | {cost.answer_bytes / 1e6:.2f} MB | {cost.first_seconds:.2f} s ", end="")
        print(f"| {cost.cpu_percent:.1f} % | {cost.reader_percent:.1f} % | {memory[0]} MiB | {memory[1]} MiB ", end="")
        print(f"| {sent:.1f} kB | {cost.key_milliseconds:.0f} ms ", end="")
        print(f"| {cost.key_cpu_milliseconds:.0f} ms | {cost.filter_milliseconds:.0f} ms |", flush=True)


def measure(hosts: int, refreshes: int) -> Cost:
    """Run gpumon on a fleet."""
    with _prometheus(hosts) as (url, served_at, size), tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, "HOME": home}
        command = [sys.executable, "-m", "gpumon", "fleet", "--prometheus", url, "--interval", str(_INTERVAL_SECONDS)]
        with Terminal(command, environment, 50, 160) as terminal:
            _wait(lambda: f"{8 * hosts:,} GPU" in terminal.screen())
            first = time.monotonic() - served_at.value
            time.sleep(_SETTLE_SECONDS)
            reader = _reader(terminal.pid)
            pids = tree(terminal.pid)
            before, reader_before, written = cpu_seconds(pids), cpu_seconds([reader]), terminal.written
            time.sleep(refreshes * _INTERVAL_SECONDS)
            seconds = refreshes * _INTERVAL_SECONDS
            cpu, reader_cpu = cpu_seconds(pids) - before, cpu_seconds([reader]) - reader_before
            sent = (terminal.written - written) / refreshes
            memory = _resident(terminal.pid), _resident(reader)
            keys = _keys(terminal)
            terminal.send("\x03")
            terminal.wait_exit()
    return Cost(hosts, first, 100 * cpu / seconds, 100 * reader_cpu / seconds, *memory, sent, *keys, size)


def _keys(terminal: Terminal) -> tuple[float, float, float]:
    """The longest median of a key, of its CPU time, and the median of a character of a filter on the list of GPUs."""
    answer_to_key(terminal, " ")  # paused, so that every byte after a key belongs to its answer
    medians, cpu = [], []
    for key in _KEYS.values():
        count = 6 if key != "v" else 7
        answers = [answer_to_key(terminal, key) for _ in range(count)]
        medians.append(statistics.median(answer.last for answer in answers))
        cpu.append(statistics.median(answer.cpu for answer in answers))
    for key in ("v", "v", "/"):
        answer_to_key(terminal, key)
    filtered = statistics.median(answer_to_key(terminal, character).last for character in "node1 util>60")
    return max(medians), max(cpu), filtered


@contextmanager
def _prometheus(hosts: int) -> Iterator[tuple[str, "multiprocessing.sharedctypes.Synchronized[float]", int]]:
    """The URL of a fake Prometheus, when its last answer was sent, and the size of an answer."""
    context = multiprocessing.get_context("fork")
    served_at = context.Value("d", 0.0)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(hosts, served_at, sender), daemon=True)
    process.start()
    try:
        url, size = receiver.recv()
        yield url, served_at, size
    finally:
        process.kill()


def _serve(
    hosts: int,
    served_at: "multiprocessing.sharedctypes.Synchronized[float]",
    sender: "multiprocessing.connection.Connection",
) -> None:
    fleet = mixed_hosts(hosts)
    moment = f"{1e9:.3f}"
    answers = []
    for number in range(_ANSWERS):
        for host in fleet:
            for (metric, gpu), value in list(host.values.items()):
                if metric in {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"} and value > 100 * number % 7:
                    host.values[metric, gpu] = value + (gpu + number) % 3 - 1
        answers.append(answer(fleet, float(moment)))
    count = 0

    def respond(handler: BaseHTTPRequestHandler, fields: Mapping[str, str]) -> None:
        nonlocal count
        content = answers[count % _ANSWERS].replace(b"1000000000.0", f"{time.time():.1f}".encode())
        count += 1
        body(gzip.compress(content, 1), Content_Encoding="gzip")(handler, fields)
        if count == 1:
            served_at.value = time.monotonic()

    with serving(respond) as fake:
        sender.send((fake.url, len(answers[0])))
        while True:
            time.sleep(60)


def _reader(pid: int) -> int:
    """The process that reads Prometheus."""
    for child in tree(pid):
        if b"fleet/__main__.py" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
    raise AssertionError("no reader")


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


if __name__ == "__main__":
    main()
