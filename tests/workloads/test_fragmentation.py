"""Fragmentation: its patterns, and that its words follow what came out."""

from types import ModuleType

import pytest

from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def fragmentation() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("fragmentation")


@needs_torch
def test_the_cpu_is_refused_in_a_sentence(run_workload: RunWorkload) -> None:
    ran = run_workload("fragmentation", device="cpu")
    (error,) = ran.of("error")
    assert ran.exit_code == 3
    assert error["class"] == "UnsupportedError"
    assert error["text"].endswith(".")
    assert not ran.of("result")


BUDGETS = [256 * MEBIBYTE, 300 * MEBIBYTE, 512 * MEBIBYTE, 1 << 30, 16 << 30]


@pytest.mark.parametrize("budget", BUDGETS)
def test_growing_batches_pass_the_budget_with_the_last_one(fragmentation: ModuleType, budget: int) -> None:
    sizes = fragmentation.growing_sizes(budget)
    assert sum(sizes[:-1]) <= budget < sum(sizes)
    assert all(size % (2 * MEBIBYTE) == 0 for size in sizes)
    # Pages of 20 MiB that kept results pin, two each at worst, leave room for the largest batch: so it can be cured.
    assert (len(sizes) - 1) * 40 * MEBIBYTE + sizes[-1] <= budget


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_cheese_leaves_too_little_for_its_request(fragmentation: ModuleType, budget: int) -> None:
    count = fragmentation.hole_tensor_count(budget)
    left = budget - count * fragmentation.HOLE_BYTES
    assert count % 2 == 0
    assert 20 * MEBIBYTE <= left < fragmentation.HOLES_REQUEST_BYTES
    assert count // 2 * fragmentation.HOLE_BYTES > fragmentation.HOLES_REQUEST_BYTES


def answer(*, failed: bool, expandable: bool = False, **changed: object) -> dict[str, object]:
    return {
        "failed": failed, "expandable": expandable, "corrupted": 0, "checked": 3, "requested": 64 * MEBIBYTE,
        "idle": 500 * MEBIBYTE, "largest_hole": 16 * MEBIBYTE, **changed,
    }  # fmt: skip


def answers(
    growing: tuple[bool, bool], holes: tuple[bool, bool] = (True, True)
) -> dict[str, dict[str, dict[str, object]]]:
    return {
        name: {"default": answer(failed=first), "expandable": answer(failed=second, expandable=True)}
        for name, (first, second) in (("growing", growing), ("holes", holes))
    }


@pytest.mark.parametrize(
    ("growing", "kind", "said"),
    [
        ((True, False), "ok", "with expandable segments it succeeds"),
        ((True, True), "warn", "do not fix this"),
        ((False, False), "warn", "no allocation failed"),
        ((False, True), "warn", "only with expandable segments"),
    ],
)
def test_the_verdict_follows_what_came_out(
    fragmentation: ModuleType, growing: tuple[bool, bool], kind: str, said: str
) -> None:
    verdict = fragmentation.verdict_of(Judge(), answers(growing))
    assert verdict[0] == kind
    assert said in verdict[1].split("When every second")[0]


def test_a_cheese_that_is_cured_is_told_so(fragmentation: ModuleType) -> None:
    kind, why = fragmentation.verdict_of(Judge(), answers((True, False), (True, False)))
    assert kind == "ok"
    assert why.count("it succeeds") == 2


def test_lost_contents_fail(fragmentation: ModuleType) -> None:
    result = answers((True, False))
    result["holes"]["expandable"]["corrupted"] = 1
    assert fragmentation.verdict_of(Judge(), result)[0] == "fail"


def test_a_setting_that_had_no_effect_is_told(fragmentation: ModuleType) -> None:
    result = answers((True, True))
    result["growing"]["expandable"]["expandable"] = False
    assert "did not enable expandable segments" in fragmentation.verdict_of(Judge(), result)[1]


def test_an_unfinished_run_is_not_fine(fragmentation: ModuleType) -> None:
    result = answers((True, False))
    del result["holes"]["expandable"]
    assert fragmentation.verdict_of(Judge(), result)[0] == "warn"


@pytest.mark.gpu
@needs_torch
def test_it_runs_on_a_gpu(run_workload: RunWorkload) -> None:
    ran = run_workload("fragmentation", "cuda:0", limit_mebibytes=256, pause_seconds=0.0)
    assert ran.result["verdict"] in {"ok", "warn"}, ran.result["why"]
    assert ran.metric("growing_idle_default")["value"] > ran.metric("growing_requested_default")["value"]
    assert ran.metric("growing_reserved_expandable")["value"] <= 0.27
    assert {error["class"] for error in ran.of("error")} == {"OutOfMemoryError"}
    assert ran.of("memory")[-1]["reserved_bytes"] == 0
