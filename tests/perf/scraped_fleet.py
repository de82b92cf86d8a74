"""A real Prometheus that scrapes many hosts; see `tests.perf.fleet`, option ``--real``.

One process answers as the exporters of all hosts do, in the text of dcgm-exporter; utilization and power change with
every scrape. Another process relays the queries of gpumon and their answers, so that their moments are known.
"""

import gzip
import multiprocessing.connection
import multiprocessing.sharedctypes
import random
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from tests.fleet import fake_prometheus, targets
from tests.fleet.hosts import mixed_hosts
from tests.fleet.prometheus_server import prometheus

SCRAPE_SECONDS: Final = 30
"""The default interval of dcgm-exporter."""
_TIMEOUT_SECONDS: Final = 60.0
_MAX_FILL_SECONDS: Final = 300.0
_CHANGING: Final = frozenset({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"})
_COUNT: Final = "count(DCGM_FI_DEV_FB_USED)"
Shared: TypeAlias = "multiprocessing.sharedctypes.Synchronized[float]"


class Server(NamedTuple):
    """What answers gpumon, in another process.

    Attributes:
        url: Its address.
        first_at: When the first answer was complete and about to be sent; 0 before that.
        seconds: How long Prometheus took for the newest answer.
        size: Bytes of the newest answer, decompressed.
    """

    url: str
    first_at: Shared
    seconds: Shared
    size: Shared


@dataclass
class _WorkingHost(targets.FakeHost):
    """A host whose busy GPUs have another utilization and power at every scrape."""

    def value(self, metric: str, gpu: int) -> float:
        value = super().value(metric, gpu)
        return value + random.randrange(-2, 3) if metric in _CHANGING and value > 20 else value


@contextmanager
def scraped(hosts: int) -> Iterator[Server]:
    """A Prometheus that has scraped every host.

    Args:
        hosts: Number of hosts with eight GPUs.
    """
    context = multiprocessing.get_context("fork")
    first_at, seconds, size = (context.Value("d", 0.0) for _ in range(3))
    ports, sender = context.Pipe(duplex=False)
    exporters = context.Process(target=_serve_exporters, args=(hosts, sender), daemon=True)
    exporters.start()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            targets.write_targets(folder / "targets.json", ports.recv(), [host.name for host in mixed_hosts(hosts)])
            with prometheus(folder, folder / "targets.json", f"{SCRAPE_SECONDS}s") as url:
                _wait_for(url, 8 * hosts)
                urls, sender = context.Pipe(duplex=False)
                relay = context.Process(target=_relay, args=(url, first_at, seconds, size, sender), daemon=True)
                relay.start()
                try:
                    yield Server(urls.recv(), first_at, seconds, size)
                finally:
                    relay.kill()
    finally:
        exporters.kill()


def _serve_exporters(hosts: int, sender: "multiprocessing.connection.Connection") -> None:
    fleet = {host.name: _WorkingHost(**vars(host)) for host in mixed_hosts(hosts)}
    with targets.serving(dict(fleet)) as port:
        sender.send(port)
        time.sleep(1e6)


def _wait_for(url: str, gpus: int) -> None:
    """Wait until every GPU was scraped.

    Raises:
        AssertionError: It takes too long.
    """
    deadline = time.monotonic() + _MAX_FILL_SECONDS
    query = urllib.parse.urlencode({"query": _COUNT})
    while True:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=_TIMEOUT_SECONDS) as answer:
            if f'"{gpus}"'.encode() in answer.read():
                return
        assert time.monotonic() < deadline, "not every host was scraped"
        time.sleep(1)


def _relay(
    url: str, first_at: Shared, seconds: Shared, size: Shared, sender: "multiprocessing.connection.Connection"
) -> None:
    def respond(handler: BaseHTTPRequestHandler, fields: Mapping[str, str]) -> None:
        request = urllib.request.Request(url + handler.path, urllib.parse.urlencode(fields).encode())
        request.add_header("Accept-Encoding", "gzip")
        started = time.monotonic()
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            content, encoding = answer.read(), answer.headers.get("Content-Encoding", "identity")
        if handler.path.endswith("/query"):
            seconds.value = time.monotonic() - started
            size.value = len(gzip.decompress(content) if encoding == "gzip" else content)
            first_at.value = first_at.value or time.monotonic()
        fake_prometheus.body(content, Content_Encoding=encoding)(handler, fields)

    with fake_prometheus.serving(respond) as fake:
        sender.send(fake.url)
        time.sleep(1e6)
