"""A real sshd on loopback with its own key, and commands for ssh that use it."""

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.nvml_mock import NvmlMock

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
needs_sshd = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None, reason="sshd is not installed"
)
_START_SECONDS = 20.0


def environment_without_gpumon(
    nvml_mock: NvmlMock, folder: Path, python: str = sys.executable, **mock_settings: str
) -> dict[str, str]:
    """The stand-in driver, and a PATH with a shell and a python3 that has no packages, but nothing else."""
    binaries = folder / "bin"
    binaries.mkdir()
    (binaries / "python3").write_text(f'#!/bin/sh\nexec "{python}" -I -S "$@"\n')
    (binaries / "python3").chmod(0o755)
    (binaries / "sh").symlink_to("/bin/sh")
    home = folder / "home"  # the shell of the session must not read this user's .bashrc, which may change PATH
    home.mkdir()
    mock = {
        name: value
        for name, value in (nvml_mock.environment(gpus=3) | mock_settings).items()
        if name.startswith(("NVML", "LD_"))
    }
    return {**{name: value for name, value in mock.items() if value}, "PATH": str(binaries), "HOME": str(home)}


@contextmanager
def ssh_server(
    folder: Path, environment: Mapping[str, str], wrappers: Sequence[Sequence[str]] = ((),), address: str = "127.0.0.1"
) -> Iterator[tuple[str, ...]]:
    """Run sshd with sessions that have the given environment, once in each wrapper, such as nsenter.

    Yields the ssh command with its options.
    """
    assert SSHD is not None
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True, timeout=20
        )
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True) if os.getuid() == 0 else None
    options = {
        "Port": str(port),
        "ListenAddress": address,
        "HostKey": str(folder / "host"),
        "AuthorizedKeysFile": str(folder / "authorized"),
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
        "PermitRootLogin": "yes",
        "SetEnv": " ".join(f"{name}={value}" for name, value in environment.items()),
    }
    config = folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    log = folder / "sshd.log"
    with ExitStack() as stack:
        servers = [
            stack.enter_context(subprocess.Popen([*wrapper, SSHD, "-D", "-f", str(config), "-E", str(log)]))
            for wrapper in wrappers
        ]
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not log.exists() or len(re.findall("Server listening", log.read_text())) < len(servers):
                assert all(server.poll() is None for server in servers), log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            known = ("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder / 'known'}")
            login = ("-i", str(folder / "user"), "-p", str(port), "-o", f"User={getpass.getuser()}")
            yield ("ssh", "-F", "none", "-T", "-q", "-o", "BatchMode=yes", *known, *login)
        finally:
            for server in servers:
                server.terminate()
