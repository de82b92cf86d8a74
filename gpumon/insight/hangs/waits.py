"""Which ranks wait in which collective, and for whom."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from gpumon.core.collectives import CollectiveState, RecordedCollective
from gpumon.core.ranks import RankEvidence
from gpumon.insight.hangs.standing import is_elsewhere
from gpumon.stacks.classify import collective_function, is_in_backward
from gpumon.stacks.tables import POINT_TO_POINT_FUNCTIONS

_SAME_SIZES: Final = frozenset({
    "all_reduce", "allreduce", "all_reduce_coalesced", "broadcast", "reduce", "_all_gather_base",
    "_reduce_scatter_base",
})  # fmt: skip
"""Collectives whose tensors have the same shape on every rank."""
_DEFAULT: Final = "default_pg"


@dataclass(frozen=True, slots=True)
class Wait:
    """A collective in which a rank waits.

    Attributes:
        rank: The rank.
        group: The process group, as in `RecordedCollective.group`; empty if only the stack shows the wait.
        sequence: The number of the collective; None if only the stack shows the wait.
        name: The collective.
        absent: The ranks of the group that have not entered it, as far as known.
    """

    rank: int
    group: str
    sequence: int | None
    name: str
    absent: frozenset[int]

    @property
    def label(self) -> str:
        """Such as ``all_reduce #12 of group dp``."""
        number = "" if self.sequence is None else f" #{self.sequence}"
        return f"{self.name}{number}{group_clause(self.group)}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first collective in which the ranks of a group differ.

    Attributes:
        group: The group.
        sequence: The number of the collective; None if only the stacks show the calls.
        calls: What each rank called, with the shape if that is what differs.
        odd: The ranks in the minority; empty if there is none.
    """

    group: str
    sequence: int | None
    calls: Mapping[int, str]
    odd: tuple[int, ...]


def group_clause(group: str) -> str:
    """A process group as a clause, such as ``of group dp``; the default group needs none."""
    number, _, rest = group.partition(" (")
    description = rest.rstrip(")")
    if not group or description == _DEFAULT:
        return ""
    return f" of group {description or number}"


def waits_of(ranks: Sequence[RankEvidence]) -> tuple[Wait, ...]:
    """The collectives in which ranks wait, the oldest of each rank and group."""
    absentees = _Absentees(ranks)
    return tuple(wait for rank in ranks if not rank.exited for wait in _waits_of_rank(rank, absentees))


def _waits_of_rank(rank: RankEvidence, absentees: "_Absentees") -> Iterator[Wait]:
    if is_elsewhere(rank):
        return
    pending = first_pending(rank)
    for collective in pending.values():
        if not collective.is_point_to_point:
            absent = absentees.of(collective, rank)
            yield Wait(rank.rank, collective.group, collective.sequence, collective.name, absent)
    function = _function_of(rank)
    if function and not pending:
        yield Wait(rank.rank, "", None, function, absentees.without_wait)


def _function_of(rank: RankEvidence) -> str:
    """The collective in which the stack of a rank is; empty for none and for messages between two ranks.

    The one of DistributedDataParallel has no frame: a rank waits in it if its main thread does not run in backward().
    """
    if rank.recording is None and rank.system_call == "futex" and is_in_backward(rank.stack):
        return "all_reduce in backward()"
    function = collective_function(rank.stack)
    return "" if function in POINT_TO_POINT_FUNCTIONS else function


def first_pending(rank: RankEvidence) -> dict[str, RecordedCollective]:
    """The oldest collective of each group that has not completed."""
    result: dict[str, RecordedCollective] = {}
    if rank.recording is not None:
        for collective in rank.recording.collectives:
            if collective.state is not CollectiveState.COMPLETED and not rank.exited:
                result.setdefault(collective.group, collective)
    return result


class _Absentees:
    """Which ranks have not entered a collective; thousands of ranks that wait in the same one share the answer."""

    def __init__(self, ranks: Sequence[RankEvidence]) -> None:
        self._ranks = {rank.rank: rank for rank in ranks}
        self._known: dict[tuple[str, int, int], frozenset[int]] = {}

    def of(self, collective: RecordedCollective, rank: RankEvidence) -> frozenset[int]:
        """The ranks of the group that have not entered a collective in which a rank waits."""
        group, sequence = collective.group, collective.sequence
        members = _members(group, rank)
        key = group, sequence, id(members)  # ranks of which thousands are read share the list of members
        if key not in self._known:
            others = ((number, self._ranks.get(number)) for number in members or self._using(group))
            self._known[key] = frozenset(
                number for number, other in others if other is not None and _is_absent(other, group, sequence)
            )
        return self._known[key]

    def _using(self, group: str) -> Iterator[int]:
        """The members of a group whose ranks are unknown: those that know it, or all if only one rank does."""
        knows = {
            rank.rank
            for rank in self._ranks.values()
            if rank.recording is not None and any(item.name == group for item in rank.recording.groups)
        }
        is_all = not group or _DEFAULT in group or len(knows) < 2
        return (rank.rank for rank in self._ranks.values() if is_all or rank.exited or rank.rank in knows)

    @cached_property
    def without_wait(self) -> frozenset[int]:
        """The ranks that are in no collective, by their stack and their recorder."""
        return frozenset(
            rank.rank for rank in self._ranks.values() if not _function_of(rank) and not first_pending(rank)
        )


def _is_absent(rank: RankEvidence, group: str, sequence: int) -> bool:
    entered = entered_sequence(rank, group)
    return rank.exited or (entered is not None and entered < sequence)


def _members(group: str, rank: RankEvidence) -> tuple[int, ...]:
    groups = () if rank.recording is None else rank.recording.groups
    return next((item.ranks for item in groups if item.name == group), ())


def entered_sequence(rank: RankEvidence, group: str) -> int | None:
    """The number of the last collective of a group that a rank has entered; None if unknown, 0 for none."""
    if rank.recording is None or not rank.recording.is_recording:
        return None
    numbers = [
        collective.sequence
        for collective in rank.recording.collectives
        if collective.group == group and not collective.is_point_to_point
    ]
    item = next((item for item in rank.recording.groups if item.name == group), None)
    return max(*numbers, 0 if item is None or item.last_enqueued is None else item.last_enqueued, 0)


def first_mismatch(ranks: Sequence[RankEvidence]) -> Mismatch | None:
    """The first collective that ranks of its group entered with different names or shapes; None if there is none."""
    calls: dict[tuple[str, int], dict[int, RecordedCollective]] = {}
    for rank in ranks:
        for collective in () if rank.recording is None else rank.recording.collectives:
            if not collective.is_point_to_point:
                calls.setdefault((collective.group, collective.sequence), {})[rank.rank] = collective
    mismatches = (_mismatch(group, sequence, entries) for (group, sequence), entries in calls.items())
    earliest = min((item for item in mismatches if item), key=lambda item: item.sequence or 0, default=None)
    return earliest if calls else _mismatch_of_stacks(ranks)


def _mismatch_of_stacks(ranks: Sequence[RankEvidence]) -> Mismatch | None:
    """Likewise where only the stacks show what the ranks have called, and all of them wait."""
    labels = {rank.rank: _function_of(rank) for rank in ranks}
    return _differing("", None, labels) if all(labels.values()) else None


def _mismatch(group: str, sequence: int, entries: Mapping[int, RecordedCollective]) -> Mismatch | None:
    if all(entry.state is CollectiveState.COMPLETED for entry in entries.values()):
        return None
    labels = {rank: entry.name for rank, entry in entries.items()}
    has_sizes = all(entry.input_sizes for entry in entries.values())
    if has_sizes and len(set(labels.values())) == 1 and next(iter(labels.values())) in _SAME_SIZES:
        labels = {rank: f"{entry.name} of {shape_text(entry)}" for rank, entry in entries.items()}
    return _differing(group, sequence, labels)


def _differing(group: str, sequence: int | None, labels: Mapping[int, str]) -> Mismatch | None:
    """The mismatch of calls of which some differ."""
    distinct = sorted(set(labels.values()), key=lambda label: list(labels.values()).count(label))
    if len(distinct) < 2:
        return None
    counts = [list(labels.values()).count(label) for label in distinct]
    odd = [rank for rank, label in labels.items() if label == distinct[0]] if counts[0] < counts[-1] else []
    return Mismatch(group, sequence, labels, tuple(odd))


def shape_text(collective: RecordedCollective) -> str:
    """The shapes and types of the inputs, such as ``[4, 8] Float``."""
    shapes = ", ".join(str(list(shape)) for shape in collective.input_sizes) or "no tensor"
    return f"{shapes} {collective.dtypes[0]}" if collective.dtypes else shapes
