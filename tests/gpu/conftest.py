"""Fixtures of several tests on GPUs."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def torch_python() -> str:
    """The Python of a training environment with two GPUs."""
    python = os.environ.get("GPUMON_TEST_PYTHON", sys.executable)
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if not done.stdout.strip().isdecimal() or int(done.stdout) < 2:
        pytest.skip("two GPUs and torch are needed")
    return python
