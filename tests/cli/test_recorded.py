"""`gpumon trace --pid` and `gpumon snapshot --pid`, as a shell runs them: files, sentences and exit codes."""

import gzip
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import is_one_line, run
from tests.probe.scripted import answer, hello, listening, requests, statistics

PID = str(os.getpid())
KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": {"device": 0}}
OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 1, "dur": 5}


@pytest.fixture
def probes(short_path: Path) -> Path:
    folder = short_path / "probes"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def env(probes: Path, short_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(short_path),
        "GPUMON_PROBE_DIR": str(probes),
        "XDG_CONFIG_HOME": str(short_path),
    }


class ScriptedProbe:
    """Answers each request with a new file, or with a refusal.

    Args:
        folder: Where it writes the files.
        content: What the files contain; a text is a refusal.
    """

    def __init__(self, folder: Path, content: "bytes | str", **state: Any) -> None:  # noqa: ANN401
        self.requests: list[dict[str, Any]] = []
        self.files: list[Path] = []
        self._folder = folder
        self._content = content
        self._state = state

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(hello() + statistics(**self._state))
        for request in requests(connection):
            self.requests.append(request)
            if isinstance(self._content, str):
                connection.sendall(answer(request["id"], ok=False, reason=self._content))
                continue
            kind = "trace" if request["ask"] == "trace" else "memory"
            path = self._folder / f"{kind}-0123abcd_7.{'json' if kind == 'trace' else 'pickle'}"
            path.write_bytes(self._content)
            self.files.append(path)
            size = len(self._content)
            connection.sendall(answer(request["id"], path=str(path), size_bytes=size, notes=["It began late."]))


def trace_of(*events: Mapping[str, Any]) -> bytes:
    return json.dumps({"traceEvents": events}).encode()


def test_a_trace_is_moved_and_its_account_printed(probes: Path, short_path: Path, env: dict[str, str]) -> None:
    probe = ScriptedProbe(short_path, trace_of(KERNEL, OPERATOR))
    output = short_path / "mine.json.gz"
    with listening(probes, probe):
        done = run("trace", "--pid", PID, "--seconds", "0.5", "--output", str(output), "--json", env=env)
    assert done.returncode == 0, done.stderr
    (request,) = probe.requests
    assert (request["ask"], request["milliseconds"], request["start_at_epoch_milliseconds"]) == ("trace", 500, 0)
    assert gzip.decompress(output.read_bytes()) == trace_of(KERNEL, OPERATOR)
    assert json.loads(done.stdout)["traces"][0]["file"] == str(output)
    assert "ui.perfetto.dev" in done.stderr
    assert "It began late." in done.stderr
    assert not any(path.exists() for path in probe.files)


def test_a_trace_without_kernels_has_failed_on_a_gpu_alone(probes: Path, short_path: Path, env: dict[str, str]) -> None:
    output = short_path / "mine.json"
    for state, code in (("live", 1), ("cpu_only", 0)):
        probe = ScriptedProbe(short_path, trace_of(OPERATOR), state=state)
        with listening(probes, probe):
            done = run("trace", "--pid", PID, "--output", str(output), "--json", env=env)
        assert done.returncode == code, done.stderr
        assert ("no kernels" in done.stderr) is (code == 1)
        assert output.exists() is (code == 0)
        assert not any(path.exists() for path in probe.files)


@pytest.mark.long
@pytest.mark.parametrize("command", [["trace"], ["snapshot", "--yes"]])
def test_without_a_probe(command: list[str], env: dict[str, str]) -> None:
    done = run(*command, "--pid", PID, env=env)
    assert done.returncode == 3
    assert is_one_line(done.stderr)
    assert "only if --attach is given" in done.stderr
    done = run(*command, "--pid", str(1 << 22), env=env)
    assert done.returncode == 3
    assert "There is no process" in done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "file.json", "--pid", PID],
        ["trace", "file.json", "--output", "other.json"],
        ["trace", "--pid", PID, "--seconds", "11"],
        ["trace", "--pid", PID, "--output", "/dev/null"],
        ["trace", "--pid", PID, "--output", "/missing/file.json"],
        ["snapshot", "file.pickle", "--pid", PID],
        ["snapshot", "file.pickle", "--record", "30s"],
        ["snapshot", "--pid", PID],
        ["snapshot", "--pid", PID, "--yes", "--record", "3m"],
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], env: dict[str, str]) -> None:
    done = run(*arguments, env=env)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""


def test_a_snapshot_is_moved(probes: Path, short_path: Path, env: dict[str, str]) -> None:
    probe = ScriptedProbe(short_path, b"no pickle")
    output = short_path / "mine.pickle"
    with listening(probes, probe):
        done = run("snapshot", "--pid", PID, "--record", "2s", "--output", str(output), "--yes", "--json", env=env)
    (request,) = probe.requests
    assert (request["ask"], request["milliseconds"]) == ("memory_history", 2000)
    assert output.read_bytes() == b"no pickle"
    assert done.returncode == 2, "the file is then read like any other"


def test_a_probe_cannot_have_other_files_removed(probes: Path, short_path: Path, env: dict[str, str]) -> None:
    precious = short_path / "precious.json"
    precious.write_text("{}")

    def hostile(connection: socket.socket) -> None:
        connection.sendall(hello() + statistics())
        for request in requests(connection):
            connection.sendall(answer(request["id"], path=str(precious), size_bytes=2, notes=[]))

    with listening(probes, hostile):
        done = run("trace", "--pid", PID, "--output", str(short_path / "mine.json"), env=env)
    assert done.returncode == 3
    assert precious.exists()
