"""With too little of everything, gpumon explains which limit it has reached, in sentences."""

import errno
import os
import re

import pytest

from gpumon.cli import entry
from gpumon.core.limits import limit_problem
from tests.cli.running import is_one_line, shell
from tests.nvml_mock import NvmlMock

ERROR_NAMES = re.compile(r"Traceback|\w+Error\b|Errno|libgcc|core dumped")


def os_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (os_error(errno.EMFILE), "ulimit -n"),
        (os_error(errno.ENFILE), "more files."),
        (os_error(errno.ENOMEM), "ulimit -v"),
        (os_error(errno.EAGAIN), "ulimit -u"),
        (MemoryError(), "ulimit -v"),
        (ImportError("libx.so: failed to map segment from shared object"), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (os_error(errno.ENOSPC), "Free some space"),
    ],
)
def test_an_error_of_a_limit_is_a_sentence_with_a_remedy(
    error: Exception, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = limit_problem(error)
    assert problem is not None
    assert words in str(problem)

    def command() -> None:
        raise error

    assert entry._guarded(command) == 1
    printed = capsys.readouterr().err
    assert is_one_line(printed)
    assert str(problem) in printed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", ["-n 10", "-v 200000"])
@pytest.mark.parametrize("command", ["status", "doctor"])
def test_under_a_limit_no_error_of_python_is_shown(nvml_mock: NvmlMock, limit: str, command: str) -> None:
    environment = nvml_mock.environment(gpus=1) | {"PATH": "/usr/bin:/bin"}
    done = shell(f'ulimit {limit}; exec "$@"', command, env=environment)
    assert ERROR_NAMES.search(done.stderr) is None, done.stderr
    assert "Errno" not in done.stdout
    assert done.returncode in {0, 1, 3}
    if limit == "-n 10":
        text = " ".join((done.stdout + done.stderr).split())
        assert "The system does not open more files: the limit of this process is 10." in text
