"""A Prometheus that fails in every way is a sentence, and the values before it stay."""

import gzip
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError, Problem
from gpumon.fleet import prometheus as client
from gpumon.fleet.__main__ import read_snapshot
from gpumon.fleet.model import FleetError
from gpumon.fleet.poller import FleetPoller
from gpumon.fleet.prometheus import read_secret
from gpumon.fleet.settings import FleetSettings, PrometheusAddress
from tests.fleet.canned import answer, results, wrapped
from tests.fleet.fake_prometheus import FakePrometheus, Respond, body, serving
from tests.fleet.targets import FakeHost

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
HOSTS = [FakeHost("node1", gpus=2)]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe"


@pytest.fixture
def good() -> Respond:
    return body(answer(HOSTS, time.time()))


def failure(url: str, **options: float | str) -> str:
    """Why a server cannot be read."""
    with pytest.raises(FleetError) as error:
        read_snapshot(PrometheusAddress(url, **options))  # type: ignore[arg-type]
    assert "\x1b" not in str(error.value)
    return str(error.value)


def refused(respond: Respond, **options: float | str) -> str:
    with serving(respond) as fake:
        return failure(fake.url, **options)


def test_a_good_answer(good: Respond) -> None:
    with serving(good) as fake:
        snapshot = read_snapshot(PrometheusAddress(fake.url, token="secret"))
    assert [gpu.host for gpu in snapshot.gpus] == ["node1", "node1"]
    assert fake.headers[0]["Authorization"] == "Bearer secret"


def test_gzip(good: Respond) -> None:
    with serving(body(gzip.compress(answer(HOSTS, time.time())), Content_Encoding="gzip")) as fake:
        assert len(read_snapshot(PrometheusAddress(fake.url)).gpus) == 2


def test_down() -> None:
    assert "Connection refused" in failure("http://127.0.0.1:9")


@pytest.mark.parametrize(
    "url", ["prometheus:9090", "http://", "ftp://a", "http://[::", "http://a:b", "http://a b", "http://a/?q=1"]
)
def test_not_a_url(url: str) -> None:
    assert "is not a URL" in failure(url)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    assert "hunter2" not in failure("http://ann:hunter2@prometheus:9090")
    assert "hunter2" not in failure("http://ann:hunter2@prometheus:port")


def test_slow() -> None:
    assert "sent nothing for 0.3 s" in refused(lambda *_: time.sleep(2), timeout_seconds=0.3)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\nX: x\r\n\r\n"),
        (b"HTTP/1.1 500 Error\r\n\r\n", b"x"),
    ],
    ids=["body", "size of a chunk", "header", "status", "100 Continue", "100 Continue with a header", "error"],
)
def test_an_answer_that_drips_ends(monkeypatch: pytest.MonkeyPatch, start: bytes, piece: bytes) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.5)

    def drip(handler: BaseHTTPRequestHandler, _: object) -> None:
        handler.close_connection = True
        handler.wfile.write(start)
        for _ in range(100):
            handler.wfile.write(piece)
            time.sleep(0.05)

    began = time.monotonic()
    text = refused(drip)
    assert "has not completed its answer within 0.5 s" in text or "HTTP 500" in text
    assert time.monotonic() - began < 3


def test_refused_access() -> None:
    assert "refuses access (HTTP 401). Give a token" in refused(body(b"", 401))


def test_a_redirect_is_not_followed() -> None:
    with serving(body(answer(HOSTS, 1.0))) as other:
        text = refused(body(b"", 302, Location=f"{other.url}/api"), token="secret")
    assert "redirects to http://127.0.0.1" in text
    assert other.headers == [], "the token stays here"


def test_no_prometheus() -> None:
    assert "no Prometheus API" in refused(body(b"", 404))
    assert "not one of Prometheus" in refused(body(b"<html>Welcome</html>"))
    assert "not one of Prometheus" in refused(body(b'{"data":{"result":[{"metric":{},"value":"x"}]}}'))
    assert "not one of Prometheus" in refused(body(b'{"data":{"result":[{"metric":[1],"value":[0,"1"]}]}}'))
    assert "not one of Prometheus" in refused(
        body(b'{"data":{"result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL","UUID":5},"value":[0,"1"]}]}}')
    )


def test_an_error_of_prometheus() -> None:
    text = refused(body(json.dumps({"status": "error", "error": f"parse error {HOSTILE}"}).encode(), 400))
    assert "parse error" in text


def test_half_a_body() -> None:
    content = answer([FakeHost(f"node{n}") for n in range(20)], 1.0)

    def cut(handler: BaseHTTPRequestHandler, _: object) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        handler.close_connection = True

    assert "ends early" in refused(cut)
    assert "ends early" in refused(body(content[: len(content) // 3]))
    assert "ends early" in refused(body(gzip.compress(content)[:-2000], Content_Encoding="gzip"))


def test_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(handler: BaseHTTPRequestHandler, _: object) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b'{"data":{"result":[')
        piece = b",".join([b'{"metric":{"a":"b"},"value":[0,"1"]}'] * 20_000) + b","
        with suppress(OSError):  # the reader has had enough
            while True:
                handler.wfile.write(piece)

    limit = "which is the limit of gpumon. Select fewer GPUs with --match"
    assert f"sent more than 4 MiB, {limit}" in refused(endless, max_bytes=4 << 20)
    assert client.MAX_SERIES == 400_000
    monkeypatch.setattr(client, "MAX_SERIES", 40_000)
    assert f"sent more than 40,000 series, {limit}" in refused(endless)
    assert PrometheusAddress("http://a").max_bytes == 64 << 20


@pytest.mark.long
def test_a_gzip_bomb() -> None:
    bomb = gzip.compress(b'{"data":{"result":[{"metric":{"a":"' + b"x" * (300 << 20))
    assert "MiB" in refused(body(bomb, Content_Encoding="gzip"))


def test_values_that_are_no_numbers() -> None:
    metric = {"instance": "a:1", "UUID": "GPU-1", "gpu": "0", "Hostname": "a"}
    items = [{"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", **metric}, "value": [1.0, "NaN"]}]
    items += [{"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "UUID": "GPU-1"}, "value": [1.0, "+Inf"]}]
    with serving(body(wrapped(iter(items)))) as fake:
        snapshot = read_snapshot(PrometheusAddress(fake.url))
    assert snapshot.value("utilization_gpu_percent", 0) is None
    assert snapshot.value("power_watts", 0) is None


def test_hostile_labels_are_harmless_and_short() -> None:
    items = list(results(HOSTS, 1.0))
    for item in items:
        item["metric"] |= dict.fromkeys(("Hostname", "hpc_job", "modelName"), HOSTILE + "x" * (1 << 20))
    with serving(body(wrapped(iter(items[:3])))) as fake:
        snapshot = read_snapshot(PrometheusAddress(fake.url))
    for text in snapshot.gpus[0]:
        assert len(text) <= 128
        assert text.isprintable()


def test_a_proxy_of_the_environment_is_used(good: Respond, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(good) as fake:
        monkeypatch.setenv("http_proxy", fake.url)
        monkeypatch.setenv("no_proxy", "")
        assert len(read_snapshot(PrometheusAddress("http://prometheus.invalid:9090")).gpus) == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate, which is its own authority, with its key in the same file."""
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    key = file.with_name("key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    file.write_text(file.read_text() + key.read_text())
    return file


@pytest.fixture
def secure(certificate: Path, good: Respond) -> Iterator[FakePrometheus]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    with serving(good, context) as fake:
        yield fake


@needs_openssl
def test_tls(secure: FakePrometheus, certificate: Path) -> None:
    assert "is not trusted" in failure(secure.url)
    assert len(read_snapshot(PrometheusAddress(secure.url, ca_file=str(certificate))).gpus) == 2
    mutual = PrometheusAddress(secure.url, ca_file=str(certificate), certificate_file=str(certificate))
    assert len(read_snapshot(mutual).gpus) == 2
    assert "cannot be used for TLS" in failure(secure.url, ca_file="/nonexistent")
    assert "cannot be used for TLS" in failure(secure.url, certificate_file="/etc/hostname")


def test_secrets_come_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("first\nsecond\n")
    monkeypatch.setenv("GPUMON_FLEET_TOKEN", "other")
    assert read_secret(file, "GPUMON_FLEET_TOKEN") == "first"
    assert read_secret(None, "GPUMON_FLEET_TOKEN") == "other"
    file.write_text("\n")
    with pytest.raises(CommandError):
        read_secret(file, "GPUMON_FLEET_TOKEN")


def test_the_last_values_stay_while_prometheus_fails_and_no_secret_is_in_a_command_line(good: Respond) -> None:
    with serving(good) as fake:
        settings = FleetSettings(PrometheusAddress(fake.url, token="sesame"), interval_seconds=0.2)
        poller = FleetPoller(settings)
        poller.start()
        try:
            wait_for(poller, problem=False)
            snapshot = poller.snapshot
            process = poller._process
            assert process is not None
            assert b"sesame" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
            fake.respond = body(b"", 503)
            assert "HTTP 503" in str(wait_for(poller, problem=True))
            assert poller.snapshot is not None
            assert poller.snapshot.gpus == (snapshot.gpus if snapshot else ())
            failed = len(fake.queries)
            while len(fake.queries) < failed + 10:
                time.sleep(0.05)
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 10, "sockets are closed"
            fake.respond = good
            wait_for(poller, problem=False)
            os.kill(process.pid, 9)
            assert "has ended" in str(wait_for(poller, problem=True))
        finally:
            poller.close()
        process.wait(5)


def wait_for(poller: FleetPoller, *, problem: bool) -> Problem | None:
    deadline = time.monotonic() + 20
    while poller.snapshot is None or (poller.problem is not None) != problem:
        assert time.monotonic() < deadline, poller.problem
        time.sleep(0.05)
    return poller.problem
