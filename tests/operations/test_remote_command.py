"""Where `--hosts` finds hosts, and how a command reaches them, with stand-ins for squeue and kubectl."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError
from gpumon.operations.remote_command import find_hosts, run_on_hosts

JOB = {"job_id": 4711, "job_state": ["RUNNING"], "nodes": "gpu[01-02]"}
KUBECTL = """
case "$1 $3" in
"get --selector=app=train") printf 'pod/train-0\\npod/train-1\\n';;
"get "*) ;;
"exec pod/train-0") shift 4; exec "$@";;
*) echo 'error: pods "train-1" not found' >&2; exit 1;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, script in (("squeue", f"echo '{json.dumps({'jobs': [JOB]})}'"), ("kubectl", KUBECTL)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("slurm:4711", ["gpu01", "gpu02"]),
        ("pods:app=train", ["pod/train-0", "pod/train-1"]),
        ("gpu[01-02,7],login", ["gpu01", "gpu02", "gpu7", "login"]),
    ],
)
def test_hosts_are_found(folder: Path, text: str, hosts: list[str]) -> None:
    assert find_hosts(text) == hosts


@pytest.mark.parametrize(("text", "sentence"), [("pods:app=other", "0 hosts"), ("slurm:1", "squeue is not installed")])
def test_hosts_are_not_found(folder: Path, text: str, sentence: str) -> None:
    (folder / "squeue").unlink()
    with pytest.raises(CommandError, match=sentence):
        find_hosts(text)


def test_a_command_runs_in_pods(folder: Path) -> None:
    parse: Callable[[bytes, str], str] = lambda output, host: f"{host} {output.decode().strip()}"  # noqa: E731
    first, second = run_on_hosts(find_hosts("pods:app=train"), "echo yes", parse, (0, 1), 10.0)
    assert (first.value, second.value) == ("pod/train-0 yes", None)
    assert 'pod/train-1 failed with exit code 1: error: pods "train-1" not found' in str(second.problem)
