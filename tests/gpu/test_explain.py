"""On a real GPU: the errors that its torch prints are the ones that the catalogue knows, and their figures are read.

Each is provoked in a process of its own; memory is capped before it is asked for, so that nobody else loses any.
"""

import subprocess

import pytest

from gpumon.diagnosis.explain import explain_text
from gpumon.diagnosis.explanation import Match
from gpumon.diagnosis.memory_cause import MemoryCause
from gpumon.jobs.interpreter import find_interpreter
from gpumon.operations.evidence import with_evidence

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

CAPPED = """
import torch
torch.cuda.set_per_process_memory_fraction(0.01)
torch.empty(1 << 36, dtype=torch.uint8, device="cuda")
"""
ASSERTED = """
import torch
weights, index = torch.ones(4, 2, device="cuda"), torch.tensor([9], device="cuda")
torch.nn.functional.embedding(index, weights)
torch.cuda.synchronize()
"""
ELSEWHERE = "import torch; torch.ones(1, device='cuda:99')"
MIXED = "import torch; torch.ones(2, 2, device='cuda') @ torch.ones(2, 2)"


def cause_of(program: str) -> Match:
    """What is told to be the cause of a program's failure."""
    failed = subprocess.run(
        [str(find_interpreter().path), "-c", program], check=False, capture_output=True, text=True, timeout=120
    )
    assert failed.returncode != 0
    explanation = with_evidence(explain_text(failed.stderr))
    assert explanation.cause is not None, failed.stderr
    return explanation.cause


def test_a_cap_is_read_from_the_figures() -> None:
    cause = cause_of(CAPPED)
    assert (cause.error.id, cause.memory_cause) == ("oom", MemoryCause.CAP)
    assert cause.figures["asked_bytes"] == 1 << 36
    assert {"total_bytes", "free_bytes", "allowed_bytes", "allocated_bytes"} <= set(cause.figures)
    assert "GPU 0 memory" in cause.evidence


@pytest.mark.parametrize(
    ("program", "error_id"), [(ASSERTED, "device-assert"), (ELSEWHERE, "bad-ordinal"), (MIXED, "device-mismatch")]
)
def test_what_torch_prints_is_known(program: str, error_id: str) -> None:
    assert cause_of(program).error.id == error_id
