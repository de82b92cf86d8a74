"""Out of memory: its budget, its batch sizes, its gradients and its verdict."""

from types import ModuleType

import pytest

from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch, output_of

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def oom() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("oom")


@pytest.mark.parametrize("budget", [256 * MEBIBYTE, 700 * MEBIBYTE, 16 << 30])
def test_chunks_are_whole_pages_and_fill_the_budget(oom: ModuleType, budget: int) -> None:
    chunk = oom.chunk_of(budget)
    assert chunk % (2 * MEBIBYTE) == 0
    assert budget // chunk < 2 * oom.CHUNKS


@pytest.mark.parametrize("limit", [0, 63, 64, 100, 5000, 123_457])
def test_the_largest_batch_is_found_by_trying(oom: ModuleType, limit: int) -> None:
    asked = []

    def fits(count: int) -> bool:
        asked.append(count)
        return count <= limit

    result = oom.largest_that_fits(fits, 64)
    assert result <= limit
    assert result >= limit * 0.96 or limit < 64
    assert len(asked) < 25


@pytest.mark.parametrize("largest", [64, 65, 2880, 17_777])
def test_the_full_batch_does_not_fit_and_half_of_it_does(oom: ModuleType, largest: int) -> None:
    full = oom.full_batch_of(largest)
    assert full > largest * 1.2
    assert full / 2 < largest
    assert full % 8 == 0


def shown(oom: ModuleType, **changed: object) -> object:
    demonstration = oom.Demonstration(1 << 30, 64 * MEBIBYTE, reserved_at_oom=1 << 30)
    demonstration.values = {"reserved_at_end": 50 * MEBIBYTE, "largest_batch_plain": 100, "full_batch": 150}
    for name, value in changed.items():
        setattr(demonstration, name, value)
    return demonstration


def test_every_step_counts_in_the_verdict(oom: ModuleType) -> None:
    assert oom.verdict_of(Judge(), shown(oom))[0] == "ok"
    kind, why = oom.verdict_of(Judge(), shown(oom, remarks=["Another process."]))
    assert kind == "warn"
    assert "Another process." in why
    kind, why = oom.verdict_of(Judge(), shown(oom, failures=["del did not free."], remarks=["x"]))
    assert (kind, why) == ("fail", "del did not free.")
    assert oom.verdict_of(Judge(), oom.Demonstration(1, 1, failures=["Never ran out."]))[0] == "fail"


@needs_torch
def test_accumulated_and_checkpointed_gradients_are_those_of_the_whole_batch() -> None:
    output = output_of(
        "oom",
        """
model = w._model(context)
plain = w._gradients(context, model, 24)
for how in ({"parts": 4}, {"checkpointed": True}):
    print(w._difference(plain, w._gradients(context, model, 24, **how)) < w._TOLERANCE)
print(w._difference(plain, w._gradients(context, model, 16)) > w._TOLERANCE)
""",
    )
    assert output.split() == ["True", "True", "True"]


@pytest.mark.gpu
@needs_torch
def test_it_runs_on_a_gpu(run_workload: RunWorkload) -> None:
    ran = run_workload("oom", "cuda:0", limit_mebibytes=256, pause_seconds=0.0)
    assert ran.result["verdict"] in {"ok", "warn"}, ran.result["why"]
    assert "OutOfMemoryError" in {error["class"] for error in ran.of("error")}
    assert all(error["expected"] for error in ran.of("error"))
    assert ran.metric("reserved_after_del")["value"] == pytest.approx(ran.metric("reserved_at_oom")["value"], abs=0.01)
    assert ran.metric("reserved_after_empty_cache")["value"] < 0.05
    assert ran.metric("held_by_exception")["value"] > 0.2
    assert ran.metric("with_checkpointing_peak")["value"] < 0.25
    assert ran.of("memory")[-1]["reserved_bytes"] < 150 * MEBIBYTE
    assert max(event["peak_reserved_bytes"] for event in ran.of("memory")) <= 256 * MEBIBYTE
