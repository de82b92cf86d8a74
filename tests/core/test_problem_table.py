"""Problems of missing values: written once per line, and read back unchanged."""

import json
from typing import Any

import pytest

from gpumon.core.frames import FrameError, decode, encode, to_document
from gpumon.core.metrics import METRICS
from gpumon.core.problems import Problem, ProblemCode
from tests.builders import READINGS, device, frame, process

NOT_LOOKED = Problem(ProblemCode.NOT_READ, "It is read only while its GPU is looked at.")
TOO_OLD = Problem(ProblemCode.DRIVER_TOO_OLD, "This driver is too old.", "A newer one has it.")
LACKING = {metric: NOT_LOOKED for metric in METRICS if metric not in READINGS}


def machine() -> Any:  # noqa: ANN401
    """Eight GPUs that lack the same, but for one that lacks its power too."""
    shared = [process(number, sm_percent=None, problems={"sm_percent": NOT_LOOKED}) for number in (1, 2)]
    devices = [device(index, problems=dict(LACKING), processes=tuple(shared)) for index in range(7)]
    odd = {"readings": {"power_watts": None}, "problems": {**LACKING, "power_watts": TOO_OLD}}
    return frame(devices=(*devices, device(7, **odd)))


def test_a_line_is_read_back_as_it_was() -> None:
    assert decode(encode(machine())) == machine()


def test_what_all_devices_lack_is_told_once() -> None:
    raw = json.loads(encode(machine()))
    assert encode(machine()).count(NOT_LOOKED.reason) == 2  # of devices and of processes
    first, odd = raw["devices"][0], raw["devices"][7]
    assert "problems" not in first
    assert not LACKING.keys() & first.keys()
    assert "power_watts" not in odd
    reasons = [raw["reasons"][place] for place in odd["missing"]]
    assert {name for reason in reasons for name in reason["fields"]} == {*LACKING, "power_watts"}
    assert {
        "code": "driver_too_old",
        "reason": TOO_OLD.reason,
        "remedy": TOO_OLD.remedy,
        "fields": ["power_watts"],
    } in (reasons)
    assert len(encode(machine())) < 0.6 * len(json.dumps(to_document(machine()), separators=(",", ":")))


def test_a_null_without_a_reason_stays_a_null() -> None:
    made = frame(devices=(device(0, readings={"power_watts": None}, problems={}),))
    raw = json.loads(encode(made))["devices"][0]
    assert raw["power_watts"] is None
    assert "power_watts" not in decode(encode(made)).devices[0].problems


def test_a_document_that_tells_everything_in_full_is_read_alike() -> None:
    assert decode(json.dumps(to_document(machine()))) == decode(encode(machine())) == machine()


def test_an_inline_reason_goes_before_one_of_the_table() -> None:
    raw = json.loads(encode(machine()))
    raw["devices"][0]["problems"] = {"fan_percent": {"code": "gpu_lost", "reason": "The GPU is lost."}}
    devices = decode(json.dumps(raw)).devices
    assert devices[0].problems["fan_percent"].code is ProblemCode.GPU_LOST
    assert devices[1].problems["fan_percent"] == NOT_LOOKED


def test_an_impossible_reading_of_one_device_is_not_told_of_the_others() -> None:
    raw = json.loads(encode(machine()))
    raw["devices"][0]["fan_percent"] = 4294967295
    first, second = decode(json.dumps(raw)).devices[:2]
    assert first.problems["fan_percent"].code is ProblemCode.INVALID_VALUE
    assert second.problems["fan_percent"] == NOT_LOOKED


@pytest.mark.parametrize("missing", [[99], [-1], ["0"], [[0]], [None], "0", 7, {"0": 1}])
def test_a_place_that_is_not_in_the_table_is_a_frame_error(missing: object) -> None:
    raw = json.loads(encode(machine()))
    raw["devices"][0]["missing"] = missing
    with pytest.raises(FrameError):
        decode(json.dumps(raw))


@pytest.mark.parametrize("count", [100, 128, 129])
def test_a_record_may_lack_128_fields(count: int) -> None:
    raw = json.loads(encode(machine()))
    raw["reasons"] = [{"code": "unknown", "reason": "x", "fields": [f"field{number}" for number in range(count)]}]
    for item in raw["devices"]:
        item["missing"] = [0]
        for part in item["processes"] or ():
            part.pop("missing", None)
    if count <= 128:
        assert len(decode(json.dumps(raw)).devices[0].problems) >= count
    else:
        with pytest.raises(FrameError, match="too many fields are missing"):
            decode(json.dumps(raw))


def test_text_of_the_table_is_made_safe() -> None:
    raw = json.loads(encode(machine()))
    raw["reasons"][0] |= {"reason": "\x1b[2J" + "y" * 10_000, "fields": ["sm_percent", "\x9b"]}
    decoded = decode(json.dumps(raw)).devices[0]
    assert not any(
        ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in encode(frame(devices=(decoded,)))
    )
