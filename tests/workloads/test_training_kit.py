"""The models and the training step that workloads share: counted operations, and steps that did not train."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.conftest import WORKLOADS, needs_torch, torch_python

pytestmark = needs_torch

_TOP = f"""
import json, runpy, sys, torch
runpy.run_path({str(WORKLOADS / "_run.py")!r})["_provide_kit"]()
from _kit import models, training
device = torch.device("cpu")
def trainer(kind, **options):
    model = models.build(torch, kind, "tiny")
    options = training.StepOptions(**options)
    module = training.prepare(torch, model.module, device, options)
    return model, training.Trainer(torch, device, module, model.loss, options)
def answer(value):
    print(json.dumps(value))
"""
_COUNT = """
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
counts = {}
for kind in models.KINDS:
    model = models.build(torch, kind, "tiny")
    inputs, targets = model.make_batch(3, 1)
    # The counter knows single products, and not the fused layers of the CPU.
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            loss = model.loss(model.module(inputs), targets)
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    totals = [forward.get_total_flops(), forward.get_total_flops() + backward.get_total_flops()]
    counts[kind] = [[3 * model.forward_flops, 3 * model.step_flops], totals]
answer(counts)
"""
_TRAIN = """
problems = {}
for kind in models.KINDS:
    for precision in training.PRECISIONS:
        if training.why_not(torch, None, precision):
            continue
        model, ready = trainer(kind, precision=precision)
        timer = training.PartTimer(torch, device)
        try:
            timer.mark("start")
            for number in range(3):
                loss = ready.step(model.make_batch(4, number), timer.mark)
        except RuntimeError as error:  # not every layer has a kernel for these types on every CPU
            assert precision == "fp16" or (kind == "lstm" and "could not create a primitive" in str(error)), error
            continue
        seconds = timer.seconds()
        assert list(seconds) == list(training.PARTS)
        assert all(len(times) == 3 and min(times) >= 0 for times in seconds.values())
        problems[f"{kind} {precision}"] = ready.problem(loss)
answer(problems)
"""
_FAULTS = {
    "no step": ("ready.optimizer.step = lambda: None", "The optimizer counted 0 of 4 steps."),
    "every second step": (
        """
count, real = [0], ready.optimizer.step
def step():
    count[0] += 1
    if count[0] % 2:
        real()
ready.optimizer.step = step
""",
        "The optimizer counted 2 of 4 steps.",
    ),
    "a frozen layer": ("next(ready.module.parameters()).requires_grad_(False)", "The optimizer counted 0 of 4 steps."),
    "a learning rate of zero": (
        "ready.optimizer.param_groups[0]['lr'] = 0.0",
        "6 of 6 parameter tensors did not change in 4 steps.",
    ),
    "a weight that is not finite": (
        "torch.nn.init.constant_(ready.module[0].weight, float('inf'))",
        "The loss is nan after 4 steps.",
    ),
}


def run(program: str, tmp_path: Path) -> Any:  # noqa: ANN401 - what the program prints
    """The answer of a program that has the models and the training step."""
    file = tmp_path / "program.py"
    file.write_text(_TOP + program)
    done = subprocess.run([torch_python(), str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_counted_operations_are_those_of_torch(tmp_path: Path) -> None:
    counts = run(_COUNT, tmp_path)
    assert set(counts) == {"cnn", "rnn", "lstm", "gru", "transformer", "mlp"}
    assert {kind: own for kind, (own, _) in counts.items()} == {kind: torch for kind, (_, torch) in counts.items()}


def test_every_model_trains_in_every_precision(tmp_path: Path) -> None:
    problems = run(_TRAIN, tmp_path)
    assert len(problems) >= 12
    assert set(problems.values()) == {""}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", _FAULTS)
def test_steps_that_do_not_train_are_a_problem(tmp_path: Path, fault: str) -> None:
    broken, expected = _FAULTS[fault]
    steps = "for number in range(4):\n    loss = ready.step(model.make_batch(4, number))\nanswer(ready.problem(loss))"
    assert run(f"model, ready = trainer('mlp')\n{broken}\n{steps}", tmp_path) == expected


def test_overflows_are_counted_by_the_scale(tmp_path: Path) -> None:
    program = """
if training.why_not(torch, None, "fp16"):
    answer(None)
else:
    model, ready = trainer("mlp", precision="fp16", initial_scale=2.0**30)
    for number in range(40):
        loss = ready.step(model.make_batch(4, number))
        if number == 0:
            first = [ready.overflows, ready.scale, ready.problem(loss)]
    answer([first, ready.overflows, ready.scale, ready.problem(loss)])
"""
    answer = run(program, tmp_path)
    if answer is None:
        pytest.skip("this torch trains fp16 on GPUs only")
    first, overflows, scale, problem = answer
    assert first == [1, 2.0**29, "None of 1 steps was applied: the gradients overflowed each time."]
    assert overflows > 1
    assert scale == 2.0 ** (30 - overflows)
    assert problem == ""
