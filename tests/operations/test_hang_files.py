"""What files that a job has left show of its hang; the fields of dumps and logs are those of public threads."""

import gzip
import json
import os
import pickle
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.problems import CommandError
from gpumon.core.ranks import HangKind
from gpumon.operations.hang_files.report import HangReport, hang_document, report_hang
from gpumon.present.text.hang import hang_lines

LAST = 31


def dump(rank: int, world: int = 4, *, absent: int = 3, version: str = "2.9", **change: object) -> dict[str, Any]:
    """The recorder of a rank of a job in which one rank has not entered the last collective."""
    entries = []
    for sequence in range(LAST - 4, LAST + (rank != absent)):
        is_done = sequence < LAST
        common = {
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[1000]],
            "output_sizes": [[1000]],
            "state": "completed" if is_done else "started",
            "retired": is_done,
            "frames": [{"name": "train", "filename": "/home/a/train.py", "line": 88}],
        }
        created = time.time() - 600 - (LAST - sequence)
        if version == "1.1":  # PyTorch 2.2
            entries.append({**common, "pg_id": 0, "seq_id": sequence, "time_created_ns": int(created * 1e9)})
            continue
        entry = {
            **common, "record_id": sequence, "pg_id": 0, "process_group": ("0", "default_pg"),
            "collective_seq_id": sequence, "p2p_seq_id": 0, "op_id": sequence, "time_created_ns": int(created * 1e9),
            "input_dtypes": ["Float"], "output_dtypes": ["Float"], "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None, "timeout_ms": 600000, "is_p2p": False,
        }  # fmt: skip
        entries.append({**entry, **(change if sequence == LAST else {})})
    if version == "1.1":
        return {"version": version, "entries": entries}
    status = {"last_enqueued_collective": str(entries[-1]["collective_seq_id"]), "last_completed_collective": "30"}
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    return {"version": version, "pg_config": config, "pg_status": {"0": status}, "entries": entries}


def write_dumps(folder: Path, dumps: dict[int, dict[str, Any]], *, as_json: bool = False) -> None:
    for rank, content in dumps.items():
        data = json.dumps(content).encode() if as_json else pickle.dumps(content, 2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)


def text(report: HangReport) -> str:
    return "\n".join(hang_lines(report, 120))


@pytest.mark.parametrize(("version", "as_json"), [("2.9", False), ("2.9", True), ("1.1", False)])
def test_the_rank_that_did_not_come_is_named_with_its_last_line(tmp_path: Path, version: str, as_json: bool) -> None:
    write_dumps(tmp_path, {rank: dump(rank, version=version) for rank in range(4)}, as_json=as_json)
    report = report_hang([tmp_path])
    verdict = report.verdict
    assert (verdict.kind, verdict.is_hang, verdict.rank, verdict.waiting_ranks) == (
        HangKind.NOT_ENTERED,
        True,
        3,
        (0, 1, 2),
    )
    assert verdict.collective.startswith(f"all_reduce #{LAST}")
    assert 590 < (verdict.since_seconds or 0.0) < 660
    shown = text(report)
    assert "Its last collective: all_reduce #30 in train.py:88 (completed)." in shown
    assert len(shown.partition("\n\n")[0].splitlines()) <= 12
    assert json.loads(json.dumps(hang_document(report)))["verdict"]["rank"] == 3


def test_ranks_that_differ_in_type_or_call_are_a_desync(tmp_path: Path) -> None:
    ranks = {rank: dump(rank, absent=-1, input_dtypes=["Half" if rank == 2 else "Float"]) for rank in range(4)}
    write_dumps(tmp_path, ranks)
    verdict = report_hang([tmp_path]).verdict
    assert (verdict.kind, verdict.rank) == (HangKind.MISMATCHED, 2)
    assert "rank 2 called all_reduce of [1000] Half" in verdict.summary


def test_a_rank_without_a_file_is_named(tmp_path: Path) -> None:
    write_dumps(tmp_path, {rank: dump(rank, absent=-1) for rank in range(3)})
    report = report_hang([tmp_path])
    assert (report.missing, report.verdict.rank, report.verdict.is_hang) == ((3,), 3, True)
    assert "no file shows where rank 3 stood" in report.verdict.summary


def test_a_job_that_ended_well_hangs_not(tmp_path: Path) -> None:
    write_dumps(tmp_path, {rank: dump(rank, absent=rank) for rank in range(4)})
    assert not report_hang([tmp_path]).verdict.is_hang
    log = tmp_path / "rank_0.log"
    log.write_text("step 1 loss 0.5\nstep 2 loss 0.4\ndone\n")
    with pytest.raises(CommandError) as error:
        report_hang([log])
    assert error.value.exit_code == 3


LOGS = """\
[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000) ran for 600020 \
milliseconds before timing out.
[rank1]:[E626 06:24:44.906457629 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either \
an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.
[rank2]:[E626 06:24:44.173689731 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump \
signal due to a collective timeout from rank 1 and we will try our best to dump the debug info. Last enqueued NCCL \
work: 807, last completed NCCL work: 807.
"""


def test_the_watchdogs_text_names_the_rank_that_is_behind(tmp_path: Path) -> None:
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(LOGS.encode()))
    (tmp_path / "stacks_rank2.txt").write_text(
        'Process 71: python train.py\nPython v3.11.4 (/usr/bin/python3.11)\n\nThread 71 (idle): "MainThread"\n'
        "    read_batch (train.py:214)\n    <module> (train.py:300)\n"
    )
    verdict = report_hang([tmp_path]).verdict
    assert (verdict.rank, verdict.collective, verdict.line) == (2, "all_reduce #808", "train.py:214")
    assert "for 10m" in verdict.summary


def test_stacks_alone_show_who_is_elsewhere(tmp_path: Path) -> None:
    frame = '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 5 in all_reduce\n'
    for rank in range(3):
        own = '  File "/home/a/train.py", line 9 in main\n'
        lines = f"Current thread 0x00007f (most recent call first):\n{frame if rank else ''}{own}"
        (tmp_path / f"rank{rank}.stacks").write_text(lines)
    report = report_hang([tmp_path])
    assert (report.verdict.rank, report.verdict.line, report.verdict.since_seconds) == (0, "train.py:9", None)
    assert "of one moment" in text(report)


def test_a_ras_report_names_the_rank_behind(tmp_path: Path) -> None:
    ranks = [
        {"rank": rank, "host": "10.0.0.1", "pid": 100 + rank, "nvml_dev": rank, "status": {}}
        | {"collective_counts": {"AllReduce": 40 if rank == 5 else 41}}
        for rank in range(8)
    ]
    document = {"nccl_version": "2.28.9", "communicators": [{"hash": "a", "size": 8, "ranks": ranks}]}
    (tmp_path / "ras.json").write_text(json.dumps(document))
    verdict = report_hang([tmp_path]).verdict
    assert (verdict.rank, verdict.collective) == (5, "all_reduce #41")


class _Hostile:
    """A pickle that would run a command."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/gpumon-hostile-pickle",)


def test_hostile_and_truncated_files_are_sentences_and_the_rest_is_shown(tmp_path: Path) -> None:
    write_dumps(tmp_path, {rank: dump(rank, 6) for rank in range(4)})
    (tmp_path / "nccl_trace_rank_4").write_bytes(pickle.dumps({"entries": [_Hostile()]}))
    (tmp_path / "nccl_trace_rank_5").write_bytes(pickle.dumps(dump(5, 6), 2)[:300])
    write_dumps(tmp_path, {6: dump(6, 6, version="1.1"), 7: {"version": "9", "entries": [{"call": 1}]}})
    entry = '{"pg_id": "x", "collective_seq_id": {}, "profiling_name": "", "state": ""}'
    (tmp_path / "nccl_trace_rank_0.json").write_text(f'{{"entries": [{entry}]}}')
    report = report_hang([tmp_path])
    assert report.verdict.rank == 3
    assert [problem.rpartition("/")[2].partition(" ")[0] for problem in report.problems] == [
        "nccl_trace_rank_0.json",
        "nccl_trace_rank_4",
        "nccl_trace_rank_5",
        "nccl_trace_rank_6",
        "nccl_trace_rank_7",
    ]
    assert "no function was called" in report.problems[1]
    assert "truncated" in report.problems[2]
    assert "its version is 1.1, and that of most dumps 2.9" in report.problems[3]
    assert "schema that gpumon does not know" in report.problems[4]
    assert not Path("/tmp/gpumon-hostile-pickle").exists()


@pytest.mark.long
def test_four_thousand_ranks(tmp_path: Path) -> None:
    world = 4096
    members = str(list(range(world)))
    for rank in range(world):
        content = dump(rank, 1, absent=1234)
        content["pg_config"]["0"]["ranks"] = members
        content["entries"] = content["entries"][:1] * 55 + content["entries"]
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, 2))
    began, before = time.process_time() + sum(os.times()[2:4]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    verdict = report_hang([tmp_path]).verdict
    assert (verdict.rank, len(verdict.waiting_ranks)) == (1234, world - 1)
    assert time.process_time() + sum(os.times()[2:4]) - began < 20  # CPU of two cores for ten seconds
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 200 << 10)
