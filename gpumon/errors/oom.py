"""The explanation of a probe's out-of-memory file: what happened, why, and the fixes, as for any other error."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.oom_file import OomFile
from gpumon.core.stacks import StackFrame
from gpumon.core.units import bytes_text, times_text
from gpumon.errors.answer import answer_to_report
from gpumon.errors.entry import Fix, KnownError
from gpumon.errors.explanation import Explanation
from gpumon.errors.load import ERRORS
from gpumon.errors.match import Match, OomReport
from gpumon.errors.memory import MemoryCause, cause_sentence, memory_sentence, memory_texts
from gpumon.errors.oom_cause import IdleMemory, OomFindings
from gpumon.errors.prefixes import ClockKind, Timestamp
from gpumon.errors.rank import case_of, fixes_of
from gpumon.errors.reading import LogReading

_MAX_CALLS: Final = 8
OUT_OF_MEMORY: Final = "oom"
OF_ASYNC_BACKEND: Final = "oom-async-backend"
"""The entries of the errors that a report can be about."""


def explain_oom(file: OomFile) -> Explanation:
    """Explains a file, in the form of an explanation of a log with one line."""
    findings = OomFindings(file)
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(file.time_seconds))
    report = OomReport(
        cause=findings.cause,
        sentences=_sentences(findings),
        rows=tuple(_rows(findings)),
        fixes=_fixes(findings),
        place=_place(file, moment),
        stack=tuple(_calls(file.stack)),
    )
    match = Match(
        error=_error(findings),
        line=1,
        text=f"CUDA out of memory. Tried to allocate {bytes_text(file.asked_bytes)}.",
        rank=file.rank,
        ranks=() if file.rank is None else (file.rank,),
        timestamp=Timestamp(ClockKind.FULL, file.time_seconds, moment),
        is_cause=True,
        values=_values(findings),
        memory=findings.message,
        oom_report=report,
    )
    return Explanation((match,), answer_to_report(match, report), LogReading(lines=1))


def _error(findings: OomFindings) -> KnownError:
    """The catalogue entry, with what is known about this case."""
    error, idle, known = _entry(findings.file), findings.idle.releasable, findings.file.statistics
    if idle is None or known is None:
        return error
    note = f" Of the {bytes_text(known.reserved_bytes)} reserved here, it could free {bytes_text(idle)}."
    return error._replace(empty_cache=error.empty_cache + note)


def _fixes(findings: OomFindings) -> tuple[Fix, ...]:
    """The fixes of the entry for this case."""
    idle, is_misplaced = findings.idle, findings.sentence == "measured misplaced"
    graphs = idle.private if idle.private >= idle.other_streams else 0
    places = {"graphs": graphs, "streams": idle.other_streams, "cache": idle.not_given_back}
    # Expandable segments free only memory that is in no private pool, so they do not help against graphs.
    is_in_graphs = is_misplaced and 2 * idle.private >= idle.elsewhere
    facts = {
        "measured": "yes",
        "memory": (MemoryCause.TOO_BIG if is_in_graphs else findings.cause).value,
        "impossible": findings.sentence == "measured impossible",
        "misplaced": is_misplaced and ", ".join(place for place, size in places.items() if size),
        "allowed_size": findings.message.allowed is not None and bytes_text(findings.message.allowed),
        "expandable": findings.file.is_expandable or False,
        "may_leak": not {"grows", "may leak"}.isdisjoint(findings.observations),
    }
    entry = _entry(findings.file)
    return fixes_of(entry, case_of(entry, more={name: value for name, value in facts.items() if value}))


def _entry(file: OomFile) -> KnownError:
    return ERRORS[OF_ASYNC_BACKEND if file.is_async else OUT_OF_MEMORY]


def _rows(findings: OomFindings) -> Iterator[tuple[str, str]]:
    trend, settings = findings.trend, findings.file.settings
    if trend.retries_count is not None:
        yield "cache freed", f"{times_text(trend.retries_count)} in the last {trend.seconds:.0f} s"
    yield from ((name, value) for name, value in settings.items() if name.startswith("PYTORCH") and value)


def _values(findings: OomFindings) -> dict[str, int | str]:
    """The values under the names of the JSON document."""
    file, idle = findings.file, findings.idle
    named = {
        **findings.message.sizes(),
        "reserved_bytes": None if file.statistics is None else file.statistics.reserved_bytes,
        "waiting_bytes": findings.statistics.freed_waiting_bytes or None,
        "idle_scattered_bytes": idle.scattered,
        "idle_elsewhere_bytes": idle.elsewhere,
        "largest_piece_bytes": idle.largest or None,
        "private_pools_reserved_bytes": idle.private_reserved or None,
        "gpu": str(file.ordinal),
        "gpu_uuid": file.uuid,
        "gpu_name": file.device_name,
        "pid": file.pid,
        "torch_version": file.torch_version,
    }
    return {name: value for name, value in named.items() if value is not None}


def _place(file: OomFile, moment: str) -> str:
    ranks = "" if file.world_size is None else f" of {file.world_size}"
    rank = "" if file.rank is None else f", rank {file.rank}{ranks}"
    torch = "" if file.torch_version is None else f", PyTorch {file.torch_version}"
    command = f": {file.command}" if file.command else ""
    return f"Process {file.pid or 'unknown'}{rank}, {moment}{torch}{command}"


def _calls(stack: Sequence[StackFrame]) -> Iterator[str]:
    """The frames of the program and its libraries, or all frames if all are in PyTorch and Python."""
    from gpumon.stacks.tables import place_of  # late: most logs are none of a probe

    own = [frame for frame in stack if place_of(frame.file).kind not in {"torch", "standard"}]
    return (str(frame) for frame in (own or stack)[:_MAX_CALLS])


def _sentences(findings: OomFindings) -> tuple[str, ...]:
    """The cause with its values, then everything else that the file shows."""
    name = findings.sentence
    cause = _sentence(name, findings) if name else cause_sentence(findings.cause, findings.message)
    return (cause, *(_sentence(other, findings) for other in findings.observations))


def _sentence(name: str, findings: OomFindings) -> str:
    """A sentence of `memory.txt` with all that a file shows."""
    message, idle, trend = findings.message, findings.idle, findings.trend
    known = {
        **idle._asdict(),
        **trend._asdict(),
        "pieces": f"{idle.pieces or 0:,}",
        "places": _places(idle),
        "idle_share": f", of which {bytes_text(idle.private)} are idle" if findings.file.segments else "",
        "waiting": findings.statistics.freed_waiting_bytes,
        "wanted": findings.wanted,
        "failures": times_text(findings.failures - 1),
        "rescues": times_text(findings.rescues),
        "seconds": f"{trend.seconds:.0f}",
        "loading": ", or it was still loading a model that is too big" if trend.only_rises else "",
    }
    return memory_sentence(name, message, **known)


def _places(idle: IdleMemory) -> str:
    """The idle memory that the request cannot use, the largest part first."""
    sizes = ((getattr(idle, name), where) for name, where in memory_texts("place"))
    parts = sorted(((size, where) for size, where in sizes if size), reverse=True)
    return " and ".join(f"{bytes_text(size)} free in {where}" for size, where in parts)
