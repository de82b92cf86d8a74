"""Cost of the fleet screen: ``python -m tests.perf.fleet --hosts N[,N...]``, or ``--ssh-hosts N[,N...]``.

A fake Prometheus on loopback, in a separate process, answers the query of the screen with the JSON that a real one
sends for that many hosts with eight GPUs; a test compares the two. Utilization and power of most GPUs change with every
answer. gpumon runs in a pseudo-terminal, started as users start it. With ``--real``, a real Prometheus has
scraped the hosts.

Measured are the time from the answer to the first complete screen, CPU time and memory of gpumon and of its reader at a
refresh of 15 s, bytes to the terminal, and the time from a key to the end of its answer.
"""

import argparse
import gzip
import multiprocessing.connection
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final, NamedTuple

from tests.fleet.canned import answer, responding
from tests.fleet.fake_prometheus import body, serving
from tests.fleet.hosts import mixed_hosts
from tests.perf.fleet_hosts import measure_hosts
from tests.perf.keys import Answer, answer_to_key
from tests.perf.scraped_fleet import Server, Shared, scraped
from tests.processes import cpu_seconds, tree
from tests.terminal import Terminal

_INTERVAL_SECONDS: Final = 15
_MAX_WAIT_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 3.0
_MOVES: Final = {"down": "\x1b[B", "page down": "\x1b[6~", "last row": "\x1b[F", "first row": "\x1b[H"}
_ANSWERS: Final = 4
"""Different answers, which take turns."""


class KeyTime(NamedTuple):
    """The answers to one key.

    Attributes:
        name: What it does.
        answers: The answers that changed the screen.
    """

    name: str
    answers: Sequence[Answer]

    def __str__(self) -> str:
        times = [answer.last for answer in self.answers] or [0.0]
        first = [answer.first for answer in self.answers] or [0.0]
        cpu = [answer.cpu for answer in self.answers] or [0.0]
        numbers = (statistics.median(times), max(times), statistics.median(first), max(first), statistics.median(cpu))
        return f"| {self.name} | {' | '.join(f'{number:.0f} ms' for number in numbers)} | {len(self.answers)} |"


class Cost(NamedTuple):
    """What one size costs.

    Attributes:
        hosts: Number of hosts.
        answer_bytes: Size of an answer.
        answer_seconds: How long Prometheus took for it; 0 for a fake one.
        first_seconds: From the first byte of the first answer to the screen.
        cpu_percent: CPU time of gpumon, its reader and its collector, of one core.
        reader_percent: That of the reader alone.
        memory_bytes: Resident memory of gpumon.
        reader_bytes: That of the reader.
        sent_bytes: Bytes to the terminal per refresh.
        keys: How long keys take.
    """

    hosts: int
    answer_bytes: float
    answer_seconds: float
    first_seconds: float
    cpu_percent: float
    reader_percent: float
    memory_bytes: int
    reader_bytes: int
    sent_bytes: float
    keys: Sequence[KeyTime]

    def __str__(self) -> str:
        memory, reader = self.memory_bytes >> 20, self.reader_bytes >> 20
        answer = f"{self.answer_bytes / 1e6:.2f} MB | {self.answer_seconds:.1f} s | {self.first_seconds:.2f} s"
        cost = f"{self.cpu_percent:.1f} % | {self.reader_percent:.1f} % | {memory} MiB | {reader} MiB"
        return f"| {8 * self.hosts:,} | {answer} | {cost} | {self.sent_bytes / 1e3:.1f} kB |"


def main() -> None:
    """Measure every size, and print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.fleet", description=__doc__)
    parser.add_argument("--hosts", default="2048", help="numbers of hosts, separated by commas (%(default)s)")
    parser.add_argument("--refreshes", type=int, default=4, help="refreshes to measure (%(default)s)")
    parser.add_argument("--real", action="store_true", help="let a real Prometheus scrape the hosts")
    parser.add_argument("--ssh-hosts", default="", help="measure these numbers of hosts through ssh instead")
    parser.add_argument("--seconds", type=float, default=30, help="time to measure through ssh (%(default)s)")
    options = parser.parse_args()
    if options.ssh_hosts:
        print("| hosts | CPU of gpumon | memory | to the terminal | quit |\n|--:|--:|--:|--:|--:|", flush=True)
        for hosts in map(int, options.ssh_hosts.split(",")):
            print(measure_hosts(hosts, options.seconds), flush=True)
        return
    serve = scraped if options.real else _canned
    costs = []
    print("| GPUs | answer | Prometheus | first screen | CPU | reader | memory | reader | per refresh |")
    print("|--:" * 9 + "|", flush=True)
    for hosts in map(int, options.hosts.split(",")):
        costs.append(measure(hosts, options.refreshes, serve))
        print(costs[-1], flush=True)
    for cost in costs:
        print(f"\n{8 * cost.hosts:,} GPUs, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
        print("| key | median | worst | first byte | worst | CPU | keys |\n|---|--:|--:|--:|--:|--:|--:|")
        print("\n".join(map(str, cost.keys)), flush=True)


def measure(hosts: int, refreshes: int, serve: Callable[[int], AbstractContextManager[Server]]) -> Cost:
    """Run gpumon on a fleet.

    Args:
        hosts: Number of hosts with eight GPUs.
        refreshes: How many refreshes are measured.
        serve: Answers for that many hosts.
    """
    with serve(hosts) as server, tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, "HOME": home}
        options = ["--prometheus", server.url, "--interval", str(_INTERVAL_SECONDS)]
        with Terminal([sys.executable, "-m", "gpumon", "fleet", *options], environment, 50, 160) as terminal:
            _wait(lambda: f"{8 * hosts:,} GPU" in terminal.screen())
            first = time.monotonic() - server.first_at.value
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
        answer_bytes, answer_seconds = server.size.value, server.seconds.value
    shares = 100 * cpu / seconds, 100 * reader_cpu / seconds
    return Cost(hosts, answer_bytes, answer_seconds, first, *shares, *memory, sent, keys)


def _keys(terminal: Terminal) -> Sequence[KeyTime]:
    """The answers to the keys of the map, and of the list of all GPUs."""
    answer_to_key(terminal, " ")  # paused, so that every byte after a key belongs to its answer
    times = [_key_time(terminal, f"{name}, map", [key] * 8) for name, key in _MOVES.items()]
    times.append(_key_time(terminal, "next list", ["v"] * 7))
    for key in ("v", "v"):
        answer_to_key(terminal, key)
    times += [_key_time(terminal, f"{name}, GPUs", [key] * 8) for name, key in _MOVES.items()]
    times.append(_key_time(terminal, "sort, GPUs", ["s", "g"] * 4))
    answer_to_key(terminal, "/")
    times.append(_key_time(terminal, "filter, GPUs", list("node0 util>60")))
    answer_to_key(terminal, "\r")
    answer_to_key(terminal, " ")
    opened = []
    for _ in range(3):
        opened.append(answer_to_key(terminal, "\r"))
        time.sleep(_SETTLE_SECONDS)
        opened.append(answer_to_key(terminal, "\x1b"))
        time.sleep(_SETTLE_SECONDS)
    return [*times, KeyTime("open a GPU", opened[::2]), KeyTime("back", opened[1::2])]


def _key_time(terminal: Terminal, name: str, keys: Sequence[str]) -> KeyTime:
    answers = [answer_to_key(terminal, key) for key in keys]
    return KeyTime(name, [answer for answer in answers if answer.sent_bytes])


@contextmanager
def _canned(hosts: int) -> Iterator[Server]:
    """A fake Prometheus."""
    context = multiprocessing.get_context("fork")
    first_at = context.Value("d", 0.0)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(hosts, first_at, sender), daemon=True)
    process.start()
    try:
        url, size = receiver.recv()
        yield Server(url, first_at, context.Value("d", 0.0), context.Value("d", float(size)))
    finally:
        process.kill()


def _serve(hosts: int, first_at: Shared, sender: "multiprocessing.connection.Connection") -> None:
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
        if handler.path.endswith("/query_range"):
            responding(fleet)(handler, fields)
            return
        content = answers[count % _ANSWERS].replace(b"1000000000.0", f"{time.time():.1f}".encode())
        content = gzip.compress(content, 1)
        count += 1
        first_at.value = first_at.value or time.monotonic()
        body(content, Content_Encoding="gzip")(handler, fields)

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
