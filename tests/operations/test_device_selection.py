"""How users name GPUs."""

import dataclasses

import pytest

from gpumon.core.model import Device, MigInstance
from gpumon.core.problems import CommandError
from gpumon.operations.device_selection import select_devices
from tests.builders import device


def host() -> tuple[Device, ...]:
    """Four GPUs, the last with two MIG instances; CUDA shows GPU 2 first."""
    gpus = [dataclasses.replace(device(index), uuid=f"GPU-{index}abc0000-4d6f") for index in range(4)]
    gpus[2] = dataclasses.replace(gpus[2], cuda_index=0)
    instances = [
        dataclasses.replace(device(3), uuid=f"MIG-9{number}00", instance=MigInstance(gpus[3].key, number, 7, 0))
        for number in range(2)
    ]
    return (*gpus, *instances)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("2", ["2"]), ("02", ["2"]), ("0-2", ["0", "1", "2"]), ("3,0", ["3", "0"]), ("1, 0-2", ["1", "0", "2"]),
        ("all", ["0", "1", "2", "3"]), ("cuda:0", ["2"]), ("3:1", ["3:1"]), ("GPU-1abc", ["1"]),
        ("gpu-1ABC0000-4d6f", ["1"]), ("2abc", ["2"]), ("MIG-900", ["3:0"]), ("MIG-910,0", ["3:1", "0"]),
    ],
)  # fmt: skip
def test_devices(text: str, labels: list[str]) -> None:
    assert [device.label for device in select_devices(text, host())] == labels


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("4", 3, "no GPU 4"), ("0-4", 3, "no GPU 4"), ("3-1", 2, "ends before it begins"),
        ("cuda:1", 3, "CUDA's device 1 here"), ("GPU-f00", 3, "begins with GPU-f00"), ("MIG-9", 2, "not a device"),
        ("MIG-900,MIG-", 2, "not a device"), ("", 2, "not a device"), ("0,,1", 2, "not a device"),
        ("-1", 2, "not a device"), ("first", 2, "not a device"), ("3:7", 3, "no GPU 3:7"),
        ("\x1b[2J", 2, "not a device"), ("1" * 100, 3, "begins with"),
    ],
)  # fmt: skip
def test_what_names_no_device(text: str, code: int, words: str) -> None:
    with pytest.raises(CommandError, match=words) as raised:
        select_devices(text, host())
    assert raised.value.exit_code == code
    assert "\x1b" not in str(raised.value)


def test_a_beginning_of_several_uuids() -> None:
    gpus = [dataclasses.replace(device(index), uuid=f"GPU-abcd{index}") for index in range(2)]
    with pytest.raises(CommandError, match="GPU 0, GPU 1"):
        select_devices("GPU-abcd", gpus)


def test_a_host_without_gpus() -> None:
    with pytest.raises(CommandError, match="no GPU"):
        select_devices("all", ())
