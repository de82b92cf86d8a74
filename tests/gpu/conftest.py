"""Fixtures of several tests on GPUs."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from tests.processes import tree

_QUERY = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")


@pytest.fixture(autouse=True)
def other_programs() -> Iterator[None]:
    """Warns of each program that is not of this test and uses a GPU before or after it."""
    before = _programs()
    yield
    others = before | {pid: name for pid, name in _programs().items() if pid not in tree(os.getpid())}
    for pid, name in others.items():
        warnings.warn(f"another program uses a GPU during this test: {name}, PID {pid}", stacklevel=1)


@pytest.fixture
def torch_python() -> str:
    """The Python of a training environment with two GPUs."""
    python = os.environ.get("GPUMON_TEST_PYTHON", sys.executable)
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if not done.stdout.strip().isdecimal() or int(done.stdout) < 2:
        pytest.skip("two GPUs and torch are needed")
    return python


def _programs() -> dict[int, str]:
    """The programs that compute on a GPU by PID, as nvidia-smi lists them."""
    listed = subprocess.run(_QUERY, capture_output=True, text=True, check=False, timeout=60).stdout
    rows = (row.split(", ", 1) for row in listed.splitlines())
    return {int(row[0]): row[1] for row in rows if len(row) == 2 and row[0].isdecimal()}
