"""The events of a trace as columns of numbers, of which millions fit into little memory."""

from array import array
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from gpumon.core.text import safe_text
from gpumon.traces.kinds import KINDS, Kind

_MAX_NAME: Final = 400
_MAX_NAMES: Final = 400_000
_MAX_LANES: Final = 4096
_OTHER: Final = "(other)"
_MAX_MICROSECONDS: Final = 3e15
"""Times beyond it do not fit into the columns; those of Kineto are microseconds since 1970 at most."""
_MAX_CORRELATION: Final = 1 << 62
_GPU_KINDS: Final = frozenset((Kind.KERNEL, Kind.COPY, Kind.MEMSET))


class LaneKey(NamedTuple):
    """What identifies a lane: the process and the thread, or the device and the stream."""

    process: str
    thread: str
    is_device: bool


class CopyFacts(NamedTuple):
    """What a copy on the GPU reports about itself."""

    size_bytes: int | None


class CollectiveFacts(NamedTuple):
    """What a communication kernel reports about itself."""

    name: str
    group: str
    size: int | None


class EventTable:
    """Columns with one entry for each complete event.

    Attributes:
        begins: Begin of each event in nanoseconds.
        ends: End of each event in nanoseconds.
        names: Index of its name in `texts`.
        lanes: Index of its lane in `lane_keys`.
        kinds: `Kind` of the event as a number.
        correlations: The number that an event on the GPU shares with the call that launched it; 0 for none.
        copies: The facts about copies, by the index of the event.
        collectives: The facts about communication kernels, by the index of the event.
        event_waits: Of waits of a stream for a CUDA event, by the index of their event: the other stream, and the
            correlation of the call that recorded the event.
        call_stacks: The stack that an operator was called with, by the index of the event, innermost frame first.
        rejected: Number of events whose values no trace can have.
    """

    def __init__(self) -> None:
        self.begins = array("q")
        self.ends = array("q")
        self.names = array("I")
        self.lanes = array("H")
        self.kinds = array("B")
        self.correlations = array("q")
        self.texts: list[str] = []
        self.lane_keys: list[LaneKey] = []
        self.copies: dict[int, CopyFacts] = {}
        self.collectives: dict[int, CollectiveFacts] = {}
        self.event_waits: dict[int, tuple[str, int]] = {}
        self.call_stacks: dict[int, int] = {}
        self.process_names: dict[str, str] = {}
        self.thread_names: dict[tuple[str, str], str] = {}
        self.rejected = 0
        self.counts = [0] * (max(Kind) + 1)
        self._text_numbers: dict[str, int] = {}
        self._lane_numbers: dict[tuple[object, object, bool], int] = {}

    def __len__(self) -> int:
        return len(self.begins)

    def sort(self, indexes: list[int]) -> None:
        """Sort events by their begin, and of those that begin together, the longest first."""
        indexes.sort(key=self.ends.__getitem__, reverse=True)  # two stable sorts: keys of two numbers take more memory
        indexes.sort(key=self.begins.__getitem__)

    def add_all(self, events: Iterable[Any]) -> None:
        """Add events of a trace; what is not an event with a known kind is left out."""
        for event in events:
            try:
                phase = event["ph"]
                if phase == "X":
                    kind = KINDS.get(event["cat"])
                    if kind is not None:
                        self._add(event, kind)
                elif phase == "M":
                    self._add_metadata(event)
            except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
                self.rejected += 1

    def _add(self, event: dict[str, Any], kind: Kind) -> None:
        begin, duration = event["ts"], event.get("dur", 0)
        if type(begin) is str or type(duration) is str:  # some exporters quote numbers
            begin, duration = float(begin), float(duration)
        if not (-_MAX_MICROSECONDS < begin < _MAX_MICROSECONDS and 0 <= duration < _MAX_MICROSECONDS):
            raise ValueError("out of range")
        name = event["name"]
        number = self._text_numbers.get(name)
        if number is None:
            number = self._add_text(name)
        is_device = kind in _GPU_KINDS or kind is Kind.GPU_ANNOTATION or kind is Kind.CUDA_SYNC
        lane_key = (event["pid"], event["tid"], is_device)
        lane = self._lane_numbers.get(lane_key)
        if lane is None:
            lane = self._add_lane(lane_key)
        correlation = 0
        args = event.get("args")
        if args and (is_device or kind is Kind.RUNTIME):
            correlation = args.get("correlation", 0)
            if type(correlation) is not int or not 0 <= correlation < _MAX_CORRELATION:
                correlation = 0
            if is_device:
                self._add_facts(kind, args)
        elif args and kind is Kind.OPERATOR and "Call stack" in args:
            stack = args["Call stack"]
            self.call_stacks[len(self.begins)] = self.number_of(stack if type(stack) is str else "")
        first = round(begin * 1000)
        self.begins.append(first)
        self.ends.append(first + round(duration * 1000))
        self.names.append(number)
        self.lanes.append(lane)
        self.kinds.append(kind)
        self.correlations.append(correlation)
        self.counts[kind] += 1

    def _add_facts(self, kind: Kind, args: dict[str, Any]) -> None:
        """Add what work on a GPU reports about itself."""
        if kind is Kind.COPY:
            size = args.get("bytes")
            self.copies[len(self.begins)] = CopyFacts(size if type(size) is int and size >= 0 else None)
        elif kind is Kind.KERNEL and "Collective name" in args:
            size = args.get("In msg nelems")
            self.collectives[len(self.begins)] = CollectiveFacts(
                safe_text(str(args["Collective name"]), 60),
                safe_text(str(args.get("Process Group Description") or args.get("Process Group Name") or ""), 60),
                size if type(size) is int and size >= 0 else None,
            )
        elif kind is Kind.CUDA_SYNC:
            record = args.get("wait_on_cuda_event_record_corr_id")
            if args.get("cuda_sync_kind") == "Stream Wait Event" and type(record) is int:
                self.event_waits[len(self.begins)] = (str(args.get("wait_on_stream")), record)

    def number_of(self, text: str) -> int:
        """The index of a text in `texts`."""
        number = self._text_numbers.get(text)
        return self._add_text(text) if number is None else number

    def _add_text(self, raw: object) -> int:
        if type(raw) is not str:
            raise TypeError("no text")
        key = raw if len(self.texts) < _MAX_NAMES else _OTHER
        if key not in self._text_numbers:
            self._text_numbers[key] = len(self.texts)
            self.texts.append(safe_text(key, _MAX_NAME))
        return self._text_numbers[key]

    def _add_lane(self, lane_key: tuple[object, object, bool]) -> int:
        process, thread, is_device = lane_key
        if not isinstance(process, (int, str)) or not isinstance(thread, (int, str)):
            raise TypeError("no process or thread")
        if len(self.lane_keys) >= _MAX_LANES:
            raise ValueError("too many lanes")
        self._lane_numbers[lane_key] = len(self.lane_keys)
        self.lane_keys.append(LaneKey(safe_text(str(process), 40), safe_text(str(thread), 40), is_device))
        return len(self.lane_keys) - 1

    def _add_metadata(self, event: dict[str, Any]) -> None:
        name, process = event["name"], safe_text(str(event.get("pid", "")), 40)
        if name == "process_name" and len(self.process_names) < _MAX_LANES:
            self.process_names[process] = safe_text(str(event["args"]["name"]), 80)
        elif name == "thread_name" and len(self.thread_names) < _MAX_LANES:
            key = (process, safe_text(str(event.get("tid", "")), 40))
            self.thread_names[key] = safe_text(str(event["args"]["name"]), 80)
