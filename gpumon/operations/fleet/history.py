"""The GPUs of one host over time, from Prometheus: a stream like those of this host and of recordings."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, Frame, Host, MigInstance
from gpumon.core.problems import Problem, ProblemCode
from gpumon.fleet.exporters import EXPORTERS, is_blank
from gpumon.fleet.model import FleetError, FleetGpu
from gpumon.fleet.query import IDENTITY, MIG_LABEL, UUIDS, selector
from gpumon.fleet.settings import FleetSettings
from gpumon.streams.base import ThreadStream

HISTORY_SECONDS: Final = 3600.0
_MAX_BYTES: Final = 16 << 20
_NOT_REPORTED: Final = Problem(ProblemCode.NOT_SUPPORTED, "The exporter does not report it.")
_NO_SAMPLE: Final = Problem(ProblemCode.NOT_READ, "Prometheus has no sample of this time.")
_HOST_FIELDS: Final = ("cpu_percent", "load", "memory_total_bytes", "memory_available_bytes", "uptime_seconds")
_FACTORS: Final = {
    name: (metric.id, metric.factor) for exporter in EXPORTERS for name, metric in exporter.metrics.items()
}
_Readings = dict[int, dict[str, float]]
"""Readings by the position of the GPU."""


class HostHistoryStream(ThreadStream):
    """Frames of a host: the last hour at once, then a frame per interval.

    The GPUs have UUIDs and the same host.
    """

    def __init__(
        self, settings: FleetSettings, gpus: Sequence[FleetGpu], history_seconds: float = HISTORY_SECONDS
    ) -> None:
        super().__init__(gpus[0].host, "gpumon-host-history")
        self.keys = tuple(map(device_key, gpus))
        self._settings = settings
        self._gpus = gpus
        self._positions = {key.lower(): position for position, key in enumerate(self.keys)}
        self._history_seconds = history_seconds
        self._step = max(1.0, settings.interval_seconds)

    def _run(self) -> None:
        newest = self._aligned(time.time() - self._history_seconds)
        while not self._closing.is_set():
            end = self._aligned(time.time())
            try:
                frames = self._read(newest + self._step, end) if end > newest else []
                self._problem = None
            except FleetError as error:
                frames = []
                self._problem = error.problem
            if frames:
                newest = frames[-1].time_seconds
            if self._closing.is_set():
                return
            self.inbox.put(*frames)
            self._closing.wait(self._step)

    def _aligned(self, seconds: float) -> float:
        """The latest moment that is a multiple of the step, so that queries continue each other."""
        return seconds // self._step * self._step

    def _read(self, start: float, end: float) -> list[Frame]:
        """The frames of a time range, without moments of which nothing is known.

        Raises:
            FleetError: There is no complete answer.
        """
        from gpumon.fleet.prometheus import Prometheus  # late: few sessions read Prometheus

        prometheus = Prometheus(replace(self._settings.address, max_bytes=_MAX_BYTES))
        moments: dict[float, _Readings] = {}
        with prometheus.reading():
            query = host_query(self._gpus, self._settings.match)
            for labels, points in prometheus.query_range(query, start, end, self._step):
                self._add(moments, labels, points)
        return [self._frame(seconds, moments[seconds]) for seconds in sorted(moments)]

    def _add(
        self, moments: dict[float, _Readings], labels: Mapping[str, str], points: Iterable[tuple[float, float]]
    ) -> None:
        uuid = next((labels[name] for name in UUIDS if labels.get(name)), "")
        position = self._positions.get(_key(uuid, labels.get(MIG_LABEL, "")).lower())
        source = _FACTORS.get(labels.get("__name__", ""))
        if position is None or source is None:
            return
        metric_id, factor = source
        for seconds, value in points:
            if not is_blank(value) and (metric_id not in METRICS or METRICS[metric_id].admits(value * factor)):
                moments.setdefault(seconds, {}).setdefault(position, {})[metric_id] = value * factor

    def _frame(self, seconds: float, readings: _Readings) -> Frame:
        host = Host(self.title, problems=dict.fromkeys(_HOST_FIELDS, _NOT_REPORTED))
        devices = tuple(_device(gpu, position, readings.get(position)) for position, gpu in enumerate(self._gpus))
        return Frame(seconds, seconds, self._step, host, devices=devices)


def host_query(gpus: Sequence[FleetGpu], match: str = "") -> str:
    """The query for every metric of some GPUs."""
    names = {gpu.exporter for gpu in gpus}
    parts = []
    for exporter in (exporter for exporter in EXPORTERS if exporter.name in names):
        uuids = "|".join(sorted({_escaped(gpu.uuid) for gpu in gpus if gpu.exporter == exporter.name}))
        for label in exporter.uuids:
            matchers = ",".join(filter(None, (match, f'{label}=~"{uuids}"')))
            parts.append(f"max by (__name__, {', '.join(IDENTITY)}) ({selector(matchers, *exporter.metrics)})")
    return " or ".join(parts)


def device_key(gpu: FleetGpu) -> str:
    """The key of a GPU as a device.

    MIG devices have their own UUIDs, or in Prometheus that of their GPU, which their own id follows.
    """
    mig = "" if gpu.uuid.startswith("MIG-") else gpu.label.partition(":")[2]
    return _key(gpu.uuid, mig) or f"index:{gpu.label}"


def _key(uuid: str, mig: str) -> str:
    return f"{uuid}/{mig}" if mig else uuid


def _escaped(uuid: str) -> str:
    """A UUID in a regular expression in a PromQL string."""
    return re.escape(uuid).replace("\\-", "-").replace("\\", "\\\\").replace('"', '\\"')


def _device(gpu: FleetGpu, position: int, readings: Mapping[str, float] | None) -> Device:
    index, _, mig = gpu.label.partition(":")
    number = int(index) if index.isascii() and index.isdecimal() and len(index) < 9 else position
    known = _with_memory(readings or {})
    problem = _NO_SAMPLE if readings is None else _NOT_REPORTED
    problems = {name: problem for name in METRICS if name not in known} | {"processes": _NOT_REPORTED}
    instance = None
    with suppress(ValueError):
        instance = MigInstance(gpu.uuid, int(mig), int(mig)) if mig else None
    return Device(
        number,
        uuid=device_key(gpu) or f"{gpu.host}/{gpu.label}",
        instance=instance,
        name=gpu.model or None,
        age_seconds=None if readings is None else 0.0,
        readings=known,
        problems=problems,
    )


def _with_memory(readings: Mapping[str, float]) -> Mapping[str, float]:
    """The readings with the total of the memory, of which dcgm-exporter reports the parts."""
    used, free = readings.get("memory_used_bytes"), readings.get("memory_free_bytes")
    if "memory_total_bytes" in readings or used is None or free is None:
        return readings
    return {**readings, "memory_total_bytes": used + free + readings.get("memory_reserved_bytes", 0.0)}
