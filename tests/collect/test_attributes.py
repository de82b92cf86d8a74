"""The attributes of a device."""

from contextlib import suppress
from typing import Any

import pytest

from gpumon.collect.attributes import AttributesReader
from gpumon.collect.calls import Abandoned
from gpumon.collect.nvml import DeviceLostError, Nvml
from gpumon.collect.schedule import RETRY_SECONDS, Period
from gpumon.core.model import DEVICE_ATTRIBUTES, ComputeMode, Device, Switch
from gpumon.core.problems import ProblemCode
from tests.collect.fake import LOST, NOT_SUPPORTED, UNKNOWN, FakeNvml

CALLS = {
    "compute_capability": "nvmlDeviceGetCudaComputeCapability",
    "vbios_version": "nvmlDeviceGetVbiosVersion",
    "persistence_mode": "nvmlDeviceGetPersistenceMode",
    "compute_mode": "nvmlDeviceGetComputeMode",
    "ecc_mode": "nvmlDeviceGetEccMode",
    "mig_mode": "nvmlDeviceGetMigMode",
}


def attributes(fake: FakeNvml, *times: float) -> AttributesReader:
    reader = AttributesReader(Nvml(library=fake), 0)
    for now in (0.0, *(times or (1.0,))):
        reader.read(now)
    return reader


def test_all_of_them_are_read_once_and_only_the_mig_mode_in_the_first_tick() -> None:
    fake = FakeNvml()
    reader = AttributesReader(Nvml(library=fake), 0)
    reader.read(0)
    mig_mode = CALLS["mig_mode"]
    assert fake.count() == {mig_mode: 1}
    assert set(reader.problems) == {name for name in DEVICE_ATTRIBUTES if not name.startswith("mig_mode")}
    assert {problem.code for problem in reader.problems.values()} == {ProblemCode.NOT_READ}
    for now in range(1, 1001):
        reader.read(now)
    assert fake.count() == {**dict.fromkeys(CALLS.values(), 1), mig_mode: 100}
    assert reader.problems == {}
    assert Device(0, **reader.values) == Device(
        0,
        compute_capability="9.0",
        vbios_version="96.00.BC.00.01",
        persistence_mode=Switch.ENABLED,
        compute_mode=ComputeMode.DEFAULT,
        ecc_mode=Switch.ENABLED,
        ecc_mode_pending=Switch.ENABLED,
        mig_mode=Switch.DISABLED,
        mig_mode_pending=Switch.DISABLED,
    )


def test_a_gpu_that_is_split_while_the_driver_runs_is_noticed() -> None:
    fake = FakeNvml()
    reader = attributes(fake, 1)
    fake.answer(CALLS["mig_mode"], [1, 1])
    reader.read(Period.TEN_SECONDS + 1)
    assert reader.values["mig_mode"] is Switch.ENABLED


def test_a_mode_that_cannot_be_read_any_more_is_missing() -> None:
    fake = FakeNvml()
    reader = attributes(fake, 1)
    fake.answer(CALLS["mig_mode"], UNKNOWN)
    for turn in (1, 2):
        reader.read(turn * (Period.TEN_SECONDS + 1))
        assert "mig_mode" in reader.values
        assert reader.problems["mig_mode"].code is ProblemCode.STALE
    reader.read(3 * (Period.TEN_SECONDS + 1))
    assert "mig_mode" not in reader.values
    assert reader.problems["mig_mode"].code is ProblemCode.UNKNOWN


def test_current_and_pending_modes_are_separate() -> None:
    fake = FakeNvml()
    fake.answer(CALLS["ecc_mode"], [1, 0])
    fake.answer(CALLS["mig_mode"], [0, 1])
    values = attributes(fake).values
    assert (values["ecc_mode"], values["ecc_mode_pending"]) == (Switch.ENABLED, Switch.DISABLED)
    assert (values["mig_mode"], values["mig_mode_pending"]) == (Switch.DISABLED, Switch.ENABLED)


@pytest.mark.parametrize(("number", "mode"), list(enumerate(ComputeMode)))
def test_compute_modes_by_number(number: int, mode: ComputeMode) -> None:
    fake = FakeNvml()
    fake.answer(CALLS["compute_mode"], number)
    assert attributes(fake).values["compute_mode"] is mode


@pytest.mark.parametrize("field", CALLS)
def test_one_that_fails_costs_its_fields_and_is_asked_again_in_time(field: str) -> None:
    fake = FakeNvml()
    fake.answer(CALLS[field], NOT_SUPPORTED)
    reader = attributes(fake, 1, RETRY_SECONDS - 1)
    missing = {name for name in DEVICE_ATTRIBUTES if name in {field, f"{field}_pending"}}
    assert set(reader.problems) == missing
    assert {problem.code for problem in reader.problems.values()} == {ProblemCode.NOT_SUPPORTED}
    assert set(reader.values) == set(DEVICE_ATTRIBUTES) - missing
    assert fake.count()[CALLS[field]] == 1
    fake.answer(CALLS[field], UNKNOWN)
    reader.read(RETRY_SECONDS + 1)
    assert {problem.code for problem in reader.problems.values()} == {ProblemCode.UNKNOWN}
    fake.restore()
    reader.read(RETRY_SECONDS + 20)
    assert reader.problems == {}
    assert set(reader.values) == set(DEVICE_ATTRIBUTES)


@pytest.mark.parametrize(
    ("field", "answer"),
    [
        ("compute_mode", 4),
        ("compute_mode", -1),
        ("persistence_mode", 2),
        ("ecc_mode", [1, 0xFFFFFFFF]),
        ("mig_mode", [-1, 0]),
        ("vbios_version", ""),
    ],
)
def test_answers_that_mean_nothing_are_missing(field: str, answer: Any) -> None:  # noqa: ANN401
    fake = FakeNvml()
    fake.answer(CALLS[field], answer)
    reader = attributes(fake)
    assert field not in reader.values
    assert reader.problems[field].code is ProblemCode.INVALID_VALUE


def test_text_is_made_safe() -> None:
    fake = FakeNvml()
    fake.answer(CALLS["vbios_version"], "96\x1b[2J")
    assert "\x1b" not in attributes(fake).values["vbios_version"]


def test_a_lost_device_is_reported() -> None:
    fake = FakeNvml()
    fake.answer(CALLS["ecc_mode"], LOST)
    with pytest.raises(DeviceLostError):
        attributes(fake)


def test_what_a_call_that_hung_did_not_bring_is_read_when_the_device_is_back() -> None:
    def hung(*_: object) -> None:
        raise Abandoned

    fake = FakeNvml()
    fake.answer(CALLS["ecc_mode"], hung)
    reader = AttributesReader(Nvml(library=fake), 0)
    reader.read(0)
    with suppress(Abandoned):
        reader.read(1)
    fake.restore()
    reader.read(2)
    assert reader.problems == {}
    assert set(reader.values) == set(DEVICE_ATTRIBUTES)
