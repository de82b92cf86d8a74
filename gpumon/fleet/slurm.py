"""Jobs of Slurm and the GPUs that it has allocated to them, from squeue and scontrol."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.problems import ProblemCode
from gpumon.core.text import safe_text
from gpumon.fleet.model import FleetError
from gpumon.fleet.slurm_answer import answer, job_number, jobs_in, number, part, text_of

_MAX_HOSTS: Final = 1 << 16
_MAX_GPUS_PER_HOST: Final = 64
_TEXT: Final = 120
_HOSTS_TEXT: Final = 1 << 16
_GPUS: Final = re.compile(r"\bgpu(?::[\w.-]+){0,2}\(IDX:([\d,-]*)\)", re.ASCII)
_REQUESTED: Final = re.compile(r"gres/gpu(?::[\w.-]+)?[=:](\d{1,6})", re.ASCII)
_FIELD: Final = re.compile(
    r"(?:^|\s)(JobId|ArrayJobId|ArrayTaskId|JobName|UserId|RunState|Partition|NodeList)=(\S*)", re.ASCII
)
_DETAIL: Final = re.compile(r"^\s*Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES(?:_IDX)?=(\S*)", re.ASCII | re.MULTILINE)
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
        FleetError: Slurm is not installed, refuses, or does not respond.
    """
    options = [] if job_id is None else ["--jobs", job_id]
    return parse_jobs(answer(command, ["--json", *options]), command)


def read_running() -> list[SlurmJob]:
    """The jobs that run; those that wait may be many more.

    Raises:
        FleetError: Slurm is not installed, refuses, or does not respond.
    """
    jobs = parse_jobs(answer("squeue", ["--json", "--states=RUNNING"]))
    return [job for job in jobs if job.state == "RUNNING"]  # older versions ignore the option


def parse_jobs(text: bytes, command: str = "squeue") -> list[SlurmJob]:
    """The jobs in an answer of ``squeue --json`` or ``scontrol show job --json``; what is no job is left out.

    Raises:
        FleetError: The answer is not JSON.
    """
    return [job for entry in jobs_in(text, command) if (job := _job(entry)) is not None]


def read_details(job_id: str | None = None, command: str = "scontrol") -> list[SlurmJob]:
    """Jobs with the indexes of their GPUs on each host, which squeue does not always report.

    Slurm older than 23.02 has no JSON here, and is asked for text.

    Args:
        job_id: Only this job.
        command: The program; another one in tests.

    Raises:
        FleetError: Slurm is not installed, refuses, or does not respond.
    """
    request = ["show", "job", "-d", *([] if job_id is None else [job_id])]
    try:
        return parse_jobs(answer(command, [*request, "--json"]), command)
    except FleetError as error:
        if error.problem.code not in {ProblemCode.NOT_READ, ProblemCode.DAMAGED}:
            raise
    return parse_details(answer(command, request))


def lacks_indexes(jobs: Sequence[SlurmJob]) -> bool:
    """Whether the GPUs of a job that has hosts are unknown."""
    return any(job.hosts and job.requested_gpus and not job.gpus for job in jobs)


def with_indexes(jobs: Sequence[SlurmJob], details: Sequence[SlurmJob]) -> list[SlurmJob]:
    """The jobs of squeue with the GPUs of scontrol, or the jobs of scontrol if squeue has none."""
    gpus = {job.id: job.gpus for job in details}
    return [job._replace(gpus=job.gpus or gpus.get(job.id, ())) for job in jobs] or list(details)


def parse_details(text: bytes) -> list[SlurmJob]:
    """The jobs in the text of ``scontrol show job -d``: a paragraph each, a line ``Nodes=... GRES=...`` per host."""
    jobs = []
    for paragraph in text.decode(errors="replace").split("\n\n"):
        fields = {name: safe_text(value, _TEXT) for name, value in _FIELD.findall(paragraph)}
        if not fields.get("JobId", "").isdecimal():
            continue
        job_id = fields["JobId"]
        if fields.get("ArrayTaskId", "").isdecimal():
            job_id = f"{fields.get('ArrayJobId', job_id)}_{fields['ArrayTaskId']}"
        gpus = [
            (host, index)
            for hosts, detail in _DETAIL.findall(paragraph)
            for host in expand_hosts(hosts)
            for index in _gpu_indexes(detail)
        ]
        hosts = () if fields.get("NodeList") == "(null)" else tuple(expand_hosts(fields.get("NodeList", "")))
        jobs.append(
            SlurmJob(
                job_id,
                fields.get("UserId", "").partition("(")[0],
                fields.get("JobName", ""),
                fields.get("RunState", ""),
                fields.get("Partition", ""),
                _gpu_count(paragraph),
                tuple(gpus[: _MAX_GPUS_PER_HOST * _MAX_HOSTS]),
                hosts,
            )
        )
    return jobs


def _job(entry: dict[str, Any]) -> SlurmJob | None:
    job_id = job_number(entry, entry.get("array_job_id"), entry.get("array_task_id"))
    if job_id is None:
        return None
    hosts = tuple(_hosts(entry))
    return SlurmJob(
        job_id,
        text_of(entry.get("user_name")),
        text_of(entry.get("name")),
        text_of(entry.get("job_state")),
        text_of(entry.get("partition")),
        _requested(entry),
        tuple(_gpus(entry.get("gres_detail"), hosts)),
        hosts,
        number(entry.get("start_time")) or None,
        number(entry.get("end_time")) or None,
    )


def _hosts(entry: dict[str, Any]) -> Iterator[str]:
    """The hosts of a job, in the order of its GPUs; from the description of its resources where that alone has them."""
    text = text_of(entry.get("nodes"), _HOSTS_TEXT) or text_of(
        part(entry, "job_resources", "nodes", "list"), _HOSTS_TEXT
    )
    if text:
        yield from expand_hosts(text)
        return
    allocation = part(entry, "job_resources", "nodes", "allocation")
    for node in allocation[:_MAX_HOSTS] if isinstance(allocation, list) else ():
        if name := text_of(part(node, "name")):
            yield name


def _gpus(details: object, hosts: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The GPUs of a job: Slurm gives one text per host, such as ``gpu:h100:2(IDX:0-1)``."""
    if not isinstance(details, list):
        return
    for host, detail in zip(hosts, details, strict=False):
        for index in _gpu_indexes(str(detail)):
            yield host, index


def _gpu_indexes(detail: str) -> Iterator[int]:
    """The indexes in a text such as ``gpu:h100:2(IDX:0-1),nvme:1``, or ``gpu(IDX:5)`` of older versions."""
    for match in _GPUS.finditer(detail):
        yield from _indexes(match[1])


def _indexes(text: str) -> Iterator[int]:
    for item in text.split(","):
        first, _, last = item.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()) and len(first) < 4 and len(last) < 4:
            yield from range(int(first), min(int(last or first), int(first) + _MAX_GPUS_PER_HOST) + 1)


def _requested(entry: dict[str, Any]) -> int | None:
    counts = (_gpu_count(text_of(entry.get(field), 1000)) for field in ("tres_alloc_str", "tres_req_str"))
    return next((count for count in counts if count is not None), None)


def _gpu_count(text: str) -> int | None:
    """The number of GPUs in a list of trackable resources; None if it names none."""
    return max(map(int, _REQUESTED.findall(text)), default=None)  # the total, and the same by type


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
            for item in match[2].split(","):
                first, dash, last = item.partition("-")
                if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 9 or len(last) > 9:
                    continue
                for number in range(int(first), int(last or first) + 1):
                    if count >= _MAX_HOSTS:
                        return
                    yield f"{match[1]}{number:0{len(first)}}{match[3]}"
                    count += 1
        position = end + 1
