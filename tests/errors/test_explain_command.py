"""`gpumon explain` in a shell: output, input and exit status."""

import gzip
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from gpumon.errors.explain import explain_text
from tests.cli.running import GPUMON, PATIENCE_SECONDS, is_one_line, run, shell

ENVIRONMENT = {**os.environ, "COLUMNS": "100"}
HEADLINE = "train.log: ended at line 2: raised RuntimeError: CUDA error: device-side assert triggered"
FAILED = "Traceback (most recent call last):\nRuntimeError: CUDA error: device-side assert triggered\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(FAILED)
    return path


def test_a_log_is_explained(log: Path) -> None:
    done = run("explain", str(log), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == HEADLINE
    assert lines[1].startswith("DO  ")
    assert len(lines) <= 14
    assert max(map(len, lines)) <= 100
    more = run("explain", "--more", str(log), env=ENVIRONMENT).stdout
    assert more.startswith(done.stdout)
    assert "\n\nDevice-side assert [device-assert]\n" in more
    assert "\n  > RuntimeError: CUDA error: device-side assert triggered\n" in more
    assert "\n      CUDA_LAUNCH_BLOCKING=1 python train.py\n" in more


@pytest.mark.parametrize("columns", ["40", "80"])
def test_text_is_wrapped_and_code_is_not(log: Path, columns: str) -> None:
    done = run("explain", "--more", str(log), env={**ENVIRONMENT, "COLUMNS": columns})
    lines = done.stdout.splitlines()
    assert [line for line in lines if len(line) > int(columns) and not line.startswith("      ")] == []
    match = explain_text(log.read_text()).cause
    assert match is not None
    codes = [line for fix in match.fixes for line in fix.code.splitlines()]
    assert len(codes) >= 2
    assert {f"      {code}".rstrip() for code in codes} <= set(lines)


@pytest.mark.parametrize("arguments", ["explain", "explain -", "explain --json"])
def test_it_reads_standard_input(log: Path, arguments: str) -> None:
    done = shell(f'cat {log} | "$@"', *arguments.split(), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "device-side assert" in done.stdout


@pytest.mark.parametrize("packed", [gzip.compress(FAILED.encode()), FAILED.encode("utf-16")], ids=["gzip", "UTF-16"])
def test_a_compressed_log_and_one_of_powershell_are_read(log: Path, packed: bytes) -> None:
    log.write_bytes(packed)
    done = run("explain", str(log), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "device-side assert" in done.stdout


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no such file or directory"),
        (b"\x7fELF\0\0\1\2\3", "is not text"),
        (b"\x93\x81\xfa\xa5\0\xc4\xe9", "is not text"),
        (b"\x1f\x8b" + b"no gzip" * 10, "its compressed data is damaged"),
    ],
)
def test_an_unreadable_file_is_reported_in_one_line(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    done = run("explain", str(path), env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "")
    assert is_one_line(done.stderr)
    assert why in done.stderr


def test_the_logs_of_a_directory_are_one_log(log: Path) -> None:
    (log.parent / "rank1.log").write_text("[rank1]: step 1\n[rank1]: step 2\n")
    done = run("explain", str(log.parent), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "device-side assert triggered" in " ".join(done.stdout.split())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_reported_in_one_line(log: Path) -> None:
    log.chmod(0)
    done = run("explain", str(log), env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "permission denied" in done.stderr


def test_a_closed_pipe_is_not_an_error(log: Path) -> None:
    done = shell('"$@" | head -n 1', "explain", str(log), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{HEADLINE}\n"


def test_a_terminal_shows_a_hint_and_ctrl_d_ends_the_input() -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [GPUMON, "explain"], stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True
    ) as child:
        os.close(follower)
        assert child.stderr is not None
        assert child.stderr.readline() == "Paste the error, then press Ctrl-D on an empty line.\n"
        os.write(leader, FAILED.encode() + b"\x04")
        output, _ = child.communicate(timeout=PATIENCE_SECONDS)
    os.close(leader)
    assert child.returncode == 0
    assert output.startswith("Standard input: ended at line 2: raised RuntimeError: CUDA error: device-side assert")


def test_the_list_has_every_error_by_section() -> None:
    done = run("explain", "--list", env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "Memory" in lines
    document = json.loads(run("explain", "--list", "--json", env=ENVIRONMENT).stdout)
    assert document["schema"] == 1
    ids = [error["id"] for error in document["errors"]]
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == sorted(ids)


def test_one_error_by_its_id() -> None:
    done = run("explain", "--id", "oom", env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("CUDA out of memory [oom]\n")
    (error,) = json.loads(run("explain", "--id", "oom", "--json", env=ENVIRONMENT).stdout)["errors"]
    assert (error["id"], error["context"]) == ("oom", "alive")


def test_an_unknown_id_shows_similar_ones() -> None:
    done = run("explain", "--id", "devise-assert", env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "")
    assert is_one_line(done.stderr)
    assert "device-assert" in done.stderr
