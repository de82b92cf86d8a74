"""The file that a probe writes on running out of memory, opened as a memory snapshot of its segments.

Its blocks have no stacks, which would have cost the process too much time. The only stack is that of the request.
"""

from gpumon.core.allocator import BlockState
from gpumon.core.oom_file import MAX_BYTES, OomFile, OomFileError, is_oom_file, parse_oom_file
from gpumon.core.source_file import UnreadableError
from gpumon.snapshots.model import Amount, DeviceMemory, Snapshot, SnapshotFrame, StackUse
from gpumon.snapshots.pickle_reader import ByteSource


def begins_as_json(beginning: bytes) -> bool:
    """Whether a file begins as a JSON document, so that it is not a pickle."""
    return beginning.lstrip()[:1] == b"{"


def oom_snapshot(source: ByteSource, name: str) -> Snapshot:
    """The segments of such a file as a snapshot.

    Raises:
        UnreadableError: It is another JSON document, or it is damaged.
    """
    data = source.read(MAX_BYTES + 1)
    if not is_oom_file(data):
        raise UnreadableError("is no memory snapshot: it does not begin as a pickle does")
    try:
        return _snapshot(parse_oom_file(data), name, len(data))
    except OomFileError as error:
        raise UnreadableError(f"is damaged: {error}") from None


def _snapshot(file: OomFile, name: str, size_bytes: int) -> Snapshot:
    blocks = [block for segment in file.segments for block in segment.blocks if block.state is BlockState.ALLOCATED]
    now = Amount(sum(block.requested_bytes for block in blocks), len(blocks))
    notes = ["gpumon's probe wrote this file when the process ran out of memory. gpumon explain shows the cause."]
    if file.is_cut:
        notes.append("The allocator had more blocks than the file can hold.")
    if file.stack:
        first = file.stack[0]
        notes.append(f"{first.function} ({first.file}:{first.line}) requested {file.asked_bytes:,} bytes.")
    return Snapshot(
        name=name,
        size_bytes=size_bytes,
        frames=(SnapshotFrame("the probe records no stacks of blocks"),),
        stacks=((0,),),
        devices=(DeviceMemory(file.ordinal, file.segments, (StackUse(0, now),)),),
        settings=dict(file.settings),
        notes=tuple(notes),
    )
