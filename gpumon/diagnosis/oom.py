"""The file that a probe leaves when memory runs out, told as any other error is: what happened, why, what mends it."""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from gpumon.core.units import bytes_text
from gpumon.diagnosis.catalogue import BY_ID
from gpumon.diagnosis.explanation import Explanation, Match, OomStory
from gpumon.diagnosis.known import Fix, KnownError
from gpumon.diagnosis.memory_cause import MemoryCause, ranked_fixes
from gpumon.diagnosis.oom_cause import OomFindings
from gpumon.diagnosis.oom_file import OomFile, StackFrame
from gpumon.diagnosis.oom_sentences import sentences, times_text
from gpumon.diagnosis.prefixes import Clock, Moment

_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/torch/|^<frozen ")
_MOST_CALLS: Final = 8
_EQUAL_SIZES: Final = Fix(
    "Pad batches to a few sizes and begin with the largest, so that what is freed fits what is asked for next."
)
_SHARED_GRAPHS: Final = Fix(
    "Let CUDA graphs that never run at the same time share one pool, and capture fewer shapes.",
    """\
pool = torch.cuda.graph_pool_handle()
with torch.cuda.graph(graph, pool=pool):
    output = model(static_input)""",
)
_ONE_STREAM: Final = Fix(
    "Allocate on one stream what takes turns: what was freed on a stream is given out on that stream only."
)
_EMPTY_BEFORE_CAPTURE: Final = Fix(
    "Give back the cache before a CUDA graph is captured; while it is captured, PyTorch cannot.",
    """\
torch.cuda.empty_cache()
graph.capture_begin()""",
)
_OPEN_SNAPSHOT: Final = Fix(
    "See in what it has saved who held what when memory ran out.", "gpumon snapshot snapshot.pickle"
)


def explain_oom(file: OomFile) -> Explanation:
    """What such a file means, in the form of an explanation of a log with one line."""
    found = OomFindings(file)
    calls = tuple(_calls(file.stack))
    moment = Moment(Clock.FULL, file.time_seconds, _time_text(file.time_seconds))
    match = Match(
        error=_error(found),
        line=1,
        text=calls[0] if calls else file.command or f"cuda:{file.ordinal}",
        rank=file.rank,
        ranks=() if file.rank is None else (file.rank,),
        moment=moment,
        is_cause=True,
        figures=_figures(found),
        memory=found.message,
        story=OomStory(
            cause=found.cause,
            sentences=sentences(found),
            rows=tuple(_rows(found)),
            fixes=tuple(_fixes(found)),
            place=_place(file, moment.text),
            stack=calls,
        ),
    )
    return Explanation((match,), 1)


def _error(found: OomFindings) -> KnownError:
    """The entry of the catalogue, with what is known of this case."""
    error = _entry(found.file)
    idle, kept = found.idle.releasable, found.file.statistics
    here = ""
    if idle is not None and kept is not None:
        here = f" Of the {bytes_text(kept.reserved_bytes)} reserved here, it could give back {bytes_text(idle)}."
    snapshot, *others = error.see_more or BY_ID["oom"].see_more
    return replace(error, empty_cache=error.empty_cache + here, see_more=(snapshot, _OPEN_SNAPSHOT, *others))


def _fixes(found: OomFindings) -> Iterator[Fix]:
    """What mends this case first, then what mends its cause, without what is done already."""
    idle, is_expandable = found.idle, found.file.is_expandable or False
    is_in_graphs = found.is_misplaced and 2 * idle.private >= idle.elsewhere
    if found.is_impossible:
        yield from BY_ID["oom-1eb"].fixes
    if found.is_misplaced:
        yield from (_SHARED_GRAPHS,) if idle.private and idle.private >= idle.other_streams else ()
        yield from (_ONE_STREAM,) if idle.other_streams else ()
        yield from (_EMPTY_BEFORE_CAPTURE,) if idle.not_given_back else ()
    elif is_expandable and found.cause is MemoryCause.FRAGMENTATION:
        yield _EQUAL_SIZES
    # What graphs keep they keep: segments that grow give back only what is in no private pool.
    ranked = ranked_fixes(MemoryCause.TOO_BIG if is_in_graphs else found.cause, _entry(found.file).fixes)
    yield from (fix for fix in ranked if not (is_expandable and "expandable_segments" in fix.code))
    if found.cause is not MemoryCause.LEAK and (found.grows or found.may_leak):
        yield from ranked_fixes(MemoryCause.LEAK, ())


def _entry(file: OomFile) -> KnownError:
    return BY_ID["oom-async-backend" if file.is_async else "oom"]


def _rows(found: OomFindings) -> Iterator[tuple[str, str]]:
    file, message, idle, kept = found.file, found.message, found.idle, found.file.statistics
    yield "GPU", f"cuda:{file.ordinal}" + (f", {file.device_name}" if file.device_name else "")
    sizes = (
        ("asked for", message.asked),
        ("size of the GPU", message.total),
        ("free", message.free),
        ("allowed to this process", message.allowed),
        ("outside of PyTorch", found.outside),
        ("reserved by PyTorch", None if kept is None else kept.reserved_bytes),
        ("in live tensors", message.allocated),
        ("reserved, in no tensor", message.unallocated),
        ("largest piece of that", idle.largest or None),
        ("freed, streams wait", None if kept is None else kept.freed_waiting_bytes or None),
        ("in private pools", idle.private_reserved or None),
    )
    yield from ((name, bytes_text(value)) for name, value in sizes if value is not None)
    if found.trend is not None and found.trend.retries_count is not None:
        yield "cache given back", f"{times_text(found.trend.retries_count)} in the last {found.trend.seconds:.0f} s"
    yield from ((name, value) for name, value in file.settings.items() if name.startswith("PYTORCH") and value)


def _figures(found: OomFindings) -> dict[str, int | str]:
    """The figures under the names of the JSON document."""
    file, idle = found.file, found.idle
    told = found.message.figures()
    told.pop("other_processes_bytes", None)  # what is outside of the allocator need not be of others
    named = {
        **told,
        "outside_allocator_bytes": found.outside,
        "idle_scattered_bytes": idle.scattered,
        "idle_elsewhere_bytes": idle.elsewhere,
        "largest_piece_bytes": idle.largest,
        "private_pools_reserved_bytes": idle.private_reserved,
        "gpu": str(file.ordinal),
        "gpu_uuid": file.uuid,
        "gpu_name": file.device_name,
        "pid": file.pid,
        "torch_version": file.torch_version,
    }
    return {name: value for name, value in named.items() if value is not None}


def _place(file: OomFile, moment: str) -> str:
    """Which process it was, and when."""
    of_all = "" if file.world_size is None else f" of {file.world_size}"
    rank = "" if file.rank is None else f", rank {file.rank}{of_all}"
    torch = "" if file.torch_version is None else f", PyTorch {file.torch_version}"
    command = f": {file.command}" if file.command else ""
    return f"Process {file.pid or 'unknown'}{rank}, {moment}{torch}{command}"


def _calls(stack: Sequence[StackFrame]) -> Iterator[str]:
    """The calls of the program rather than those within PyTorch, if there are any."""
    own = [frame for frame in stack if not _LIBRARY.search(frame.file)]
    return (str(frame) for frame in (own or stack)[:_MOST_CALLS])


def _time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
