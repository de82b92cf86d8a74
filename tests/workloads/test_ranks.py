"""The ranks of a distributed run: they answer together, fail with a named rank, and end together."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.present.explain import known_error_in
from tests.processes import is_running, wait_gone
from tests.workloads.conftest import Ran, RunWorkload, load_workload, needs_torch, torch_python

pytestmark = needs_torch

PROBE = """
import os, signal, time
import _kit.ranks
from _kit.ranks_failure import RanksError
from _kit import Uses, Workload, number
from _kit.rank import gathered, process_group

{setup}

def part(context):
    with process_group(context) as dist:
        rank, value = dist.get_rank(), context.torch.ones(4, device=context.device)
        context.metric(f"rank {{rank}}", os.getpid(), "PID")
        for step in range(3):
            context.position(f"step {{step}}")
            {fault}
            dist.all_reduce(value)
        rows = gathered(context, [rank, value[0].item()])
    return {{"rank": rank, "rows": rows}}

def run(context):
    try:
        answers = context.ranks("part", ["cuda:0", "cuda:1"] if context.on_gpu else ["cpu"] * 2)
    except RanksError as error:
        return context.fail(str(error))
    context.checked += answers[0]["rows"] == answers[1]["rows"] == [[0, 8], [1, 8]]
    context.result("ranks", sum(answer["rank"] == number for number, answer in enumerate(answers)), "", 1)
    return context.ok("Fine.")

timeout = number("timeout_seconds", 20, 1, 60, "Timeout.")
WORKLOAD = Workload("ranked", "Made.", "nothing", lambda _: Uses(0, 1.0), run, (timeout,), {{"part": part}})
"""


def probe(folder: Path, fault: str = "pass", setup: str = "") -> Path:
    """A workload with two ranks, and a fault in front of each all-reduce."""
    file = folder / "ranked.py"
    file.write_text(PROBE.format(fault=fault, setup=setup))
    return file


def pids(events: list[dict[str, Any]]) -> list[int]:
    """The PIDs that the ranks have reported."""
    return [int(event["value"]) for event in events if event["event"] == "metric" and event["unit"] == "PID"]


def assert_gone(ran: Ran) -> None:
    reported = pids(ran.events)
    assert len(reported) == 2
    assert all(wait_gone(pid, 5) for pid in reported)


def test_all_ranks_answer(run_workload: RunWorkload, tmp_path: Path) -> None:
    ran = run_workload(probe(tmp_path))
    assert ran.result["verdict"] == "ok", ran.result["why"]
    assert ran.metric("ranks")["value"] == 2
    assert_gone(ran)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fault", "said", "error"),
    [
        ("if rank == 1 and step == 2: os.kill(os.getpid(), 9)", "Rank 1 ended by SIGKILL in step 2.", "Rank 1 ended"),
        ("if rank == 1: os._exit(7)", "Rank 1 ended with exit code 7 in step 0.", "Rank 1 ended"),
        ("if rank == 0 and step == 1: raise ValueError('mine')", "Rank 0 failed in step 1: ValueError: mine", "mine"),
    ],
)
def test_a_rank_that_fails_is_named_and_the_others_end(
    run_workload: RunWorkload, tmp_path: Path, fault: str, said: str, error: str
) -> None:
    ran = run_workload(probe(tmp_path, fault))
    assert ran.result["verdict"] == "fail"
    assert ran.result["why"] == said
    (event,) = ran.of("error")
    assert error in event["text"]
    assert not event["expected"]
    assert_gone(ran)


def test_a_rank_that_hangs_ends_by_the_timeout(run_workload: RunWorkload, tmp_path: Path) -> None:
    started = time.monotonic()
    ran = run_workload(probe(tmp_path, "if rank == 1 and step == 1: time.sleep(60)"), timeout_seconds=1)
    assert time.monotonic() - started < 30
    assert ran.result["verdict"] == "fail"
    assert ran.result["why"] == "Rank 1 did not respond after step 1. Rank 0 waited for it in step 1."
    (event,) = ran.of("error")
    assert event["class"] == "RuntimeError"
    known = known_error_in(f"{event['class']}: {event['text']}")
    assert known is not None
    assert known.id == "gloo-peer"
    assert_gone(ran)


WATCHDOG = """
[rank0]:[E1122 10:00:05.1 ProcessGroupNCCL.cpp:688] [PG ID 0 PG GUID 0(default_pg) Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=5000) ran for 5010 ms.
terminate called after throwing an instance of 'c10::DistBackendError'
E1122 10:00:06.2 71 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -6) local_rank: 0 (pid: 9)
""".replace("\\\n", "")


def test_a_rank_that_the_watchdog_of_nccl_aborts_only_waited() -> None:
    module = load_workload("_kit.ranks_failure")
    ranks = [module.Rank(None, pid, number, number, "step 1") for number, pid in enumerate((9, 10, 11))]
    ranks[0].has_ended = True
    sentence, error = module.Failure(ranks[:2], 2, ranks[0], ranks[1:2], []).describe(WATCHDOG)
    assert sentence == "Rank 1 did not respond after step 1. Rank 0 waited for it in step 1."
    known = known_error_in(f"{error['class']}: {error['text']}")
    assert known is not None
    assert known.id == "nccl-timeout"
    overdue = module.Failure(ranks, 3, None, [], ranks).describe(WATCHDOG)[0]
    assert overdue == "Rank 1, 2 did not respond after step 1."
    other = module.Failure(ranks[:2], 2, ranks[0], ranks[1:2], []).describe(WATCHDOG.splitlines()[-1])[0]
    assert other == "Rank 0 ended by SIGABRT in step 1."


def test_a_lost_connection_is_an_echo_of_a_rank_that_ended() -> None:
    module = load_workload("_kit.ranks_failure")
    ranks = [module.Rank(None, number, number, number, "step 2") for number in range(2)]
    ranks[0].error = {"class": "RuntimeError", "text": "pair.cc:525] Connection closed by peer [127.0.0.1]:5"}
    assert module.Failure(ranks, 2, ranks[0], ranks[1:], []).describe("")[0].startswith("Rank 0 failed in step 2")
    ranks[1].has_ended = True
    assert module.Failure(ranks, 2, ranks[0], ranks[1:], []).describe("")[0] == "Rank 1 ended in step 2."


def test_the_lost_connection_of_another_rank_is_not_the_error_of_the_one_that_ended() -> None:
    module = load_workload("_kit.ranks_failure")
    ranks = [module.Rank(None, number, number, number, "step 0") for number in range(2)]
    ranks[1].has_ended = True
    echo = (
        "[E1123 14:30:50.252991799 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with [gloo/transport/tcp/"
        "pair.cc:144] - this is typically caused by a remote worker crashing. Check the logs of the remote worker"
    )
    log = f"{echo}\n[E] failed (exitcode: 7) local_rank: 1 (pid: 9)"
    sentence, error = module.Failure(ranks, 2, ranks[1], ranks[:1], []).describe(log)
    assert sentence == "Rank 1 ended with exit code 7 in step 0."
    assert error["text"] == sentence


def test_a_launcher_that_fails_is_reported(run_workload: RunWorkload, tmp_path: Path) -> None:
    setup = "_kit.ranks._RUN = _kit.ranks._RUN.with_name('none.py')"
    ran = run_workload(probe(tmp_path, setup=setup))
    assert ran.result["verdict"] == "fail"
    assert ran.result["why"] == "2 of 2 ranks did not start."
    assert "none.py" in ran.of("error")[0]["text"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_gpumon_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    folder = tmp_path / "gpumon" / "workloads"
    folder.mkdir(parents=True)
    probe(folder, "time.sleep(60)")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = [sys.executable, "-m", "gpumon", "run", "ranked", "--device", "cpu", "--python", torch_python(), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    for line in process.stdout:
        events.append(json.loads(line))
        if len(pids(events)) == 2:
            break
    assert all(is_running(pid) for pid in pids(events))
    process.send_signal(number)
    assert all(wait_gone(pid, 5) for pid in pids(events))
    rest = [json.loads(line) for line in process.stdout]
    process.stdout.close()
    process.wait(10)
    if number is signal.SIGINT:
        assert [event["verdict"] for event in rest if event["event"] == "result"] == ["cancelled"]


SUMMARY = """
E1129 10:42:39.1 71 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 0 (pid: 9)
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 10)  (SIGKILL)
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 9)
"""


def test_how_a_rank_ended_is_in_the_table_if_torchrun_saw_another_one_first() -> None:
    module = load_workload("_kit.ranks_failure")
    ranks = [module.Rank(None, pid, number, number, "step 2") for number, pid in enumerate((9, 10))]
    ranks[1].has_ended = True
    sentence, _ = module.Failure(ranks, 2, ranks[1], [], []).describe(SUMMARY)
    assert sentence == "Rank 1 ended by SIGKILL in step 2."
