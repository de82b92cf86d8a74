"""On a real GPU: the catalogue knows the errors that torch prints, their values are read, and their fixes help.

Each error is caused in a separate process. Memory is capped before the allocation, so that other processes are not
affected.
"""

import subprocess
from pathlib import Path

import pytest

from gpumon.errors.explain import explain_text
from gpumon.errors.match import Match
from gpumon.errors.memory import MemoryCause
from gpumon.operations.evidence import with_evidence
from gpumon.workload_runs.interpreter import find_interpreter
from tests.gpu.test_workloads import WorkloadProcess, metrics
from tests.workloads.conftest import load_workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

CAPPED = """
import torch
torch.cuda.set_per_process_memory_fraction(0.01)
torch.empty(1 << 36, dtype=torch.uint8, device="cuda")
"""
DEVICE_ASSERT = """
import torch
weights, index = torch.ones(4, 2, device="cuda"), torch.tensor([9], device="cuda")
torch.nn.functional.embedding(index, weights)
torch.cuda.synchronize()
"""
BAD_ORDINAL = "import torch; torch.ones(1, device='cuda:99')"
DEVICE_MISMATCH = "import torch; torch.ones(2, 2, device='cuda') @ torch.ones(2, 2)"


def cause_of(program: str) -> Match:
    """The cause that gpumon finds for the failure of a program."""
    failed = subprocess.run(
        [str(find_interpreter().path), "-c", program], check=False, capture_output=True, text=True, timeout=120
    )
    assert failed.returncode != 0
    explanation = with_evidence(explain_text(failed.stderr))
    assert explanation.cause is not None, failed.stderr
    return explanation.cause


def test_a_memory_cap_is_recognized() -> None:
    cause = cause_of(CAPPED)
    assert (cause.error.id, cause.memory_cause) == ("oom", MemoryCause.CAP)
    assert cause.values["asked_bytes"] == 1 << 36
    assert {"total_bytes", "free_bytes", "allowed_bytes", "allocated_bytes"} <= set(cause.values)
    assert "GPU 0 memory" in cause.evidence


@pytest.mark.parametrize(
    ("program", "error_id"),
    [(DEVICE_ASSERT, "device-assert"), (BAD_ORDINAL, "bad-ordinal"), (DEVICE_MISMATCH, "device-mismatch")],
)
def test_errors_of_torch_are_known(program: str, error_id: str) -> None:
    assert cause_of(program).error.id == error_id


@pytest.mark.parametrize("name", sorted(load_workload("_kit.mistakes").MISTAKES))
def test_an_error_on_purpose_is_explained_and_its_fix_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text as torch prints it on a GPU, its explanation, and the same program with the fix."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    workload = WorkloadProcess("errors", "--set", f"error={name}", "--yes")
    result = workload.finish()
    assert result["verdict"] == "ok", result["why"]
    (error,) = [event for event in workload.events if event["event"] == "error"]
    cause = explain_text(f"{error['class']}: {error['text']}").cause
    assert cause is not None, error["text"]
    assert cause.error.id == name, error["text"]
    values = metrics(result)
    assert (values["expected_errors"], values["right_results"]) == (1, 1)
