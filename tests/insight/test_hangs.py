"""Verdicts on hangs, from evidence alone."""

from dataclasses import replace

import pytest

from gpumon.core.collectives import CollectiveState, FlightRecording, ProcessGroup, RecordedCollective
from gpumon.core.ranks import GpuSignature, HangKind, HangVerdict, RankEvidence
from gpumon.core.stacks import StackFrame
from gpumon.core.steps import StepProgress
from gpumon.insight.hangs import judge_hang

NOW = 1000.0
GROUP = "1 (dp)"
C10D = "/usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


def stack(line: int, *above: tuple[str, str]) -> tuple[StackFrame, ...]:
    """A stack that ends in the user's script."""
    inner = tuple(StackFrame(file, 10, function) for file, function in above)
    return (*inner, StackFrame("/home/a/train.py", line, "main"))


def entered(count: int, *pending: str, group: str = GROUP, sizes: tuple[int, ...] = (4,)) -> FlightRecording:
    """The recorder of a rank that has completed a number of collectives, and entered more."""
    states = [("all_reduce", CollectiveState.COMPLETED)] * min(count, 2)
    states += [(name, CollectiveState.SCHEDULED) for name in pending]
    first = count - min(count, 2) + 1
    collectives = tuple(
        RecordedCollective(group, first + index, name, state, (sizes,), dtypes=("Float",))
        for index, (name, state) in enumerate(states)
    )
    groups = (ProcessGroup(group, (0, 1, 2, 3), "nccl", count + len(pending), count),)
    return FlightRecording(groups, collectives, is_recording=True)


def waiting(rank: int, sequence: int = 10, name: str = "all_reduce", group: str = GROUP) -> RankEvidence:
    """A rank that waits in a collective for 240 s."""
    return RankEvidence(
        rank,
        has_probe=True,
        state_code="S",
        system_call="futex",
        stack=stack(30, (C10D, name)),
        recording=entered(sequence - 1, name, group=group),
        progressed_monotonic=NOW - 240.0,
        typical_step_seconds=0.1,
        cpu_share=0.0,
    )


def late(rank: int, line: int = 214, system_call: str = "clock_nanosleep", state_code: str = "S") -> RankEvidence:
    """A rank that has not entered it."""
    return replace(
        waiting(rank), stack=stack(line), recording=entered(9), system_call=system_call, state_code=state_code
    )


def judged(*ranks: RankEvidence) -> HangVerdict:
    return judge_hang(ranks, NOW)


def test_a_rank_that_has_not_entered_is_named_with_its_line() -> None:
    verdict = judged(waiting(0), waiting(1), late(2), waiting(3))
    assert verdict.summary == (
        "Rank 2 has not entered all_reduce #10 of group dp: it sleeps in train.py:214 for 4m; 3 ranks wait."
    )
    assert (verdict.kind, verdict.is_hang, verdict.rank) == (HangKind.NOT_ENTERED, True, 2)
    assert (verdict.collective, verdict.line) == ("all_reduce #10 of group dp", "train.py:214")
    assert (verdict.since_seconds, verdict.waiting_ranks) == (240.0, (0, 1, 3))


@pytest.mark.parametrize(
    ("change", "kind", "clause"),
    [
        ({"system_call": "read", "system_call_target": "a pipe"}, HangKind.BLOCKED, "it reads from a pipe in train.py"),
        ({"system_call": "wait4"}, HangKind.BLOCKED, "it waits for a child process in train.py:214"),
        ({"state_code": "D"}, HangKind.BLOCKED, "it waits for a disk or a driver (state D)"),
        ({"state_code": "T"}, HangKind.STOPPED, "it is stopped (state T)"),
        ({"system_call": "futex"}, HangKind.WAITING_FOR_LOCK, "it waits for a lock or another thread"),
        ({"gil_is_held": True, "state_code": "R"}, HangKind.GIL_HELD, "C code holds the GIL in train.py:214"),
        ({"exited": True, "exit_status": -9}, HangKind.DEAD, "its process has ended by SIGKILL"),
        ({"exited": True}, HangKind.DEAD, "its process has ended; 1 rank"),
        (
            {"stack": stack(214, ("/x/site-packages/torch/utils/data/dataloader.py", "__next__")), "system_call": ""},
            HangKind.WAITING_FOR_DATA,
            "it waits for its DataLoader in train.py:214",
        ),
    ],
)
def test_what_the_rank_does_instead(change: dict[str, object], kind: HangKind, clause: str) -> None:
    verdict = judged(waiting(0), replace(late(1), **change))  # type: ignore[arg-type]
    assert (verdict.kind, verdict.is_hang, verdict.rank) == (kind, True, 1)
    assert clause.partition("; 1")[0] in verdict.summary


def test_within_ten_seconds_or_ten_steps_nothing_hangs() -> None:
    soon = [replace(rank, progressed_monotonic=NOW - 9.0) for rank in (waiting(0), late(1))]
    assert judged(*soon).kind is HangKind.RUNNING
    slow = [replace(rank, typical_step_seconds=30.0) for rank in (waiting(0), late(1))]
    assert judged(*slow).kind is HangKind.RUNNING
    assert judged(*(replace(rank, typical_step_seconds=20.0) for rank in slow)).is_hang


def test_a_rank_that_works_does_not_hang() -> None:
    works = replace(late(1, state_code="R", system_call=""), worked_monotonic=NOW - 1.0)
    verdict = judged(waiting(0), works)
    assert (verdict.kind, verdict.is_hang) == (HangKind.SLOW, False)
    assert verdict.summary.endswith("It works.")
    assert judged(waiting(0), replace(works, worked_monotonic=NOW - 60.0)).is_hang


def test_a_long_computation_has_three_times_the_time() -> None:
    ranks = [waiting(0), late(1, state_code="R", system_call="")]
    for seconds, is_hang in ((20.0, False), (31.0, True)):
        verdict = judged(*(replace(rank, progressed_monotonic=NOW - seconds) for rank in ranks))
        assert (verdict.is_hang, "it computes in train.py:214" in verdict.summary) == (is_hang, True)


def test_without_a_probe_the_stacks_name_the_collective_or_the_mismatch() -> None:
    def plain(rank: RankEvidence) -> RankEvidence:
        return replace(rank, has_probe=False, recording=None)

    verdict = judged(plain(waiting(0)), plain(late(1)), plain(waiting(2)))
    assert (verdict.kind, verdict.rank, verdict.collective) == (HangKind.NOT_ENTERED, 1, "all_reduce")
    receiving = replace(plain(waiting(1)), stack=stack(20, (C10D, "recv")))
    assert judged(plain(waiting(0)), receiving).rank == 1, "a message is no collective"
    verdict = judged(plain(waiting(0)), plain(waiting(1, name="barrier")), plain(waiting(2)))
    assert (verdict.kind, verdict.rank, verdict.collective) == (HangKind.MISMATCHED, 1, "barrier")
    assert "in a collective: ranks 0, 2 called all_reduce; rank 1 called barrier, in train.py:30" in verdict.summary


def test_without_stacks_the_rank_is_named_that_does_not_wait() -> None:
    def bare(rank: RankEvidence) -> RankEvidence:
        return replace(rank, has_probe=False, recording=None, stack=(), gpu=GpuSignature(utilization_percent=percent))

    percent = 100.0
    verdict = judged(bare(waiting(0)), bare(late(1, system_call="read")), bare(waiting(2)))
    assert (verdict.kind, verdict.is_hang, verdict.rank) == (HangKind.BLOCKED, True, 1)
    assert "2 ranks wait in a futex" in verdict.summary
    assert not judged(bare(waiting(0)), bare(waiting(1))).is_hang, "idle programs wait likewise"
    percent = 0.0
    verdict = judged(bare(waiting(0)), bare(late(1, system_call="read")), bare(waiting(2)))
    assert (verdict.kind, verdict.is_hang, verdict.rank) == (HangKind.UNDECIDED, False, 1), (
        "no evidence of a collective"
    )
    counted = replace(bare(waiting(2)), ras_counts={"all_reduce": 9})
    assert judged(bare(waiting(0)), bare(late(1, system_call="read")), counted).is_hang


@pytest.mark.parametrize(
    ("system_call", "frames"),
    [("accept4", ()), ("epoll_wait", (("selectors.py", "select"), ("asyncio/base_events.py", "run_forever")))],
)
def test_a_server_without_requests_does_not_hang(system_call: str, frames: tuple[tuple[str, str], ...]) -> None:
    listener = replace(
        late(0, system_call=system_call),
        stack=stack(214, *((f"/usr/lib/python3.12/{file}", name) for file, name in frames)),
    )
    verdict = judged(listener, waiting(1), waiting(2))
    assert (verdict.kind, verdict.is_hang, verdict.rank) == (HangKind.UNDECIDED, False, 0)
    assert "A server without requests waits likewise" in verdict.summary


def test_different_collectives() -> None:
    verdict = judged(waiting(0), waiting(1, name="broadcast"), waiting(2))
    assert (verdict.kind, verdict.rank, verdict.collective) == (HangKind.MISMATCHED, 1, "broadcast #10 of group dp")
    assert "ranks 0, 2 called all_reduce; rank 1 called broadcast" in verdict.summary


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "_all_gather_base", "_reduce_scatter_base"])
def test_different_shapes_of_one_collective_by_its_name_in_the_recorder(name: str) -> None:
    ranks = [replace(waiting(number), recording=entered(9, name, sizes=(4 + number // 2,))) for number in range(3)]
    verdict = judged(*ranks)
    assert (verdict.kind, verdict.rank, verdict.collective[: len(name)]) == (HangKind.MISMATCHED, 2, name)
    assert f"rank 2 called {name} of [5] Float" in verdict.summary


def test_gathered_tensors_may_differ() -> None:
    ranks = [replace(waiting(0), recording=entered(9, "all_to_all", sizes=(size,))) for size in (4, 8)]
    verdict = judged(ranks[0], replace(ranks[1], rank=1))
    assert verdict.kind is HangKind.TRANSPORT


def test_all_have_entered() -> None:
    verdict = judged(waiting(0), waiting(1))
    assert (verdict.kind, verdict.is_hang, verdict.rank) == (HangKind.TRANSPORT, True, None)
    assert "every rank has entered it" in verdict.summary


def test_two_groups_in_different_orders() -> None:
    pairs = (("1 (dp)", "2 (tp)"), ("2 (tp)", "1 (dp)"))
    ranks = []
    for number, (own, other) in enumerate(pairs):
        groups = tuple(ProcessGroup(name, (0, 1)) for name in (own, other))
        recording = replace(entered(0, "all_reduce", group=own), groups=groups)
        ranks.append(replace(waiting(number), recording=recording))
    verdict = judged(*ranks)
    assert (verdict.kind, verdict.is_hang, verdict.rank) == (HangKind.DEADLOCK, True, None)
    assert "rank 0 waits in all_reduce #1 of group dp for rank 1" in verdict.summary
    assert "rank 1 waits in all_reduce #1 of group tp for rank 0" in verdict.summary


def test_without_a_recorder_the_stacks_show_who_waits() -> None:
    ranks = [replace(rank, recording=None) for rank in (waiting(0), waiting(1), late(2))]
    verdict = judged(*ranks)
    assert (verdict.kind, verdict.rank, verdict.collective) == (HangKind.NOT_ENTERED, 2, "all_reduce")


def test_every_rank_waits_for_data() -> None:
    loader = stack(50, ("/x/site-packages/torch/utils/data/dataloader.py", "__next__"))
    ranks = [replace(late(number), stack=loader) for number in range(2)]
    verdict = judged(*ranks)
    assert (verdict.kind, verdict.is_hang) == (HangKind.WAITING_FOR_DATA, False)
    assert verdict.summary == "Every rank waits for data in train.py:50, for 4m."


def test_slow_is_not_hung() -> None:
    ranks = [replace(late(0), progressed_monotonic=NOW - 1.0, latest_step_seconds=15.0)]
    assert judged(*ranks).kind is HangKind.SLOW


def test_ended() -> None:
    assert judged(replace(late(0), exited=True)).kind is HangKind.FINISHED
    verdict = judged(replace(late(0), exited=True), replace(late(1), exited=True, exit_status=3))
    assert (verdict.kind, verdict.rank, verdict.is_hang) == (HangKind.DEAD, 1, False)


def test_without_any_source_there_is_no_verdict() -> None:
    verdict = judged(RankEvidence(0), RankEvidence(1, progress=StepProgress(0, 0)))
    assert (verdict.kind, verdict.is_hang) == (HangKind.UNDECIDED, False)


def test_without_a_wait_nothing_hangs() -> None:
    verdict = judged(late(0), late(1))
    assert (verdict.kind, verdict.is_hang) == (HangKind.UNDECIDED, False)


@pytest.mark.parametrize(
    ("module", "kind"), [("convert_frame.py", HangKind.SLOW), ("eval_frame.py", HangKind.UNDECIDED)]
)
def test_a_rank_that_compiles_works_and_one_that_runs_a_compiled_model_may_not(module: str, kind: HangKind) -> None:
    frames = stack(214, (f"/x/site-packages/torch/_dynamo/{module}", "__call__"))
    assert judged(replace(late(0), stack=frames, cpu_share=0.5)).kind is kind
