"""Hosts, jobs and users of a fleet with their totals, and what stands out."""

import time
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import isnan, nan
from typing import Final, NamedTuple

from gpumon.core.device_use import IDLE_PERCENT
from gpumon.core.groups import grouped
from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem
from gpumon.fleet.exporters import SHOWN_METRICS
from gpumon.fleet.model import AGE, BUSIEST, FleetGpu, FleetSnapshot
from gpumon.fleet.slurm import SlurmJob
from gpumon.fleet.snapshot import missing_metrics
from gpumon.operations.fleet.findings import UTILIZATION, FleetFinding, FleetTotals, fleet_findings, fleet_totals
from gpumon.operations.fleet.slurm import SlurmJoin

SSH: Final = "ssh"
"""What reports GPUs of other hosts."""
THIS_HOST: Final = "this host"
_METRICS: Final = (*SHOWN_METRICS, "temperature_celsius")


class HostFrame(NamedTuple):
    """The newest frame of a host.

    Attributes:
        host: Name of the host.
        frame: The frame.
        age_seconds: Time since it arrived.
    """

    host: str
    frame: Frame
    age_seconds: float = 0.0


def frames_snapshot(frames: Sequence[HostFrame], problems: Mapping[str, Problem], source: str = SSH) -> FleetSnapshot:
    """The GPUs of some frames; how busy they were before is missing.

    A host that has a problem and no GPU is silent.
    """
    rows = [(host, device) for host in sorted(frames, key=lambda host: host.host) for device in host.frame.devices]
    gpus = tuple(_gpu(host.host, device, source) for host, device in rows)
    values = {metric_id: array("d", [_reading(device, metric_id) for _, device in rows]) for metric_id in _METRICS}
    values[AGE] = array("d", [host.age_seconds + (device.age_seconds or 0.0) for host, device in rows])
    values[BUSIEST] = array("d", [nan] * len(rows))
    silent = tuple(sorted(problems.keys() - {host.host for host, _ in rows}))
    return FleetSnapshot(
        time.time(),
        gpus,
        values,
        silent,
        exporters={source: len(gpus)} if gpus else {},
        missing={source: missing_metrics(source, gpus, values)} if gpus else {},
        host_problems=dict(problems),
    )


def _gpu(host: str, device: Device, source: str) -> FleetGpu:
    processes = device.processes or ()
    largest = max(processes, key=lambda process: process.memory_bytes or 0, default=None)
    user = "" if largest is None else largest.user or ""
    return FleetGpu(host, device.label, device.uuid or "", device.name or "", source, user)


def _reading(device: Device, metric_id: str) -> float:
    value = None if device.is_stale(metric_id) else device.get(metric_id)
    return nan if value is None else value


class FleetGroup(NamedTuple):
    """The GPUs of a host, a job or a user.

    Attributes:
        name: The host, the job or the user.
        positions: Positions of the GPUs in the snapshot.
        totals: Their totals.
        hosts: Number of their hosts.
        users: Their users.
        jobs: Their jobs.
        model: Their model, or that of most of them.
        age_seconds: Age of the oldest value, or None.
        findings: How many findings concern the host or these GPUs.
        problem: Why a host reports nothing, or empty if that is not known.
        used: How many were used within the last half hour; None if that is unknown.
        requested: How many GPUs the jobs of Slurm requested that have these; None without such a job. Of a host, how
            many of the host's GPUs they have.
        title: Name of the job in Slurm, or empty.
    """

    name: str
    positions: Sequence[int]
    totals: FleetTotals
    hosts: int = 1
    users: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    model: str = ""
    age_seconds: float | None = None
    findings: int = 0
    problem: str = ""
    used: int | None = None
    requested: int | None = None
    title: str = ""


class FleetReport:
    """What is known about a snapshot; each part is calculated when it is used, and once."""

    def __init__(self, snapshot: FleetSnapshot, slurm: SlurmJoin | None = None) -> None:
        self.snapshot = snapshot if slurm is None else slurm.joined(snapshot)
        self.slurm = slurm

    @cached_property
    def totals(self) -> FleetTotals:
        """Totals of all GPUs."""
        return fleet_totals(self.snapshot, range(len(self.snapshot.gpus)))

    @cached_property
    def by_host(self) -> Mapping[str, Sequence[int]]:
        """Positions of the GPUs by host."""
        return _grouped(gpu.host for gpu in self.snapshot.gpus)

    @cached_property
    def by_job(self) -> Mapping[str, Sequence[int]]:
        """Positions of the GPUs by job, or by pod where there is no job."""
        return _grouped(job_of(gpu) for gpu in self.snapshot.gpus)

    @cached_property
    def findings(self) -> Sequence[FleetFinding]:
        """Everything that stands out, the most urgent first."""
        return fleet_findings(self.snapshot, self.by_host, self.by_job, self.slurm_jobs)

    @cached_property
    def slurm_jobs(self) -> Mapping[str, SlurmJob]:
        """The jobs of Slurm that have GPUs of this fleet, by their ids."""
        jobs = {} if self.slurm is None else self.slurm.jobs
        return {name: jobs[name] for name in self.by_job if name in jobs}

    @cached_property
    def findings_by_gpu(self) -> Mapping[int, Sequence[FleetFinding]]:
        """Findings about GPUs by their positions."""
        return grouped((finding.position, finding) for finding in self.findings if finding.position is not None)

    @cached_property
    def hosts(self) -> Sequence[FleetGroup]:
        """A row for each host, silent ones included."""
        by_host = Counter(finding.host for finding in self.findings)
        rows = [self._group(name, positions, by_host[name]) for name, positions in self.by_host.items()]
        if self.slurm_jobs:
            rows = [row._replace(requested=self._allocated(row.positions)) for row in rows]
        for name in self.snapshot.silent_hosts:
            problem = self.snapshot.host_problems.get(name)
            reason = "" if problem is None else problem.reason
            rows.append(FleetGroup(name, (), FleetTotals(0), findings=1, problem=reason))
        return sorted(rows, key=lambda row: row.name)

    @cached_property
    def jobs(self) -> Sequence[FleetGroup]:
        """A row for each job, the largest first."""
        rows = self._groups(self.by_job)
        if not self.slurm_jobs:
            return rows
        return [
            row if job is None else row._replace(requested=job.requested_gpus, title=job.name)
            for row, job in ((row, self.slurm_jobs.get(row.name)) for row in rows)
        ]

    @cached_property
    def users(self) -> Sequence[FleetGroup]:
        """A row for each user, the one with the most GPUs first."""
        rows = self._groups(_grouped(gpu.user for gpu in self.snapshot.gpus))
        requested: dict[str, int] = {}
        for job in self.slurm_jobs.values():
            requested[job.user] = requested.get(job.user, 0) + (job.requested_gpus or len(job.gpus))
        return [row._replace(requested=requested.get(row.name)) for row in rows]

    def _allocated(self, positions: Sequence[int]) -> int:
        """How many GPUs a job of Slurm has."""
        gpus, jobs = self.snapshot.gpus, self.slurm_jobs
        return sum(gpus[position].job in jobs for position in positions)

    def _used(self, positions: Sequence[int]) -> int | None:
        """How many GPUs were used within the last half hour, as far as that is known."""
        gpus = self.snapshot.gpus
        busiest, utilization = self.snapshot.values.get(BUSIEST), self.snapshot.values.get(UTILIZATION)
        if utilization is None:
            return None
        known = [position for position in positions if not isnan(utilization[position])]
        if busiest is None:
            busiest = utilization
        # Prometheus reports the busiest moment only of GPUs that were idle all the time.
        idle = sum(
            busiest[position] < IDLE_PERCENT
            or (isnan(busiest[position]) and gpus[position].exporter == SSH and utilization[position] < IDLE_PERCENT)
            for position in known
        )
        return len(known) - idle if known else None

    def _groups(self, groups: Mapping[str, Sequence[int]]) -> list[FleetGroup]:
        by_gpu = self.findings_by_gpu
        rows = [
            self._group(name, positions, sum(position in by_gpu for position in positions) if by_gpu else 0)
            for name, positions in groups.items()
        ]
        return sorted(rows, key=lambda row: (-len(row.positions), row.name))

    def _group(self, name: str, positions: Sequence[int], findings: int) -> FleetGroup:
        gpus = [self.snapshot.gpus[position] for position in positions]
        models = Counter(gpu.model for gpu in gpus)
        ages = self.snapshot.values.get(AGE)
        known = [] if ages is None else [age for position in positions if not isnan(age := ages[position])]
        return FleetGroup(
            name,
            positions,
            fleet_totals(self.snapshot, positions),
            len({gpu.host for gpu in gpus}),
            tuple(sorted({gpu.user for gpu in gpus} - {""})),
            tuple(sorted({job_of(gpu) for gpu in gpus} - {""})),
            max(models, key=models.__getitem__, default=""),
            max(known, default=None),
            findings,
            used=self._used(positions),
        )


def job_of(gpu: FleetGpu) -> str:
    """The job of a GPU, or its pod; empty if neither is known."""
    return gpu.job or gpu.pod


def _grouped(names: Iterable[str]) -> Mapping[str, Sequence[int]]:
    """Positions by name, without those that have none."""
    return grouped((name, position) for position, name in enumerate(names) if name)
