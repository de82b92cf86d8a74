"""A job of two hosts, which are network, PID and UTS namespaces with a real sshd each; one rank has a probe.

As root, with torch for this Python, sshd and iproute2: ``pytest -n 0 -m long tests/cli/test_two_hosts.py``.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpumon.operations.training_jobs.hosts import merged_jobs, read_hosts
from gpumon.operations.why.hosts import examine_hosts
from tests.nvml_mock import NvmlMock
from tests.streams.remote_host import needs_sshd, ssh_server

UNSHARE = ("unshare", "--net", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child")
CAN_RUN = os.geteuid() == 0 and shutil.which("ip") and find_spec("torch") and shutil.which("unshare")
pytestmark = [
    pytest.mark.long,
    needs_sshd,
    pytest.mark.skipif(
        not CAN_RUN or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0,
        reason="needs namespaces, ip and torch: sudo python -m pytest -n 0 -m long tests/cli/test_two_hosts.py",
    ),
]
HOSTS = ("10.77.0.1", "10.77.0.2")
HOST = """
ip link set lo up
until ip link set gm$RANK up 2>/dev/null; do sleep 0.1; done
ip addr add 10.77.0.$((RANK + 1))/24 dev gm$RANK
exec "$@" > $FOLDER/out$RANK 2>&1
"""
JOB = """
import os, time, torch, torch.distributed as dist
if os.environ["RANK"] == "0":
    import gpumon.probe
    gpumon.probe.start()
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def prepare():
    if dist.get_rank() == 1: time.sleep(0.15)
print("it trains", flush=True)
while True:
    prepare()
    loss = model(torch.randn(64, 64)).pow(2).mean(); optimizer.zero_grad(); loss.backward()
    for parameter in model.parameters(): dist.all_reduce(parameter.grad)
    optimizer.step()
    time.sleep(0.05)
"""


@pytest.fixture
def ssh(tmp_path: Path, nvml_mock: NvmlMock) -> Iterator[tuple[str, ...]]:
    """A command for ssh on the first of two hosts, on which a job runs."""
    root = str(Path(__file__).parents[2])
    settings = {"LD_LIBRARY_PATH": str(nvml_mock.folder), "NVML_MOCK_GPUS": "1", "NVML_MOCK_PROCS": "0"}
    settings |= {"PYTHONPATH": root, "GPUMON_PROBE_DIR": str(tmp_path / "sockets")}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gpumon").write_text(f'#!/bin/sh\nexec {sys.executable} -m gpumon "$@"\n')
    (tmp_path / "bin" / "gpumon").chmod(0o755)
    (tmp_path / "job.py").write_text(JOB)
    with ExitStack() as stack:
        wrappers = []
        for rank in range(2):
            variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            variables |= {"MASTER_ADDR": HOSTS[0], "MASTER_PORT": "29533", "GLOO_SOCKET_IFNAME": f"gm{rank}"}
            host = stack.enter_context(
                subprocess.Popen(
                    [*UNSHARE, "sh", "-c", HOST, "host", sys.executable, str(tmp_path / "job.py")],
                    env={**os.environ, **settings, **variables, "FOLDER": str(tmp_path)},
                )
            )
            stack.callback(host.kill)
            wait(partial(child, host.pid))
            wrappers.append(("nsenter", "-t", child(host.pid), "-n", "-p", "-m", "-u"))
        ends = ["ip", "link", "add", "gm0", "netns", wrappers[0][2], "type", "veth", "peer", "gm1", "netns"]
        subprocess.run([*ends, wrappers[1][2]], check=True)
        environment = {**settings, "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
        command = stack.enter_context(ssh_server(tmp_path, environment, wrappers, "0.0.0.0"))
        wait(lambda: all("it trains" in (tmp_path / f"out{rank}").read_text() for rank in range(2)))
        yield (*wrappers[0], *command)


def child(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_ranks_of_both_hosts_are_in_one_answer(ssh: tuple[str, ...]) -> None:
    (job,) = merged_jobs(read_hosts(HOSTS, ssh=ssh))
    assert [(rank.rank, rank.host) for rank in job.ranks] == list(enumerate(HOSTS))
    assert [rank.probe for rank in job.ranks] == ["probe", "can attach"]
    report = examine_hosts(HOSTS, ["--seconds", "6", "job.py"], ssh)
    assert [(one.evidence.rank, one.host) for one in report.ranks] == list(enumerate(HOSTS))
    assert not report.problems
