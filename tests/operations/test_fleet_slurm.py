"""The queue of Slurm joined with a fleet: who has which GPU, requested against used."""

from array import array
from math import nan

from gpumon.core.problems import Problem, ProblemCode
from gpumon.fleet.model import BUSIEST, FleetGpu, FleetSnapshot
from gpumon.fleet.slurm import SlurmJob
from gpumon.fleet.slurm_queue import SlurmQueue
from gpumon.operations.fleet.document import fleet_document
from gpumon.operations.fleet.findings import FindingKind
from gpumon.operations.fleet.queries import UsageRow, with_users
from gpumon.operations.fleet.report import FleetReport
from gpumon.operations.fleet.slurm import SlurmJoin
from gpumon.present.fleet import slurm_texts, totals_text

NOW = 1_790_010_000.0
ADA = SlurmJob("4711", "ada", "train", "RUNNING", "gpu", 4, (("a", 0), ("a", 1), ("b", 0)), (), NOW - 7200)
BOB = SlurmJob("4712_1", "bob", "eval", "RUNNING", "gpu", 1, (("b", 1),), (), NOW - 60)
ELSEWHERE = SlurmJob("9", "eve", "other", "RUNNING", "gpu", 8, (("z", 0),), (), NOW)


def snapshot(busiest: tuple[float, ...] = (nan, 0.0, nan, 0.0, nan), exporter: str = "dcgm-exporter") -> FleetSnapshot:
    names = (("a.cluster.org", "0"), ("a.cluster.org", "1"), ("B", "0"), ("B", "1"), ("B", "1:3"))
    gpus = tuple(FleetGpu(host, label, f"GPU-{host}{label}", "", exporter, "root") for host, label in names)
    values = {
        "utilization_gpu_percent": array("d", [90.0, 0.0, 0.0, 0.0, 5.0]),
        "memory_used_bytes": array("d", [2e10, 0.0, 2e10, 0.0, 0.0]),
        BUSIEST: array("d", busiest),
    }
    return FleetSnapshot(NOW, gpus, values)


def report(exporter: str = "dcgm-exporter") -> FleetReport:
    return FleetReport(snapshot(exporter=exporter), SlurmJoin(SlurmQueue((ADA, BOB, ELSEWHERE))))


def test_gpus_name_the_job_and_its_user() -> None:
    owners = [(gpu.user, gpu.job) for gpu in report().snapshot.gpus]
    assert owners == [("ada", "4711")] * 3 + [("bob", "4712_1"), ("root", "")], "a MIG device is no index of Slurm"


def test_requested_against_used() -> None:
    fleet = report()
    jobs = [(row.name, row.title, row.requested, len(row.positions), row.used) for row in fleet.jobs]
    assert jobs == [("4711", "train", 4, 3, 2), ("4712_1", "eval", 1, 1, 0)]
    assert [(row.name, row.requested, row.used) for row in fleet.users] == [
        ("ada", 4, 2),
        ("bob", 1, 0),
        ("root", None, 1),
    ]
    assert [(row.name, row.requested) for row in fleet.hosts] == [("B", 2), ("a.cluster.org", 2)]
    assert [row.used for row in report("ssh").jobs] == [1, 0], "through ssh, what was not watched counts as it is now"
    assert list(slurm_texts(fleet)) == ["Slurm: 2 jobs have 4 of 5 GPUs."]


def test_a_job_that_does_not_use_its_gpu_is_found_without_memory() -> None:
    (finding,) = (item for item in report().findings if item.kind is FindingKind.IDLE)
    assert finding.position == 1, "the job of bob is too young"
    assert finding.text == "idle for 30 min; job 4711 of ada"


def test_the_document_has_the_jobs() -> None:
    document = fleet_document(report())
    (ada, _) = document["jobs"]
    assert {**ada, "totals": None} == {
        "job": "4711", "name": "train", "users": ["ada"], "hosts": 2, "requested_gpus": 4, "gpus": 3, "used_gpus": 2,
        "totals": None,
    }  # fmt: skip
    assert document["slurm_problem"] is None


def test_without_slurm_and_with_a_slurm_that_fails() -> None:
    plain = FleetReport(snapshot())
    assert (list(slurm_texts(plain)), plain.slurm_jobs) == ([], {})
    assert [row.requested for row in (*plain.hosts, *plain.users)] == [None] * 3
    problem = Problem(ProblemCode.NOT_READ, "squeue failed: no controller.")
    failed = FleetReport(snapshot(), SlurmJoin(SlurmQueue(problem=problem)))
    assert list(slurm_texts(failed)) == ["squeue failed: no controller."]
    assert failed.snapshot.gpus == plain.snapshot.gpus
    assert fleet_document(failed)["slurm_problem"]["reason"] == "squeue failed: no controller."


def test_the_same_gpus_are_joined_once() -> None:
    join, first = SlurmJoin(SlurmQueue((ADA,))), snapshot()
    assert join.joined(first).gpus is join.joined(first).gpus


def test_an_idle_gpu_of_a_job_is_not_slow_too() -> None:
    job = SlurmJob("7", "ada", "train", "RUNNING", "gpu", 4, tuple(("a", gpu) for gpu in range(4)), (), NOW - 7200)
    gpus = tuple(FleetGpu("a", str(gpu), f"GPU-{gpu}", "", "dcgm-exporter") for gpu in range(4))
    values = {"utilization_gpu_percent": array("d", [90.0, 90.0, 90.0, 0.0]), BUSIEST: array("d", [nan, nan, nan, 0.0])}
    (finding,) = FleetReport(FleetSnapshot(NOW, gpus, values), SlurmJoin(SlurmQueue((job,)))).findings
    assert (finding.kind, finding.position) == (FindingKind.IDLE, 3)


def test_totals_end_with_a_complete_value() -> None:
    fleet = report()
    assert totals_text(fleet, 40) == "5 GPUs on 2 hosts   2 busy   util 19%"
    assert totals_text(fleet, 5) == "5 GPUs on 2 hosts"


def test_slurm_names_the_users_of_the_usage() -> None:
    rows = (UsageRow("", "4711", 1.0), UsageRow("", "", 1.0), UsageRow("eve", "9", 1.0))
    assert [row.user for row in with_users(rows, report().slurm_jobs)] == ["ada", "", "eve"]
