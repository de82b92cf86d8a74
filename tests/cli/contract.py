"""The contract of ``gpumon status --json``, independent of the code that writes the document."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

Json = dict[str, Any]
Types = tuple[type, ...]

NUMBER: Final = (int, float)
TEXT: Final = (str,)
INTEGER: Final = (int,)
LIST: Final = (list,)
OBJECT: Final = (dict,)

DOCUMENT: Final[Mapping[str, Types]] = {
    "schema": INTEGER, "time_seconds": NUMBER, "host": OBJECT, "driver_version": TEXT, "cuda_driver_version": TEXT,
    "devices": LIST, "problems": OBJECT, "alerts": LIST,
}  # fmt: skip
HOST: Final[Mapping[str, Types]] = {
    "name": TEXT, "cpu_count": INTEGER, "cpu_percent": NUMBER, "load_average": LIST, "memory_total_bytes": INTEGER,
    "memory_available_bytes": INTEGER, "uptime_seconds": NUMBER, "network_receive_bytes_per_second": NUMBER,
    "network_transmit_bytes_per_second": NUMBER, "disk_read_bytes_per_second": NUMBER,
    "disk_write_bytes_per_second": NUMBER, "problems": OBJECT,
}  # fmt: skip
DEVICE: Final[Mapping[str, Types]] = {
    "index": INTEGER, "cuda_index": INTEGER, "uuid": TEXT, "pci_bus_id": TEXT, "name": TEXT,
    "memory_total_bytes": INTEGER, "memory_used_bytes": INTEGER, "memory_reserved_bytes": INTEGER,
    "memory_free_bytes": INTEGER, "utilization_gpu_percent": NUMBER, "utilization_memory_percent": NUMBER,
    "temperature_celsius": NUMBER, "power_watts": NUMBER, "power_limit_watts": NUMBER, "clock_sm_hertz": INTEGER,
    "clock_memory_hertz": INTEGER, "throttle_reasons": LIST, "state": TEXT, "age_seconds": NUMBER, "processes": LIST,
    "alerts": LIST, "problems": OBJECT,
}  # fmt: skip
PROCESS: Final[Mapping[str, Types]] = {
    "pid": INTEGER, "kinds": LIST, "user": TEXT, "command": TEXT, "memory_bytes": INTEGER, "cpu_percent": NUMBER,
    "host_memory_bytes": INTEGER, "age_seconds": NUMBER, "problems": OBJECT,
}  # fmt: skip
ALERT: Final[Mapping[str, Types]] = {
    "id": TEXT, "severity": TEXT, "since_seconds": NUMBER, "detail": TEXT, "action": TEXT,
}  # fmt: skip
NEVER_NULL: Final = frozenset(
    {"schema", "time_seconds", "host", "devices", "index", "pid", "kinds", "state", "alerts", "problems", *ALERT}
)
STATES: Final = frozenset({"ok", "lost", "unresponsive", "excluded"})
SEVERITIES: Final = frozenset({"info", "warning", "critical"})


def violations(document: Json) -> list[str]:
    """Every place at which a document violates the contract."""
    return [f"{path}: {what}" for path, what in _document(document)]


def _document(document: Json) -> Iterator[tuple[str, str]]:
    yield from _fields("", document, DOCUMENT)
    if document["schema"] != 1:
        yield "schema", "is not 1"
    if document["driver_version"] is None and "driver" not in document["problems"]:
        yield "driver_version", "is null, and no problem of the driver gives the reason"
    yield from _reasons("", document["problems"])
    yield from _alerts("", document["alerts"])
    yield from _explained("host", document["host"], HOST)
    for device in document["devices"]:
        path = f"devices[{device['index']}]"
        yield from _explained(path, device, DEVICE)
        yield from _alerts(path, device["alerts"])
        if device["state"] not in STATES:
            yield path, f"is in the state {device['state']!r}"
        for process in device["processes"] or ():
            yield from _explained(f"{path}.processes[{process['pid']}]", process, PROCESS)


def _explained(path: str, record: Json, fields: Mapping[str, Types]) -> Iterator[tuple[str, str]]:
    """The fields of the contract exist, and every field that is null has a reason."""
    yield from _fields(path, record, fields)
    yield from _reasons(path, record["problems"])
    for name, value in record.items():
        if value is None and name not in record["problems"]:
            yield f"{path}.{name}", "is null without a reason"


def _fields(path: str, record: Json, fields: Mapping[str, Types]) -> Iterator[tuple[str, str]]:
    for name, types in fields.items():
        if name not in record:
            yield f"{path}.{name}", "does not exist"
        elif record[name] is None:
            if name in NEVER_NULL:
                yield f"{path}.{name}", "is null"
        elif type(record[name]) not in types:
            yield f"{path}.{name}", f"is {record[name]!r}"


def _reasons(path: str, problems: Json) -> Iterator[tuple[str, str]]:
    for name, problem in problems.items():
        if not (problem.get("code") and problem.get("reason")):
            yield f"{path}.problems.{name}", f"lacks a code or a reason: {problem}"


def _alerts(path: str, alerts: list[Json]) -> Iterator[tuple[str, str]]:
    for number, alert in enumerate(alerts):
        yield from _fields(f"{path}.alerts[{number}]", alert, ALERT)
        if alert["severity"] not in SEVERITIES or not (alert["id"] and alert["detail"]):
            yield f"{path}.alerts[{number}]", f"lacks a severity, an ID or a detail: {alert}"
