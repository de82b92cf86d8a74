"""Jobs of Slurm and the GPUs that it has allocated to them, from ``squeue --json``.

The format differs between versions: a state is a text or a list, a number is plain or an object with ``set``.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.fleet.model import FleetError

TIMEOUT_SECONDS: Final = 20.0
MAX_BYTES: Final = 128 << 20
_MAX_HOSTS: Final = 1 << 16
_MAX_GPUS_PER_HOST: Final = 64
_TEXT: Final = 120
_GPUS: Final = re.compile(r"gpu(?::[\w.-]+)?:(\d{1,3})(?:\(IDX:([\d,-]*)\))?", re.ASCII)
_REQUESTED: Final = re.compile(r"gres/gpu(?::[\w.-]+)?[=:](\d{1,6})", re.ASCII)
_BRACKETS: Final = re.compile(r"([^,\[\]]*)\[([^\[\]]*)\]([^,\[\]]*)")


class SlurmJob(NamedTuple):
    """One job.

    Attributes:
        id: Its id, such as ``4711``, or ``4711_3`` in an array.
        user: Login name.
        name: Its name.
        state: In Slurm's words, such as ``RUNNING``.
        partition: Its partition.
        requested_gpus: Number of GPUs that it asked for, or None if unknown.
        gpus: The GPUs that it has: host and index.
        hosts: Its hosts.
        start_seconds: Unix time of its start, or None.
        end_seconds: Unix time at which its time limit ends it, or None.
    """

    id: str
    user: str = ""
    name: str = ""
    state: str = ""
    partition: str = ""
    requested_gpus: int | None = None
    gpus: tuple[tuple[str, int], ...] = ()
    hosts: tuple[str, ...] = ()
    start_seconds: float | None = None
    end_seconds: float | None = None


def read_jobs(job_id: str | None = None, command: str = "squeue") -> list[SlurmJob]:
    """The jobs in the queue.

    Args:
        job_id: Only this job.
        command: The program; another one in tests.

    Raises:
        FleetError: Slurm is not installed, or does not respond.
    """
    if shutil.which(command) is None:
        raise FleetError(Problem(ProblemCode.NOT_FOUND, f"{command} was not found: Slurm is not installed here."))
    options = [] if job_id is None else ["--jobs", job_id]
    try:
        done = subprocess.run(
            [command, "--json", *options],
            capture_output=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        problem = Problem(ProblemCode.UNRESPONSIVE, f"{command} did not respond within {TIMEOUT_SECONDS:g} s.")
        raise FleetError(problem) from None
    except OSError as error:
        problem = Problem(ProblemCode.NOT_READ, f"{command} cannot be started: {error.strerror or error}.")
        raise FleetError(problem) from error
    if done.returncode:
        text = safe_text(done.stderr.decode(errors="replace").strip().rpartition("\n")[2], 200).rstrip(".")
        raise FleetError(Problem(ProblemCode.NOT_READ, f"{command} failed: {text or f'exit code {done.returncode}'}."))
    return parse_jobs(done.stdout)


def parse_jobs(text: bytes) -> list[SlurmJob]:
    """The jobs in an answer of ``squeue --json``; entries that are no jobs are left out.

    Raises:
        FleetError: The answer is not JSON, or too large.
    """
    try:
        document: Any = json.loads(text) if len(text) <= MAX_BYTES else None
        raw = document["jobs"]
    except (ValueError, RecursionError, KeyError, TypeError):
        reason = "squeue --json gave no list of jobs."
        raise FleetError(Problem(ProblemCode.DAMAGED, reason, "It needs Slurm 21.08 or later.")) from None
    return [job for entry in raw if isinstance(entry, dict) and (job := _job(entry)) is not None]


def _job(entry: dict[str, Any]) -> SlurmJob | None:
    number = _number(entry.get("job_id"))
    if number is None:
        return None
    array_id, task = _number(entry.get("array_job_id")), _number(entry.get("array_task_id"))
    job_id = f"{array_id:.0f}_{task:.0f}" if array_id and task is not None else f"{number:.0f}"
    hosts = tuple(expand_hosts(_text(entry.get("nodes"))))
    state = entry.get("job_state")
    return SlurmJob(
        job_id,
        _text(entry.get("user_name")),
        _text(entry.get("name")),
        _text(state[0] if isinstance(state, list) and state else state),
        _text(entry.get("partition")),
        _requested(entry),
        tuple(_gpus(entry.get("gres_detail"), hosts)),
        hosts,
        _number(entry.get("start_time")) or None,
        _number(entry.get("end_time")) or None,
    )


def _gpus(details: object, hosts: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The GPUs of a job: Slurm gives one text per host, such as ``gpu:h100:2(IDX:0-1)``."""
    if not isinstance(details, list):
        return
    for host, detail in zip(hosts, details, strict=False):
        for match in _GPUS.finditer(str(detail)):
            for index in _indexes(match[2] or ""):
                yield host, index


def _indexes(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()) and len(first) < 4 and len(last) < 4:
            yield from range(int(first), min(int(last or first), int(first) + _MAX_GPUS_PER_HOST) + 1)


def _requested(entry: dict[str, Any]) -> int | None:
    for field in ("tres_alloc_str", "tres_req_str"):
        matches = _REQUESTED.findall(_text(entry.get(field), 1000))
        if matches:
            return max(map(int, matches))  # the total, and the same by type
    return None


def expand_hosts(text: str) -> Iterator[str]:
    """The hosts of a list in Slurm's notation, such as ``gpu[01-03,7],login1``."""
    count = 0
    position = 0
    while position < len(text) and count < _MAX_HOSTS:
        match = _BRACKETS.match(text, position)
        if match is None:
            end = text.find(",", position)
            end = len(text) if end < 0 else end
            if text[position:end]:
                yield text[position:end]
                count += 1
        else:
            end = match.end()
            for part in match[2].split(","):
                first, dash, last = part.partition("-")
                if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 9 or len(last) > 9:
                    continue
                for number in range(int(first), int(last or first) + 1):
                    if count >= _MAX_HOSTS:
                        return
                    yield f"{match[1]}{number:0{len(first)}}{match[3]}"
                    count += 1
        position = end + 1


def _number(value: object) -> float | None:
    """A number, plain or in Slurm's form ``{"set": true, "infinite": false, "number": 5}``."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is True and value.get("infinite") is not True else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _text(value: object, length: int = _TEXT) -> str:
    return safe_text(value, length) if isinstance(value, str) else ""
