"""Collectives with Gloo on the CPU: definitions of nccl-tests, checked data, a straggler, several hosts."""

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch, probe_of

OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_receive"]
QUICK = {"max_mebibytes": 0.0625, "milliseconds": 1}
PROBE = probe_of("collectives")
WRONG = """
original = collectives.OPERATIONS["NAME"].call
def wrong(dist, source, target):
    original(dist, source, target)
    if dist.get_rank() == 1:
        target[77] += 1
object.__setattr__(collectives.OPERATIONS["NAME"], "call", wrong)
"""
SKIPPED = """
object.__setattr__(collectives.OPERATIONS["NAME"], "call", lambda dist, source, target: None)
"""
SLOW = """
original = collectives.own_work
def own_work(context):
    work = original(context)
    return lambda: (work(), time.sleep(0.2 if os.environ["RANK"] == "1" else 0))
collectives.own_work = own_work
"""


@pytest.fixture(scope="module")
def collectives() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("collectives")


def test_bus_bandwidth_is_that_of_nccl_tests(collectives: ModuleType) -> None:
    factors = {name: operation.bus_factor(4) for name, operation in collectives.OPERATIONS.items()}
    assert factors == {
        "all_reduce": 1.5, "all_gather": 0.75, "reduce_scatter": 0.75, "broadcast": 1.0, "send_receive": 1.0,
    }  # fmt: skip


def test_sizes_grow_by_four_and_end_with_the_largest(collectives: ModuleType) -> None:
    assert [collectives.size_text(size) for size in collectives.sizes_up_to(1 << 30)] == [
        "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB", "1 GiB",
    ]  # fmt: skip
    assert collectives.sizes_up_to(5000)[-2:] == [4096, 5000]


@needs_torch
def test_every_collective_is_measured_and_right(run_workload: RunWorkload) -> None:
    ran = run_workload("collectives", **QUICK)
    assert ran.result["verdict"] in {"ok", "warn"}, ran.events
    assert "All 40 checks of the data are correct." in ran.result["why"]
    for name in OPERATIONS:
        sweep = [figure for figure in ran.result["figures"] if figure["name"] == name]
        times = [figure for figure in ran.result["figures"] if figure["name"] == f"{name}_time"]
        assert [figure["position"] for figure in sweep] == [1 << 10, 1 << 12, 1 << 14, 1 << 16]
        assert [figure["case"] for figure in sweep] == ["1 KiB", "4 KiB", "16 KiB", "64 KiB"]
        factor = 1.0 if name in {"all_reduce", "broadcast", "send_receive"} else 0.5
        for bandwidth, taken in zip(sweep, times, strict=True):
            assert bandwidth["value"] == pytest.approx(bandwidth["position"] / taken["value"] / 1e3 * factor)
        algorithm = ran.metric(f"{name}_algorithm_bandwidth")["value"]
        assert ran.metric(f"{name}_bus_bandwidth")["value"] == pytest.approx(algorithm * factor)
        assert ran.metric(f"{name}_latency")["value"] == times[0]["value"]
    assert ran.metric("straggler")["value"] in {0, 1}
    assert ran.metric("straggler_factor")["value"] >= 1
    assert {event["name"] for event in ran.of("metric")} == {"rank 0", "rank 1"}
    progress = ran.of("progress")[-1]
    assert progress["done"] == progress["total"]


@pytest.mark.sampled(2)
@needs_torch
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("fault", [WRONG, SKIPPED])
def test_wrong_data_fails(run_workload: RunWorkload, tmp_path: Path, fault: str, name: str) -> None:
    file = tmp_path / "probe.py"
    file.write_text(PROBE + fault.replace("NAME", name))
    ran = run_workload(file, operation=name, **QUICK)
    assert ran.result["verdict"] == "fail"
    assert f"of {name}, 64 KiB, are wrong" in ran.result["why"]
    if fault is WRONG:
        assert f"Rank 1: 1 of {16384 // (2 if name == 'reduce_scatter' else 1)} elements" in ran.result["why"]
        assert "Rank 0" not in ran.result["why"]


@needs_torch
def test_a_slow_rank_is_named(run_workload: RunWorkload, tmp_path: Path) -> None:
    file = tmp_path / "probe.py"
    file.write_text(PROBE + SLOW)
    ran = run_workload(file, operation="broadcast", **QUICK)
    assert ran.result["verdict"] == "warn"
    assert ran.result["why"].startswith("Rank 1 takes ")
    assert ran.metric("straggler")["value"] == 1
    waiting = {figure["case"]: figure["value"] for figure in ran.result["figures"] if figure["name"] == "waiting"}
    assert waiting["rank 0"] > 100 > waiting["rank 1"]


def fake_context(visible: int, ranks: int = 0, hosts: int = 1) -> SimpleNamespace:
    cuda = SimpleNamespace(device_count=lambda: visible)
    return SimpleNamespace(
        on_gpu=visible > 0, torch=SimpleNamespace(cuda=cuda), device=SimpleNamespace(index=1 if visible > 1 else 0),
        parameters=SimpleNamespace(ranks=ranks, hosts=hosts),
    )  # fmt: skip


def test_the_ranks_are_those_of_all_gpus(collectives: ModuleType) -> None:
    assert collectives.devices_of(fake_context(4)) == ["cuda:1", "cuda:2", "cuda:3", "cuda:0"]
    assert collectives.devices_of(fake_context(4, ranks=2)) == ["cuda:1", "cuda:2"]
    assert collectives.devices_of(fake_context(1, hosts=2)) == ["cuda:0"]
    assert collectives.devices_of(fake_context(0, ranks=3)) == ["cpu"] * 3
    with pytest.raises(Exception, match="there is one GPU here"):
        collectives.devices_of(fake_context(1))
    with pytest.raises(Exception, match="3 ranks need 3 GPUs; torch finds 2"):
        collectives.devices_of(fake_context(2, ranks=3))


def test_the_verdict_says_what_to_do(collectives: ModuleType) -> None:
    curve = [(1 << 10, 0.01, 2e-5), (16 << 20, 300.0, 1e-4), (1 << 30, 360.0, 5.9e-3)]
    done = collectives.RankResults(ranks=8, checked=4, curve=curve, factor=1.01)
    judge = Judge(on_gpu=True, device=SimpleNamespace(type="cuda"))
    kind, why = collectives.verdict_of(judge, [done])
    assert kind == "ok"
    assert "bucket_cap_mb should be at least 16 (its default is 25)" in why
    assert "take 11 ms per step" in why
    done.factor, done.slowest = 1.4, 3
    others = [collectives.RankResults(bus_id=f"0000:0{number}:00.0") for number in range(1, 8)]
    assert collectives.verdict_of(judge, [done, *others])[1].startswith("Rank 3 (GPU 0000:03:00.0) takes 1.40x as long")
    kind, why = collectives.verdict_of(judge, [done])
    assert kind == "warn"
    assert why.startswith("Rank 3 takes 1.40x as long")
    done.wrong = ["Rank 2: wrong."]
    assert collectives.verdict_of(judge, [done]) == ("fail", "Rank 2: wrong.")
