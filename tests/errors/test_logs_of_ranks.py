"""Several files, or a folder, are the logs of the ranks of one run."""

import gzip
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from gpumon.cli.explain import explain

_TIMEOUT: Final = (
    "[E926 10:10:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600013 milliseconds"
    " before timing out.\n"
)
_RAISED: Final = (
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 31, in <module>\n    y = batch["labels"]\n'
    "KeyError: 'labels'\n"
)


def explained(*arguments: str) -> str:
    result = CliRunner().invoke(explain, ["--no-live", *arguments], catch_exceptions=False)
    return result.output


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "attempt_0" / "0").mkdir(parents=True)
    (tmp_path / "attempt_0" / "1").mkdir()
    (tmp_path / "attempt_0" / "0" / "stderr.log").write_text(_TIMEOUT)
    (tmp_path / "attempt_0" / "1" / "stderr.log").write_text(_RAISED)
    return tmp_path


def test_a_folder_is_one_log(logs: Path) -> None:
    output = explained(str(logs / "attempt_0"))
    assert "rank 1 of 2 raised KeyError: 'labels'" in output.splitlines()[0]


def test_several_files_are_one_log_whatever_their_order(logs: Path) -> None:
    files = [str(logs / "attempt_0" / rank / "stderr.log") for rank in "01"]
    for order in (files, files[::-1]):
        assert "rank 1 of 2 raised KeyError: 'labels'" in explained(*order)


def test_compressed_files_may_be_among_them(logs: Path) -> None:
    packed = logs / "rank1.log.gz"
    packed.write_bytes(gzip.compress(_RAISED.encode()))
    assert "rank 1 of 2 raised KeyError" in explained(str(logs / "attempt_0" / "0" / "stderr.log"), str(packed))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(explain, [str(tmp_path)])
    assert result.exit_code != 0
    assert "has 0 files" in str(result.exception)


def test_a_rank_that_failed_in_an_earlier_run_is_not_the_cause(tmp_path: Path) -> None:
    def failed(minute: int, message: str) -> str:
        frame = 'Traceback (most recent call last):\n  File "/home/user/train.py", line 31, in <module>\n    step()\n'
        return f"2026-11-20 10:{minute:02}:00 INFO step {minute}\n{frame}{message}\n"

    restart = "2026-11-20 10:10:05 INFO restarting worker group\n"
    (tmp_path / "rank0.log").write_text(failed(9, "KeyError: 'a'") + restart + failed(30, "RuntimeError: lost a peer"))
    (tmp_path / "rank1.log").write_text(failed(8, "ValueError: first run"))
    (tmp_path / "rank2.log").write_text(restart + failed(29, "IndexError: second run"))
    assert "rank 2 of 3 raised IndexErr" in explained(str(tmp_path)).splitlines()[0]
