"""Collectives of a distributed training run, as the flight recorder of a process has them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from gpumon.core.json_fields import Json, as_count, as_integer, as_list, as_number, as_text, as_tuple, required
from gpumon.core.stacks import StackFrame, parse_frames


class CollectiveState(str, Enum):
    """How far a collective has come on a rank. PyTorch's own names."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class RecordedCollective:
    """One collective, or one point-to-point operation, on one rank.

    Attributes:
        group: The process group, as its number and description: ``0 (default_pg)``.
        sequence: Its number in the group: the same on every rank of the group.
        name: What the program called, such as ``all_reduce``.
        state: How far it has come on this rank.
        input_sizes: Shapes of the input tensors.
        output_sizes: Shapes of the output tensors.
        dtypes: Types of the input tensors.
        created_seconds: When the program called it, in seconds since the epoch on this host's clock.
        finished_seconds: When it was seen to have finished, likewise; None if it has not, or if that is unknown.
        is_point_to_point: Whether it is a send or a receive.
        frames: Where the program called it, innermost first; empty if the recorder keeps no stacks.
        operation: Its number in the group, point-to-point operations included; None if unknown.
    """

    group: str
    sequence: int
    name: str
    state: CollectiveState
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    created_seconds: float | None = None
    finished_seconds: float | None = None
    is_point_to_point: bool = False
    frames: tuple[StackFrame, ...] = ()
    operation: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group.

    Attributes:
        name: Its number and description, as in `RecordedCollective.group`.
        ranks: Its global ranks; empty if unknown.
        backend: ``nccl`` or ``gloo``; empty if unknown.
        last_enqueued: Sequence number of the last collective that this rank enqueued; None if unknown.
        last_completed: Sequence number of the last one that completed.
    """

    name: str
    ranks: tuple[int, ...] = ()
    backend: str = ""
    last_enqueued: int | None = None
    last_completed: int | None = None


@dataclass(frozen=True, slots=True)
class FlightRecording:
    """The flight recorder of one rank.

    Attributes:
        groups: The process groups that it knows.
        collectives: All collectives that have not completed, and for each group the latest ones, in order.
        is_recording: Whether the recorder is on; it is off by default before PyTorch 2.13.
    """

    groups: tuple[ProcessGroup, ...]
    collectives: tuple[RecordedCollective, ...]
    is_recording: bool


def parse_recording(raw: Json, stack_of: Callable[[object], tuple[StackFrame, ...]] = parse_frames) -> FlightRecording:
    """Parse the answer to the request ``flight_recorder``, and the stack of each collective with ``stack_of``.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A number is out of range.
        KeyError: A field is missing.
    """
    return FlightRecording(
        groups=as_tuple(raw["groups"], _parse_group),
        collectives=as_tuple(raw["collectives"], partial(_parse_collective, stack_of)),
        is_recording=raw["is_recording"] is True,
    )


def _parse_group(raw: Json) -> ProcessGroup:
    return ProcessGroup(
        name=required(as_text(raw["name"])),
        ranks=tuple(required(as_count(rank)) for rank in as_list(raw.get("ranks"))),
        backend=as_text(raw.get("backend")) or "",
        last_enqueued=as_integer(raw.get("last_enqueued")),
        last_completed=as_integer(raw.get("last_completed")),
    )


def _parse_collective(stack_of: Callable[[object], tuple[StackFrame, ...]], raw: Json) -> RecordedCollective:
    return RecordedCollective(
        group=required(as_text(raw["group"])),
        sequence=required(as_count(raw["sequence"])),
        name=required(as_text(raw["name"])),
        state=CollectiveState(raw["state"]),
        input_sizes=_parse_sizes(raw.get("input_sizes")),
        output_sizes=_parse_sizes(raw.get("output_sizes")),
        dtypes=tuple(required(as_text(dtype)) for dtype in as_list(raw.get("dtypes"))),
        created_seconds=as_number(raw.get("created_seconds")),
        finished_seconds=as_number(raw.get("finished_seconds")),
        is_point_to_point=raw.get("is_point_to_point") is True,
        frames=stack_of(raw.get("frames")),
        operation=as_count(raw.get("operation")),
    )


def _parse_sizes(raw: object) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(required(as_integer(size)) for size in as_list(shape)) for shape in as_list(raw))
