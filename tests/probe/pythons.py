"""A Python that runs scripts for other processes: 3.14 or later."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest


def _candidates() -> Iterator[str]:
    if "GPUMON_TEST_PYTHON314" in os.environ:
        yield os.environ["GPUMON_TEST_PYTHON314"]
    if sys.version_info >= (3, 14):
        yield sys.executable
    yield from filter(None, map(shutil.which, ("python3.14", "python3.15")))


def _is_new(python: str) -> bool:
    asked = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 14))"]
    return subprocess.run(asked, check=False, capture_output=True, timeout=30).returncode == 0


PYTHON314 = next(filter(_is_new, _candidates()), "")
"""This one, one on PATH, or the one that the environment names; empty without one."""

needs_python314 = pytest.mark.skipif(
    not PYTHON314, reason="no Python 3.14 here, on PATH or in the variable GPUMON_TEST_PYTHON314"
)
