"""Results are kept whole or not at all, and a file that was damaged costs only what was damaged."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.problems import ProblemCode
from gpumon.workload_runs import results as results_module
from gpumon.workload_runs.results import is_comparable, last_similar, recent_results, results_file, save_result
from tests.core.test_ownership import needs_root


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gpumon" / "results.jsonl"


def record(number: int = 0, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "number": number,
        "workload": "matmul",
        "uuid": "GPU-1",
        "device_name": "NVIDIA H200",
        "parameters": {"size": 8192, "share": 0.5},
        "verdict": "ok",
        "why": "Fine – 30 °C.",
        "figures": [],
        **changes,
    }


def numbers(path: Path | None = None) -> list[int]:
    return [result["number"] for result in recent_results(path)]


def test_results_are_kept_where_state_belongs_and_come_back_newest_first(file: Path) -> None:
    assert results_file() == file
    assert list(recent_results()) == []
    assert [save_result(record(number)) for number in range(3)] == [None] * 3
    assert numbers() == [2, 1, 0]
    assert next(recent_results()) == {"schema": 1, **record(2)}
    assert file.stat().st_mode & 0o077 == 0 or file.parent.stat().st_mode & 0o077 == 0, "others need not see them"


@pytest.mark.parametrize("home", ["", None])
def test_without_the_variable_it_is_the_home(home: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("XDG_STATE_HOME", home)
    assert results_file() == tmp_path / ".local" / "state" / "gpumon" / "results.jsonl"


@pytest.mark.usefixtures("file")
def test_the_last_one_alike_is_found() -> None:
    save_result(record(1))
    save_result(record(2, verdict="warn"))
    save_result(record(3, verdict="fail"))
    save_result(record(4, uuid="GPU-2"))
    save_result(record(5, workload="sync"))
    save_result(record(6, parameters={"size": 4096, "share": 0.5}))
    result = last_similar(record(7))
    assert result is not None
    assert result["number"] == 2, "one that failed is nothing to compare with"
    assert last_similar(record(uuid="GPU-9")) is None


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"\xff\xfe", b"[]", b"7", b'{"schema": 2, "figures": []}', b'{"schema": 1}', b"[" * 100_000],
    ids=lambda line: repr(line[:20]),
)
def test_lines_that_are_no_results_are_passed_over(file: Path, line: bytes) -> None:
    save_result(record(1))
    with file.open("ab") as results:
        results.write(line + b"\n")
    save_result(record(2))
    assert numbers() == [2, 1]


def test_a_torn_last_line_costs_neither_those_before_nor_the_next(file: Path) -> None:
    save_result(record(1))
    with file.open("ab") as results:
        results.write(b'{"schema": 1, "number": 2, "fig')
    assert numbers() == [1]
    assert save_result(record(3)) is None
    assert numbers() == [3, 1]


def test_only_the_newest_part_of_a_large_file_is_read(file: Path) -> None:
    file.parent.mkdir(parents=True)
    line = json.dumps({"schema": 1, **record(1, why="x" * 1000)}).encode() + b"\n"
    file.write_bytes(line * 3000)
    save_result(record(2))
    result = numbers()
    assert result[0] == 2
    assert set(result[1:]) == {1}
    assert 500 < len(result) < 1100


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("share", [0, 2])
def test_a_full_disk_leaves_no_half_line(file: Path, number: int, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    save_result(record(1))
    before, write = file.read_bytes(), os.write

    def full(descriptor: int, data: bytes) -> int:
        if not share:
            raise OSError(number, os.strerror(number))
        return write(descriptor, data[: len(data) // share])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        problem = save_result(record(2))
    assert problem is not None
    assert problem.code is ProblemCode.NOT_WRITTEN
    assert (
        problem.reason == f"The result could not be saved to {file}: {os.strerror(errno.ENOSPC if share else number)}."
    )
    assert problem.remedy
    assert file.read_bytes() == before
    assert save_result(record(3)) is None
    assert numbers() == [3, 1]


def test_two_that_write_at_once_do_not_mix_their_lines(file: Path) -> None:
    program = (
        "import sys; from gpumon.workload_runs.results import save_result\n"
        "for number in range(100):\n"
        "    record = {'number': number, 'who': sys.argv[1], 'why': sys.argv[1] * 20_000, 'results': []}\n"
        "    assert save_result(record) is None"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, who]) for who in "ab"]
    assert [writer.wait(30) for writer in writers] == [0, 0]
    result = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert {item["why"] for item in result} == {"a" * 20_000, "b" * 20_000}
    for who in "ab":
        assert [item["number"] for item in result if item["who"] == who] == list(range(100))


def test_a_lock_is_waited_for_until_the_deadline(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_module, "_LOCK_SECONDS", 0.3)
    assert save_result(record(1)) is None
    with file.open("rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_SH)
        problem = save_result(record(2))
        assert problem is not None
        assert problem.code is ProblemCode.NOT_WRITTEN
        assert problem.reason == f"The result could not be saved to {file}: another process has locked it for 0.3 s."
        assert numbers() == [1], "reading needs no lock"
    assert save_result(record(3)) is None
    assert numbers() == [3, 1]


@needs_root
def test_root_appends_to_no_file_below_the_home_of_another_user(file: Path, tmp_path: Path) -> None:
    file.parent.mkdir(parents=True)
    target = tmp_path / "of-root"
    target.touch()
    file.symlink_to(target)
    os.chown(file.parent, 4242, 4242)
    problem = save_result(record())
    assert problem is not None
    assert f"The folder {file.parent} belongs to another user (UID 4242)." in problem.reason
    assert target.read_bytes() == b""


def test_a_result_of_another_host_is_no_measure_and_one_of_an_unknown_host_is() -> None:
    for host in ("box01", None):
        assert is_comparable(record(host=host), record(host="box01"))
    assert is_comparable(record(host="box02"), record()), "the later one is of an unknown host"
    assert not is_comparable(record(host="box02"), record(host="box01"))
    assert not is_comparable(record(verdict="fail"), record())
    assert not is_comparable(record(uuid="GPU-2"), record())
