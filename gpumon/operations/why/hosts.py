"""Why a training job of several hosts is slow: ``gpumon why --json`` on each of them, and all ranks compared."""

import json
import shlex
from collections.abc import Sequence
from typing import Final

from gpumon.core.json_fields import Json, as_count, as_list, as_number, as_object, as_text, required
from gpumon.core.model import Device
from gpumon.core.problems import CommandError, ExitCode, Problem
from gpumon.core.record_codec import from_json
from gpumon.core.step_classes import LABELS
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, SlownessEvidence, StepAccount
from gpumon.insight.bottlenecks.slowness_verdict import SlownessVerdict
from gpumon.operations.remote_command import run_on_hosts
from gpumon.operations.why.examination import MAX_SECONDS, TRACE, WhyReport
from gpumon.operations.why.processes import JobWhyReport, compared
from gpumon.streams.remote.stream import SSH

_MORE_SECONDS: Final = 60.0
"""What ssh, the search for the job and the probes take, in addition to the observation."""
_MAX_RANKS: Final = 1 << 12


def examine_hosts(hosts: Sequence[str], arguments: Sequence[str], ssh: Sequence[str] = SSH) -> JobWhyReport:
    """Examine a job on all hosts at the same time.

    Args:
        hosts: As for ssh.
        arguments: Of ``gpumon why`` there.
        ssh: The program and its options; other ones in tests.

    Raises:
        CommandError: No host can say anything.
    """
    command = shlex.join(["gpumon", "why", "--json", "--no-trace", *arguments])
    answers = run_on_hosts(hosts, command, parse_reports, (0, 1), MAX_SECONDS + _MORE_SECONDS, ssh)
    problems: dict[int | str, Problem] = {}
    problems.update((answer.host, answer.problem) for answer in answers if answer.problem is not None)
    reports = [report for answer in answers for report in answer.value or ()]
    if not reports:
        raise CommandError(next(iter(problems.values())), ExitCode.MISSING_PREREQUISITE)
    reports.sort(key=lambda report: (report.evidence.rank is None, report.evidence.rank or 0))
    return compared(tuple(reports), problems)


def parse_reports(text: bytes, host: str) -> tuple[WhyReport, ...]:
    """Parse what a host prints: the report on one process, or on the ranks of a job.

    Raises:
        ValueError: It is no such document.
    """
    try:
        raw = as_object(json.loads(text))
        ranks = as_list(raw["ranks"])[:_MAX_RANKS] if "ranks" in raw else [raw]
        return tuple(_report(as_object(rank), host) for rank in ranks)
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _report(raw: Json, host: str) -> WhyReport:
    step = as_number(raw["step_seconds"])
    shares = [share for share in as_list(raw["account"]) if as_object(share)["name"] in LABELS]
    stages = tuple(required(as_text(stage)) for stage in as_list(raw["stages"]))
    times = {"step_seconds": step or 1.0, "mean_seconds": as_number(raw["mean_step_seconds"]) or 0.0}
    account = from_json(StepAccount, {**raw, **times, "shares": shares, "is_traced": TRACE in stages})
    device = None if raw["device"] is None else as_object(raw["device"])
    evidence = SlownessEvidence(
        account,
        gpu=None if device is None else from_json(GpuEvidence, {**_known(device), "label": str(device["index"])}),
        rank=as_count(raw["rank"]),
        world_size=as_count(raw["world_size"]),
        torch_version=as_text(raw["torch_version"]),
    )
    verdict = as_object(raw["verdict"])
    causes = [_cause(as_object(cause)) for cause in as_list(verdict["causes"])]
    return WhyReport(
        pid=required(as_count(raw["pid"])),
        command=as_text(raw["command"]) or "",
        device=None if device is None else Device(as_count(device["index"]) or 0, uuid=as_text(device["uuid"])),
        stages=stages,
        seconds=required(as_number(raw["seconds_observed"])),
        evidence=evidence,
        verdict=from_json(SlownessVerdict, {**verdict, "causes": causes, "has_steps": step is not None}),
        problems=tuple(required(as_text(problem)) for problem in as_list(raw["problems"])),
        host=host,
    )


def _known(raw: Json) -> Json:
    return {name: value for name, value in raw.items() if value is not None}


def _cause(raw: Json) -> Json:
    """The fields of a cause; those of the step are null where steps are unknown."""
    missing = {name: 0.0 for name in ("bound_seconds", "base_seconds") if raw[name] is None}
    return {**raw, **missing, "bound_range": raw["bound_range_seconds"]}
