"""The server of `gpumon exporter` with slow, many and hostile clients, and with real ones: curl and Prometheus."""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from gpumon.cli import metrics_server
from gpumon.cli.first_bytes import MAX_SILENT
from gpumon.cli.metrics_server import MetricsServer, ServerSecurity
from tests.cli.running import GPUMON
from tests.cli.test_exporter import exporting, needs_openssl
from tests.nvml_mock import NvmlMock
from tests.processes import cpu_seconds

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
Server = tuple[MetricsServer, Callable[[], socket.socket]]


class TwoSeries:
    """A collector; a page takes as long as the test wants."""

    seconds = 0.0

    def collect(self) -> Iterator[Metric]:
        time.sleep(self.seconds)
        yield GaugeMetricFamily("gpumon_up", "Up.", value=1.0)
        yield GaugeMetricFamily("gpumon_age", "Age.", value=2.0)


@contextmanager
def serving() -> Iterator[Server]:
    """A server in this process, and a function that connects to it."""
    with MetricsServer("127.0.0.1", 0, TwoSeries(), ServerSecurity()) as server, ExitStack() as clients:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server, lambda: clients.enter_context(socket.create_connection(server.server_address[:2], 5))  # type: ignore[arg-type]
        finally:
            server.shutdown()


def is_ended(client: socket.socket, seconds: float = 5.0) -> bool:
    """Whether the server ends a connection in time."""
    client.settimeout(seconds)
    with suppress(ConnectionError):
        try:
            return client.recv(1 << 16) == b""
        except TimeoutError:
            return False
    return True


def test_a_request_has_a_deadline_however_steadily_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 0.4)
    with serving() as (_, connect):
        client = connect()
        client.settimeout(0.05)
        began = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - began < 5:
                client.send(b"G")
                with suppress(TimeoutError):
                    if not client.recv(1):
                        break
        assert 0.3 < time.monotonic() - began < 2


def test_an_address_loses_its_oldest_silent_client_and_keeps_those_that_have_asked() -> None:
    with serving() as (_, connect):
        asked = connect()
        TwoSeries.seconds = 0.5
        try:
            asked.send(b"GET /metrics HTTP/1.0\r\n\r\n")
            threads = threading.active_count()
            oldest, *_, newest = [connect() for _ in range(MAX_SILENT + 8)]
            assert is_ended(oldest)
            assert not is_ended(newest, 0.1)
            assert threading.active_count() <= threads + 1, "a silent client has no thread"
            assert asked.recv(12) == b"HTTP/1.0 200"
        finally:
            TwoSeries.seconds = 0.0


def test_scrapes_are_served_while_more_slow_clients_come_than_there_are_descriptors(nvml_mock: NvmlMock) -> None:
    command = ("prlimit", "--nofile=64", GPUMON, "exporter", "--listen", "127.0.0.1:0")
    with subprocess.Popen(command, env=nvml_mock.environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[1]
            address = ("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0]))
            with ExitStack() as clients:
                for _ in range(120):
                    clients.enter_context(socket.create_connection(address, 5)).send(b"G")
                before, began = cpu_seconds([process.pid]), time.monotonic()
                for _ in range(5):
                    with urlopen(url, timeout=5) as answer:
                        assert b"\ngpumon_up 1.0\n" in answer.read()
                    time.sleep(0.4)
                used = cpu_seconds([process.pid]) - before
                assert used / (time.monotonic() - began) < 0.4
                assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 64
        finally:
            process.terminate()
        assert process.wait(10) == 128 + 15


def tls_files(folder: Path) -> tuple[Path, Path]:
    """A certificate that is its own authority, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate, key


@pytest.fixture
def secured(nvml_mock: NvmlMock, tmp_path: Path) -> Iterator[tuple[str, Path, Path]]:
    """The address of an exporter with TLS for clients with a certificate and a password, and the files."""
    certificate, key = tls_files(tmp_path)
    (tmp_path / "password").write_text("hunter2\n")
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(certificate)]
    options += ["--user", "prometheus", "--password-file", str(tmp_path / "password")]
    with exporting(*options, env=nvml_mock.environment(gpus=2)) as (_, url):
        yield url, certificate, key


@pytest.mark.long
@needs_openssl
@needs_curl
def test_curl_needs_the_certificate_and_the_password(secured: tuple[str, Path, Path]) -> None:
    url, certificate, key = secured

    def curl(*options: str) -> str:
        command = ["curl", "-s", "-m", "10", "-w", "%{http_code}", "--cacert", str(certificate), *options, url]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout

    mutual = ("--cert", str(certificate), "--key", str(key))
    assert curl("-u", "prometheus:hunter2") == "000", "no certificate"
    assert curl(*mutual) == "401"
    assert curl(*mutual, "-u", "prometheus:hunter3") == "401"
    text = curl(*mutual, "-u", "prometheus:hunter2", "--compressed")
    assert "\ngpumon_up 1.0\n" in text
    assert text.endswith("200")
