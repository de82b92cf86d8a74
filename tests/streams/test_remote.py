"""Frames of another host: a real sshd, hosts without gpumon, and connections that fail."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.collect.on_demand import NOT_SELECTED
from gpumon.core.model import Frame
from gpumon.core.problems import ProblemCode
from gpumon.streams.remote import stream as remote
from gpumon.streams.remote.stream import RemoteStream
from tests.nvml_mock import NvmlMock
from tests.processes import tree, wait_gone
from tests.streams.remote_host import environment_without_gpumon, needs_sshd, ssh_server

SECONDS = 30.0


def is_not_selected(frame: Frame) -> bool:
    """Whether what is sampled on demand was not requested."""
    return NOT_SELECTED in frame.devices[-1].problems.values()


@contextmanager
def connected(ssh: Sequence[str], host: str = "127.0.0.1", interval: float = 0.2) -> Iterator[RemoteStream]:
    stream = RemoteStream(host, interval, ssh)
    stream.start()
    try:
        yield stream
    finally:
        stream.close()


def fake_ssh(folder: Path, script: str) -> tuple[str, ...]:
    """A program in place of ssh; its arguments are ``--``, the host and the command."""
    file = folder / "ssh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return (str(file),)


def next_frame(stream: RemoteStream) -> Frame:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        stream.inbox.arrived.wait(0.2)
        frames = [arrival for arrival in stream.inbox.drain() if isinstance(arrival, Frame)]
        if frames:
            return frames[-1]
    raise AssertionError(stream.problem)


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_sshd
def test_a_host_without_gpumon_through_a_real_sshd(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    with ssh_server(tmp_path, environment_without_gpumon(nvml_mock, tmp_path)) as ssh, connected(ssh) as stream:
        first = next_frame(stream)
        assert len(first.devices) == 3
        assert next_frame(stream).monotonic_seconds > first.monotonic_seconds
        assert stream.problem is None
        wait_until(lambda: not is_not_selected(next_frame(stream)))
        started = time.monotonic()
        stream.close()
        assert time.monotonic() - started < 2


def test_the_collector_travels_and_leaves_nothing(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    environment = environment_without_gpumon(nvml_mock, tmp_path)
    settings = " ".join(f"{name}='{value}'" for name, value in environment.items())
    home = tmp_path / "home"
    ssh = fake_ssh(tmp_path, f'cd {home}; export {settings}; exec sh -c "$3"')
    with connected(ssh) as stream:
        assert [device.label for device in next_frame(stream).devices] == ["0", "1", "2"]
        children = tree(os.getpid())
    assert list(home.iterdir()) == []
    assert all(wait_gone(pid, 5) for pid in children if pid != os.getpid())


def test_gpumon_on_the_host_is_used(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "gpumon").write_text('#!/bin/sh\necho "$@" > "$HOME/arguments"; exec sleep 100\n')
    (binaries / "gpumon").chmod(0o755)
    ssh = fake_ssh(tmp_path, f'export HOME={tmp_path} PATH={binaries}:/usr/bin:/bin; exec sh -c "$3"')
    with connected(ssh, interval=2.0):
        wait_until((tmp_path / "arguments").exists)
        wait_until(lambda: (tmp_path / "arguments").read_text() == "record - --interval 2\n")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'ann@box: Permission denied (publickey).' >&2; exit 255", "Permission denied (publickey). Set up a key"),
        ("echo 'ssh: Could not resolve hostname box' >&2; exit 255", "Check the name of the host."),
        ("echo 'gpumon: Python 3.5'; exec sleep 100", "has only Python 3.5. The collector needs Python 3.6"),
        ("exit 127", "neither gpumon nor python3"),
        ("echo 'a\033[31mb' >&2; exit 3", "ended with code 3"),
        ("head -c 100000000 /dev/zero; exit 1", "ended with code 1"),
        ("yes garbage | head -1000; exit 1", "ended with code 1"),
    ],
)
def test_why_there_are_no_frames(script: str, words: str, tmp_path: Path) -> None:
    with connected(fake_ssh(tmp_path, script), "box") as stream:
        wait_until(lambda: words in str(stream.problem))
        assert "\033" not in str(stream.problem)
        assert not stream.inbox.drain()


def test_a_missing_ssh_is_a_sentence(tmp_path: Path) -> None:
    with connected((str(tmp_path / "none"),), "box") as stream:
        wait_until(lambda: "ssh cannot be started" in str(stream.problem))


def test_a_silent_host_is_connected_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(remote, "MIN_PAUSE_SECONDS", 0.1)
    ssh = fake_ssh(tmp_path, f"echo x >> {tmp_path}/count; exec sleep 100")
    with connected(ssh, "box", 0.1) as stream:
        wait_until(lambda: (tmp_path / "count").exists() and len((tmp_path / "count").read_text()) >= 4)
        assert stream.problem is not None
        assert stream.problem.code is ProblemCode.UNRESPONSIVE


def test_a_host_that_dies_is_connected_again(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    environment = environment_without_gpumon(nvml_mock, tmp_path)
    settings = " ".join(f"{name}='{value}'" for name, value in environment.items())
    ssh = fake_ssh(tmp_path, f'export {settings}; echo $$ > {tmp_path}/pid; exec sh -c "$3"')
    with connected(ssh) as stream:
        next_frame(stream)
        os.kill(int((tmp_path / "pid").read_text()), 9)
        wait_until(lambda: stream.problem is not None)
        assert next_frame(stream).devices
        wait_until(lambda: stream.problem is None)
