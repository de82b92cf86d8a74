"""Data parallelism with Gloo on the CPU: scaling of real steps, and ranks that do not train."""

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch, probe_of

QUICK = {"size": "tiny", "steps": 3, "batch": 4}
PROBE = (
    probe_of("parallel")
    + """
parallel.counts_up_to = lambda largest: [largest]
"""
)
SKIPPED = """
class Skipping(parallel.Trainer):
    def step(self, batch):
        if os.environ["RANK"] == "1" and self.steps == 2:
            apply, self.optimizer.step = self.optimizer.step, lambda: None
            loss = super().step(batch)
            self.optimizer.step = apply
            return loss
        return super().step(batch)
parallel.Trainer = Skipping
"""
DRIFTED = """
class Drifting(parallel.Trainer):
    def step(self, batch):
        loss = super().step(batch)
        if os.environ["RANK"] == "1" and self.steps == 2:
            next(self.module.parameters()).data.view(-1)[3] += 1e-3
        return loss
parallel.Trainer = Drifting
"""
ANOTHER_MODEL = """
original = parallel.shard
def shard(torch, module, device):
    with torch.no_grad():
        list(module.parameters())[-1].add_(torch.arange(10.0))
    return original(torch, module, device)
parallel.shard = shard
"""


@pytest.fixture(scope="module")
def parallel() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("parallel")


def test_numbers_of_ranks_double(parallel: ModuleType) -> None:
    assert [parallel.counts_up_to(largest) for largest in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


@needs_torch
def test_both_strategies_scale_from_one_rank(run_workload: RunWorkload) -> None:
    ran = run_workload("parallel", **QUICK)
    assert ran.result["verdict"] == "ok", ran.events
    values = {(figure["case"], figure["name"]): figure["value"] for figure in ran.result["figures"]}
    alone = values["no wrapper, 1 rank", "step_time"]
    assert values["no wrapper, 1 rank", "throughput"] == pytest.approx(4 / alone * 1e3)
    for case, ranks in (("DDP, 1 rank", 1), ("FSDP2, 1 rank", 1), ("DDP, 2 ranks", 2), ("FSDP2, 2 ranks", 2)):
        taken = values[case, "step_time"]
        assert values[case, "throughput"] == pytest.approx(ranks * 4 / taken * 1e3)
        assert values[case, "efficiency"] == pytest.approx(100 * alone / taken)
        assert ((case, "communication") in values) == (ranks == 2)
    assert 0 <= values["FSDP2, 2 ranks", "communication_share"] <= 100
    progress = ran.of("progress")[-1]
    assert progress["done"] == progress["total"]


@pytest.mark.long
@needs_torch
@pytest.mark.parametrize(
    ("fault", "strategy", "said"),
    [
        (SKIPPED, "ddp", "Rank 1 of 2 under DDP: The optimizer counted 3 of 4 steps."),
        (SKIPPED, "fsdp2", "Rank 1 of 2 under FSDP2: The optimizer counted 3 of 4 steps."),
        (
            DRIFTED,
            "ddp",
            "Rank 1 of 2 under DDP: 1 parameter tensors differ from those of rank 0, the first is module.0",
        ),
        (ANOTHER_MODEL, "all", "The loss is "),
    ],
)
def test_ranks_that_do_not_train_together_fail(
    run_workload: RunWorkload, tmp_path: Path, fault: str, strategy: str, said: str
) -> None:
    file = tmp_path / "probe.py"
    file.write_text(PROBE + fault)
    ran = run_workload(file, strategy=strategy, **QUICK)
    assert ran.result["verdict"] == "fail"
    assert said in ran.result["why"]


def answers(ranks: int, ddp: float, fsdp2: float) -> list[dict[str, Any]]:
    """What the ranks of a GPU host answer; times in seconds."""
    common = {"problem": "", "loss": 2.0}
    ways = {
        "none": {"seconds": 1.0, "peak_bytes": 4 << 30, **common},
        "ddp": {"seconds": ddp, "unsynchronized_seconds": 1.0, "peak_bytes": 5 << 30, **common},
        "fsdp2": {"seconds": fsdp2, "peak_bytes": 2 << 30, **common},
    }
    return [{"ways": ways} for _ in range(ranks)]


@pytest.mark.parametrize(
    ("ddp", "fsdp2", "kind", "said"),
    [
        (1.02, 1.1, "ok", "Use DDP as long as the model fits: it is 1.08x as fast"),
        (1.2, 1.1, "ok", "Use FSDP2: it is 1.09x as fast as DDP (2.00 instead of 5.00 GiB per GPU)."),
        (2.0, 2.5, "warn", "raise the batch size per GPU"),
    ],
)
def test_the_verdict_chooses(parallel: ModuleType, ddp: float, fsdp2: float, kind: str, said: str) -> None:
    reported: dict[tuple[str, str], float] = {}

    def result(name: str, value: float, *, repetitions: int, case: str) -> None:
        reported[case, name] = value

    judge = Judge(on_gpu=True, checked=0, result=result, parameters=SimpleNamespace(batch=8, steps=30))
    scaling = parallel.Scaling(judge)
    scaling.add(answers(1, 1.0, 1.0))
    scaling.add(answers(8, ddp, fsdp2))
    verdict = scaling.verdict()
    assert verdict[0] == kind
    assert said in verdict[1]
    assert reported["DDP, 8 ranks", "throughput"] == pytest.approx(64 / ddp)
    assert reported["DDP, 8 ranks", "efficiency"] == pytest.approx(100 / ddp)
    assert reported["DDP, 8 ranks", "communication_share"] == pytest.approx(100 * (ddp - 1) / ddp)
    assert reported["FSDP2, 8 ranks", "communication"] == pytest.approx((fsdp2 - 1) * 1e3)
    assert reported["FSDP2, 8 ranks", "peak_memory"] == 2


def test_one_gpu_is_no_scaling(parallel: ModuleType) -> None:
    judge = Judge(on_gpu=True, checked=0, result=lambda *_, **__: None, parameters=SimpleNamespace(batch=8, steps=30))
    scaling = parallel.Scaling(judge)
    scaling.add(answers(1, 1.0, 1.0))
    assert scaling.verdict()[0] == "warn"
    assert "One GPU" in scaling.verdict()[1]
