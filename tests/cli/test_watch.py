"""`gpumon watch`: it becomes the command, which does not notice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.cli.watch import SITE, watched_environment
from tests.probe.children import FAKE_TORCH, connected, environment, waited

HELD = "import sys, torch; torch.cuda.allocate(0, 1); print('ready', flush=True); sys.stdin.readline()"


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    return short_path


def watched(folder: Path, *command: str, **more: str) -> "subprocess.Popen[str]":
    own = {**environment(folder), "PYTHONPATH": str(FAKE_TORCH), **more}
    return subprocess.Popen(
        [sys.executable, "-m", "gpumon", "watch", *command],
        env=own,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_the_program_has_a_probe_and_the_pid_of_the_command(tmp_path: Path) -> None:
    with connected(watched(tmp_path, "--", sys.executable, "-c", HELD), tmp_path) as program:
        assert program.hear() == "ready"
        assert program.probe().until("hello")["pid"] == program.process.pid
        assert program.end() == (0, "", "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("code", [0, 1, 3, 77])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    with watched(tmp_path, "sh", "-c", f"echo out; echo err >&2; exit {code}") as process:
        assert process.communicate() == ("out\n", "err\n")
        assert process.returncode == code


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_ends_the_command_as_ever(tmp_path: Path, number: signal.Signals) -> None:
    code = "import signal, sys; signal.signal(2, signal.SIG_DFL); print('ready', flush=True); sys.stdin.readline()"
    with watched(tmp_path, "--", sys.executable, "-c", code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(20) == -number


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("--", "no-such-command-at-all"), "Command not found: no-such-command-at-all."),
        (("--", "script"), "cannot be run: Exec format error."),
    ],
)
def test_a_command_that_cannot_run_is_a_sentence(tmp_path: Path, command: tuple[str, ...], said: str) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x00")
    script.chmod(0o755)
    with watched(tmp_path, *command, PATH=f"{tmp_path}:{os.environ['PATH']}") as process:
        _, err = process.communicate()
    assert (process.returncode, "Traceback" in err) == (3, False)
    assert said in err


def test_pythonpath_is_kept_and_the_probe_comes_first_and_once() -> None:
    once = watched_environment({"PYTHONPATH": "/a:/b", "X": "y"}, has_recorder=False)
    assert once == {"PYTHONPATH": f"{SITE}:/a:/b", "X": "y"}
    assert watched_environment(once, has_recorder=False) == once
    assert watched_environment({})["PYTHONPATH"] == str(SITE)
    assert watched_environment({"PYTHONPATH": ""})["PYTHONPATH"] == str(SITE)


def test_the_flight_recorder_is_on_unless_the_environment_has_a_size() -> None:
    assert watched_environment({})["TORCH_FR_BUFFER_SIZE"] == "2000"
    for own in ({"TORCH_FR_BUFFER_SIZE": "0"}, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "9"}):
        assert watched_environment(own) == {**own, "PYTHONPATH": str(SITE)}


def test_an_empty_part_of_pythonpath_stays_the_folder_where_it_runs(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text("")
    (tmp_path / "script.py").write_text("import mine; print(mine.__file__)")
    command = [sys.executable, str(tmp_path / "script.py")]
    env = watched_environment({**os.environ, "PYTHONPATH": ":/none"})
    done = subprocess.run(command, env=env, cwd=tmp_path / "here", capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path / 'here' / 'mine.py'}\n"


def test_children_of_a_shell_are_watched_too(tmp_path: Path) -> None:
    with watched(tmp_path, "sh", "-c", f'{sys.executable} -c "{HELD}"; exit 5') as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert waited(lambda: list((tmp_path / "sockets").glob("*.sock")))
        process.communicate("\n")
        assert process.returncode == 5
