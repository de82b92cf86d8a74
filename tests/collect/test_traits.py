"""What a device is set up as."""

from contextlib import suppress
from typing import Any

import pytest

from gpumon.collect.flights import Abandoned
from gpumon.collect.lanes import RETRY_SECONDS
from gpumon.collect.nvml import DeviceLostError, Nvml
from gpumon.collect.readers import Lane
from gpumon.collect.traits import TraitReadings
from gpumon.core.model import TRAITS, ComputeMode, Device, Switch
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


def traits(fake: FakeNvml, *times: float) -> TraitReadings:
    found = TraitReadings(Nvml(library=fake), 0)
    for now in (0.0, *(times or (1.0,))):
        found.read(now)
    return found


def test_all_of_them_are_read_once_and_not_in_the_first_tick() -> None:
    fake = FakeNvml()
    found = TraitReadings(Nvml(library=fake), 0)
    found.read(0)
    assert not fake.count()
    assert set(found.problems) == set(TRAITS)
    assert {problem.code for problem in found.problems.values()} == {ProblemCode.NOT_READ}
    for now in range(1, 1001):
        found.read(now)
    mig_mode = CALLS["mig_mode"]
    assert fake.count() == {**dict.fromkeys(CALLS.values(), 1), mig_mode: 100}
    assert found.problems == {}
    assert Device(0, **found.values) == Device(
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
    found = traits(fake, 1)
    fake.answer(CALLS["mig_mode"], [1, 1])
    found.read(Lane.MEDIUM.value + 1)
    assert found.values["mig_mode"] is Switch.ENABLED


def test_a_mode_that_cannot_be_read_any_more_is_missing() -> None:
    fake = FakeNvml()
    found = traits(fake, 1)
    fake.answer(CALLS["mig_mode"], UNKNOWN)
    for turn in (1, 2):
        found.read(turn * (Lane.MEDIUM.value + 1))
        assert "mig_mode" in found.values
        assert found.problems["mig_mode"].code is ProblemCode.STALE
    found.read(3 * (Lane.MEDIUM.value + 1))
    assert "mig_mode" not in found.values
    assert found.problems["mig_mode"].code is ProblemCode.UNKNOWN


def test_what_waits_for_a_reset_is_told_apart() -> None:
    fake = FakeNvml()
    fake.answer(CALLS["ecc_mode"], [1, 0])
    fake.answer(CALLS["mig_mode"], [0, 1])
    values = traits(fake).values
    assert (values["ecc_mode"], values["ecc_mode_pending"]) == (Switch.ENABLED, Switch.DISABLED)
    assert (values["mig_mode"], values["mig_mode_pending"]) == (Switch.DISABLED, Switch.ENABLED)


@pytest.mark.parametrize(("number", "mode"), list(enumerate(ComputeMode)))
def test_compute_modes_by_number(number: int, mode: ComputeMode) -> None:
    fake = FakeNvml()
    fake.answer(CALLS["compute_mode"], number)
    assert traits(fake).values["compute_mode"] is mode


@pytest.mark.parametrize("field", CALLS)
def test_one_that_fails_costs_its_fields_and_is_asked_again_in_time(field: str) -> None:
    fake = FakeNvml()
    fake.answer(CALLS[field], NOT_SUPPORTED)
    found = traits(fake, 1, RETRY_SECONDS)
    missing = {name for name in TRAITS if name in {field, f"{field}_pending"}}
    assert set(found.problems) == missing
    assert {problem.code for problem in found.problems.values()} == {ProblemCode.NOT_SUPPORTED}
    assert set(found.values) == set(TRAITS) - missing
    assert fake.count()[CALLS[field]] == 1
    fake.answer(CALLS[field], UNKNOWN)
    found.read(RETRY_SECONDS + 1)
    assert {problem.code for problem in found.problems.values()} == {ProblemCode.UNKNOWN}
    fake.restore()
    found.read(RETRY_SECONDS + 20)
    assert found.problems == {}
    assert set(found.values) == set(TRAITS)


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
    found = traits(fake)
    assert field not in found.values
    assert found.problems[field].code is ProblemCode.INVALID_VALUE


def test_text_is_made_safe() -> None:
    fake = FakeNvml()
    fake.answer(CALLS["vbios_version"], "96\x1b[2J")
    assert "\x1b" not in traits(fake).values["vbios_version"]


def test_loss_is_told() -> None:
    fake = FakeNvml()
    fake.answer(CALLS["ecc_mode"], LOST)
    with pytest.raises(DeviceLostError):
        traits(fake)


def test_what_a_call_that_hung_did_not_bring_is_read_when_the_device_is_back() -> None:
    def hung(*_: object) -> None:
        raise Abandoned

    fake = FakeNvml()
    fake.answer(CALLS["ecc_mode"], hung)
    found = TraitReadings(Nvml(library=fake), 0)
    found.read(0)
    with suppress(Abandoned):
        found.read(1)
    fake.restore()
    found.read(2)
    assert found.problems == {}
    assert set(found.values) == set(TRAITS)
