"""Joins the files of a hang to one picture of its ranks, and judges it as a job that runs is judged."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from gpumon.core.collectives import CollectiveState, FlightRecording, ProcessGroup, RecordedCollective, parse_recording
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.ranks import HangKind, HangVerdict, RankEvidence
from gpumon.core.stacks import StackFrame, parse_frames
from gpumon.core.text import safe_text
from gpumon.core.units import duration_text
from gpumon.distributed.ras_report import RasReport, parse_report
from gpumon.health.alerts import ranges_text
from gpumon.insight.hangs import judge_hang, line_of
from gpumon.operations.hang_files.files import HangFile, find_files, read_files
from gpumon.operations.training_jobs.host_report import last_collective
from gpumon.operations.training_jobs.ras_ranks import judge_counts
from gpumon.operations.training_jobs.report import collective_document, verdict_document
from gpumon.stacks.classify import collective_function

_NAMES: Final = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "_all_gather_base",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "_reduce_scatter_base",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
}
"""The names that the watchdog prints, as the flight recorder has them; others are the same in lower case."""
_ABORTED: Final = -6
"""SIGABRT, by which the watchdog ends its process: a consequence of the hang."""
_UNSURE: Final = frozenset({HangKind.UNDECIDED, HangKind.TRANSPORT})
_MAX_MISSING: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class HangReport:
    """What the files show.

    Attributes:
        verdict: The verdict.
        ranks: The ranks that the files are about.
        missing: Ranks of the job that no file is about.
        last_progress_seconds: Unix time of the last call of a collective, by the clock of the rank; None if unknown.
        counts: How many files of each kind were read.
        problems: What could not be read, in sentences.
    """

    verdict: HangVerdict
    ranks: tuple[RankEvidence, ...]
    missing: tuple[int, ...] = ()
    last_progress_seconds: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def report_hang(paths: Sequence[Path]) -> HangReport:
    """Read files that a job has left, and judge whether and why it hung.

    A path is a file, or a folder of files.

    Raises:
        CommandError: A file does not exist, or none of them is about the ranks of a job.
    """
    files = read_files(find_files(paths))
    evidence = _LeftByJob()
    problems = []
    versions = Counter(file.message["version"] for file in files if file.kind == "recorder")
    version = versions.most_common(1)[0][0] if versions else ""
    for file in files:
        other = file.message.get("version", version)
        is_other = f"is left out: its version is {other}, and that of most dumps {version}" if other != version else ""
        clause = file.problem or is_other or evidence.add(file)
        if clause:
            problems.append(f"{safe_text(str(file.path), 200)} {clause}.")
    counts = Counter(file.kind for file in files if file.kind)
    if not evidence.is_known:
        reason = problems[0] if problems else "The files name no rank, no collective and no stack."
        remedy = "Name flight-recorder dumps, logs of the ranks, py-spy or faulthandler stacks, or RAS reports."
        raise CommandError.missing(ProblemCode.NOT_FOUND, reason, remedy)
    return replace(evidence.report(), counts=counts, problems=tuple(problems))


@dataclass
class _LeftByRank:
    """What the files say of one rank."""

    recording: FlightRecording | None = None
    works: list[Mapping[str, Any]] = field(default_factory=list)
    statuses: list[Mapping[str, Any]] = field(default_factory=list)
    stack: tuple[StackFrame, ...] = ()
    state: str = ""
    failure: tuple[StackFrame, ...] = ()
    exit_status: int | None = None


class _LeftByJob:
    """Everything that the files say."""

    def __init__(self) -> None:
        self._ranks: dict[int, _LeftByRank] = {}
        self._named: set[int] = set()
        self._reports: list[RasReport] = []
        self._members: dict[int, tuple[int, ...]] = {}
        self._stacks: dict[str, tuple[StackFrame, ...]] = {}
        """Thousands of ranks call a collective in the same lines."""
        self._modified = 0.0

    @property
    def is_known(self) -> bool:
        """Whether a file says more than an ordinary log."""
        return bool(self._reports or self._ranks)

    def add(self, file: HangFile) -> str:
        """Take what a file says; returns a clause about what is wrong with it, or an empty text."""
        message = file.message
        if file.rank is not None and file.is_rank_sure:
            self._named.add(file.rank)
        try:
            if not file.kind:
                return file.problem
            if file.kind == "ras":
                self._reports.append(parse_report(message["report"].encode()))
            elif file.kind == "recorder":
                if file.rank is None:
                    return "has no rank in its name, so its flight recorder belongs to no rank"
                self._of(file.rank).recording = self._recording(message["recording"])
                self._modified = max(self._modified, message["modified"])
            else:
                self._add_text(file)
        except (TypeError, ValueError, KeyError) as error:
            return f"is damaged: {safe_text(str(error), 100)}"
        return ""

    def _of(self, rank: int) -> _LeftByRank:
        return self._ranks.setdefault(rank, _LeftByRank())

    def _recording(self, raw: dict[str, Any]) -> FlightRecording:
        lists = [group.pop("ranks") for group in raw["groups"]]
        recording = parse_recording(raw, self._stack)
        for members in lists:
            if id(members) not in self._members:
                self._members[id(members)] = tuple(map(int, members))
        groups = tuple(
            replace(group, ranks=self._members[id(members)])
            for group, members in zip(recording.groups, lists, strict=True)
        )
        return replace(recording, groups=groups)

    def _stack(self, frames: object) -> tuple[StackFrame, ...]:
        text = str(frames)
        known = self._stacks.get(text)
        return self._stacks.setdefault(text, parse_frames(frames)) if known is None else known

    def _add_text(self, file: HangFile) -> None:
        message = file.message
        for work in message.get("works", ()):
            self._of(work["rank"]).works.append(work)
        for status in message.get("statuses", ()):
            self._of(status["rank"]).statuses.append(status)
        for rank, status in message.get("exits", ()):
            self._of(rank).exit_status = status
        for rank, frames in message.get("failures", ()):
            number = file.rank if rank is None else rank
            if number is not None:
                self._of(number).failure = parse_frames(frames)
        for stack in message.get("stacks", ()):
            if file.rank is not None:
                known = self._of(file.rank)
                known.stack, known.state = parse_frames(stack["frames"]), stack["state"]
                self._modified = max(self._modified, message["modified"])

    def report(self) -> HangReport:
        """The verdict on everything."""
        stalled = max((work["milliseconds"] / 1e3 for rank in self._ranks.values() for work in rank.works), default=0.0)
        created = [
            entry.created_seconds
            for rank in self._ranks.values()
            for entry in (() if rank.recording is None else rank.recording.collectives)
            if entry.created_seconds
        ]
        last = max(created, default=None)
        if stalled:
            now = stalled if last is None else last + stalled
        else:
            now = math.inf if last is None else max(self._modified, last)
        ranks = [self._rank_evidence(number, rank, now, stalled) for number, rank in sorted(self._ranks.items())]
        groups = {id(group.ranks): group.ranks for rank in ranks if rank.recording for group in rank.recording.groups}
        missing = tuple(sorted(self._named.union(*groups.values()) - self._ranks.keys()))[:_MAX_MISSING]
        verdict = self._verdict(ranks, missing, now)
        return HangReport(verdict, tuple(ranks), missing, last)

    def _rank_evidence(self, number: int, rank: _LeftByRank, now: float, stalled: float) -> RankEvidence:
        recording = rank.recording or self._logged(rank, now, stalled)
        pending = () if recording is None else recording.collectives
        waits = any(item.state is not CollectiveState.COMPLETED for item in pending)
        failed = bool(rank.failure) and not (waits or rank.works or rank.stack)
        has_ended = rank.exit_status not in {None, _ABORTED} and not rank.works
        calls = [item.frames for item in pending if item.frames]
        return RankEvidence(
            number,
            exited=(failed or has_ended) and not (rank.recording is not None and waits),
            exit_status=rank.exit_status if has_ended else 1 if failed else None,
            state_code=rank.state,
            stack=rank.stack or (rank.failure if failed else calls[-1] if waits and calls else ()),
            recording=recording,
            progressed_monotonic=_progressed(recording, now),
        )

    def _logged(self, rank: _LeftByRank, now: float, stalled: float) -> FlightRecording | None:
        """What the watchdog says of the collectives of a rank, as its flight recorder would have it."""
        if not rank.works and not rank.statuses:
            return None
        groups: dict[str, ProcessGroup] = {}
        by_number = {status.get("sequence"): status["group"] for status in rank.statuses}
        for status in rank.statuses:
            group, enqueued, completed = status["group"], status["enqueued"], status["completed"]
            if enqueued >= 0:
                name = self._full_name(group)
                groups[name] = ProcessGroup(name, self._groups.get(name, ()), "nccl", enqueued, max(0, completed))
        collectives = []
        sizes_known = not any(item.recording for item in self._ranks.values())
        for work in rank.works:
            name = self._full_name(work["group"] or by_number.get(work["sequence"], ""))
            groups.setdefault(name, ProcessGroup(name, self._groups.get(name, ()), "nccl"))
            elements = ((work["elements"],),) if sizes_known and "elements" in work else ()
            call = _NAMES.get(work["name"], work["name"].lower())
            at = now - stalled if math.isfinite(now) else None
            collectives.append(
                RecordedCollective(name, work["sequence"], call, CollectiveState.STARTED, elements, created_seconds=at)
            )
        return FlightRecording(tuple(groups.values()), tuple(sorted(collectives, key=lambda item: item.sequence)), True)

    def _full_name(self, group: str) -> str:
        """A group of a log as the dumps name it: some logs have its number only."""
        return next((name for name in self._groups if name == group or name.partition(" ")[0] == group), group)

    @cached_property
    def _groups(self) -> Mapping[str, tuple[int, ...]]:
        """The groups of a flight recorder, with their ranks; read when all files are known."""
        first = next((rank.recording for rank in self._ranks.values() if rank.recording is not None), None)
        return {} if first is None else {group.name: group.ranks for group in first.groups}

    def _verdict(self, ranks: Sequence[RankEvidence], missing: Sequence[int], now: float) -> HangVerdict:
        verdict = HangVerdict(HangKind.UNDECIDED, False, "The files show the counts of NCCL only.")
        if ranks:
            verdict = judge_hang(ranks, now)
            if any(rank.recording for rank in ranks) and not any(_waits(rank) or rank.exited for rank in ranks):
                text = "No rank waits: every collective in the flight recorders has completed."
                return replace(verdict, kind=HangKind.FINISHED, is_hang=False, summary=text, rank=None)
        if verdict.kind is HangKind.UNDECIDED and verdict.rank is not None and verdict.waiting_ranks:
            verdict = replace(verdict, kind=HangKind.NOT_ENTERED, is_hang=True)
        if verdict.kind in _UNSURE and missing and verdict.waiting_ranks:
            verdict = _with_missing(verdict, missing)
        if verdict.kind in _UNSURE:
            return next((counted for report in self._reports if (counted := judge_counts(report))), verdict)
        return verdict


def _waits(rank: RankEvidence) -> bool:
    entries = () if rank.recording is None else rank.recording.collectives
    is_pending = any(entry.state is not CollectiveState.COMPLETED for entry in entries)
    return is_pending or bool(collective_function(rank.stack))


def _progressed(recording: FlightRecording | None, now: float) -> float | None:
    """When a rank last called a collective; of a rank that only stacks show, the beginning of time."""
    if not math.isfinite(now):
        return 0.0
    entries = () if recording is None else recording.collectives
    return max((entry.created_seconds for entry in entries if entry.created_seconds is not None), default=None)


def _with_missing(verdict: HangVerdict, missing: Sequence[int]) -> HangVerdict:
    """The verdict where all ranks with files wait, and others have left none."""
    count = len(verdict.waiting_ranks)
    who = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {ranges_text(missing)}"
    waiting = "1 rank waits" if count == 1 else f"{count:,} ranks wait"
    during = "" if verdict.since_seconds is None else f" for {duration_text(verdict.since_seconds)}"
    summary = (
        f"{waiting} in {verdict.collective}{during}, and no file shows where {who} stood: ended, elsewhere, or "
        f"unable to write."
    )
    number = missing[0] if len(missing) == 1 else None
    return replace(verdict, kind=HangKind.UNDECIDED, is_hang=True, summary=summary, rank=number, line="")


_SCHEMA: Final = 1


def hang_document(report: HangReport) -> Mapping[str, Any]:
    """The verdict, and what is known of each rank."""
    return {
        "schema": _SCHEMA,
        "verdict": verdict_document(report.verdict),
        "last_progress_time_seconds": report.last_progress_seconds,
        "ranks": [_rank(rank) for rank in report.ranks],
        "ranks_missing": list(report.missing),
        "files": dict(report.counts),
        "problems": list(report.problems),
    }


def _rank(rank: RankEvidence) -> Mapping[str, Any]:
    collective = last_collective(rank.recording)
    return {
        "rank": rank.rank,
        "exited": rank.exited,
        "exit_status": rank.exit_status,
        "line": line_of(rank) or None,
        "last_collective": None if collective is None else collective_document(collective),
    }
