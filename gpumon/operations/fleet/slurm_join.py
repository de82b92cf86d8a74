"""The queue of Slurm joined with a fleet: which job has a GPU, by short name of the host and index."""

from collections.abc import Mapping
from dataclasses import replace

from gpumon.fleet.model import FleetGpu, FleetSnapshot
from gpumon.fleet.slurm import SlurmJob
from gpumon.fleet.slurm_queue import SlurmQueue
from gpumon.operations.fleet.scheduler_job import short_name


class SlurmJoin:
    """Joins one queue with snapshots, whose GPUs are often the same.

    Attributes:
        queue: The queue.
        jobs: Its jobs by their ids.
    """

    def __init__(self, queue: SlurmQueue) -> None:
        self.queue = queue
        self.jobs: Mapping[str, SlurmJob] = {job.id: job for job in queue.jobs}
        self._by_gpu = {(short_name(host), str(index)): job for job in queue.jobs for host, index in job.gpus}
        self._names: dict[str, str] = {}
        """Short names of hosts."""
        self._plain: tuple[FleetGpu, ...] = ()
        self._joined: tuple[FleetGpu, ...] = ()

    def joined(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The snapshot, whose GPUs name the job that has them, and its user."""
        if not self._by_gpu:
            return snapshot
        if snapshot.gpus is not self._plain:
            self._plain, self._joined = snapshot.gpus, tuple(map(self._with_job, snapshot.gpus))
        return replace(snapshot, gpus=self._joined)

    def _with_job(self, gpu: FleetGpu) -> FleetGpu:
        """The GPU with its job. Slurm counts MIG devices in its own way, so that their labels are no indexes."""
        name = self._names.get(gpu.host)
        if name is None:
            name = self._names[gpu.host] = short_name(gpu.host)
        job = self._by_gpu.get((name, gpu.label))
        return gpu if job is None else gpu._replace(user=job.user or gpu.user, job=job.id)
