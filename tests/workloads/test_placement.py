"""The placement workload with a stand-in for CUDA's synchronization warnings, which the CPU does not have."""

from pathlib import Path

import pytest

from tests.workloads.conftest import WORKLOADS, Judge, RunWorkload, load_workload, needs_torch

_PROBE = f"""
import dataclasses, importlib.util, sys, warnings
spec = importlib.util.spec_from_file_location("placement_probe", {str(WORKLOADS / "placement.py")!r})
placement = sys.modules["placement_probe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(placement)

def warning(call, waits=lambda *_: True):
    def called(*arguments, **named):
        if mode[0] == "warn" and waits(*arguments):
            warnings.warn("called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:149.)")
        return call(*arguments, **named)
    return called

mode = ["default"]

def run(context):
    torch = context.torch
    torch.cuda.set_sync_debug_mode = lambda new: mode.__setitem__(0, new)
    for name in WAITING:
        setattr(torch.Tensor, name, warning(getattr(torch.Tensor, name)))
    torch.Tensor.__getitem__ = warning(
        torch.Tensor.__getitem__, lambda _, key: isinstance(key, torch.Tensor) and key.dtype == torch.bool
    )
    FAULT
    return placement._run(context)

WORKLOAD = dataclasses.replace(placement.WORKLOAD, why_not_cpu="", run=run)
"""
_WAITING = ("item", "cpu", "__bool__")
_SNIPPETS = ("loss.item()", ".cpu()", 'print(f"loss {loss:.4f}"', "[per_sample > _HARD_LOSS]", "if loss < best:")
_SMALL = {"batch_size": 8, "width": 16, "steps": 4, "repetitions": 1}


def _probe(folder: Path, waiting: tuple[str, ...] = _WAITING, fault: str = "pass") -> Path:
    probe = folder / "probe.py"
    probe.write_text(_PROBE.replace("WAITING", repr(waiting)).replace("FAULT", fault))
    return probe


def _lines() -> list[int]:
    """The lines of the planted synchronizations, found by their code."""
    source = (WORKLOADS / "placement.py").read_text().splitlines()
    return [
        number
        for snippet in _SNIPPETS
        for number, line in enumerate(source, 1)
        if snippet in line and "# hidden" in line
    ]


@needs_torch
def test_every_planted_line_is_found_and_measured(run_workload: RunWorkload, tmp_path: Path) -> None:
    ran = run_workload(_probe(tmp_path), **_SMALL)
    assert ran.exit_code == 0, ran.result
    assert ran.result["verdict"] == "ok"
    lines = _lines()
    assert len(lines) == 5
    assert f"5 of 5 hidden synchronizations were found, in lines {', '.join(map(str, lines))}." in ran.result["why"]
    waits = {metric["case"]: metric["value"] for metric in ran.result["figures"] if metric["name"] == "waits"}
    assert [case.partition(":")[0] for case in waits if case.startswith("line ")] == [f"line {line}" for line in lines]
    assert waits["none hidden"] == 0
    assert waits["all hidden"] == 5
    assert all(value == 1 for case, value in waits.items() if case.startswith("line "))
    lost = {metric["case"] for metric in ran.result["figures"] if metric["name"] == "lost"}
    assert {"each sample .to()", "each step model.to()", "each batch .to(), pageable"} < lost


@needs_torch
def test_a_line_that_is_not_reported_fails(run_workload: RunWorkload, tmp_path: Path) -> None:
    ran = run_workload(_probe(tmp_path, waiting=("item", "__bool__")), **_SMALL)
    assert ran.exit_code == 1
    assert ran.result["why"] == f"4 of 5 hidden synchronizations were found; not reported: lines {_lines()[1]}."


@pytest.mark.sampled(1)
@needs_torch
@pytest.mark.parametrize(
    ("fault", "differs"),
    [
        ("torch.Tensor.cpu = warning(lambda labels: labels + 1)", "all hidden: predictions differ"),
        (
            "placement.moved_samples = lambda host, device: (host[0] for _ in placement.itertools.count())",
            "each sample .to(): losses, ",
        ),
    ],
    ids=["a wrong copy", "a wrong batch"],
)
def test_a_loop_that_computes_something_else_fails(
    run_workload: RunWorkload, tmp_path: Path, fault: str, differs: str
) -> None:
    ran = run_workload(_probe(tmp_path, fault=fault), **_SMALL)
    assert ran.exit_code == 1
    assert ran.result["verdict"] == "fail"
    assert differs in ran.result["why"]


@needs_torch
def test_the_cpu_has_nothing_to_wait_for(run_workload: RunWorkload) -> None:
    ran = run_workload("placement")
    assert ran.exit_code == 3
    (error,) = ran.of("error")
    assert "on the CPU each call does its work" in error["text"]


def test_verdicts() -> None:
    placement = load_workload("placement")
    planted = placement.planted_lines()
    steps = {"none hidden": 1e-3, "all hidden": 2e-3, "each sample .to()": 4e-3, "each step model.to()": 21e-3}
    steps.update({placement.case_of(line): 1.1e-3 for line in planted.values()})
    steps[placement.case_of(planted["mask"])] = 1.5e-3
    kind, why = placement.judge_placement(Judge(), steps, planted, [])
    assert kind == "ok"
    assert "Without them the loop makes 1,000 instead of 500 steps/s (2.00x)." in why
    assert f"line {planted['mask']}, hard += per_sample" in why
    assert "sample by sample a step takes 3.0 ms longer, and with model.to() in each step 20.0 ms." in why
    kind, why = placement.judge_placement(Judge(), steps, planted, [7, 9])
    assert kind == "warn"
    assert why.endswith("With this torch, these lines wait too: 7, 9.")
