"""A job of Slurm joined with a fleet: requested, allocated, used, and what stands out."""

from array import array
from math import nan

from gpumon.core.problems import Problem, ProblemCode
from gpumon.fleet.model import AGE, BUSIEST, FleetGpu, FleetSnapshot
from gpumon.fleet.slurm import SlurmJob
from gpumon.operations.fleet.scheduler_job import job_document, job_report
from gpumon.operations.fleet.slurm import short_name
from gpumon.present.text.job import job_lines

NOW = 1_790_010_000.0
JOB = SlurmJob(
    "4711", "ada", "train", "RUNNING", "gpu", 4, (("gpu01", 0), ("gpu01", 1), ("gpu02", 0), ("gpu02", 1)),
    ("gpu01", "gpu02"), NOW - 7200,
)  # fmt: skip


def snapshot(
    utilization: tuple[float, ...], busiest: tuple[float, ...], exporter: str = "ssh", count: int = 4
) -> FleetSnapshot:
    hosts = ("ann@gpu01.cluster", "ann@gpu01.cluster", "GPU02", "GPU02")
    gpus = tuple(FleetGpu(host, str(number % 2), f"GPU-{number}", "", exporter) for number, host in enumerate(hosts))
    values = {
        "utilization_gpu_percent": array("d", utilization[:count]),
        BUSIEST: array("d", busiest[:count]),
        "memory_used_bytes": array("d", [40e9] * count),
        AGE: array("d", [1.0] * count),
    }
    return FleetSnapshot(NOW, gpus[:count], values)


def test_idle_gpus_are_named() -> None:
    report = job_report(JOB, snapshot((90, 0, 0, 0), (95, 0.2, 40, 0)), NOW)
    assert [gpu.is_used for gpu in report.gpus] == [True, False, True, False]
    assert [gpu.uuid for gpu in report.gpus] == [f"GPU-{number}" for number in range(4)]
    assert report.sentence == "2 of 4 GPUs are idle for 30 minutes: gpu01 GPU 1; gpu02 GPU 1."
    (entry,) = job_document([report])["jobs"]
    assert (entry["requested_gpus"], entry["allocated_gpus"], entry["used_gpus"]) == (4, 4, 2)
    lines = job_lines(report, 0, NOW)
    assert lines[0] == "Job 4711: train, of ada, RUNNING, partition gpu"
    assert lines[1].endswith("for 2h00, on 2 hosts")
    assert lines[2] == "GPUs: 4 requested, 4 allocated, 2 used"
    assert len([line for line in lines if line.startswith("gpu0")]) == 4


def test_a_young_job_counts_only_what_it_does_now() -> None:
    young = JOB._replace(start_seconds=NOW - 60)
    report = job_report(young, snapshot((90, 0, 90, 90), (95, 80, 90, 90)), NOW)
    assert report.sentence == "1 of 4 GPUs is idle: gpu01 GPU 1."


def test_prometheus_has_a_busiest_moment_only_of_idle_gpus() -> None:
    report = job_report(JOB, snapshot((0, 0, 90, 90), (nan, 0.0, nan, nan), "dcgm-exporter"), NOW)
    assert [gpu.is_used for gpu in report.gpus] == [True, False, True, True]
    assert job_report(JOB, snapshot((5, 5, 90, 90), (nan,) * 4), NOW).sentence == "All 4 GPUs are used."


def test_what_is_missing_has_a_reason() -> None:
    refused = Problem(ProblemCode.NOT_READ, "ssh failed: Permission denied.")
    partly = snapshot((90, 90), (nan, nan), count=2)
    fleet = FleetSnapshot(NOW, partly.gpus, partly.values, ("gpu02",), host_problems={"gpu02": refused})
    report = job_report(JOB, fleet, NOW)
    assert [gpu.problem for gpu in report.gpus] == [None, None, refused, refused]
    assert report.sentence == "2 of 4 GPUs are used. Nothing is known about gpu02 GPUs 0, 1."
    (entry,) = job_document([job_report(JOB, None, NOW)])["jobs"]
    assert entry["used_gpus"] is None
    assert entry["gpus"][0]["utilization_percent"] is None
    assert "on another host" in entry["gpus"][0]["problem"]["reason"]
    assert "--hosts" in entry["sentence"]


def test_a_job_that_waits() -> None:
    waiting = JOB._replace(state="PENDING", gpus=(), hosts=(), start_seconds=None)
    assert job_report(waiting, None).sentence == "The job has no GPUs: it is pending."


def test_names_of_hosts() -> None:
    names = {"GPU01.cluster.org": "gpu01", "ann@gpu01": "gpu01", "gpu01:9400": "gpu01", "10.0.0.7": "10.0.0.7"}
    assert {host: short_name(host) for host in names} == names
