"""The codec: what goes in comes out, and nothing that comes in does harm."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.frames import NOT_RECORDED, FrameError, decode, encode, to_document
from gpumon.core.json_fields import TEXT_LIMIT
from gpumon.core.metrics import METRICS, Unit
from gpumon.core.model import (
    DEVICE_ATTRIBUTES,
    ComputeMode,
    Device,
    DeviceState,
    Frame,
    Host,
    MigInstance,
    Process,
    ProcessKind,
    Sweep,
    Switch,
)
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from tests.builders import device, frame

TEXT = st.none() | st.text(max_size=30).map(safe_text)
COUNT = st.none() | st.integers(0, 1 << 50)
NUMBER = st.none() | st.floats(0, 1e9, allow_nan=False)
PROBLEM = st.builds(Problem, st.sampled_from(ProblemCode), st.text(min_size=1, max_size=20).map(safe_text))
PROBLEMS = st.dictionaries(st.text(max_size=10).map(safe_text), PROBLEM, max_size=3)
TIME = st.floats(0, 1e10).map(lambda seconds: round(seconds, 3))
PROCESSES = st.builds(
    Process,
    pid=st.integers(0, 1 << 32),
    kinds=st.lists(st.sampled_from(ProcessKind), unique=True).map(tuple),
    memory_bytes=COUNT,
    user=TEXT,
    command=TEXT,
    cpu_percent=NUMBER,
    host_memory_bytes=COUNT,
    age_seconds=NUMBER,
    sm_percent=NUMBER,
    start_ticks=COUNT,
    problems=PROBLEMS,
)


@st.composite
def readings(draw: st.DrawFn) -> dict[str, float]:
    result: dict[str, float] = {}
    for metric in draw(st.sets(st.sampled_from(list(METRICS.values())))):
        if metric.unit in {Unit.BYTES, Unit.NONE, Unit.COUNT, Unit.BITS}:
            result[metric.id] = draw(st.integers(int(metric.minimum), int(metric.maximum)))
        else:
            result[metric.id] = draw(st.floats(metric.minimum, metric.maximum))
    return result


DEVICES = st.builds(
    Device,
    index=st.integers(0, 255),
    cuda_index=st.none() | st.integers(0, 255),
    uuid=TEXT,
    pci_bus_id=TEXT,
    name=TEXT,
    architecture=TEXT,
    compute_capability=TEXT,
    vbios_version=TEXT,
    persistence_mode=st.none() | st.sampled_from(Switch),
    compute_mode=st.none() | st.sampled_from(ComputeMode),
    ecc_mode=st.none() | st.sampled_from(Switch),
    ecc_mode_pending=st.none() | st.sampled_from(Switch),
    mig_mode=st.none() | st.sampled_from(Switch),
    mig_mode_pending=st.none() | st.sampled_from(Switch),
    state=st.sampled_from(DeviceState),
    age_seconds=NUMBER,
    readings=readings(),
    throttle_reasons=st.none() | st.lists(st.text(max_size=20).map(safe_text), max_size=3).map(tuple),
    processes=st.none() | st.lists(PROCESSES, max_size=3).map(tuple),
    problems=PROBLEMS,
)
FRAMES = st.builds(
    Frame,
    time_seconds=TIME,
    monotonic_seconds=TIME,
    interval_seconds=st.floats(0.1, 3600),
    host=st.builds(
        Host,
        name=TEXT,
        cpu_count=COUNT,
        cpu_percent=NUMBER,
        load=st.none() | st.tuples(*[st.floats(0, 1e4)] * 3),
        memory_total_bytes=COUNT,
        memory_available_bytes=COUNT,
        uptime_seconds=NUMBER,
        network_receive_bytes_per_second=NUMBER,
        network_transmit_bytes_per_second=NUMBER,
        disk_read_bytes_per_second=NUMBER,
        disk_write_bytes_per_second=NUMBER,
        problems=PROBLEMS,
    ),
    driver_version=TEXT,
    cuda_driver_version=TEXT,
    devices=st.lists(DEVICES, max_size=3).map(tuple),
    sweep=st.builds(Sweep, NUMBER, st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 9)),
    problems=PROBLEMS,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=10), children, max_size=4),
    max_leaves=10,
)


@settings(max_examples=12)
@given(FRAMES)
def test_round_trip(original: Frame) -> None:
    line = encode(original)
    assert "\n" not in line
    assert decode(line) == original
    assert decode(line.encode()) == original


def test_missing_values_are_null_with_their_reason() -> None:
    problem = Problem(ProblemCode.NOT_SUPPORTED, "This chip or driver does not offer it.")
    dark = device(readings={"power_watts": None}, problems={"power_watts": problem})
    raw = to_document(frame(devices=(dark,)))["devices"][0]
    assert raw["power_watts"] is None
    assert raw["problems"]["power_watts"] == {"code": "not_supported", "reason": problem.reason}
    assert decode(encode(frame(devices=(dark,)))).devices[0].problems["power_watts"] == problem


def test_every_metric_is_a_key_of_every_device() -> None:
    raw = to_document(frame(devices=(Device(0),)))["devices"][0]
    assert set(METRICS) <= set(raw)


@pytest.mark.parametrize("value", [4294967295, -1, 100.5, 1e300])
def test_value_out_of_bounds_is_missing(value: float) -> None:
    raw = to_document(frame())
    raw["devices"][0]["utilization_gpu_percent"] = value
    decoded = decode(json.dumps(raw)).devices[0]
    assert decoded.get("utilization_gpu_percent") is None
    assert decoded.problems["utilization_gpu_percent"].code is ProblemCode.INVALID_VALUE


def test_text_is_made_safe() -> None:
    raw = to_document(frame(devices=(device(),)))
    raw["host"]["name"] = "\x1b]0;pwned\x07"
    raw["devices"][0]["name"] = "GPU\u202e"
    raw["devices"][0]["throttle_reasons"] = ["\x1b[2J"]
    raw["devices"][0]["processes"][0]["command"] = "x\n\x1b[31m" + "y" * 10_000
    raw["problems"] = {"\x1b": {"code": "unknown", "reason": "\x9b2J"}}
    decoded = decode(json.dumps(raw))
    assert "\x1b" not in repr(decoded).replace("\\x1b", "")
    assert not any(0x80 <= ord(character) < 0xA0 for character in encode(decoded))
    command = (decoded.devices[0].processes or ())[0].command
    assert command is not None
    assert len(command) == TEXT_LIMIT


def test_unknown_keys_and_codes_are_tolerated() -> None:
    raw = to_document(frame())
    raw["new"] = {"deep": [1]}
    raw["devices"][0]["new_percent"] = 3
    raw["problems"] = {"new": {"code": "of_a_later_version", "reason": "Something."}}
    decoded = decode(json.dumps(raw))
    assert decoded.devices == frame().devices
    assert decoded.problems["new"] == Problem(ProblemCode.UNKNOWN, "Something.")


@pytest.mark.parametrize("key", ["host", "sweep", "driver_version", "problems"])
def test_keys_of_later_versions_may_be_missing(key: str) -> None:
    raw = to_document(frame())
    del raw[key]
    assert decode(json.dumps(raw)).devices == frame().devices


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_garbage_is_a_frame_error(line: str | bytes) -> None:
    with pytest.raises(FrameError):
        decode(line)


@given(JSON, st.data())
def test_any_wrong_value_is_a_frame_error_or_harmless(wrong: object, data: st.DataObject) -> None:
    raw = to_document(frame(devices=(device(),)))
    node: Any = raw
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(node[key], (dict, list)) and node[key] and data.draw(st.booleans()):
            node = node[key]
        else:
            node[key] = wrong
            break
    try:
        decoded = decode(json.dumps(raw))
    except FrameError:
        return
    kept = decode(encode(decoded))  # times are kept to a millisecond
    assert decode(encode(kept)) == kept


@pytest.mark.parametrize(
    "line",
    [
        "null",
        "[]",
        '"schema"',
        "{}",
        '{"schema": 1}',
        "[" * 100_000,
        '{"schema": 1, "x": ' + "[" * 100_000,
        "1" * 10_000,
        '{"schema": 1, "time_seconds": NaN, "monotonic_seconds": 0, "interval_seconds": 1, "devices": []}',
        '{"schema": 1, "time_seconds": 1e999, "monotonic_seconds": 0, "interval_seconds": 1, "devices": []}',
        '{"schema": 1, "time_seconds": true, "monotonic_seconds": 0, "interval_seconds": 1, "devices": []}',
        f'{{"schema": 1, "time_seconds": {10**400}, "monotonic_seconds": 0, "interval_seconds": 1, "devices": []}}',
        '{"schema": 1, "time_seconds": 0, "monotonic_seconds": 0, "interval_seconds": 1, "devices": [null]}',
        b"\xff\xfe\x00",
    ],
)
def test_hostile_lines_are_frame_errors(line: str | bytes) -> None:
    with pytest.raises(FrameError):
        decode(line)


@pytest.mark.parametrize(
    ("field", "seconds"),
    [
        ("interval_seconds", 1e7),
        ("interval_seconds", -1.0),
        ("monotonic_seconds", 1e300),
        ("monotonic_seconds", -1.0),
        ("time_seconds", 1 << 63),
    ],
)
def test_a_time_out_of_range_is_a_frame_error(field: str, seconds: float) -> None:
    with pytest.raises(FrameError, match=r"out of range"):
        decode(json.dumps({**to_document(frame()), field: seconds}))


@pytest.mark.parametrize("schema", [2, 99, "1", None])
def test_newer_schema_says_what_to_do(schema: object) -> None:
    with pytest.raises(FrameError) as caught:
        decode(json.dumps({**to_document(frame()), "schema": schema}))
    assert caught.value.problem.code is ProblemCode.NEWER_SCHEMA
    assert caught.value.problem.remedy


def test_every_record_has_its_problems_beside_it() -> None:
    raw = to_document(frame())
    assert raw["devices"][0]["processes"][0]["problems"] == {}


def test_what_an_earlier_gpumon_did_not_know_is_missing_with_that_reason() -> None:
    raw = to_document(frame(devices=(device(),)))
    later = {"nvlink_bytes_per_second", "sm_activity_percent", "fan_percent"}
    for name in (*later, *DEVICE_ATTRIBUTES):
        del raw["devices"][0][name]
    del raw["devices"][0]["processes"][0]["sm_percent"]
    decoded = decode(json.dumps(raw)).devices[0]
    missing = {name for name, problem in decoded.problems.items() if problem == NOT_RECORDED}
    assert missing == later | set(DEVICE_ATTRIBUTES)
    assert decoded.problems["mig_mode"].reason == "Not in this recording."
    assert decoded.processes is not None
    assert decoded.processes[0].problems == {"sm_percent": NOT_RECORDED}
    again = decode(encode(frame(devices=(decoded,)))).devices[0]
    assert again == decoded


def test_a_reason_that_a_recording_holds_is_not_replaced() -> None:
    raw = to_document(frame(devices=(device(),)))
    del raw["devices"][0]["fan_percent"]
    raw["devices"][0]["problems"] = {"fan_percent": {"code": "gpu_lost", "reason": "The GPU has fallen off the bus."}}
    assert decode(json.dumps(raw)).devices[0].problems["fan_percent"].code is ProblemCode.GPU_LOST


@pytest.mark.parametrize("ids", [(7, 0), (None, None)])
def test_an_instance_tells_what_it_is_a_part_of(ids: tuple[int | None, int | None]) -> None:
    part = device(1, uuid="MIG-5", instance=MigInstance(device(1).key, 2, *ids))
    made = frame(devices=(device(1), part))
    assert decode(encode(made)) == decode(json.dumps(to_document(made))) == made
    whole, raw = to_document(made)["devices"]
    assert "mig_instance" not in whole
    assert raw["mig_instance"] == {
        "parent": device(1).key, "position": 2, "gpu_instance_id": ids[0], "compute_instance_id": ids[1],
    }  # fmt: skip
    assert made.gpus == (device(1),)


@pytest.mark.parametrize("wrong", [3, [], {"parent": "GPU-1"}, {"parent": 1, "position": 0}, {"position": 0}])
def test_an_instance_of_nothing_is_a_frame_error(wrong: object) -> None:
    raw = to_document(frame())
    raw["devices"][0]["mig_instance"] = wrong
    with pytest.raises(FrameError):
        decode(json.dumps(raw))
