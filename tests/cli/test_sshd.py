"""Hosts behind a real sshd that hang at some stage: each ends in time with a sentence, and no ssh stays behind.

And one sample of a host that answers.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpumon.operations.training_jobs.hosts import read_hosts
from gpumon.streams.remote import stream as remote
from gpumon.streams.remote.stream import RemoteStream
from tests.cli.running import GPUMON
from tests.nvml_mock import NvmlMock
from tests.processes import PROC, wait_gone
from tests.streams.remote_host import environment_without_gpumon, needs_sshd, ssh_server

pytestmark = needs_sshd
HANGS = {
    "never writes": "exec sleep 60",
    "half a line": "printf '{\"schema\": 1, '; exec sleep 60",
    "drips": "while printf x; do sleep 0.1; done",
    "is ready again and again": "while echo 'gpumon: Python 3.12'; do sleep 0.1; done",
    "sends other lines": "while echo hello; do sleep 0.1; done",
    "sends errors": "while echo bad >&2; do sleep 0.01; done",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sshd")


@pytest.fixture(scope="module")
def ssh(folder: Path) -> Iterator[tuple[str, ...]]:
    """A command for ssh to a host whose gpumon does what the test wants."""
    (folder / "bin").mkdir()
    with ssh_server(folder, {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}) as command:
        yield command


def install(folder: Path, script: str) -> None:
    program = folder / "bin" / "gpumon"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def clients(folder: Path) -> list[int]:
    """The PIDs of ssh that use the key of this test."""
    matches = []
    for process in PROC.glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"ssh") and str(folder / "user").encode() in command:
                matches.append(int(process.name))
    return matches


@pytest.mark.sampled(1)
@pytest.mark.parametrize("script", HANGS.values(), ids=HANGS)
def test_a_host_that_hangs(folder: Path, ssh: tuple[str, ...], script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, script)
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 2.0)
    stream = RemoteStream("127.0.0.1", 0.2, ssh)
    began = time.monotonic()
    stream.start()
    try:
        while "sends no frames" not in str(stream.problem):
            assert time.monotonic() < began + 10, stream.problem
            time.sleep(0.05)
    finally:
        stream.close()
    (jobs,) = read_hosts(["127.0.0.1"], 2.0, ssh)
    assert re.search("sent no complete report within 2 s", str(jobs.problem)), jobs.problem
    assert not clients(folder)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ssh_ends_with_a_gpumon_that_is_killed(
    folder: Path, ssh: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    install(folder, "exec sleep 60")
    (tmp_path / "ssh").write_text(f'#!/bin/sh\nfor last; do :; done\nexec /usr/bin/{" ".join(ssh)} 127.0.0.1 "$last"\n')
    (tmp_path / "ssh").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen([GPUMON, "jobs", "--hosts", "box"], env=environment, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 20
        while not (started := clients(folder)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
    assert all(wait_gone(pid, 5) for pid in started)


def test_one_sample_of_a_host_without_gpumon(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    settings = " ".join(f"{name}='{value}'" for name, value in environment_without_gpumon(nvml_mock, tmp_path).items())
    clients_folder = tmp_path / "client"
    clients_folder.mkdir()
    (clients_folder / "ssh").write_text(f'#!/bin/sh\nfor last; do :; done\nexport {settings}\nexec sh -c "$last"\n')
    (clients_folder / "ssh").chmod(0o755)
    environment = {**os.environ, "PATH": f"{clients_folder}:/usr/bin:/bin"}
    command = [GPUMON, "ssh", "box", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["devices"]) == 3
