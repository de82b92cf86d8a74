"""When gpumon itself is killed, however hard, its workload and all that it has started are gone soon after."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.workload_runs.catalogue import RunRequest
from tests.processes import eventually, is_running, kill, kill_marked, state, wait_gone
from tests.workload_runs.conftest import PATIENCE, Play, Stage

SECONDS = 5.0
"""As long as it may take: what is promised."""
MARK = "GPUMON_TEST_GUARD"

MONITOR = """
import sys, time
from pathlib import Path
from gpumon.workload_runs.catalogue import WorkloadInfo
from gpumon.workload_runs.supervised_run import SupervisedRun
from gpumon.workload_runs.catalogue import RunRequest

info = WorkloadInfo("toy", Path(sys.argv[1]), "", "", "", ())
job = SupervisedRun(RunRequest(info, "cpu", {{}}, Path(sys.executable), {environment!r}))
job.start()
while True:
    job.inbox.arrived.wait(0.05)
    for each in job.inbox.drain():
        fields = getattr(each, "fields", {{}})
        if getattr(each, "kind", None) == "plan":
            job.allow()
        if "text" in fields or (sys.argv[2] == "hello" and "pid" in fields):
            print(fields.get("text", fields.get("pid")), flush=True)
"""
CHILDREN = """
children = [os.getpid(), subprocess.Popen(["sleep", "60"]).pid]
children += [subprocess.Popen(["sleep", "60"], pass_fds=[context._reporter._descriptor]).pid]
children += [subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; sleep 60; sleep 60"]).pid, os.fork()]
if not children[-1]: time.sleep(60); os._exit(0)
context.step(" ".join(map(str, children)))
"""
Monitor = Callable[[RunRequest, str], tuple["subprocess.Popen[str]", list[int]]]


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """Start a process that runs a job; returns the process and the PIDs that the workload reports."""
    started: list[subprocess.Popen[str]] = []

    def start(request: RunRequest, until: str) -> tuple["subprocess.Popen[str]", list[int]]:
        program = MONITOR.format(environment={**request.environment, MARK: str(tmp_path)})
        command = [sys.executable, "-c", program, str(request.workload.file), until]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, [int(pid) for pid in process.stdout.readline().split()]

    yield start
    for process in started:
        kill(process.pid)
        process.communicate()
    kill_marked(MARK, str(tmp_path))


def die(process: "subprocess.Popen[str]") -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "then",
    [
        "while not context.stopping: time.sleep(0.01)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
        "ctypes.PyDLL(None).sleep(60)",
        "while True: os.write(1, b'x' * 65536)",
        "context.fresh('part', {})",
    ],
    ids=["works", "deaf", "in a C call", "floods", "runs a part"],
)
def test_a_workload_and_its_children_go_with_the_monitor(stage: Stage, monitor: Monitor, then: str) -> None:
    part = "def part(context):\n    context.step(str(os.getpid())); time.sleep(60)"
    process, pids = monitor(stage.request(CHILDREN + then, top=part, parts='{"part": part}'), "step")
    assert len(pids) == 5
    if "fresh" in then:
        assert process.stdout is not None
        pids.append(int(process.stdout.readline()))
    die(process)
    assert all(wait_gone(pid, SECONDS) for pid in pids)


def test_a_suspended_workload_goes_with_the_monitor(stage: Stage, monitor: Monitor) -> None:
    process, pids = monitor(stage.request(CHILDREN + "time.sleep(60)"), "step")
    os.kill(pids[0], signal.SIGSTOP)
    assert eventually(lambda: state(pids[0]) == "T")
    die(process)
    assert all(wait_gone(pid, SECONDS) for pid in pids)


def test_a_workload_that_still_loads_torch_goes_with_the_monitor(stage: Stage, monitor: Monitor) -> None:
    process, pids = monitor(stage.request(torch="import time; time.sleep(60)"), "hello")
    assert len(pids) == 1
    die(process)
    assert wait_gone(pids[0], SECONDS)


def test_children_of_a_workload_that_died_are_ended_though_the_monitor_is_suspended(
    stage: Stage, monitor: Monitor
) -> None:
    children = CHILDREN.replace(", os.fork()]", "]").replace("if not children[-1]: time.sleep(60); os._exit(0)", "")
    process, pids = monitor(stage.request(children + "time.sleep(60)"), "step")
    assert len(pids) == 4
    os.kill(process.pid, signal.SIGSTOP)
    assert eventually(lambda: state(process.pid) == "T")
    os.kill(pids[0], signal.SIGKILL)
    assert all(wait_gone(pid, PATIENCE) for pid in pids)


SESSIONS = """
def daemon(code): return int(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE).stdout.split()[0])
read_end, write_end = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    os.write(write_end, str(os.getpid()).encode())
    time.sleep(60); os._exit(0)
children = [os.getpid(), subprocess.Popen(["sleep", "60"], start_new_session=True).pid, int(os.read(read_end, 64))]
quiet = "import subprocess as s; print(s.Popen(['sleep', '60'], stdout=s.DEVNULL, start_new_session=True).pid)"
children += [daemon(quiet)]
context.step(" ".join(map(str, children)))
"""


def test_processes_in_other_sessions_go_with_the_monitor(stage: Stage, monitor: Monitor) -> None:
    process, pids = monitor(stage.request(SESSIONS + "time.sleep(60)"), "step")
    assert len(pids) == 4
    assert len({os.getsid(pid) for pid in pids}) == 4
    die(process)
    assert all(wait_gone(pid, SECONDS) for pid in pids)


def started(stage: Stage, then: str) -> tuple[Play, list[int]]:
    """A run with processes in other sessions, and the PIDs of all its processes."""
    play = stage.play(stage.request(SESSIONS + then))
    play.follow(lambda: play.state.steps)
    pids = [int(pid) for pid in play.state.steps[0][1].split()]
    assert len(pids) == 4
    return play, pids


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "then", ["os.kill(os.getpid(), 9)", "context.checked += 1; return context.ok('Well.')", "time.sleep(60)"]
)
def test_processes_in_other_sessions_end_with_the_workload(stage: Stage, then: str) -> None:
    play, pids = started(stage, then)
    play.child.cancel()
    play.to_end()
    assert all(wait_gone(pid, SECONDS) for pid in pids)


def test_processes_of_another_run_stay(stage: Stage) -> None:
    first, first_pids = started(stage, "time.sleep(60)")
    _, second_pids = started(stage, "time.sleep(60)")
    first.child.cancel()
    first.to_end()
    assert all(wait_gone(pid, SECONDS) for pid in first_pids)
    assert all(is_running(pid) for pid in second_pids)
