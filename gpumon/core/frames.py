"""The frame codec: one `Frame`, one line of JSON.

The same document is a line of a recording, a message of the collector and, with alerts added, the answer of
``gpumon status --json``. Each line stands alone, so a recording can be cut, joined and torn anywhere.

Decoding trusts nothing: types are checked, text is made safe, and a reading outside its metric's bounds becomes a
missing one with its reason.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, DeviceState, Frame, Host, Process, ProcessKind, Sweep
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

SCHEMA: Final = 1
MAX_LINE_BYTES: Final = 64 << 20
COMMAND_LIMIT: Final = 512
_LARGEST_INTEGER: Final = 1 << 64  # JSON has no limit, and a longer one overflows where it meets a float

Json = dict[str, Any]
T = TypeVar("T")


class FrameError(Exception):
    """A line is not a frame. ``problem`` says why; it is `NEWER_SCHEMA` when only a newer gpumon can read it."""

    def __init__(self, reason: str, code: ProblemCode = ProblemCode.DAMAGED, remedy: str = "") -> None:
        super().__init__(reason)
        self.problem = Problem(code, reason, remedy)


def encode(frame: Frame) -> str:
    """The frame as one line of JSON, without the line feed."""
    return json.dumps(to_document(frame), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(line: str | bytes) -> Frame:
    """The frame in a line.

    Raises:
        FrameError: The line is torn, foreign or made by a newer gpumon.
    """
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not a line of JSON: {error}") from None
    if type(raw) is not dict or "schema" not in raw:
        raise FrameError("not a frame of gpumon: it has no schema")
    if raw["schema"] != SCHEMA:
        raise FrameError(
            f"made with schema {safe_text(str(raw['schema']), 20)}, this gpumon reads schema {SCHEMA}",
            ProblemCode.NEWER_SCHEMA,
            "Replay it with the version of gpumon that recorded it.",
        )
    try:
        return _frame(raw)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise FrameError(f"a field of the frame is wrong: {safe_text(str(error), 200)}") from None


def to_document(frame: Frame) -> Json:
    """The frame as the JSON document that `encode` writes. Missing values are null, their reasons in ``problems``."""
    host = frame.host
    sweep = frame.sweep
    return {
        "schema": SCHEMA,
        "time_seconds": round(frame.time_seconds, 3),
        "monotonic_seconds": round(frame.monotonic_seconds, 3),
        "interval_seconds": frame.interval_seconds,
        "host": {
            "name": host.name,
            "cpu_count": host.cpu_count,
            "cpu_percent": host.cpu_percent,
            "load_average": host.load,
            "memory_total_bytes": host.memory_total_bytes,
            "memory_available_bytes": host.memory_available_bytes,
            "uptime_seconds": host.uptime_seconds,
            "problems": _problems_document(host.problems),
        },
        "driver_version": frame.driver_version,
        "cuda_driver_version": frame.cuda_driver_version,
        "devices": [_device_document(device) for device in frame.devices],
        "sweep": {
            "seconds": sweep.seconds,
            "nvml_calls": sweep.calls,
            "nvml_errors": sweep.errors,
            "threads_stuck": sweep.threads_stuck,
        },
        "problems": _problems_document(frame.problems),
    }


def _device_document(device: Device) -> Json:
    readings = device.readings
    return {
        "index": device.index,
        "cuda_index": device.cuda_index,
        "uuid": device.uuid,
        "pci_bus_id": device.pci_bus_id,
        "name": device.name,
        "architecture": device.architecture,
        **{metric: readings.get(metric) for metric in METRICS},
        "throttle_reasons": device.throttle_reasons,
        "state": device.state.value,
        "age_seconds": device.age_seconds,
        "processes": None if device.processes is None else [_process_document(each) for each in device.processes],
        "problems": _problems_document(device.problems),
    }


def _process_document(process: Process) -> Json:
    return {
        "pid": process.pid,
        "kinds": [kind.value for kind in process.kinds],
        "user": process.user,
        "command": process.command,
        "memory_bytes": process.memory_bytes,
        "cpu_percent": process.cpu_percent,
        "host_memory_bytes": process.host_memory_bytes,
        "age_seconds": process.age_seconds,
        "problems": _problems_document(process.problems),
    }


def _problems_document(problems: Mapping[str, Problem]) -> Json:
    return {
        subject: {"code": problem.code.value, "reason": problem.reason}
        | ({"remedy": problem.remedy} if problem.remedy else {})
        for subject, problem in problems.items()
    }


def _frame(raw: Json) -> Frame:
    sweep = _object(raw.get("sweep"))
    return Frame(
        time_seconds=_required(_number(raw["time_seconds"])),
        monotonic_seconds=_required(_number(raw["monotonic_seconds"])),
        interval_seconds=_required(_number(raw["interval_seconds"])),
        host=_host(_object(raw.get("host"))),
        driver_version=_text(raw.get("driver_version")),
        cuda_driver_version=_text(raw.get("cuda_driver_version")),
        devices=_tuple(raw["devices"], _device),
        sweep=Sweep(
            seconds=_number(sweep.get("seconds")),
            calls=_integer(sweep.get("nvml_calls")) or 0,
            errors=_integer(sweep.get("nvml_errors")) or 0,
            threads_stuck=_integer(sweep.get("threads_stuck")) or 0,
        ),
        problems=_problems(raw.get("problems")),
    )


def _host(raw: Json) -> Host:
    load = raw.get("load_average")
    if load is not None:
        one, five, fifteen = (_required(_number(each)) for each in load)
        load = (one, five, fifteen)
    return Host(
        name=_text(raw.get("name")),
        cpu_count=_integer(raw.get("cpu_count")),
        cpu_percent=_number(raw.get("cpu_percent")),
        load=load,
        memory_total_bytes=_integer(raw.get("memory_total_bytes")),
        memory_available_bytes=_integer(raw.get("memory_available_bytes")),
        uptime_seconds=_number(raw.get("uptime_seconds")),
        problems=_problems(raw.get("problems")),
    )


def _device(raw: Json) -> Device:
    problems = _problems(raw.get("problems"))
    readings: dict[str, float] = {}
    for metric_id, metric in METRICS.items():
        value = _number(raw.get(metric_id))
        if value is None:
            continue
        if metric.admits(value):
            readings[metric_id] = value
        else:
            problems[metric_id] = Problem(ProblemCode.INVALID_VALUE, f"{value:g} cannot be true")
    reasons = raw.get("throttle_reasons")
    processes = raw.get("processes")
    return Device(
        index=_required(_integer(raw["index"])),
        cuda_index=_integer(raw.get("cuda_index")),
        uuid=_text(raw.get("uuid")),
        pci_bus_id=_text(raw.get("pci_bus_id")),
        name=_text(raw.get("name")),
        architecture=_text(raw.get("architecture")),
        state=DeviceState(raw["state"]),
        age_seconds=_number(raw.get("age_seconds")),
        readings=readings,
        throttle_reasons=None if reasons is None else tuple(safe_text(str(reason), 64) for reason in reasons),
        processes=None if processes is None else _tuple(processes, _process),
        problems=problems,
    )


def _process(raw: Json) -> Process:
    return Process(
        pid=_required(_integer(raw["pid"])),
        kinds=tuple(ProcessKind(kind) for kind in raw["kinds"]),
        memory_bytes=_integer(raw.get("memory_bytes")),
        user=_text(raw.get("user")),
        command=_text(raw.get("command")),
        cpu_percent=_number(raw.get("cpu_percent")),
        host_memory_bytes=_integer(raw.get("host_memory_bytes")),
        age_seconds=_number(raw.get("age_seconds")),
        problems=_problems(raw.get("problems")),
    )


def _problems(raw: object) -> dict[str, Problem]:
    if not raw:
        return {}
    return {safe_text(subject, 64): _problem(_object(each)) for subject, each in _object(raw).items()}


def _problem(raw: Json) -> Problem:
    try:
        code = ProblemCode(raw.get("code"))
    except ValueError:
        code = ProblemCode.UNKNOWN
    return Problem(code, _text(raw.get("reason")) or code.value, _text(raw.get("remedy")) or "")


def _object(raw: object) -> Json:
    if raw is None:
        return {}
    if type(raw) is not dict:
        raise TypeError(f"expected an object, found {type(raw).__name__}")
    return raw


def _tuple(raw: object, item: Callable[[Json], T]) -> tuple[T, ...]:
    if type(raw) is not list:
        raise TypeError(f"expected a list, found {type(raw).__name__}")
    return tuple(item(_object(each)) for each in raw)


def _number(raw: object) -> float | None:
    if raw is None or type(raw) is int:
        return _integer(raw)
    if type(raw) is not float or raw - raw != 0:  # NaN and infinity are not equal to themselves after a subtraction
        raise TypeError(f"expected a number, found {raw!r:.40}")
    return raw


def _integer(raw: object) -> int | None:
    if raw is None or (type(raw) is int and abs(raw) <= _LARGEST_INTEGER):
        return raw
    raise TypeError(f"expected a whole number, found {raw!r:.40}")


def _text(raw: object) -> str | None:
    if raw is None:
        return None
    if type(raw) is not str:
        raise TypeError(f"expected text, found {type(raw).__name__}")
    return safe_text(raw, COMMAND_LIMIT)


def _required(value: T | None) -> T:
    if value is None:
        raise TypeError("a required value is null")
    return value
