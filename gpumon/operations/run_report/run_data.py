"""Everything that is known of a run, added up while it goes on, in memory that does not grow with its length."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from gpumon.core.model import DeviceState, Frame
from gpumon.core.throttle_reasons import THROTTLE_LABELS
from gpumon.core.units import bytes_text, counted, short_time_text
from gpumon.core.xids import xid_text
from gpumon.operations.run_report.gpu_use import GpuUse
from gpumon.operations.run_report.statistics import BoundedSeries, Histogram

_MAX_EVENTS: Final = 500
_STEP_COLUMNS: Final = 2000
_MAX_RANKS: Final = 64
_PAUSE_FACTOR: Final = 10.0
_MIN_PAUSE_SECONDS: Final = 5.0
_MAX_ACCOUNTS: Final = 200
_MEMORY: Final = ("allocated_bytes", "reserved_bytes")
_PEAK_OF: Final = {
    "allocated_bytes": "allocated_peak_bytes",
    "reserved_bytes": "reserved_peak_bytes",
    "inactive_split_bytes": "inactive_split_bytes",
}
"""A value, and the peak of it that PyTorch keeps itself."""


class RankUse:
    """The steps and the memory of one rank, from what its probe has sent."""

    def __init__(self, sample: Mapping[str, Any]) -> None:
        self.steps = BoundedSeries(_STEP_COLUMNS)
        self.memory = {name: BoundedSeries() for name in _MEMORY}
        self.durations = Histogram()
        self._first = self.latest = sample
        self._counted: tuple[int, float] | None = None
        self._data_seconds = 0.0
        self._collection_seconds = 0.0
        self._peaks: dict[str, float] = {}

    def add(self, sample: Mapping[str, Any]) -> str:
        """Add a sample; returns what happened since the one before, as a clause, or an empty text."""
        before, self.latest = self.latest, sample
        for name in _MEMORY:
            self.memory[name].add(sample["monotonic"], sample.get(name))
        for name in {*_PEAK_OF, *_PEAK_OF.values()}:
            if (value := sample.get(name)) is not None:
                self._peaks[name] = max(value, self._peaks.get(name, 0.0))
        happened = self._add_steps(sample)
        if (sample.get("ooms_count") or 0) > (before.get("ooms_count") or 0):
            return "ran out of memory"
        return happened

    def _add_steps(self, sample: Mapping[str, Any]) -> str:
        count, at = sample.get("steps_count"), sample.get("last_step_monotonic")
        if count is None or at is None:
            return ""
        before, self._counted = self._counted, (count, at)
        if before is None or count <= before[0] or at <= before[1]:
            return ""
        number = count - before[0]
        seconds = (at - before[1]) / number
        usual = self.durations.quantile(0.5)
        self.steps.add(at, seconds, number)
        self.durations.add(seconds, number)
        self._data_seconds += number * (sample.get("data_seconds") or 0.0)
        self._collection_seconds += number * (sample.get("collection_seconds") or 0.0)
        is_pause = usual and seconds * number > max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * usual * number)
        return f"paused: {short_time_text(seconds)} for {counted(number, 'step')}" if is_pause else ""

    def document(self) -> dict[str, Any]:
        """What is reported of the rank."""
        first = self._first
        steps = sum(count for _, count in self.durations.bars())
        total = sum(
            (mean or 0.0) * weight for mean, weight in zip(self.steps.means(), self.steps.weights(), strict=True)
        )
        return {
            "rank": first.get("rank"),
            "pid": first.get("pid"),
            "gpu_uuid": self.latest.get("gpu_uuid"),
            "steps_count": self.latest.get("steps_count"),
            "steps_measured": steps,
            "step_seconds": self.durations.quantile(0.5),
            "step_seconds_p10": self.durations.quantile(0.1),
            "step_seconds_p90": self.durations.quantile(0.9),
            "step_seconds_p99": self.durations.quantile(0.99),
            "mean_step_seconds": total / steps if steps else None,
            "data_share": self._data_seconds / total if total else None,
            "collection_share": self._collection_seconds / total if total else None,
            **{
                f"peak_{name}": max(self._peaks.get(name, 0.0), self._peaks.get(peak, 0.0)) or None
                for name, peak in _PEAK_OF.items()
            },
            **{name: self.latest.get(name) for name in ("ooms_count", "alloc_retries_count")},
            "series": {
                name: {"width_seconds": series.width_seconds, "values": series.means()}
                for name, series in self.memory.items()
            },
        }


class RunData:
    """A run: frames of its host and samples of its ranks, in the order of time."""

    def __init__(self) -> None:
        self.start: Mapping[str, Any] = {}
        self.end: Mapping[str, Any] = {}
        self.notes: list[str] = []
        self.explanation: Mapping[str, Any] | None = None
        self._gpus: dict[str, GpuUse] = {}
        self._states: dict[str, DeviceState] = {}
        self._ranks: dict[int, RankUse] = {}
        self._accounts: deque[Mapping[str, Any]] = deque(maxlen=_MAX_ACCOUNTS)
        self._events: list[dict[str, Any]] = []
        self._begin: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self._host: dict[str, Any] = {}

    def add_frame(self, frame: Frame) -> None:
        """Add a frame of the host."""
        self._see(frame.time_seconds, frame.monotonic_seconds)
        self._host = {
            "name": frame.host.name,
            "cpu_count": frame.host.cpu_count,
            "memory": bytes_text(frame.host.memory_total_bytes),
            "driver_version": frame.driver_version,
            "cuda_driver_version": frame.cuda_driver_version,
        }
        for device in frame.gpus:
            use = self._gpus.get(device.key) or self._gpus.setdefault(device.key, GpuUse())
            for reason in use.add(frame, device):
                self.add_event(frame.monotonic_seconds, f"GPU {device.index}", f"throttled: {THROTTLE_LABELS[reason]}")
            before = self._states.get(device.key)
            if device.state is not before and (before is not None or device.state is not DeviceState.OK):
                self.add_event(frame.monotonic_seconds, f"GPU {device.index}", device.state.value)
            self._states[device.key] = device.state
        labels = {device.key: f"GPU {device.index}" for device in frame.devices}
        for event in frame.events:
            self.add_event(event.monotonic_seconds, labels.get(event.device_key, "GPU"), xid_text(event.xid))

    def add_sample(self, sample: Mapping[str, Any]) -> None:
        """Add a line of the journal."""
        kind = sample.get("kind")
        self._see(sample["time"], sample["monotonic"])
        if kind == "start":
            self.start = sample
        elif kind == "end":
            self.end = sample
        elif kind == "account":
            self._accounts.append(sample)
        elif kind == "rank":
            use = self._ranks.get(sample["pid"])
            if use is None and len(self._ranks) < _MAX_RANKS:
                use = self._ranks[sample["pid"]] = RankUse(sample)
            happened = "" if use is None else use.add(sample)
            if happened:
                name = "process" if sample.get("rank") is None else f"rank {sample['rank']}"
                self.add_event(sample["monotonic"], name, happened)

    def document(self) -> dict[str, Any]:
        """The report as a document; `gpumon.operations.run_report.document` adds what it means."""
        begin = self._begin or (0.0, 0.0)
        ranks = [use.document() for use in self._ranks.values() if use.document()["steps_count"]]
        ranks.sort(key=lambda rank: (rank["rank"] or 0, rank["pid"]))
        used = {rank["gpu_uuid"] for rank in ranks} - {None}
        gpus = [use.document(self._last[1]) for use in self._gpus.values()]
        main = self._ranks.get(ranks[0]["pid"]) if ranks else None
        return {
            "command": self.start.get("command"),
            "start_time_seconds": begin[0],
            "end_time_seconds": self._last[0],
            "seconds": self._last[1] - begin[1],
            "start_monotonic_seconds": begin[1],
            "has_ended": bool(self.end),
            "exit_status": self.end.get("status"),
            "explanation": self.end.get("explanation") or self.explanation,
            "hang": self.end.get("hang"),
            "host": self._host or self.start.get("host") or {},
            "environment": self.start.get("environment") or {},
            "versions": {name: self._version(name) for name in ("torch_version", "python_version")},
            "gpus": [gpu for gpu in gpus if not used or gpu["uuid"] in used],
            "ranks": ranks,
            "steps": None
            if main is None
            else {
                "width_seconds": main.steps.width_seconds,
                "values": main.steps.means(),
                "counts": main.steps.weights(),
                "histogram": main.durations.bars(),
            },
            "accounts": [dict(account) for account in self._accounts],
            "events": sorted(self._events, key=lambda event: event["seconds"]),
            "problems": list(self.notes),
        }

    def _version(self, name: str) -> str | None:
        return next((value for use in self._ranks.values() if (value := use.latest.get(name))), None)

    def _see(self, time_seconds: float, monotonic: float) -> None:
        if self._begin is None:
            self._begin = (time_seconds, monotonic)
        if monotonic >= self._last[1]:
            self._last = (time_seconds, monotonic)

    def add_event(self, monotonic: float, subject: str, text: str) -> None:
        """Add what happened to a subject, such as ``GPU 3``, at a time on the clock of the frames."""
        if len(self._events) < _MAX_EVENTS:
            begin = self._begin[1] if self._begin is not None else monotonic
            self._events.append({"seconds": max(0.0, monotonic - begin), "subject": subject, "text": text})
