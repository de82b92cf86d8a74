"""The kit that workloads share, and the example of how to write one."""

import re
from pathlib import Path

import pytest

from tests.workloads.conftest import WORKLOADS, RunWorkload, load_workload, needs_torch

CONTEXT_FREE = """
from _kit import Uses, Workload

def run(context):
{body}

WORKLOAD = Workload("made", "Made.", "nothing", lambda context: Uses(0, 1.0), run)
"""


def test_a_budget_is_a_quarter_of_what_is_free_at_most() -> None:
    budget_of = load_workload("_kit.memory").budget_of
    assert budget_of(1 << 30, 100 << 30, 1 << 28) == 1 << 30
    assert budget_of(1 << 30, 2 << 30, 1 << 28) == 1 << 29
    with pytest.raises(Exception, match=r"Only 0\.98 GiB are free"):
        budget_of(1 << 30, 1000 << 20, 1 << 28)


@needs_torch
def test_the_example_of_the_readme_runs(run_workload: RunWorkload, tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.+?)```", (WORKLOADS / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "inverse.py"
    file.write_text(source)
    ran = run_workload(file, size=64)
    assert ran.result["verdict"] == "ok", ran.events
    assert ran.metric("inverse")["repetitions"] == 5


@pytest.mark.sampled(2)
@needs_torch
@pytest.mark.parametrize(
    ("body", "verdict", "said"),
    [
        ("    return context.ok('Fine.')", "fail", "Nothing was measured"),
        ("    context.result('x', 1, 's', 1)\n    return context.ok('Fine.')", "fail", "No result was checked"),
        ("    context.result('x', 1, 's', 0)\n    return context.ok('Fine.')", "fail", "never measured"),
        ("    context.cancel()\n    context.checked = 1\n    return context.ok('Fine.')", "cancelled", "stopped"),
        ("    raise ValueError('first\\nsecond')", "fail", "ValueError: first"),
        ("    context.checked = 1\n    context.result('x', 1, 's', 1)\n    return context.ok('Fine.')", "ok", "Fine."),
    ],
)
def test_a_verdict_counts_work(run_workload: RunWorkload, tmp_path: Path, body: str, verdict: str, said: str) -> None:
    file = tmp_path / "made.py"
    file.write_text(CONTEXT_FREE.format(body=body))
    ran = run_workload(file)
    assert ran.result["verdict"] == verdict
    assert said in ran.result["why"]
    assert ran.exit_code == (0 if verdict == "ok" else 1)


@needs_torch
def test_a_module_of_the_workloads_folder_does_not_stand_in_for_pythons_own(
    run_workload: RunWorkload, tmp_path: Path
) -> None:
    (tmp_path / "random.py").write_text(CONTEXT_FREE.format(body="    import random; random.randint(1, 2)"))
    ran = run_workload(tmp_path / "random.py")
    assert "run() must return a Verdict" in ran.result["why"], "the import succeeded"
