"""What a person names becomes the processes of a training run. The processes are real."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.core.problems import CommandError
from gpumon.operations import targets
from gpumon.operations.targets import SeveralTargetsError, find_target, with_all_ranks
from tests.processes import kill, tree, wait_gone

JOB = f"named-by-test-{os.getpid()}"
PROGRAM = f"pretrain_{os.getpid()}"
LAUNCHER = """
import os, subprocess, sys
program = [sys.executable, sys.argv[1]]
ranks = [subprocess.Popen(program, env={**os.environ, "RANK": rank, "LOCAL_RANK": rank}) for rank in "01"]
sys.stdin.read()
"""
TRAINING = """
import os, subprocess, sys, time
helper = subprocess.Popen(["sleep", "60"])
worker = os.fork()
if worker:
    os.write(1, f"{os.getpid()} {helper.pid} {worker}\\n".encode())  # one write: lines of two ranks do not mix
time.sleep(60)
"""


class Started:
    """Two ranks with a helper and a forked worker each, below a launcher below a shell.

    Args:
        folder: For the scripts.
    """

    def __init__(self, folder: Path) -> None:
        (folder / "torchrun").write_text(LAUNCHER)
        (folder / f"{PROGRAM}.py").write_text(TRAINING)
        variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": JOB}
        launcher = f"{sys.executable} {folder}/torchrun {folder}/{PROGRAM}.py"
        self.shell = subprocess.Popen(
            ["sh", "-c", f"{launcher}; true"],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.shell.stdout is not None
        lines = [self.shell.stdout.readline().split() for _ in range(2)]
        self.ranks, self.helpers, self.workers = (list(map(int, column)) for column in zip(*lines, strict=True))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    job = Started(tmp_path)
    yield job
    for pid in tree(job.shell.pid):
        kill(pid)
    job.shell.communicate()
    for pid in (*job.ranks, *job.workers, *job.helpers):
        wait_gone(pid, 5)


def test_every_process_of_a_job_leads_to_its_ranks(started: Started) -> None:
    rank = started.ranks[0]
    assert find_target(str(rank)).pids == (rank,)
    for number in (0, 1):
        for pid in (started.helpers[number], started.workers[number]):
            target = find_target(str(pid))
            assert target.pids == (started.ranks[number],)
            assert target.note == f"Process {pid} is a worker of process {started.ranks[number]}."
    for pid in (started.shell.pid, tree(started.shell.pid)[1]):
        assert sorted(find_target(str(pid)).pids) == sorted(started.ranks)
    target = find_target(f"{PROGRAM}.py")
    assert (target.name, sorted(target.pids)) == (PROGRAM, sorted(started.ranks))
    assert sorted(find_target(JOB).pids) == sorted(started.ranks)
    assert sorted(with_all_ranks(find_target(str(rank))).pids) == sorted(started.ranks)


def test_a_worker_and_a_shell_of_a_single_training_run(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(TRAINING)
    command = f"{sys.executable} {tmp_path}/alone.py; true"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        own, helper, worker = map(int, shell.stdout.readline().split())
        try:
            assert find_target(str(worker)).pids == find_target(str(own)).pids == (own,)
            assert find_target(str(shell.pid)).pids == (own,)
            assert find_target(str(helper)).pids == (helper,)
        finally:
            for pid in (worker, helper, own, shell.pid):
                kill(pid)


def test_nothing_named_is_the_only_job_or_a_choice(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = targets._jobs_of_host
    monkeypatch.setattr(
        targets, "_jobs_of_host", lambda *arguments: [job for job in jobs(*arguments) if job.id.startswith(JOB)]
    )
    assert sorted(find_target(None).pids) == sorted(started.ranks)
    one = find_target(None)
    monkeypatch.setattr(targets, "_jobs_of_host", lambda *_: [])
    with pytest.raises(CommandError, match="no training run on this host"):
        find_target(None)
    with pytest.raises(SeveralTargetsError) as error:
        targets._only([one, one])
    assert [str(target) for target in error.value.targets] == [f"{PROGRAM} of {one.user}, 2 ranks"] * 2
