"""What stands out in a fleet, its totals, and the documents that are made of it."""

import json
from array import array
from math import nan

import pytest

from gpumon.core.problems import ProblemCode
from gpumon.fleet.exporters import is_blank
from gpumon.fleet.model import AGE, BUSIEST, LAST_XID, FleetGpu, FleetSnapshot
from gpumon.operations.fleet.document import fleet_document
from gpumon.operations.fleet.findings import CLOCK, POWER, TOTAL, USED, UTILIZATION, FindingKind
from gpumon.operations.fleet.queries import FleetList, finding_query, list_query, usage_query, usage_step
from gpumon.operations.fleet.report import FleetReport

GIB = float(1 << 30)


def snapshot(gpus: int = 8, /, **values: dict[int, float]) -> FleetSnapshot:
    """GPUs of one host and job that work evenly, with other values for some of them."""
    usual = {UTILIZATION: 90.0, USED: 70 * GIB, TOTAL: 140 * GIB, POWER: 600.0, CLOCK: 1.98e9, AGE: 5.0}
    columns = {name: array("d", [value] * gpus) for name, value in usual.items()}
    columns |= {name: array("d", [nan] * gpus) for name in (BUSIEST, LAST_XID)}
    names = {"utilization": UTILIZATION, "used": USED, "power": POWER, "clock": CLOCK, "busiest": BUSIEST}
    for name, changes in values.items():
        for position, value in changes.items():
            columns[{"xid": LAST_XID, "age": AGE, **names}[name]][position] = value
    fleet = tuple(FleetGpu("a", str(n), f"GPU-{n}", "H200", "dcgm-exporter", job="7") for n in range(gpus))
    return FleetSnapshot(1000.0, fleet, columns, exporters={"dcgm-exporter": gpus})


def kinds(fleet: FleetSnapshot) -> list[tuple[FindingKind, int | None]]:
    return [(finding.kind, finding.position) for finding in FleetReport(fleet).findings]


def test_a_fleet_that_works_has_no_findings() -> None:
    assert kinds(snapshot()) == []


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"xid": {3: 79.0}}, FindingKind.XID),
        ({"clock": {3: 1.5e9}}, FindingKind.SLOW_CLOCK),
        ({"utilization": {3: 40.0}}, FindingKind.SLOW_IN_JOB),
        ({"power": {3: 250.0}}, FindingKind.SLOW_IN_JOB),
    ],
)
def test_one_gpu_stands_out(changes: dict[str, dict[int, float]], kind: FindingKind) -> None:
    assert kinds(snapshot(**changes)) == [(kind, 3)]


def test_allocated_and_idle_needs_memory_and_half_an_hour() -> None:
    idle = {"utilization": dict.fromkeys(range(8), 0.0), "clock": dict.fromkeys(range(8), 3e8)}
    assert kinds(snapshot(**idle)) == [], "idle just now"
    assert kinds(snapshot(**idle, busiest={2: 0.0, 4: 0.0}, used={4: GIB / 2})) == [(FindingKind.IDLE, 2)]


def test_clocks_of_idle_gpus_and_of_few_gpus_are_not_compared() -> None:
    idle = {"utilization": {3: 10.0}, "clock": {3: 3e8}}
    assert (FindingKind.SLOW_CLOCK, 3) not in kinds(snapshot(**idle))
    assert kinds(snapshot(3, clock={1: 1e9})) == []


def test_old_values_and_silent_hosts() -> None:
    fleet = snapshot(age=dict.fromkeys(range(8), 300.0))
    assert kinds(fleet) == [(FindingKind.LAGGING, None)]
    silent = FleetSnapshot(1.0, (), {}, silent_hosts=("b",), lost_gpus={"c": 2})
    assert [kind for kind, _ in kinds(silent)] == [FindingKind.SILENT, FindingKind.LOST]
    assert [row.name for row in FleetReport(silent).hosts] == ["b"]


def test_totals_leave_out_what_is_missing() -> None:
    totals = FleetReport(snapshot(4, power={0: nan}, utilization={0: nan, 1: 0.0})).totals
    assert totals[:4] == (4, 2, 60.0, 1800.0)
    assert FleetReport(FleetSnapshot(0.0, (), {})).totals == (0, None, None, None, None, None)


def test_a_document_has_null_with_a_reason() -> None:
    document = json.loads(json.dumps(fleet_document(FleetReport(snapshot(2, power={1: nan})))))
    gpu = document["gpus"][1]
    assert gpu["power_watts"] is None
    assert gpu["problems"]["power_watts"]["code"] == ProblemCode.NOT_READ.value
    assert gpu["user"] is None
    assert document["gpus"][0]["power_watts"] == 600.0


@pytest.mark.parametrize("value", [9223372036854775794.0, nan, float("inf"), -float("inf"), 140737488355328.0])
def test_blanks(value: float) -> None:
    assert is_blank(value)


def test_every_list_and_finding_has_promql() -> None:
    exporters = ("dcgm-exporter", "gpumon", "nvidia_gpu_exporter", "all-smi")
    for kind in FleetList:
        assert list_query(kind, exporters, 'cluster="a"').count('cluster="a"')
    for finding in FindingKind:
        assert finding_query(finding, exporters, 'cluster="a"').count('cluster="a"')
    assert usage_query(exporters, 3600, 'cluster="a"').count('cluster="a"') >= 12


def test_the_step_of_the_usage() -> None:
    assert (usage_step(86_400), usage_step(60)) == (300, 1)
