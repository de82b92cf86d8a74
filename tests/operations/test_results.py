"""Histories of saved results: what is compared with what, and what a filter leaves."""

from pathlib import Path
from typing import Any

import pytest

from gpumon.core.units import StartTime
from gpumon.operations.results import ResultFilter, ResultGroup, read_history
from gpumon.workload_runs.results import save_result

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def metric(value: float, name: str = "throughput", case: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": "TFLOP/s", "repetitions": 3, "limit": None, "case": case}


def save(days: float, value: float, host: str | None = "box01", gpu: str | None = "GPU-1", **changes: Any) -> None:  # noqa: ANN401
    """Saves a result that is some days old."""
    record = {
        "time_seconds": NOW - days * DAY, "host": host, "driver": "580.65", "workload": "matmul",
        "device": "cpu" if gpu is None else "cuda:0", "uuid": gpu,
        "device_name": None if gpu is None else "NVIDIA H200", "torch": "2.11.0", "parameters": {"size": 8192},
        "verdict": "ok", "why": "Fine.", "figures": [metric(value)],
    }  # fmt: skip
    assert save_result(record | changes) is None


def history(**wanted: Any) -> list[ResultGroup]:  # noqa: ANN401
    return read_history(ResultFilter(**wanted), NOW)


def shares(group: ResultGroup) -> list[float | None]:
    return [item.changes[0].share if item.changes else None for item in group.results]


def test_a_group_has_one_workload_device_and_set_of_parameters() -> None:
    save(3, 600)
    save(2, 300, parameters={"size": 64})
    save(1, 606)
    save(0.5, 7, workload="sync")
    groups = history()
    assert [(group.workload, group.parameters, len(group.results)) for group in groups] == [
        ("sync", {"size": 8192}, 1),
        ("matmul", {"size": 8192}, 2),
        ("matmul", {"size": 64}, 1),
    ]
    assert [item.result.measurements[0].value for item in groups[1].results] == [606, 600], "newest first"
    assert shares(groups[1]) == [pytest.approx(0.01), None]


def test_each_gpu_is_compared_with_itself_and_gpus_of_one_name_stand_together() -> None:
    save(4, 600)
    save(3, 500, "box02", "GPU-2")
    save(2, 606)
    save(1, 550, "box02", "GPU-2")
    (group,) = history()
    assert group.device_name == "H200"
    assert group.hosts == ["box02", "box01"]
    assert shares(group) == [pytest.approx(0.1), pytest.approx(0.01), None, None]


def test_processors_of_two_hosts_are_two_devices() -> None:
    save(2, 0.2, gpu=None)
    save(1, 0.4, "box02", gpu=None)
    assert [group.device_name for group in history()] == ["CPU of box02", "CPU of box01"]
    assert [shares(group) for group in history()] == [[None], [None]]


def test_a_result_without_a_host_is_read_and_compared() -> None:
    save(2, 600, None)
    save(1, 606)
    (group,) = history()
    assert group.hosts == ["box01"]
    assert shares(group) == [pytest.approx(0.01), None]


def test_a_failed_run_is_listed_and_nothing_is_compared_with_it() -> None:
    save(3, 600)
    save(2, 100, verdict="fail")
    save(1, 606)
    (group,) = history()
    assert shares(group)[0] == pytest.approx(0.01)
    assert [item.result.verdict for item in group.results] == ["ok", "fail", "ok"]


def test_changes_are_matched_by_name_and_case() -> None:
    save(2, 0, figures=[metric(10, case="fp32"), metric(20, case="bf16"), metric(30)])
    save(1, 0, figures=[metric(22, case="bf16"), metric(33), metric(5, case="fp8")])
    newest = history()[0].results[0]
    assert [(change.case, change.before, change.after) for change in newest.changes] == [("bf16", 20, 22), ("", 30, 33)]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({}, 4),
        ({"workload": "matmul"}, 3),
        ({"workload": "nothing"}, 0),
        ({"device": "h200"}, 3),
        ({"device": "cpu"}, 1),
        ({"device": "cuda:0"}, 3),
        ({"device": "gpu-2"}, 1),
        ({"host": "box02"}, 1),
        ({"since": StartTime(last_seconds=2.5 * DAY)}, 2),
        ({"since": StartTime(time_seconds=NOW - 1.5 * DAY)}, 1),
    ],
)
def test_filters(wanted: dict[str, Any], count: int) -> None:
    save(4, 600)
    save(3, 0.2, gpu=None, workload="sync")
    save(2, 500, "box02", "GPU-2")
    save(1, 606)
    assert sum(len(group.results) for group in history(**wanted)) == count


def test_a_filter_of_time_does_not_hide_what_a_result_is_compared_with() -> None:
    save(4, 600)
    save(1, 606)
    (group,) = history(since=StartTime(last_seconds=2 * DAY))
    assert shares(group) == [pytest.approx(0.01)]
