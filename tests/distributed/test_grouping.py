"""Which processes of a host are ranks of which job: on a /proc that says anything, and with real ranks of torchrun."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpumon.distributed.environment import RankVariables, TrainingJob
from gpumon.distributed.grouping import JobScanner
from tests.collect.proc import add_process

RANK = b"/env/bin/python\0-u\0train.py\0--deepspeed\0ds.json\0"
TORCHRUN = b"/env/bin/python\0/env/bin/torchrun\0train.py\0"
WORKER = RankVariables()


class Host:
    """A host with processes that a test adds."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.scanner = JobScanner(proc)
        proc.mkdir(exist_ok=True)

    def add(self, pid: int, environment: Mapping[str, object], parent: int = 1, command: bytes = RANK) -> None:
        folder = add_process(self.proc, pid, command, parent=parent)
        pairs = (f"{name}={value}\0".encode() for name, value in environment.items())
        (folder / "environ").write_bytes(b"HOME=/root\0" + b"".join(pairs))

    def end(self, pid: int) -> None:
        (self.proc / str(pid)).rename(self.proc / f"ended-{pid}")

    def jobs(self, *workers: int, **probes: RankVariables) -> list[TrainingJob]:
        ranks = {int(name.removeprefix("pid")): ranks for name, ranks in probes.items()}
        return list(self.scanner.scan({**dict.fromkeys(workers, WORKER), **ranks}))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "proc")


def elastic(rank: int, size: int = 2, run: str = "none", port: int = 29500, **more: object) -> dict[str, object]:
    return {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": run,
        **more,
    }


def pids(job: TrainingJob) -> list[int]:
    return [rank.pid for rank in job.ranks]


def test_ranks_of_torchrun_are_one_job_and_their_helpers_are_no_ranks(host: Host) -> None:
    host.add(50, {}, command=TORCHRUN)
    for rank, pid in enumerate((61, 60)):
        host.add(pid, elastic(rank, size=4), parent=50)
        host.add(pid + 100, elastic(rank, size=4), parent=pid)  # a worker of a DataLoader is a fork of its rank
        host.add(pid + 200, elastic(rank, size=4), parent=pid, command=b"nvidia-smi\0dmon\0")
        host.add(pid + 300, elastic(rank, size=4), parent=pid + 200, command=b"python\0-c\0helper\0")
    (job,) = host.jobs()
    assert (job.id, job.launcher, job.world_size, pids(job)) == ("10.0.0.1:29500", "torchrun", 4, [61, 60])
    assert [(rank.rank, rank.local_rank) for rank in job.ranks] == [(0, 0), (1, 1)]
    assert job.user == "root" if os.geteuid() == 0 else job.user


def test_jobs_differ_by_rendezvous_and_by_run_id(host: Host) -> None:
    for number, (run, port) in enumerate((("none", 1), ("none", 2), ("abc", 3), ("abc", 4))):
        host.add(60 + number, elastic(number % 2, run=run, port=port))
    assert {job.id: pids(job) for job in host.jobs()} == {"10.0.0.1:1": [60], "10.0.0.1:2": [61], "abc": [62, 63]}


def test_a_script_around_a_rank_is_no_rank(host: Host) -> None:
    host.add(60, elastic(0), command=b"bash\0-c\0python train.py\0")
    host.add(61, elastic(0), parent=60)
    host.add(62, elastic(1), command=b"python\0wrapper.py\0")
    host.add(63, elastic(1), parent=62)
    (job,) = host.jobs(63)  # the wrapper is Python too, but its child uses a GPU
    assert pids(job) == [61, 63]


@pytest.mark.parametrize(
    ("environment", "parent", "job_id", "launcher"),
    [
        ({"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2, "PMIX_NAMESPACE": "a"}, b"prted\0", "mpi a", "mpirun"),
        ({"PMI_RANK": 1, "PMI_SIZE": 2}, b"hydra_pmi_proxy\0--x\0", "mpi", "mpirun"),
        (elastic(1, ACCELERATE_MIXED_PRECISION="bf16"), TORCHRUN, "10.0.0.1:29500", "accelerate"),
        (elastic(1), b"python\0/x/bin/accelerate\0launch\0t.py\0", "10.0.0.1:29500", "accelerate"),
        (elastic(1, CROSS_RANK=0), b"python\0-u\0-m\0deepspeed.launcher.launch\0", "10.0.0.1:29500", "deepspeed"),
        ({"RAY_JOB_ID": "01000000"}, b"raylet\0--x\0", "ray 01000000", "ray"),
    ],
)  # fmt: skip
def test_launchers(host: Host, environment: dict[str, object], parent: bytes, job_id: str, launcher: str) -> None:
    host.add(50, {}, command=parent)
    host.add(60, environment, parent=50)
    (job,) = host.jobs(60, 50)  # a launcher may have a probe too, and is no rank
    assert (job.id, job.launcher, pids(job)) == (job_id, launcher, [60])


def test_a_process_on_a_gpu_is_a_job_of_one(host: Host) -> None:
    host.add(60, {}, command=b"python\0-m\0ipykernel_launcher\0")
    host.add(61, {})
    (job,) = host.jobs(60)
    assert (job.id, job.launcher, job.world_size, pids(job)) == ("pid 60", "", 1, [60])


def test_processes_that_spawn_has_started_are_one_job_with_the_ranks_that_probes_report(host: Host) -> None:
    host.add(50, {})
    for pid in (60, 61):
        host.add(pid, {}, parent=50, command=b"python\0-c\0from multiprocessing.spawn import spawn_main\0")
    (job,) = host.jobs(pid60=RankVariables(1, 2, 1), pid61=RankVariables(0, 2, 0))
    assert (job.id, job.world_size, pids(job)) == ("pid 50", 2, [61, 60])


def test_a_worker_below_a_rank_belongs_to_its_rank(host: Host) -> None:
    host.add(60, elastic(0, size=1))
    host.add(61, {}, parent=60, command=b"python\0-c\0from multiprocessing.spawn import spawn_main\0")
    assert [pids(job) for job in host.jobs(60, 61)] == [[60]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every environment")
def test_ranks_of_another_user_are_grouped_by_their_launcher(host: Host) -> None:
    host.add(50, {}, command=TORCHRUN)
    for pid in (60, 61):
        host.add(pid, elastic(pid - 60), parent=50)
        (host.proc / str(pid) / "environ").chmod(0)
    (job,) = host.jobs(60, 61)
    assert (job.id, job.launcher, job.world_size, pids(job)) == ("pid 50", "torchrun", None, [60, 61])


def test_a_rank_that_ends_is_kept_until_its_job_is_over_or_has_replaced_it(host: Host) -> None:
    for rank in range(2):
        host.add(60 + rank, elastic(rank))
    host.jobs()
    host.end(61)
    (job,) = host.jobs()
    assert (pids(job), [rank.pid for rank in job.exited]) == ([60], [61])
    host.add(71, elastic(1))
    (job,) = host.jobs()
    assert (pids(job), job.exited) == ([60, 71], ())
    host.end(60)
    host.end(71)
    (job,) = host.jobs()
    assert (pids(job), {rank.pid for rank in job.exited}) == ([], {60, 71})
    for _ in range(80):
        jobs = host.jobs()
    assert jobs == []


def test_another_process_with_the_pid_of_a_rank_is_not_the_rank(host: Host) -> None:
    host.add(60, elastic(0))
    host.add(61, elastic(1))
    assert len(host.jobs()[0].ranks) == 2
    add_process(host.proc, 61, b"vi\0", start_ticks=200_000)
    (host.proc / "61" / "environ").write_bytes(b"")
    (job,) = host.jobs()
    assert (pids(job), [rank.pid for rank in job.exited]) == ([60], [61])


def test_reads_are_bounded_and_workers_come_first(host: Host) -> None:
    for pid in range(100, 160):
        host.add(pid, elastic(pid - 100, size=60))
    jobs = host.scanner.scan({155: WORKER}, max_reads=20)
    assert (len(jobs[0].ranks), host.scanner.is_complete) == (21, False)
    assert 155 in pids(jobs[0])
    host.scanner.scan({}, max_reads=20)
    (job,) = host.scanner.scan({}, max_reads=20)
    assert (len(job.ranks), host.scanner.is_complete) == (60, True)


def test_real_ranks_of_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, time\nif os.fork(): time.sleep(60)\ntime.sleep(60)\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "RANK"))}
    environment |= {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    environment["TORCHELASTIC_RUN_ID"] = "run-of-a-test"
    code = (
        "import os, subprocess, sys\n"
        "ranks = [subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, 'RANK': rank}) for rank in '01']\n"
        "input()\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, str(script)], env=environment, stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        scanner = JobScanner()
        deadline = time.monotonic() + 10
        job = None
        while (job is None or len(job.ranks) < 2) and time.monotonic() < deadline:
            job = next((job for job in scanner.scan({}, 100_000) if job.id == "run-of-a-test"), None)
            time.sleep(0.05)
        assert job is not None
        time.sleep(0.3)  # the forks of the ranks exist by now
        job = next(job for job in scanner.scan({}, 100_000) if job.id == "run-of-a-test")
        assert [rank.rank for rank in job.ranks] == [0, 1]
        assert job.command.endswith("train.py")
    finally:
        os.killpg(launcher.pid, 9)
        launcher.communicate()
