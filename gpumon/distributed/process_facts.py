"""What /proc shows of every process, as far as jobs need it; what does not change is read once per process."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.procfs import age_seconds, read_command, read_stat
from gpumon.distributed.environment import JobVariables, job_variables, read_raw_environment

_SETTLED_SECONDS: Final = 5.0
"""A younger process may still replace its program, and with that its command line and its environment."""
_KTHREADD: Final = 2
MAX_READS: Final = 400
"""Processes that one refresh reads in full: about 10 ms."""
_MARKS: Final = (b"RANK=", b"SLURM_PROCID=", b"RAY_JOB_ID=")
"""Without one of them, an environment is not decoded."""
_MAX_DEPTH: Final = 16
"""Ancestors that are looked at: further ones are those of the session."""

_PYTHON: Final = re.compile(r"(?:\S*/)?(?:python|pypy)[\d.]*t?(?:\s|$)|ray::|pt_main_thread")
_LAUNCHERS: Final = (
    ("torchrun", r"torchrun|torch\.distributed\.(?:run|launch)"),
    ("accelerate", r"accelerate(?:-launch|\.commands\.\S+|\s+launch)"),
    ("deepspeed", r"deepspeed(?:\.launcher\.\S+)?"),
    ("mpirun", r"mpirun|mpiexec(?:\.\w+)?|orted|prted|prterun|hydra_\w+|pmi_proxy"),
    ("srun", r"srun|slurmstepd:?"),
    ("ray", r"raylet"),
    ("horovodrun", r"horovodrun"),
)
_LAUNCHER: Final = re.compile(
    r"(?:\S*/)?(?:python[\d.]*t?\s+(?:-\S+\s+)*)?(?:\S*/)?(?:"
    + "|".join(f"(?P<{name}>{pattern})" for name, pattern in _LAUNCHERS)
    + r")(?:\s|$)"
)
_HELPERS: Final = re.compile(
    r"multiprocessing\.resource_tracker|compile_worker|\bgpumon(?:\s|$)|nvidia-smi|-m wandb|wandb-core|wandb-service"
)
"""Programs that a rank starts, with its environment."""


class ProcessRecord(NamedTuple):
    """A process.

    Attributes:
        pid: Its PID.
        start_ticks: Start time in clock ticks since boot.
        parent: PID of its parent.
        uid: The user ID that it runs as.
        command: Command line, made safe.
        job: What its environment says about its job; None if nothing.
        is_hidden: Whether its environment cannot be read.
    """

    pid: int
    start_ticks: int
    parent: int
    uid: int = -1
    command: str = ""
    job: JobVariables | None = None
    is_hidden: bool = False

    @property
    def launcher(self) -> str:
        """The launcher of ranks that it is; empty for any other program."""
        match = _LAUNCHER.match(self.command)
        return "" if match is None else match.lastgroup or ""

    @property
    def is_python(self) -> bool:
        """Whether it runs Python, and is not a helper of another program."""
        return bool(_PYTHON.match(self.command)) and not _HELPERS.search(self.command)


class ProcessFactsCache:
    """All processes of this host."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._records: dict[int, ProcessRecord] = {}
        self._unsettled: set[int] = set()
        self.is_complete = False
        """Whether the last refresh has read every process."""

    def refresh(self, wanted: Collection[int], max_reads: int = MAX_READS) -> None:
        """Read new processes, and check that those that matter are still the same.

        Wanted processes are read first, and at most ``max_reads`` others; the next refresh reads those that are left.
        """
        present = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}  # noqa: PTH208 - thousands
        for pid in self._records.keys() - present:
            self._forget(pid)
        for pid in present.intersection(wanted):
            self._read(pid)
        left = max_reads
        self.is_complete = True
        for pid in (present - self._records.keys()) | (self._unsettled & present):
            if pid not in wanted:
                if not left:
                    self.is_complete = False
                    break
                left -= 1
                self._read(pid)

    def get(self, pid: int) -> ProcessRecord | None:
        """The record of a process; None if there is no such process, or if it was not read yet."""
        return self._records.get(pid)

    def records(self) -> tuple[ProcessRecord, ...]:
        """All processes that were read."""
        return tuple(self._records.values())

    def topmost(self, records: Sequence[ProcessRecord]) -> list[ProcessRecord]:
        """Those of some processes that descend from none of the others."""
        pids = {record.pid for record in records}
        return [record for record in records if not any(above.pid in pids for above in self.ancestors(record.pid))]

    def in_jobs(self) -> Iterator[ProcessRecord]:
        """The processes whose environment names a job."""
        return (record for record in self._records.values() if record.job is not None)

    def ancestors(self, pid: int) -> Iterator[ProcessRecord]:
        """The ancestors of a process, the nearest first."""
        record = self._records.get(pid)
        for _ in range(_MAX_DEPTH):
            record = None if record is None else self._records.get(record.parent)
            if record is None:
                return
            yield record

    def _read(self, pid: int) -> None:
        """Read a process, in full only if it is new or may have replaced its program."""
        folder = self._proc / str(pid)
        try:
            stat = read_stat(f"{self._proc}/{pid}")
            known = self._records.get(pid)
            if stat.has_ended:
                self._forget(pid)
                return
            if known is not None and known.start_ticks == stat.start_ticks and pid not in self._unsettled:
                if known.parent != stat.parent:
                    self._records[pid] = known._replace(parent=stat.parent)
                return
            self._records[pid] = self._read_record(folder, ProcessRecord(pid, stat.start_ticks, stat.parent))
        except OSError:
            self._forget(pid)
            return
        if 0 <= age_seconds(stat.start_ticks) < _SETTLED_SECONDS:
            self._unsettled.add(pid)
        else:
            self._unsettled.discard(pid)

    @staticmethod
    def _read_record(folder: Path, record: ProcessRecord) -> ProcessRecord:
        if record.parent == _KTHREADD:
            return record
        command = read_command(folder)
        raw, problem = read_raw_environment(folder)
        job = None
        if any(mark in raw for mark in _MARKS):
            pairs = (text.partition("=") for text in os.fsdecode(raw).split("\0"))
            job = job_variables({name: value for name, sign, value in pairs if sign})
        return record._replace(uid=folder.stat().st_uid, command=command, job=job, is_hidden=problem is not None)

    def _forget(self, pid: int) -> None:
        self._records.pop(pid, None)
        self._unsettled.discard(pid)
