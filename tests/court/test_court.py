"""The cases: their table, how answers are judged, and on the CPU that slow runs are slow and leave no process."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.court.__main__ import Options, run_cases, selected
from tests.court.cases import CASES, HEALTHY, Case
from tests.court.process import SCRIPT, device_of
from tests.court.report import Outcome, judged, table, totals
from tests.workloads.conftest import TORCH_PYTHON, needs_torch

MIN_CURE_RATIO = 1.3
BY_NAME = {case.name: case for case in CASES}
ANSWER = {
    "stages": ["passive"],
    "step_seconds": 0.02,
    "account": [{"name": "data", "seconds": 0.016}, {"name": "tensor_cores", "seconds": 0.004}],
    "verdict": {
        "is_decided": True,
        "summary": "Waiting for data.",
        "causes": [{"name": "data", "kind": "few_workers", "bound_seconds": 0.004, "line": "train.py:3"}],
    },
}
SICK = {"step_seconds": 0.02, "samples_per_step": 1}
CURED = {"step_seconds": 0.0044, "samples_per_step": 1}


def test_every_case_has_a_function_and_every_training_function_a_case() -> None:
    defined = {
        (path.stem, node.name)
        for path in SCRIPT.parent.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and any(argument.arg == "run" for argument in node.args.args)
    }
    helpers = {("model", "mlp"), ("model", "frames"), ("ranks", "join"), ("ranks", "replicated")}
    assert defined - helpers == {(case.module, case.name) for case in CASES}
    assert len(BY_NAME) == len(CASES)


@pytest.mark.parametrize(("device", "sick", "healthy"), [("cuda", 26, 8), ("cpu", 12, 4)])
def test_enough_cases(device: str, sick: int, healthy: int) -> None:
    cases = [case for case in CASES if device_of(case, device)]
    assert sum(not case.is_healthy for case in cases) >= sick
    assert sum(case.is_healthy for case in cases) >= healthy


def test_every_slow_case_has_a_cause_and_no_healthy_one_has() -> None:
    for case in CASES:
        assert bool(case.causes) == bool(case.kinds) == (case.module != HEALTHY)


def test_the_right_cause_with_the_right_bound() -> None:
    outcome = judged(BY_NAME["few_workers"], ANSWER, SICK, CURED)
    assert outcome.is_right
    assert outcome.is_bound_right
    assert outcome.account_ratio == pytest.approx(1)
    assert outcome.cure_ratio == pytest.approx(0.02 / 0.0044)
    assert not judged(BY_NAME["few_workers"], ANSWER, SICK, {**CURED, "step_seconds": 0.006}).is_bound_right


def test_the_right_class_with_the_kind_of_another_case_is_wrong() -> None:
    assert not judged(BY_NAME["decode_in_main"], ANSWER, SICK, CURED).is_right
    assert BY_NAME["decode_in_main"].accepts("data", "a kind that no case knows")


def test_the_place_of_the_planted_cause() -> None:
    other = {"name": "waiting_for_core", "kind": "cpu_contention", "bound_seconds": 0.01}
    verdict: Any = ANSWER["verdict"]
    answer = {**ANSWER, "verdict": {**verdict, "causes": [other, *verdict["causes"]]}}
    outcome = judged(BY_NAME["few_workers"], answer, SICK, CURED)
    assert (outcome.said, outcome.position, outcome.is_right) == ("waiting_for_core", 2, False)
    assert "WRONG (2.)" in table([outcome])


def test_a_healthy_run_must_not_be_accused_and_undecided_is_not_an_accusation() -> None:
    undecided = {**ANSWER, "verdict": {"is_decided": False, "summary": "Undecided.", "causes": []}}
    assert not judged(BY_NAME["good_loader"], ANSWER, SICK, None).is_right
    assert judged(BY_NAME["good_loader"], undecided, SICK, None).is_right
    outcome = judged(BY_NAME["few_workers"], undecided, SICK, CURED)
    assert (outcome.said, outcome.is_right, outcome.is_bound_tested) == ("undecided", False, False)


def test_a_cure_with_larger_batches_is_compared_by_samples() -> None:
    outcome = judged(BY_NAME["tiny_batch"], ANSWER, {**SICK, "samples_per_step": 2}, {**SICK, "samples_per_step": 64})
    assert outcome.cure_ratio == 32


def test_totals_leave_out_cases_without_a_result() -> None:
    outcomes = [
        judged(BY_NAME["few_workers"], ANSWER, SICK, CURED),
        judged(BY_NAME["good_loader"], ANSWER, SICK, None),
        Outcome(BY_NAME["trainer"], problem="skipped: needs transformers."),
    ]
    assert totals(outcomes) == [
        "Causes right: 1 of 1.",
        "Healthy runs accused: 1 of 1.",
        "Cured steps within the range, or 15% of the bound: 1 of 1.",
        "Accounts that add up to the step within 2%: 2 of 2.",
        "trainer: skipped: needs transformers.",
    ]
    assert "no result" in table(outcomes)


def test_selection() -> None:
    assert [case.name for case in selected("lock,few_workers", "cpu")] == ["few_workers", "lock"]
    assert {case.module for case in selected("loading", "cpu")} == {"loading"}
    assert "no_overlap" not in {case.name for case in selected("", "cpu")}
    with pytest.raises(SystemExit, match="nonsense"):
        selected("nonsense", "cpu")


@pytest.mark.long
@needs_torch
@pytest.mark.parametrize("name", ["rate_limit", "decode_in_main", "python_metrics"])
def test_the_command_shows_that_the_cure_is_faster(name: str, tmp_path: Path) -> None:
    script = tmp_path / "why.py"
    script.write_text(f"print({json.dumps(json.dumps(ANSWER))})")
    options = Options("cpu", 2.0, str(TORCH_PYTHON), why=(sys.executable, str(script)))
    (outcome,) = run_cases([BY_NAME[name]], options)
    assert not outcome.problem
    assert outcome.cure_ratio is not None
    assert outcome.cure_ratio >= MIN_CURE_RATIO
    assert outcome.said == "data"
    document: dict[str, Any] = json.loads(json.dumps(outcome.document()))
    assert document["case"]["name"] == name


@pytest.mark.long
@needs_torch
def test_a_run_that_fails_is_reported() -> None:
    case = Case("nonsense", "loading", "cpu_ok", "it does not exist", ("data",), ("few_workers",))
    (outcome,) = run_cases([case], Options("cpu", 1.0, str(TORCH_PYTHON), why=("false",)))
    assert "AttributeError" in outcome.problem
    assert not outcome.is_right


def test_help() -> None:
    command = [sys.executable, "-m", "tests.court", "--help"]
    assert "--cases" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
