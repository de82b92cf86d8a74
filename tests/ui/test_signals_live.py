"""Signals from a gpumon in a terminal, with a real collector: a process ends, or nothing proves which one it is."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import GPUMON
from tests.nvml_mock import NvmlMock
from tests.processes import IS_INITIAL, is_running
from tests.terminal import Terminal


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is neither a parent nor a child of the gpumon under test."""
    child = subprocess.Popen(["sleep", "60"])
    yield child.pid
    child.kill()
    child.wait()


def opened(nvml_mock: NvmlMock, tmp_path: Path, pid: int, *options: str, wrapper: tuple[str, ...] = ()) -> Terminal:
    """gpumon with the list of processes in front."""
    variables = {**nvml_mock.environment(gpus=1, pids=[pid], NVML_MOCK_PROCS="1"), "XDG_STATE_HOME": str(tmp_path)}
    terminal = Terminal((*wrapper, GPUMON, *options), variables, rows=30, cols=120)
    terminal.wait_for("1 GPUs")
    terminal.send("2")
    terminal.wait_for(rf"Idle +Command[\s\S]* {pid} ")
    return terminal


@pytest.mark.skipif(not IS_INITIAL, reason="needs the initial PID namespace")
def test_a_process_ends_by_the_keys(nvml_mock: NvmlMock, tmp_path: Path, stranger: int) -> None:
    with opened(nvml_mock, tmp_path, stranger) as terminal:
        terminal.wait_for(rf"{stranger}.*sleep 60")
        terminal.send("K")
        terminal.wait_for(r"Send a signal to 1 process\?")
        terminal.send("\x1b[B\r")
        terminal.wait_for(rf"SIGTERM sent to PID {stranger}")
        ended = os.waitid(os.P_PID, stranger, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert ended.si_status == signal.SIGTERM
        terminal.send("q")


def test_in_a_container_nothing_proves_which_process_it_is(nvml_mock: NvmlMock, tmp_path: Path, stranger: int) -> None:
    unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot make a PID namespace")
    with opened(nvml_mock, tmp_path, stranger, wrapper=unshare) as terminal:
        terminal.send("K")
        terminal.wait_for(rf"Nothing proves which process PID {stranger} is")
        assert is_running(stranger)
        terminal.send("q")


def works(*wrapper: str) -> bool:
    """Whether this host lets a program run in a wrapper."""
    if shutil.which(wrapper[0]) is None:
        return False
    probe = (*wrapper, sys.executable, "-c", "import gpumon.ui.app")
    return not subprocess.run(probe, capture_output=True, check=False).returncode


@pytest.fixture
def other_users() -> Iterator[int]:
    """A process of another user than the gpumon under test."""
    if os.geteuid() or shutil.which("setpriv") is None:
        pytest.skip("only root can start a process of another user")
    child = subprocess.Popen(["setpriv", "--reuid=12345", "--clear-groups", "sleep", "60"])
    yield child.pid
    child.kill()
    child.wait()


@pytest.mark.long
@pytest.mark.skipif(not IS_INITIAL, reason="needs the initial PID namespace")
def test_without_privileges_a_process_of_another_user_gets_no_signal(
    nvml_mock: NvmlMock, tmp_path: Path, other_users: int
) -> None:
    """In a user namespace root has no power over other users, as in a container without privileges."""
    wrapper = ("unshare", "--user")
    if not works(*wrapper):
        pytest.skip("this user cannot make a user namespace")
    with opened(nvml_mock, tmp_path, other_users, wrapper=wrapper) as terminal:
        terminal.wait_for(rf"{other_users}.*sleep 60")
        terminal.send("K")
        terminal.wait_for(r"Send a signal to 1 process\?")  # the namespace hides who the owner is; the kernel knows
        terminal.send("\x1b[B\r")
        terminal.wait_for("does not permit this user to signal PID")
        assert is_running(other_users)
