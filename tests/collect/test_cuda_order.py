"""CUDA's numbers, from the environment."""

import pytest

from gpumon.collect.cuda_order import HIDDEN, INSTANCES, MIXED, TWICE, Candidate, CudaIndex, CudaOrder, cuda_indices
from gpumon.core.model import Device, MigInstance, Switch
from gpumon.core.problems import Problem, ProblemCode

UUIDS = (
    "GPU-6d6f636b-4d6f-5b6b-8c01-000000000000",
    "GPU-6d6f636c-4d6f-5b6b-8c01-000000000001",
    "GPU-7d6f636d-4d6f-5b6b-8c01-000000000002",
    "GPU-8d6f636e-4d6f-5b6b-8c01-000000000003",
)
ALIKE = tuple(Candidate(uuid, "NVIDIA H200") for uuid in UUIDS)
MIXED_CARDS = tuple(Candidate(uuid, f"card {place}") for place, uuid in enumerate(UUIDS))
BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
H = HIDDEN


def visible(value: str, **more: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": value, **more}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,1,2,3", [0, 1, 2, 3]), ("3,2,1,0", [3, 2, 1, 0]), ("2", [H, H, 0, H]), ("1,3", [H, 0, H, 1]),
        (" 1 , 3 ", [H, 0, H, 1]), ("+1,03", [H, 0, H, 1]), ("1gpu,3rd", [H, 0, H, 1]), ("1,4,3", [H, 0, H, H]),
        ("1,-1,3", [H, 0, H, H]), ("1,,3", [H, 0, H, H]), ("1,x,3", [H, 0, H, H]), (f"1,{UUIDS[3]}", [H, 0, H, H]),
        ("99999999999999999999,0", [H] * 4), ("000000000000000000000001", [H, 0, H, H]), ("9" * 6000, [H] * 4),
        ("", [H] * 4), (" ", [H] * 4), (",0", [H] * 4), ("-1", [H] * 4), ("NoDevFiles", [H] * 4),
        ("0,1,0", [TWICE] * 4), ("0,9,0", [0, H, H, H]),
    ],
)  # fmt: skip
def test_a_list_of_indices(value: str, expected: list[CudaIndex]) -> None:
    assert cuda_indices(ALIKE, visible(value)) == expected
    assert cuda_indices(MIXED_CARDS, visible(value, **BUS)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (UUIDS[2], [H, H, 0, H]), (f"{UUIDS[3]},{UUIDS[0]}", [1, H, H, 0]), ("GPU-8d6f", [H, H, H, 0]),
        (" GPU-8d6f , GPU-7d ", [H, H, 1, 0]), ("GPU-8D6F", [H, H, H, 0]),
        ("GPU-6d6f636b,GPU-6d6f636c", [0, 1, H, H]), ("GPU-6d6f", [H] * 4),
        ("GPU-8d6f,GPU-6d6f,GPU-7d", [H, H, H, 0]), ("GPU-8d6f,GPU-deadbeef,GPU-7d", [H, H, H, 0]),
        ("GPU-8d6f,0", [H, H, H, 0]), ("GPU-8d6f,,GPU-7d", [H, H, H, 0]), ("GPU-8d6f,GPU-8d6f636e", [TWICE] * 4),
        ("GPU-", [H] * 4), (f"{UUIDS[2]}0", [H] * 4),
    ],
)  # fmt: skip
def test_a_list_of_complete_or_abbreviated_uuids(value: str, expected: list[CudaIndex]) -> None:
    assert cuda_indices(ALIKE, visible(value)) == expected
    assert cuda_indices(MIXED_CARDS, visible(value)) == expected  # the order of the devices does not matter


@pytest.mark.parametrize("environment", [{}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, BUS])
def test_devices_of_one_kind_keep_the_order_of_the_bus(environment: dict[str, str]) -> None:
    assert cuda_indices(ALIKE, environment) == [0, 1, 2, 3]


@pytest.mark.parametrize("order", ["FASTEST_FIRST", "pci_bus_id", ""])
def test_the_order_of_different_devices_is_cudas_secret(order: str) -> None:
    for environment in ({}, {"CUDA_DEVICE_ORDER": order}, visible("0", CUDA_DEVICE_ORDER=order)):
        assert cuda_indices(MIXED_CARDS, environment) == [MIXED] * 4
    assert cuda_indices(MIXED_CARDS, visible("", CUDA_DEVICE_ORDER=order)) == [HIDDEN] * 4
    assert MIXED.remedy


def test_the_order_of_the_bus_is_known_for_different_devices_too() -> None:
    assert cuda_indices(MIXED_CARDS, BUS) == [0, 1, 2, 3]
    assert cuda_indices(MIXED_CARDS, visible("3,0", **BUS)) == [1, H, H, 0]


def test_a_device_of_which_nothing_is_known_may_be_of_another_kind() -> None:
    unknown = (ALIKE[0], Candidate(None, None))
    assert cuda_indices(unknown, {}) == [MIXED] * 2
    assert cuda_indices((Candidate(None, None),) * 2, {}) == [MIXED] * 2
    assert cuda_indices(unknown, BUS) == [0, 1]
    assert cuda_indices(unknown, visible("GPU-6d")) == [0, H]
    assert cuda_indices((Candidate(None, None),), {}) == [0]
    assert cuda_indices((), visible("0")) == []


SPLIT = (ALIKE[0], ALIKE[1]._replace(has_instances=True))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [INSTANCES, INSTANCES]),
        (visible("0"), [INSTANCES, INSTANCES]),
        (visible(UUIDS[0]), [0, H]),
        (visible(f"{UUIDS[1]},{UUIDS[0]}"), [1, INSTANCES]),
        (visible(f"MIG-{UUIDS[1]}/7/0"), [H, INSTANCES]),
        (visible(f"MIG-{UUIDS[0]}/7/0"), [H, H]),
        (visible("MIG-a5000000-4d6f-5b6b-8c01-000000000001"), [H, INSTANCES]),
    ],
)
def test_while_the_instances_are_not_known_cuda_counts_other_things(
    environment: dict[str, str], expected: list[CudaIndex]
) -> None:
    assert cuda_indices(SPLIT, environment) == expected


INSTANCE_UUIDS = ("MIG-a5000010-4d6f-5b6b-8c01-000000000001", "MIG-a5000011-4d6f-5b6b-8c01-000000000001")
FOUND = (
    *SPLIT,
    *(
        Candidate(uuid, "MIG 1g.18gb", instance=MigInstance(UUIDS[1], place, 7 + place, 0))
        for place, uuid in enumerate(INSTANCE_UUIDS)
    ),
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (INSTANCE_UUIDS[0], [H, H, 0, H]),
        (INSTANCE_UUIDS[1].replace("a5", "A5"), [H, H, H, 0]),
        (f" {INSTANCE_UUIDS[1]} ,{INSTANCE_UUIDS[0]}", [H, H, H, 0]),
        (f"MIG-{UUIDS[1]}/7/0", [H, H, 0, H]),
        (f"MIG-{UUIDS[1]}/8/0", [H, H, H, 0]),
        (f"MIG-{UUIDS[1]}/8/1", [H, H, H, H]),
        (f"MIG-{UUIDS[0]}/7/0", [H, H, H, H]),
        (INSTANCE_UUIDS[0][:-1], [H, H, H, H]),
        ("MIG-", [H, H, H, H]),
        (UUIDS[0], [0, H, H, H]),
        (UUIDS[1], [H, INSTANCES, INSTANCES, INSTANCES]),
        ("0", [INSTANCES] * 4),
    ],
)
def test_an_instance_is_found_by_its_uuid_or_by_its_old_name(value: str, expected: list[CudaIndex]) -> None:
    assert cuda_indices(FOUND, visible(value)) == expected


def test_instances_without_the_variable_have_no_number_that_is_known() -> None:
    assert cuda_indices(FOUND, {}) == [INSTANCES] * 4


def test_devices_get_their_number_or_their_reason() -> None:
    devices = [Device(place, uuid=uuid, name="NVIDIA H200") for place, uuid in enumerate(UUIDS[:2])]
    last = Problem(ProblemCode.NOT_READ, "Something else.")
    devices[0] = Device(0, uuid=UUIDS[0], name="NVIDIA H200", problems={"fan_percent": last})
    first, second = CudaOrder(visible("1")).number(devices)
    assert (first.cuda_index, second.cuda_index) == (None, 0)
    assert first.problems == {"fan_percent": last, "cuda_index": HIDDEN}
    assert second.problems == {}


def test_numbers_follow_the_devices() -> None:
    order = CudaOrder({})
    one = Device(0, uuid=UUIDS[0], name="NVIDIA H200")
    assert [device.cuda_index for device in order.number([one])] == [0]
    two = [one, Device(1, uuid=UUIDS[1], name="NVIDIA H200")]
    assert [device.cuda_index for device in order.number(two)] == [0, 1]
    assert [device.cuda_index for device in order.number([one, Device(1, name="NVIDIA L4")])] == [None, None]
    split = [one, Device(1, uuid=UUIDS[1], name="NVIDIA H200", mig_mode=Switch.ENABLED)]
    assert {device.problems["cuda_index"] for device in order.number(split)} == {INSTANCES}
