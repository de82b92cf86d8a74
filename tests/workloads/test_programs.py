"""The short programs that people copy run as they are, without gpumon."""

import subprocess
from pathlib import Path

import pytest

from tests.workloads.conftest import WORKLOADS, load_workload, needs_torch, torch_python

PROGRAMS = sorted((WORKLOADS / "_programs").glob("*.py"))


@pytest.mark.long
@needs_torch
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_runs_on_the_cpu_or_says_what_it_needs(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [torch_python(), program], capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path
    )
    if done.stderr.splitlines()[-1:] == ["Needs numpy."]:
        pytest.skip("no NumPy next to torch")
    if "Needs a GPU" in done.stderr:
        assert load_workload(program.stem).WORKLOAD.why_not_cpu or program.stem == "sync"
        assert (done.returncode, done.stdout) == (1, "")
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout
