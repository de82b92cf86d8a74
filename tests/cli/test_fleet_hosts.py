"""`gpumon fleet --hosts` with a real sshd: hosts without gpumon, one that hangs, one that refuses, one that dies."""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.running import GPUMON, run
from tests.nvml_mock import NvmlMock
from tests.processes import is_running, tree
from tests.streams.remote_host import environment_without_gpumon, needs_sshd, ssh_server
from tests.terminal import Terminal

pytestmark = needs_sshd
_QUIT_SECONDS = 0.5


class Hosts(NamedTuple):
    """The hosts box, dies, hangs and refuses, which are names of this one."""

    folder: Path
    environment: Mapping[str, str]

    def kill(self, name: str) -> None:
        """Let a host die: its sshd and all that it has started."""
        config = str(self.folder / name / "sshd_config").encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if config in (process / "cmdline").read_bytes():  # sshd changes its own
                    for pid in tree(int(process.name)):
                        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def hosts(nvml_mock: NvmlMock, tmp_path: Path) -> Iterator[Hosts]:
    """The hosts, in a configuration of ssh that gpumon's ssh uses."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # accepts, and says nothing
        ports = {"hangs": silent.getsockname()[1]}
        with socket.create_server(("127.0.0.1", 0)) as closed:
            ports["refuses"] = closed.getsockname()[1]
        entries = []
        for name in ("box", "dies"):
            folder = tmp_path / name
            folder.mkdir()
            ssh = stack.enter_context(ssh_server(folder, environment_without_gpumon(nvml_mock, folder)))
            ports[name] = int(ssh[ssh.index("-p") + 1])
            entries += [f"Host {name}", f"IdentityFile {folder / 'user'}"]
        for name, port in ports.items():
            entries += [f"Host {name}", f"Port {port}", "HostName 127.0.0.1"]
        entries += ["Host *", "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null", "LogLevel ERROR"]
        config = tmp_path / "config"
        config.write_text("\n".join(entries) + "\n")
        program = tmp_path / "ssh"
        program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
        program.chmod(0o755)
        path = f"{tmp_path}:/usr/bin:/bin"
        mock = nvml_mock.environment(gpus=2, PATH=path, HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
        yield Hosts(tmp_path, mock)


def test_the_document_has_values_and_reasons(hosts: Hosts) -> None:
    done = run("fleet", "--hosts", "box,hangs,refuses", "--json", env=hosts.environment)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert [(gpu["host"], gpu["gpu"]) for gpu in document["gpus"]] == [("box", "0"), ("box", "1"), ("box", "2")]
    assert all(gpu["memory_total_bytes"] for gpu in document["gpus"])
    assert document["silent_hosts"] == ["hangs", "refuses"]
    reasons = {host["name"]: host["problem"] and host["problem"]["reason"] for host in document["hosts"]}
    assert reasons["box"] is None
    assert "Connection refused" in reasons["refuses"]
    assert re.search(r"timed out|sent nothing", reasons["hangs"])
    refused = next(finding for finding in document["findings"] if finding["host"] == "refuses")
    assert "Connection refused" in refused["text"]


@pytest.mark.long
def test_the_screen_follows_hosts_that_hang_and_die_and_quits_at_once(hosts: Hosts) -> None:
    with Terminal([GPUMON, "fleet", "--hosts", "box,dies,hangs"], hosts.environment, 30, 110) as terminal:
        terminal.wait_for("6 GPUs on 2 hosts", 30)
        terminal.wait_for("hangs +! (No frame has arrived yet|ssh failed: Connection timed out)")
        terminal.send("\r")
        terminal.wait_for(r"● box", 20)
        terminal.wait_for("GPU 2|  2 ", 20)
        terminal.send("\x1b")
        terminal.wait_for("6 GPUs on 2 hosts", 20)
        hosts.kill("dies")
        terminal.send("vvvvv")
        terminal.wait_for(r"old values +dies .*(ssh failed|ended)", 20)
        terminal.send("v")
        terminal.wait_for("The usage needs the history of a Prometheus")
        children = tree(terminal.pid)
        assert any(b"ssh" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children)
        started = time.monotonic()
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert time.monotonic() - started < _QUIT_SECONDS
        assert not [pid for pid in children if is_running(pid)]


def test_names_that_exclude_each_other(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    for argv in (
        ("--hosts", "a", "--prometheus", "http://b"),
        ("--hosts", "-oProxyCommand=x"),
        ("--hostfile", str(tmp_path / "none")),
        ("--hosts", "a", "--json", "--usage", "1d"),
        (),
    ):
        assert run("fleet", *argv, env=environment).returncode == 2, argv
