"""The frame codec: one `Frame` is one line of JSON.

The same document is a line of a recording, a message of the collector and, with alerts added, the output of
``gpumon status --json``. A line contains each reason of a missing value only once, see `gpumon.core.problem_table`.
Lines are independent, so a recording can be cut, joined and truncated anywhere.

Decoding trusts nothing: types are checked, text is made safe, and a reading outside its metric's bounds is replaced by
a problem.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Final

from gpumon.core.json_fields import Json, as_integer, as_number, as_object, as_text, as_tuple, required
from gpumon.core.json_text import json_line
from gpumon.core.metrics import METRICS
from gpumon.core.model import (
    DEVICE_ATTRIBUTES,
    HOST_RATES,
    CallCost,
    Device,
    DeviceEvent,
    DeviceState,
    Frame,
    Host,
    MigInstance,
    Process,
    ProcessKind,
    Sweep,
)
from gpumon.core.problem_table import ProblemTableReader, ProblemTableWriter, parse_problems, with_problems
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_AddProblems = Callable[[Json, Mapping[str, Problem]], Json]
"""Adds to a record the problems of the fields that it lacks."""

SCHEMA: Final = 1
MAX_LINE_BYTES: Final = 16 << 20
_MAX_INTERVAL_SECONDS: Final = 86_400.0
"""Longer than any interval that gpumon accepts."""
_MAX_CLOCK_SECONDS: Final = 1e11
"""The year 5138; calendars and columns of history overflow at larger numbers."""
NOT_RECORDED: Final = Problem(ProblemCode.NOT_READ, "Not in this recording.")
"""Problem of a field that did not exist in the version of gpumon that made the recording."""


class FrameError(Exception):
    """A line is not a frame. The code of ``problem`` is `NEWER_SCHEMA` if only a newer gpumon can read the line."""

    def __init__(self, reason: str, code: ProblemCode = ProblemCode.DAMAGED, remedy: str = "") -> None:
        super().__init__(reason)
        self.problem = Problem(code, reason, remedy)


def encode(frame: Frame) -> str:
    """Encode a frame as one line of JSON, without the line feed."""
    table = ProblemTableWriter()
    document = _frame_document(frame, table.add)
    document["reasons"] = table.document()
    return json_line(document)


def decode(line: str | bytes) -> Frame:
    """Decode the frame in a line.

    Raises:
        FrameError: The line is truncated, not a frame, or made by a newer gpumon.
    """
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not a line of JSON: {error}") from None
    if type(raw) is not dict or "schema" not in raw:
        raise FrameError("not a frame of gpumon: there is no schema")
    if raw["schema"] != SCHEMA:
        raise FrameError(
            f"made with schema {safe_text(str(raw['schema']), 20)}, this gpumon reads schema {SCHEMA}",
            ProblemCode.NEWER_SCHEMA,
            "Replay it with the version of gpumon that recorded it.",
        )
    try:
        return _frame(raw)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise FrameError(f"a field of the frame is invalid: {safe_text(str(error), 200)}") from None


def to_document(frame: Frame) -> Json:
    """Convert a frame to a JSON document. Missing values are null, with the reasons in ``problems`` of their record."""
    return _frame_document(frame, with_problems)


def _frame_document(frame: Frame, add_problems: _AddProblems) -> Json:
    host = frame.host
    sweep = frame.sweep
    document = {
        "schema": SCHEMA,
        "time_seconds": round(frame.time_seconds, 3),
        "monotonic_seconds": round(frame.monotonic_seconds, 3),
        "interval_seconds": frame.interval_seconds,
        "host": _host_document(host),
        "driver_version": frame.driver_version,
        "cuda_driver_version": frame.cuda_driver_version,
        "devices": [_device_document(device, add_problems) for device in frame.devices],
        "sweep": {
            "seconds": sweep.seconds,
            "nvml_calls": sweep.calls,
            "nvml_errors": sweep.errors,
            "threads_stuck": sweep.threads_stuck,
            "values_refused": sweep.refused,
            **({"calls_by_name": [asdict(cost) for cost in sweep.calls_by_name]} if sweep.calls_by_name else {}),
        },
        "events": [asdict(event) for event in frame.events],
        **({"reports": frame.reports} if frame.reports else {}),
    }
    return with_problems(document, frame.problems)


def _host_document(host: Host) -> Json:
    document = {
        "name": host.name,
        "cpu_count": host.cpu_count,
        "cpu_percent": host.cpu_percent,
        "load_average": host.load,
        "memory_total_bytes": host.memory_total_bytes,
        "memory_available_bytes": host.memory_available_bytes,
        "uptime_seconds": host.uptime_seconds,
        **{field: getattr(host, field) for field in HOST_RATES},
    }
    return with_problems(document, host.problems)


def _device_document(device: Device, add_problems: _AddProblems) -> Json:
    readings, processes = device.readings, device.processes
    document = {
        "index": device.index,
        "cuda_index": device.cuda_index,
        "uuid": device.uuid,
        **({} if device.instance is None else {"mig_instance": asdict(device.instance)}),
        "pci_bus_id": device.pci_bus_id,
        "name": device.name,
        "architecture": device.architecture,
        **{field: getattr(device, field) for field in DEVICE_ATTRIBUTES},
        **{metric: readings.get(metric) for metric in METRICS},
        **({"ranges": device.ranges} if device.ranges else {}),
        "throttle_reasons": device.throttle_reasons,
        "state": device.state.value,
        "age_seconds": device.age_seconds,
        **({} if device.sm_age_seconds is None else {"sm_age_seconds": device.sm_age_seconds}),
        "processes": None if processes is None else [_process_document(process, add_problems) for process in processes],
    }
    return add_problems(document, device.problems)


def _process_document(process: Process, add_problems: _AddProblems) -> Json:
    document = {
        "pid": process.pid,
        "kinds": [kind.value for kind in process.kinds],
        "user": process.user,
        "command": process.command,
        "memory_bytes": process.memory_bytes,
        "cpu_percent": process.cpu_percent,
        "host_memory_bytes": process.host_memory_bytes,
        "age_seconds": process.age_seconds,
        "sm_percent": process.sm_percent,
    }
    if process.start_ticks is not None:
        document["start_ticks"] = process.start_ticks
    return add_problems(document, process.problems)


def _frame(raw: Json) -> Frame:
    sweep = as_object(raw.get("sweep"))
    table = ProblemTableReader(raw.get("reasons"))
    return Frame(
        time_seconds=_seconds(raw["time_seconds"], _MAX_CLOCK_SECONDS),
        monotonic_seconds=_seconds(raw["monotonic_seconds"], _MAX_CLOCK_SECONDS),
        interval_seconds=_seconds(raw["interval_seconds"], _MAX_INTERVAL_SECONDS),
        host=_host(as_object(raw.get("host"))),
        driver_version=as_text(raw.get("driver_version")),
        cuda_driver_version=as_text(raw.get("cuda_driver_version")),
        devices=as_tuple(raw["devices"], partial(_device, table)),
        sweep=Sweep(
            seconds=as_number(sweep.get("seconds")),
            calls=as_integer(sweep.get("nvml_calls")) or 0,
            errors=as_integer(sweep.get("nvml_errors")) or 0,
            threads_stuck=as_integer(sweep.get("threads_stuck")) or 0,
            refused=as_integer(sweep.get("values_refused")) or 0,
            calls_by_name=as_tuple(sweep.get("calls_by_name", []), _call_cost),
        ),
        events=as_tuple(raw.get("events", []), _event),
        problems=parse_problems(raw),
        reports=as_object(raw.get("reports")),
    )


def _call_cost(raw: Json) -> CallCost:
    return CallCost(
        call=required(as_text(raw["call"])),
        count=required(as_integer(raw["count"])),
        errors=required(as_integer(raw["errors"])),
        seconds=required(as_number(raw["seconds"])),
        longest_seconds=required(as_number(raw["longest_seconds"])),
    )


def _event(raw: Json) -> DeviceEvent:
    return DeviceEvent(
        device_key=required(as_text(raw["device_key"])),
        xid=required(as_integer(raw["xid"])),
        time_seconds=_seconds(raw["time_seconds"], _MAX_CLOCK_SECONDS),
        monotonic_seconds=_seconds(raw["monotonic_seconds"], _MAX_CLOCK_SECONDS),
    )


def _seconds(raw: object, maximum: float) -> float:
    """A required time that is not negative.

    Raises:
        ValueError: The time is out of range.
    """
    seconds = required(as_number(raw))
    if not 0 <= seconds <= maximum:
        raise ValueError(f"{seconds:g} s is out of range")
    return seconds


def _host(raw: Json) -> Host:
    load = raw.get("load_average")
    if load is not None:
        one, five, fifteen = (required(as_number(average)) for average in load)
        load = (one, five, fifteen)
    problems = dict(parse_problems(raw))
    for field in HOST_RATES:
        if field not in raw:
            problems.setdefault(field, NOT_RECORDED)
    return Host(
        name=as_text(raw.get("name")),
        cpu_count=as_integer(raw.get("cpu_count")),
        cpu_percent=as_number(raw.get("cpu_percent")),
        load=load,
        memory_total_bytes=as_integer(raw.get("memory_total_bytes")),
        memory_available_bytes=as_integer(raw.get("memory_available_bytes")),
        uptime_seconds=as_number(raw.get("uptime_seconds")),
        **{field: as_number(raw.get(field)) for field in HOST_RATES},
        problems=problems,
    )


def _device(table: ProblemTableReader, raw: Json) -> Device:
    problems = dict(table.problems_of(raw))
    readings: dict[str, float] = {}
    for metric_id, metric in METRICS.items():
        value = as_number(raw.get(metric_id))
        if value is None:
            if metric_id not in raw:
                problems.setdefault(metric_id, NOT_RECORDED)
        elif metric.admits(value):
            readings[metric_id] = value
        else:
            problems[metric_id] = Problem(ProblemCode.INVALID_VALUE, f"{value:g} is out of range")
    reasons = raw.get("throttle_reasons")
    processes = raw.get("processes")
    return Device(
        index=required(as_integer(raw["index"])),
        cuda_index=as_integer(raw.get("cuda_index")),
        uuid=as_text(raw.get("uuid")),
        instance=_instance(as_object(raw.get("mig_instance"))),
        pci_bus_id=as_text(raw.get("pci_bus_id")),
        name=as_text(raw.get("name")),
        architecture=as_text(raw.get("architecture")),
        **_attributes(raw, problems),
        state=DeviceState(raw["state"]),
        age_seconds=as_number(raw.get("age_seconds")),
        sm_age_seconds=as_number(raw.get("sm_age_seconds")),
        readings=readings,
        ranges=_ranges(as_object(raw.get("ranges")), readings) if "ranges" in raw else {},
        throttle_reasons=None if reasons is None else tuple(safe_text(str(reason), 64) for reason in reasons),
        processes=None if processes is None else as_tuple(processes, partial(_process, table)),
        problems=problems,
    )


def _ranges(raw: Json, readings: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """The lowest and the highest value of metrics; a range that contradicts the mean or the bounds is left out."""
    ranges: dict[str, tuple[float, float]] = {}
    for metric_id, mean in readings.items():
        low, high = map(as_number, raw.get(metric_id, (None, None)))
        admits = METRICS[metric_id].admits
        if low is not None and high is not None and low <= mean <= high and admits(low) and admits(high):
            ranges[metric_id] = low, high
    return ranges


def _instance(raw: Json) -> MigInstance | None:
    if not raw:
        return None
    return MigInstance(
        parent=required(as_text(raw["parent"])),
        position=required(as_integer(raw["position"])),
        gpu_instance_id=as_integer(raw.get("gpu_instance_id")),
        compute_instance_id=as_integer(raw.get("compute_instance_id")),
    )


def _attributes(raw: Json, problems: dict[str, Problem]) -> Json:
    """The attributes of a device, by field; an unknown value is missing."""
    attributes: Json = {}
    for field, make in DEVICE_ATTRIBUTES.items():
        text = as_text(raw.get(field))
        if text is not None:
            try:
                attributes[field] = make(text)
            except ValueError:
                problems[field] = Problem(ProblemCode.INVALID_VALUE, f"Unknown to this version of gpumon: {text}.")
        elif field not in raw:
            problems.setdefault(field, NOT_RECORDED)
    return attributes


@lru_cache(maxsize=64)
def _kinds(names: tuple[str, ...]) -> tuple[ProcessKind, ...]:
    """The kinds of a process: thousands of processes have the same few."""
    return tuple(map(ProcessKind, names))


def _process(table: ProblemTableReader, raw: Json) -> Process:
    problems = table.problems_of(raw)
    if "sm_percent" not in raw and "sm_percent" not in problems:
        problems = {**problems, "sm_percent": NOT_RECORDED}
    return Process(
        pid=required(as_integer(raw["pid"])),
        kinds=_kinds(tuple(raw["kinds"])),
        memory_bytes=as_integer(raw.get("memory_bytes")),
        user=as_text(raw.get("user")),
        command=as_text(raw.get("command")),
        cpu_percent=as_number(raw.get("cpu_percent")),
        host_memory_bytes=as_integer(raw.get("host_memory_bytes")),
        age_seconds=as_number(raw.get("age_seconds")),
        sm_percent=as_number(raw.get("sm_percent")),
        start_ticks=as_integer(raw.get("start_ticks")),
        problems=problems,
    )
