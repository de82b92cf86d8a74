"""Verdicts on jobs that make progress: which rank slows the others, from evidence alone."""

from dataclasses import replace

import pytest

from gpumon.core.collectives import CollectiveState, FlightRecording, ProcessGroup, RecordedCollective
from gpumon.core.ranks import GpuSignature, HangKind, HangVerdict, RankEvidence
from gpumon.core.steps import StepProgress
from gpumon.insight.hangs import judge_hang, lateness

NOW = 1000.0
BUSY = GpuSignature("0", 99.0, 640.0, None, 1980e6, (), 5, 16)


def recorded(late: float, backend: str = "gloo", count: int = 12) -> FlightRecording:
    """The recorder of a rank that calls every collective this long after the first one."""
    collectives = tuple(
        RecordedCollective("0", number, "all_reduce", CollectiveState.COMPLETED, created_seconds=100.0 + number + late)
        for number in range(count)
    )
    return FlightRecording((ProcessGroup("0", (0, 1, 2, 3), backend),), collectives, is_recording=True)


def rank(number: int, late: float = 0.0, backend: str = "gloo", **gpu: object) -> RankEvidence:
    """A rank of a job with steps of 0.4 s."""
    return RankEvidence(
        number,
        state_code="R",
        progressed_monotonic=NOW - 0.3,
        progress=StepProgress(500, 500, NOW - 0.3, 0.4, 0.001, 0.0),
        typical_step_seconds=0.4,
        shortest_step_seconds=0.4,
        latest_step_seconds=0.4,
        recording=recorded(late, backend),
        recording_age_seconds=0.5,
        gpu=replace(BUSY, label=str(number), **gpu),  # type: ignore[arg-type]
    )


def judged(*changed: RankEvidence) -> HangVerdict:
    """The verdict on four ranks, some of which differ from the others."""
    numbers = {item.rank for item in changed}
    return judge_hang([*(rank(number) for number in range(4) if number not in numbers), *changed], NOW)


def test_equal_ranks_are_no_stragglers() -> None:
    assert judged().kind is HangKind.RUNNING


@pytest.mark.parametrize(
    ("gpu", "text"),
    [
        (
            {"clock_sm_hertz": 1200e6, "throttle_reasons": ("sw_power_cap",)},
            "Rank 2 slows the others: the SM clock of GPU 2 is 1,200 MHz, that of the others 1,980 MHz (power cap).",
        ),
        (
            {"clock_sm_hertz": 345e6, "throttle_reasons": ("hw_thermal_slowdown",)},
            "Rank 2 slows the others: the SM clock of GPU 2 is 345 MHz, that of the others 1,980 MHz (too hot).",
        ),
        (
            {"pcie_generation": 1, "pcie_width": 4},
            "Rank 2 may slow the others: the PCIe link of GPU 2 is Gen 1 x4, that of the others Gen 5 x16.",
        ),
        (
            {"foreign_pid": 4711, "foreign_sm_percent": 42.0},
            "Rank 2 slows the others: GPU 2 also runs PID 4711 of another job (42 % of the time).",
        ),
    ],
)
def test_hardware(gpu: dict[str, object], text: str) -> None:
    verdict = judged(rank(2, **gpu))  # type: ignore[arg-type]
    assert (verdict.kind, verdict.is_hang, verdict.rank, verdict.summary) == (HangKind.STRAGGLER, False, 2, text)
    assert verdict.evidence[0].startswith("Hardware: rank 2: ")
    assert any("Rank 0: step 400 ms" in sentence and "1,980 MHz" in sentence for sentence in verdict.evidence)


@pytest.mark.parametrize(
    "gpu",
    [
        {"clock_sm_hertz": 1850e6},  # GPUs of one model differ by this much
        {"clock_sm_hertz": 345e6, "utilization_percent": 3.0},  # an idle GPU
        {"pcie_generation": 1, "utilization_percent": 3.0},
        {"pcie_generation": None, "clock_sm_hertz": None},
        {"foreign_pid": 4711, "foreign_sm_percent": 2.0},
        {"throttle_reasons": ("sw_power_cap",)},
    ],
)
def test_what_slows_nobody(gpu: dict[str, object]) -> None:
    assert judged(rank(2, **gpu)).kind is HangKind.RUNNING  # type: ignore[arg-type]


def test_a_slow_loader_of_one_rank() -> None:
    slow = replace(rank(1), progress=StepProgress(500, 500, NOW, 0.4, 0.2, 0.0))
    verdict = judged(slow)
    assert (verdict.kind, verdict.rank) == (HangKind.STRAGGLER, 1)
    assert "it waits 200 ms per step for its DataLoader, the others 1.00 ms" in verdict.summary
    assert verdict.evidence[0].startswith("Program: rank 1: ")
    everyone = [replace(rank(number), progress=slow.progress) for number in range(4)]
    assert judged(*everyone).kind is HangKind.RUNNING


def test_a_rank_without_a_core() -> None:
    ranks = [replace(rank(number), core_wait_share=0.6 if number == 3 else 0.02) for number in range(4)]
    verdict = judged(*ranks)
    assert "Rank 3 slows the others: its main thread waits for a CPU core 60 % of the time" in verdict.summary


def test_a_slow_core() -> None:
    ranks = [replace(rank(number), cpu_share=0.9, cpu_hertz=8e8 if number == 3 else 3e9) for number in range(4)]
    assert "its CPU core runs at 800 MHz, that of the others at 3,000 MHz" in judged(*ranks).summary
    idle = replace(ranks[3], cpu_share=0.1)
    assert judged(*ranks[:3], idle).kind is HangKind.RUNNING


def test_late_calls_are_measured() -> None:
    ranks = [rank(0), rank(1, late=0.12), rank(2, late=0.002)]
    late = lateness(ranks)
    assert [round(late[number], 3) for number in range(3)] == [0.0, 0.12, 0.002]
    verdict = judge_hang(ranks, NOW)
    assert (verdict.kind, verdict.rank) == (HangKind.STRAGGLER, 1)
    assert verdict.summary.startswith(
        "Rank 1 slows the others: it calls its collectives 119 ms later, in a step of 400 ms"
    )
    assert lateness([replace(item, recording_age_seconds=60.0) for item in ranks]) == {}
    assert lateness([replace(item, recording=recorded(0.1 * item.rank, count=5)) for item in ranks]) == {}


def test_a_call_that_only_enqueues_is_late_only_if_the_gpu_waits_for_it() -> None:
    ahead = [rank(number, late=0.1 * (number == 1), backend="nccl") for number in range(3)]
    assert judge_hang(ahead, NOW).kind is HangKind.RUNNING
    idler = replace(ahead[1], gpu=replace(ahead[1].gpu, utilization_percent=70.0))
    assert judge_hang([ahead[0], idler, ahead[2]], NOW).rank == 1


def test_the_largest_cause_is_named_with_the_time_that_it_costs() -> None:
    slow = rank(2, late=0.1, clock_sm_hertz=990e6, pcie_generation=1)
    verdict = judged(slow, rank(3, pcie_generation=1, pcie_width=8))
    assert verdict.rank == 2
    assert "990 MHz" in verdict.summary
    assert verdict.summary.endswith(
        "It calls its collectives 100 ms after them; a step takes 400 ms. 1 other rank too."
    )


def test_steps_that_take_ten_times_as_long_are_slow() -> None:
    ranks = [replace(rank(number), latest_step_seconds=4.4, typical_step_seconds=4.2) for number in range(2)]
    verdict = judge_hang(ranks, NOW)
    assert (verdict.kind, verdict.is_hang) == (HangKind.SLOW, False)
    assert verdict.summary == "Slow, not hung: the latest step took 4.40 s, a usual one 400 ms."
    assert judge_hang([replace(item, latest_step_seconds=3.0) for item in ranks], NOW).kind is HangKind.RUNNING
