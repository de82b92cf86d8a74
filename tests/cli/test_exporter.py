"""`gpumon exporter` on the stand-in driver: what it serves, who may read it, faults, and its end."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import GPUMON, run
from tests.nvml_mock import NvmlMock
from tests.processes import tree, wait_gone

READY_SECONDS = 30.0
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


@contextmanager
def exporting(*argv: str, env: Mapping[str, str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A running exporter on a free port, and its URL."""
    command = [GPUMON, "exporter", "--listen", "127.0.0.1:0", "--interval", "0.2", *argv]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("Serving "), line
            yield process, line.split()[1]
        finally:
            process.terminate()


def read(url: str, authorization: str = "", context: ssl.SSLContext | None = None) -> str:
    request = urllib.request.Request(url, headers={"Authorization": authorization} if authorization else {})
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text: str = answer.read().decode()
    return text


def values(text: str, name: str) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]


def test_it_serves_every_gpu_and_ends_with_its_collector(nvml_mock: NvmlMock) -> None:
    with exporting(env=nvml_mock.environment(gpus=3)) as (process, url):
        text = read(url)
        assert values(text, "gpumon_up") == [1.0]
        assert len(values(text, "gpumon_gpu_power_watts")) == 3
        assert read(f"{url}?name[]=gpumon_up").splitlines()[-1] == "gpumon_up 1.0"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            read(f"{url}?name[]=gpumon_uptime")
        if shutil.which("promtool"):
            check = ["promtool", "check", "metrics"]
            assert subprocess.run(check, input=text, capture_output=True, text=True, check=True).stderr == ""
        children = tree(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
        assert all(wait_gone(pid, 5) for pid in children)


def test_names_of_dcgm_and_a_page_without_processes(nvml_mock: NvmlMock) -> None:
    environment = nvml_mock.environment(gpus=2, pids=[os.getpid()])
    with exporting("--names", "dcgm", env=environment) as (_, url):
        text = read(url)
    assert len(values(text, "DCGM_FI_DEV_GPU_TEMP")) == 2
    assert "gpumon_" not in text
    with exporting("--no-processes", env=environment) as (_, url):
        text = read(url)
    assert len(values(text, "gpumon_gpu_power_watts")) == 2
    assert "gpumon_process" not in text


def test_a_running_exporter_answers_status_of_this_host(nvml_mock: NvmlMock) -> None:
    without_driver = nvml_mock.environment_without_library()
    with exporting(env=nvml_mock.environment(gpus=2)) as (_, url):
        listen = {**without_driver, "GPUMON_EXPORTER_LISTEN": url.split("/")[2]}
        answered = run("status", "--format", "{index} {name}", "--gpu", "1", env=listen)
        assert (answered.returncode, answered.stdout, answered.stderr) == (0, "1 H200\n", "")
        assert run("status", "--format", "{indx}", env=listen).returncode == 2
        with pytest.raises(urllib.error.HTTPError, match="404"):
            read(url.replace("metrics", "status?format=x&boot=another"))


def test_an_answer_with_escape_sequences_is_not_printed(nvml_mock: NvmlMock) -> None:
    head = b"HTTP/1.0 200 OK\r\nX-Gpumon: status\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        listen = {"GPUMON_EXPORTER_LISTEN": f"127.0.0.1:{server.getsockname()[1]}"}
        done = threads.submit(run, "status", "--format", "x", env={**nvml_mock.environment_without_library(), **listen})
        with server.accept()[0] as connection:
            assert b"format=%78" in connection.recv(4096)
            connection.sendall(head + b"\x1b[2J")
        assert "\x1b" not in done.result().stdout
        assert done.result().returncode == 3


@pytest.mark.long
def test_without_a_driver_it_serves_that(nvml_mock: NvmlMock) -> None:
    with exporting(env=nvml_mock.environment_without_library()) as (_, url):
        assert values(read(url), "gpumon_up") == [0.0]


def test_basic_authentication(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter 2\nanother line\n")
    options = ("--user", "prometheus", "--password-file", str(password))
    with exporting(*options, env=nvml_mock.environment()) as (_, url):
        for wrong in ("", "Basic " + b64encode(b"prometheus:hunter").decode(), "Basic ü"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                read(url, wrong.encode().decode("latin-1"))
            assert refused.value.code == 401
            assert not refused.value.read()
        assert values(read(url, "Basic " + b64encode(b"prometheus:hunter 2").decode()), "gpumon_up") == [1.0]


@needs_openssl
def test_tls_and_a_client_that_says_nothing(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with exporting(*options, env=nvml_mock.environment()) as (_, url):
        assert url.startswith("https://")
        port = int(url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)):  # it never begins a handshake
            context = ssl.create_default_context(cafile=str(certificate))
            assert values(read(url, context=context), "gpumon_up") == [1.0]


def test_a_text_file_for_node_exporter(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    command = [GPUMON, "exporter", "--textfile", str(file), "--interval", "0.2"]
    with subprocess.Popen(command, env=nvml_mock.environment(gpus=2)) as process:
        deadline = time.monotonic() + READY_SECONDS
        while not file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        first = file.read_text()
        time.sleep(0.8)
        assert file.read_text() != first
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT
    assert len(values(first, "gpumon_gpu_power_watts")) == 2
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_work_is_a_sentence(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    environment = nvml_mock.environment()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("exporter", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", env=environment)
    assert done.returncode == 3
    assert "Address already in use" in done.stderr
    os.mkfifo(tmp_path / "pipe")
    done = run("exporter", "--listen", "127.0.0.1:0", "--tls-certificate", str(tmp_path / "pipe"), env=environment)
    assert done.returncode == 3
    assert "pipe: it is not a regular file" in done.stderr
    done = run("exporter", "--textfile", str(tmp_path / "none" / "gpumon.prom"), env=environment)
    assert done.returncode == 3
    assert "cannot be written" in done.stderr
    for options in (("--listen", "9400"), ("--listen", "127.0.0.1:99999"), ("--user", "ada"), ("--tls-key", "x")):
        assert run("exporter", *options, env=environment).returncode == 2
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert run("exporter", "--user", "ada", "--password-file", str(empty), env=environment).returncode == 2
