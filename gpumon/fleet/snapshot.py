"""Builds a snapshot of the fleet from the results of one query, in any order."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from typing import Final, NamedTuple

from gpumon.core.text import safe_text
from gpumon.fleet.exporters import EXPORTERS, NVIDIA_SMI, SHOWN_METRICS, Exporter, is_blank, pod_of, uuid_key
from gpumon.fleet.model import AGE, BUSIEST, LAST_XID, FleetGpu, FleetSnapshot
from gpumon.fleet.query import BUSIEST_OF, DOWN, INDEX, INFO, MIG_LABEL, OWNER, PART, SILENT, TIME_OF, UUIDS, XID

_MAX_LABEL: Final = 128
_MAX_GPUS: Final = 1 << 17
_PLAIN_LABELS: Final = 2
"""Labels of a value of a GPU without MIG: its name and the UUID."""

_Key = str
"""UUID as `uuid_key` returns it, for a MIG device followed by its id; a GPU without a UUID has its host and label."""


KnownGpus = dict[tuple[str, ...], tuple[_Key, FleetGpu]]
"""GPUs by the names and values of their labels."""


class _Origin(NamedTuple):
    """Where a metric comes from."""

    exporter: Exporter
    metric_id: str
    factor: float
    rank: int


_ORIGINS: Final = {
    name: _Origin(exporter, metric.id, metric.factor, rank)
    for rank, exporter in enumerate(EXPORTERS)
    for name, metric in exporter.metrics.items()
}
_PRIMARIES: Final = {exporter.primary: exporter for exporter in EXPORTERS}
_RANKS: Final = {exporter.name: rank for rank, exporter in enumerate(EXPORTERS)}


class _Owner(NamedTuple):
    """The user of a GPU with the most memory."""

    memory_bytes: float
    user: str
    job: str
    pod: str


class SnapshotBuilder:
    """Collects results; see `add`.

    Args:
        time_seconds: Unix time of the query.
        known: GPUs by their labels and values, which the builder completes; labels rarely change between two queries.
    """

    def __init__(self, time_seconds: float, known: KnownGpus | None = None) -> None:
        self._known: KnownGpus = {} if known is None else known
        self._time = time_seconds
        self._gpus: dict[_Key, FleetGpu] = {}
        self._values: dict[str, dict[_Key, float]] = {}
        self._ranks: dict[tuple[str, _Key], int] = {}
        self._owners: dict[str, _Owner] = {}
        self._vanished: dict[str, int] = {}
        """GPUs that report nothing now, by host."""
        self._down: set[str] = set()
        self._hosts: dict[str, str] = {}
        """Name of a host by its target."""
        self._keys: dict[str, _Key] = {}
        self._columns: dict[str, dict[_Key, float]] = {}
        """Columns of `_values` by the name of a metric of dcgm-exporter."""
        self._indexes: dict[_Key, str] = {}
        self._models: dict[_Key, str] = {}
        """Indexes and product names of exporters that report them apart from the other values."""
        self._ages: dict[str, float] = {}
        """Age of the oldest sample by host."""

    def add(self, labels: Mapping[str, str], value: float) -> None:
        """Add a result of `fleet_query`; what is not one of its results is ignored."""
        name = labels.get("__name__")
        if name is not None:
            origin = _ORIGINS.get(name)
            if origin is None:
                return
            if name in _PRIMARIES:
                self._set_reading(origin, self._add_gpu(labels, origin.exporter), value)
            elif origin.rank or self._ranks or len(labels) > _PLAIN_LABELS:
                self._set_reading(origin, self._key(labels), value)
            else:  # nearly all results: a value of dcgm-exporter
                column = self._columns.get(name)
                if column is None:
                    column = self._columns[name] = self._values.setdefault(origin.metric_id, {})
                uuid = labels.get("UUID") or labels.get("uuid", "")
                if not is_blank(value):
                    column[self._keys.get(uuid) or self._key(labels)] = value * origin.factor
        else:
            self._add_part(labels.get(PART, ""), labels, value)

    def _add_part(self, part: str, labels: Mapping[str, str], value: float) -> None:
        if part == OWNER:
            self._add_owner(labels, value)
        elif part == INDEX and not is_blank(value):
            self._indexes[self._key(labels)] = f"{value:.0f}"
        elif part == INFO:
            self._models[self._key(labels)] = safe_text(_first(labels, NVIDIA_SMI.models), _MAX_LABEL)
        elif part == SILENT:
            host = self._host(labels)
            self._vanished[host] = self._vanished.get(host, 0) + int(value)
        elif part == DOWN:
            self._down.add(labels.get("instance", ""))
        elif part == XID:
            number = labels.get("xid", "")
            xid = float(number[:6]) if number.isascii() and number.isdecimal() else value
            if not is_blank(xid):
                self._values.setdefault(LAST_XID, {})[self._key(labels)] = xid
        elif part.startswith(BUSIEST_OF):
            self._add_busiest(labels, value, part.removeprefix(BUSIEST_OF))
        elif part.startswith(TIME_OF) and not is_blank(value):
            host = self._host(labels)
            self._ages[host] = max(0.0, self._time - value, self._ages.get(host, 0.0))

    def build(self, seconds: float = 0.0, answer_bytes: int = 0) -> FleetSnapshot:
        """The snapshot.

        Args:
            seconds: How long the query took.
            answer_bytes: Size of the answer.
        """
        self._complete_memory()
        self._complete_identities()
        keys = sorted(self._gpus, key=lambda key: _sort_key(self._gpus[key]))
        gpus = tuple(self._with_owner(self._gpus[key], key) for key in keys)
        values = {
            metric_id: array("d", [by_key.get(key, nan) for key in keys]) for metric_id, by_key in self._values.items()
        }
        values[AGE] = array("d", [self._ages.get(gpu.host, nan) for gpu in gpus])
        hosts = {gpu.host for gpu in gpus}
        down = {self._hosts.get(target, _without_port(target)) for target in self._down}
        exporters = Counter(gpu.exporter for gpu in gpus)
        return FleetSnapshot(
            self._time,
            gpus,
            values,
            tuple(sorted((self._vanished.keys() | down) - hosts - {""})),
            {host: count for host, count in self._vanished.items() if host in hosts},
            dict(exporters),
            {name: missing_metrics(name, gpus, values) for name in exporters},
            seconds=seconds,
            answer_bytes=answer_bytes,
        )

    def _add_gpu(self, labels: Mapping[str, str], exporter: Exporter) -> _Key:
        """Add a GPU with all of its labels; returns its key."""
        labels_key = (*labels, *labels.values())
        known = self._known.get(labels_key)
        if known is None:
            known = self._known[labels_key] = self._identified(labels, exporter)
        key, gpu = known
        self._hosts.setdefault(labels.get("instance", ""), gpu.host)
        before = self._gpus.get(key)
        if (before is None and len(self._gpus) < _MAX_GPUS) or (before and _preference(gpu) < _preference(before)):
            self._gpus[key] = gpu
        return key

    def _identified(self, labels: Mapping[str, str], exporter: Exporter) -> tuple[_Key, FleetGpu]:
        """The key and the identity of a GPU."""
        host, label = self._host(labels, exporter), _first(labels, exporter.indexes)
        mig = labels.get(MIG_LABEL, "")
        key = self._key(labels)
        if not key:
            key = f"{host}/{label}/{mig}"
        gpu = FleetGpu(
            host,
            safe_text(f"{label}:{mig}" if mig else label, _MAX_LABEL),
            safe_text(_first(labels, exporter.uuids), _MAX_LABEL),
            safe_text(_first(labels, exporter.models), _MAX_LABEL),
            exporter.name,
            job=safe_text(_first(labels, exporter.jobs), _MAX_LABEL),
            pod=safe_text(pod_of(labels), _MAX_LABEL),
        )
        return key, gpu

    def _add_busiest(self, labels: Mapping[str, str], value: float, name: str) -> None:
        exporter = next((exporter for exporter in EXPORTERS if exporter.name == name), None)
        if exporter is not None:
            self._set_reading(_ORIGINS[exporter.primary]._replace(metric_id=BUSIEST), self._key(labels), value)

    def _add_owner(self, labels: Mapping[str, str], value: float) -> None:
        uuid = uuid_key(labels.get("uuid", ""))
        before = self._owners.get(uuid)
        if before is None or value > before.memory_bytes:
            texts = labels.get("user", ""), labels.get("hpc_job", ""), pod_of(labels)
            self._owners[uuid] = _Owner(value, *(safe_text(text, _MAX_LABEL) for text in texts))

    def _set_reading(self, origin: _Origin, key: _Key, value: float) -> None:
        """Set a value, unless it is blank or a better exporter has set it."""
        _, metric_id, factor, rank = origin
        if is_blank(value):
            return
        column = self._values.get(metric_id)
        if column is None:
            column = self._values[metric_id] = {}
        if rank:  # the usual case, that of dcgm-exporter, is not stored
            if key in column and rank > self._ranks.get((metric_id, key), 0):
                return
            self._ranks[metric_id, key] = rank
        elif self._ranks:
            self._ranks.pop((metric_id, key), None)
        column[key] = value * factor

    def _key(self, labels: Mapping[str, str]) -> _Key:
        """The key of a GPU, which is made once."""
        uuid = labels.get("UUID") or _first(labels, UUIDS)
        mig = labels.get(MIG_LABEL)
        if mig:
            return f"{uuid_key(uuid)}/{mig}"
        key = self._keys.get(uuid)
        if key is None:
            key = self._keys[uuid] = uuid_key(uuid)
        return key

    def _host(self, labels: Mapping[str, str], exporter: Exporter | None = None) -> str:
        """The host of a result of an exporter, or of any one."""
        target = labels.get("instance", "")
        exporters = EXPORTERS if exporter is None else (exporter,)
        names = (_first(labels, candidate.hosts) for candidate in exporters)
        host = safe_text(next(filter(None, names), ""), _MAX_LABEL) or _without_port(target)
        self._hosts.setdefault(target, host)
        return host

    def _complete_memory(self) -> None:
        """Calculate the total of exporters that report its parts."""
        used, free, reserved, total = (
            self._values.setdefault(f"memory_{part}_bytes", {}) for part in ("used", "free", "reserved", "total")
        )
        for key, free_bytes in free.items():
            if key in used and key not in total:
                total[key] = used[key] + free_bytes + reserved.get(key, 0.0)

    def _complete_identities(self) -> None:
        """Add indexes and product names to GPUs that have none."""
        for key in self._indexes.keys() | self._models.keys():
            gpu = self._gpus.get(key)
            if gpu is not None:
                label, model = gpu.label or self._indexes.get(key, ""), gpu.model or self._models.get(key, "")
                self._gpus[key] = gpu._replace(label=label, model=model)

    def _with_owner(self, gpu: FleetGpu, key: _Key) -> FleetGpu:
        owner = self._owners.get(key.partition("/")[0])
        if owner is None:
            return gpu
        return gpu._replace(user=owner.user, job=gpu.job or owner.job, pod=gpu.pod or owner.pod)


def missing_metrics(name: str, gpus: Sequence[FleetGpu], values: Mapping[str, "array[float]"]) -> tuple[str, ...]:
    """Metrics that no GPU of an exporter has."""
    return tuple(
        metric_id
        for metric_id in SHOWN_METRICS
        if metric_id not in values
        or not any(
            gpu.exporter == name and not isnan(value) for gpu, value in zip(gpus, values[metric_id], strict=True)
        )
    )


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _preference(gpu: FleetGpu) -> tuple[int, bool]:
    """Which of two series of a GPU counts: that of the better exporter, then one that names a job."""
    return _RANKS[gpu.exporter], not (gpu.job or gpu.pod)


def _without_port(target: str) -> str:
    host, colon, port = target.rpartition(":")
    return safe_text(host if colon and port.isdecimal() else target, _MAX_LABEL)


def _sort_key(gpu: FleetGpu) -> tuple[str, int, str]:
    number = gpu.label.partition(":")[0]
    return gpu.host, int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else 1 << 30, gpu.label
