"""Training jobs of several hosts: ``gpumon jobs --json`` on each of them through the user's ssh, merged by job.

The documents come from other hosts and are not trusted. A job whose ranks are on several hosts is judged again with
the ranks of all of them, because each host alone knows only who waits.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from gpumon.core.collectives import CollectiveState, FlightRecording, ProcessGroup, RecordedCollective
from gpumon.core.json_fields import (
    Json,
    as_count,
    as_flag,
    as_integer,
    as_list,
    as_number,
    as_object,
    as_text,
    as_tuple,
    required,
)
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.ranks import HangKind, HangVerdict, RankEvidence
from gpumon.core.stacks import StackFrame
from gpumon.insight.hangs import judge_hang
from gpumon.operations.remote_command import HostAnswer, run_on_hosts
from gpumon.operations.training_jobs.report import (
    EXITED,
    SCHEMA,
    RankGpu,
    RankReport,
    TrainingJobReport,
    TrainingJobState,
)
from gpumon.stacks.tables import COLLECTIVES_MODULE
from gpumon.streams.remote.stream import SSH

READ_SECONDS: Final = 45.0
"""How long a host may take: ssh gives up after 10 s, and the command looks for up to 25 s."""
_MAX_RANKS: Final = 1 << 14
_SLOW: Final = (HangKind.SLOW, HangKind.STRAGGLER)
_EXIT_CODES: Final = (0, 1, 3)
"""No job hangs, a job hangs, there is no job."""
_LOCAL: Final = ("pid ", "127.", "localhost:", "::1:")
"""Ids that mean another job on every host: a separate process, and a master that only its host reaches."""
HostJobs: TypeAlias = HostAnswer[tuple[TrainingJobReport, ...]]


def read_hosts(hosts: Sequence[str], seconds: float = READ_SECONDS, ssh: Sequence[str] = SSH) -> list[HostJobs]:
    """Read the jobs of all hosts at the same time; the ranks have the name of the host."""
    return run_on_hosts(hosts, "gpumon jobs --json", parse_jobs, _EXIT_CODES, seconds, ssh)


def merged_jobs(hosts: Sequence[HostJobs]) -> tuple[TrainingJobReport, ...]:
    """The jobs of all hosts; the parts of one job on several hosts are one job."""
    parts: dict[tuple[str, ...], list[TrainingJobReport]] = {}
    for entry in hosts:
        for report in entry.value or ():
            is_local = report.id.startswith(_LOCAL)
            parts.setdefault((report.user, report.id, entry.host if is_local else ""), []).append(report)
    merged = [_merged(reports) for reports in parts.values()]
    return tuple(sorted(merged, key=lambda report: (-len(report.ranks), report.key)))


def parse_jobs(text: bytes, host: str) -> tuple[TrainingJobReport, ...]:
    """Parse the document of a host.

    Raises:
        ValueError: The text is not such a document.
    """
    try:
        raw = as_object(json.loads(text))
        if raw.get("schema") != SCHEMA:
            raise ValueError("another version of gpumon is installed there")
        jobs = as_list(raw["jobs"])
        if sum(len(as_list(as_object(job).get("ranks"))) for job in jobs) > _MAX_RANKS:
            raise ValueError("it has too many ranks")
        return tuple(_job(as_object(job), host) for job in jobs)
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _merged(parts: Sequence[TrainingJobReport]) -> TrainingJobReport:
    """One job of its parts on several hosts."""
    first = parts[0]
    if len(parts) == 1:
        return first
    by_rank: dict[object, RankReport] = {}
    for rank in (rank for part in parts for rank in part.ranks):
        key = (rank.host, rank.pid) if rank.rank is None else rank.rank
        if key not in by_rank or rank.state:  # a host may know ranks of other hosts from NCCL alone
            by_rank[key] = rank
    ranks = sorted(by_rank.values(), key=lambda rank: (rank.rank is None, rank.rank or 0))
    times = sorted(part.step_seconds for part in parts if part.step_seconds is not None)
    verdict = _verdict(parts, ranks)
    is_hang = verdict is not None and verdict.is_hang
    states = [part.state for part in parts]
    calm = next((state for state in states if state is not TrainingJobState.HANGING), states[0])
    calm = TrainingJobState.SLOW if verdict is not None and verdict.kind in _SLOW else calm
    return replace(
        first,
        state=TrainingJobState.HANGING if is_hang else calm,
        since_seconds=min((part.since_seconds for part in parts if part.since_seconds is not None), default=None),
        headline=verdict.summary if verdict is not None else first.headline,
        step_seconds=times[len(times) // 2] if times else None,
        ranks=tuple(_marked(rank, verdict) for rank in ranks),
        verdict=verdict,
        problems=tuple(dict.fromkeys(problem for part in parts for problem in part.problems)),
    )


def _marked(rank: RankReport, verdict: HangVerdict | None) -> RankReport:
    """The rank with its place in the verdict."""
    if verdict is None or not verdict.is_hang or rank.rank is None or rank.state == EXITED:
        return rank
    if rank.rank == verdict.rank:
        return replace(rank, is_culprit=True, state=str(verdict.kind.value).replace("_", " "))
    return replace(rank, is_culprit=False, state="waits") if rank.rank in verdict.waiting_ranks else rank


def _verdict(parts: Sequence[TrainingJobReport], ranks: Sequence[RankReport]) -> HangVerdict | None:
    """The verdict on all ranks: that of the host of the rank that is the reason, else a new one from all of them."""
    known = [part.verdict for part in parts if part.verdict is not None]
    moving = [verdict for verdict in known if not verdict.since_seconds]
    if moving or not known:
        return min(moving, key=lambda verdict: verdict.kind is HangKind.RUNNING, default=None)
    waits = {rank: verdict.collective for verdict in known if verdict.collective for rank in verdict.waiting_ranks}
    judged = judge_hang([_evidence(rank, waits.get(rank.rank, "")) for rank in ranks if rank.rank is not None], 0.0)
    certain = [verdict for verdict in (judged, *known) if verdict.is_hang and verdict.rank is not None]
    verdict = next(iter(certain), judged)
    evidence = tuple(sentence for part in known for sentence in part.evidence)
    return replace(verdict, evidence=evidence or verdict.evidence)


def _evidence(rank: RankReport, collective: str) -> RankEvidence:
    """What a report shows of a rank, on a clock on which now is 0, and where its host says that it waits."""
    file, _, line = rank.line.rpartition(":")
    stack = (StackFrame(file, int(line), "main thread"),) if file and line.isdecimal() and len(line) < 9 else ()
    if collective:
        stack = (StackFrame(COLLECTIVES_MODULE, 1, collective.split(maxsplit=1)[0]), *stack)
    recording = None
    if rank.collective is not None:
        group = ProcessGroup(rank.collective.group)
        recording = FlightRecording((group,), (rank.collective,), is_recording=True)
    return RankEvidence(
        rank.rank or 0,
        rank.host,
        rank.pid,
        exited=rank.state == EXITED,
        state_code="T" if rank.state == "stopped" else "",
        stack=stack,
        recording=recording,
        progressed_monotonic=None if rank.since_seconds is None else -rank.since_seconds,
        typical_step_seconds=rank.step_seconds,
    )


def _job(raw: Json, host: str) -> TrainingJobReport:
    job_id, user = required(as_text(raw["id"])), required(as_text(raw["user"]))
    verdict = raw.get("verdict")
    return TrainingJobReport(
        key=f"{user}/{job_id}/{host}",
        id=job_id,
        name=as_text(raw.get("name")) or "",
        user=user,
        launcher=as_text(raw.get("launcher")) or "",
        world_size=as_count(raw.get("world_size")),
        state=TrainingJobState(raw["state"]),
        since_seconds=as_number(raw.get("since_seconds")),
        headline=as_text(raw.get("headline")) or "",
        step_seconds=as_number(raw.get("step_seconds")),
        ranks=tuple(_rank(as_object(rank), host) for rank in as_list(raw.get("ranks"))),
        verdict=None if verdict is None else _parse_verdict(as_object(verdict)),
        age_seconds=as_number(raw.get("age_seconds")),
        problems=as_tuple(as_list(raw.get("problems")), _parse_problem),
    )


def _rank(raw: Json, host: str) -> RankReport:
    gpus = as_list(raw.get("gpus"))
    is_remote = as_flag(raw.get("is_remote")) or False
    collective = raw.get("last_collective")
    return RankReport(
        rank=as_count(raw.get("rank")),
        host=(as_text(raw.get("host")) or "") if is_remote else host,
        pid=as_count(raw.get("pid")),
        gpus=as_tuple(gpus, lambda gpu: RankGpu(as_text(gpu.get("label")) or "", as_text(gpu.get("uuid")))),
        state=as_text(raw.get("state")) or "",
        since_seconds=as_number(raw.get("since_seconds")),
        steps_count=as_count(raw.get("steps_count")),
        step_seconds=as_number(raw.get("step_seconds")),
        late_seconds=as_number(raw.get("late_seconds")),
        collective=None if collective is None else _collective(as_object(collective)),
        line=as_text(raw.get("line")) or "",
        memory_bytes=as_count(raw.get("memory_bytes")),
        sm_percent=as_number(raw.get("sm_percent")),
        probe=as_text(raw.get("probe")) or "",
    )


def _collective(raw: Json) -> RecordedCollective:
    return RecordedCollective(
        group=as_text(raw.get("group")) or "",
        sequence=required(as_count(raw.get("sequence"))),
        name=as_text(raw.get("name")) or "",
        state=CollectiveState(raw["state"]),
        input_sizes=tuple(
            tuple(required(as_integer(length)) for length in as_list(shape)) for shape in as_list(raw.get("size"))
        ),
        dtypes=tuple(required(as_text(dtype)) for dtype in as_list(raw.get("dtypes"))),
    )


def _parse_verdict(raw: Json) -> HangVerdict:
    return HangVerdict(
        kind=HangKind(raw["kind"]),
        is_hang=required(as_flag(raw["is_hang"])),
        summary=as_text(raw.get("summary")) or "",
        rank=as_count(raw.get("rank")),
        collective=as_text(raw.get("collective")) or "",
        line=as_text(raw.get("line")) or "",
        since_seconds=as_number(raw.get("since_seconds")),
        evidence=tuple(required(as_text(sentence)) for sentence in as_list(raw.get("evidence"))),
        waiting_ranks=tuple(required(as_count(rank)) for rank in as_list(raw.get("waiting_ranks"))),
    )


def _parse_problem(raw: Mapping[str, Any]) -> Problem:
    return Problem(ProblemCode(raw["code"]), as_text(raw.get("reason")) or "", as_text(raw.get("remedy")) or "")
