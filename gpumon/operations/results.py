"""Saved results as a history: runs of one workload with the same parameters on the same kind of device, over time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gpumon.core.groups import grouped
from gpumon.core.json_text import json_line
from gpumon.core.model import short_product_name
from gpumon.core.units import StartTime
from gpumon.core.workload_metrics import Measurement
from gpumon.operations.workload import MetricChange, measurements_of, metric_changes
from gpumon.workload_runs.results import GOOD_VERDICTS, is_comparable, saved_results

_CPU: Final = "CPU"


@dataclass(frozen=True, slots=True)
class SavedResult:
    """A result that was saved.

    Attributes:
        time_seconds: Unix time of the start.
        workload: Name of the workload.
        device: The device in CUDA's numbering, such as ``cuda:0``, or ``cpu``.
        uuid: UUID of the GPU, or None.
        device_name: The GPU, such as ``H200``; on the CPU its host, since processors of hosts differ.
        host: The host, or None in a result of an earlier version.
        driver: Version of the driver, or None.
        torch: Version of torch, or None.
        verdict: The verdict.
        parameters: The parameters, as JSON.
        measurements: The measured values.
        record: The complete record.
    """

    time_seconds: float
    workload: str
    device: str
    uuid: str | None
    device_name: str
    host: str | None
    driver: str | None
    torch: str | None
    verdict: str
    parameters: str
    measurements: tuple[Measurement, ...]
    record: Mapping[str, Any]

    @property
    def group(self) -> tuple[str, str, str]:
        """Workload, device and parameters."""
        return self.workload, self.device_name, self.parameters


class ComparedResult(NamedTuple):
    """A result and the changes since the previous comparable one."""

    result: SavedResult
    changes: tuple[MetricChange, ...]


class ResultGroup(NamedTuple):
    """Results of a workload with the same parameters on devices of the same name.

    Attributes:
        workload: Name of the workload.
        device_name: The GPU, or the CPU of a host.
        parameters: The parameters by name.
        results: The results, newest first.
    """

    workload: str
    device_name: str
    parameters: Mapping[str, Any]
    results: tuple[ComparedResult, ...]

    @property
    def hosts(self) -> list[str]:
        """The hosts on which it ran, the one with the newest result first."""
        return list(dict.fromkeys(item.result.host for item in self.results if item.result.host is not None))


class ResultFilter(NamedTuple):
    """Which results are asked for; an empty text and None ask for all.

    Attributes:
        workload: Name of the workload.
        device: A part of the name of the GPU, a device such as ``cuda:0`` or ``cpu``, or the start of a UUID.
        host: Name of the host.
        since: The earliest time.
    """

    workload: str = ""
    device: str = ""
    host: str = ""
    since: StartTime | None = None

    def accepts(self, result: SavedResult, now: float) -> bool:
        """Whether a result is asked for at a Unix time."""
        wanted = self.device.lower()
        is_device = (
            wanted == result.device
            or (wanted != _CPU.lower() and wanted in result.device_name.lower())
            or (result.uuid or "").lower().startswith(wanted)
        )
        return (
            self.workload in {"", result.workload}
            and is_device
            and self.host in {"", result.host}
            and result.time_seconds >= self._earliest(now)
        )

    def _earliest(self, now: float) -> float:
        if self.since is None:
            return 0.0
        if self.since.time_seconds is not None:
            return self.since.time_seconds
        return now - (self.since.last_seconds or 0.0)


def read_history(wanted: ResultFilter, now: float) -> list[ResultGroup]:
    """The saved results that are asked for, in groups, the one with the newest result first."""
    known = (saved_result(record) for record in saved_results())
    results = sorted((result for result in known if result is not None), key=lambda result: result.time_seconds)
    groups = grouped((compared.result.group, compared) for compared in _compared(results))
    chosen = [[item for item in reversed(group) if wanted.accepts(item.result, now)] for group in groups.values()]
    newest_first = sorted(filter(None, chosen), key=lambda group: group[0].result.time_seconds, reverse=True)
    return [_group(items) for items in newest_first]


def saved_result(record: Mapping[str, Any]) -> SavedResult | None:
    """A record of the file, or None if something is missing: the user may have edited the file."""
    seconds, parameters = record.get("time_seconds"), record.get("parameters")
    workload, device, verdict = (record.get(name) for name in ("workload", "device", "verdict"))
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not isinstance(parameters, dict):
        return None
    if not (isinstance(workload, str) and isinstance(device, str) and isinstance(verdict, str)):
        return None
    uuid, name, host, driver, torch = (
        _text(record.get(field)) for field in ("uuid", "device_name", "host", "driver", "torch")
    )
    cpu = f"{_CPU} of {host}" if host else _CPU
    return SavedResult(
        float(seconds),
        workload,
        device,
        uuid,
        short_product_name(name) or cpu,
        host,
        driver,
        torch,
        verdict,
        json_line(dict(sorted(parameters.items()))),
        measurements_of(record),
        record,
    )


def _compared(results: Iterable[SavedResult]) -> Iterable[ComparedResult]:
    """Each result, oldest first, with its changes since the newest earlier one of the same device and host."""
    latest: dict[tuple[str, str, str, str | None], dict[str | None, SavedResult]] = {}
    for result in results:
        by_host = latest.setdefault((*result.group, result.uuid), {})
        comparable = (earlier for earlier in by_host.values() if is_comparable(earlier.record, result.record))
        before = max(comparable, key=lambda earlier: earlier.time_seconds, default=None)
        yield ComparedResult(result, metric_changes(() if before is None else before.measurements, result.measurements))
        if result.verdict in GOOD_VERDICTS:
            by_host[result.host] = result


def _group(items: list[ComparedResult]) -> ResultGroup:
    newest = items[0].result
    return ResultGroup(newest.workload, newest.device_name, newest.record["parameters"], tuple(items))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
