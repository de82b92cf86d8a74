"""What is read only in a look: counters of the chip, energy, shares of processes."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.collect.activity import EnergyCounter, GpmCounters, PcieThroughput, ProcessShares
from gpumon.collect.calls import CallsInFlight
from gpumon.collect.nvml import DeviceLostError, Nvml, NvmlError, ReadingError
from gpumon.core.problems import Problem, ProblemCode
from tests.collect.fake import LOST, NOT_SUPPORTED, UNKNOWN, FakeGpm, FakeNvml, error

SAMPLE = "nvmlGpmSampleGet"
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
SHARES = "nvmlDeviceGetProcessUtilization"
NOTHING_RAN = error(6)
NO_SAMPLES = error(0)
MIB = 1 << 20


def code(value: object) -> ProblemCode:
    assert isinstance(value, Problem)
    return value.code


# Counters of the chip


@pytest.fixture
def fake() -> FakeNvml:
    return FakeNvml()


def test_counters_take_two_samples_that_are_swapped(fake: FakeNvml) -> None:
    gpm = FakeGpm(fake)
    counters = GpmCounters(Nvml(library=fake), 0)
    first = counters.read()
    assert {code(value) for value in first.values()} == {ProblemCode.NOT_READ}
    for _ in range(3):
        counters.read()
    assert len(gpm.samples) == 2
    assert gpm.pairs == list(zip(gpm.taken, gpm.taken[1:], strict=False))  # each with the one before it
    assert len(set(gpm.taken)) == 2
    assert fake.count()["nvmlGpmQueryDeviceSupport"] == 1


def test_counters_have_their_names_and_units(fake: FakeNvml) -> None:
    gpm = FakeGpm(fake)
    gpm.values |= {1: 97.0, 2: 95.5, 3: 14.0, 5: 92.7, 10: 17.123, 11: 0.0, 12: 3.0, 13: 4.0}
    gpm.values |= {20: 40.0, 21: 56_500.0, 60: 2000.0, 61: 3000.5}
    counters = GpmCounters(Nvml(library=fake), 0)
    counters.read()
    assert counters.read() == {
        "engine_activity_percent": 97.0, "sm_activity_percent": 95.5, "sm_occupancy_percent": 14.0,
        "tensor_activity_percent": 92.7, "dram_activity_percent": 17.12, "fp64_activity_percent": 0.0,
        "fp32_activity_percent": 3.0, "fp16_activity_percent": 4.0, "pcie_transmit_bytes_per_second": 40 * MIB,
        "pcie_receive_bytes_per_second": 56_500 * MIB, "nvlink_receive_bytes_per_second": 2000 * MIB,
        "nvlink_transmit_bytes_per_second": 3000.5 * MIB,
    }  # fmt: skip


def test_a_counter_that_fails_costs_its_cell(fake: FakeNvml) -> None:
    gpm = FakeGpm(fake)
    gpm.values[60] = NOT_SUPPORTED
    counters = GpmCounters(Nvml(library=fake), 0)
    counters.read()
    values = counters.read()
    assert code(values["nvlink_receive_bytes_per_second"]) is ProblemCode.NOT_SUPPORTED
    assert values["nvlink_transmit_bytes_per_second"] == MIB
    gpm.values[60] = LOST
    with pytest.raises(DeviceLostError):
        counters.read()


def test_a_share_is_rounded_down_to_all_but_nothing_more(fake: FakeNvml) -> None:
    gpm = FakeGpm(fake)
    gpm.values |= {2: 100.4, 3: 250.0, 20: float("nan")}
    counters = GpmCounters(Nvml(library=fake), 0)
    counters.read()
    values = counters.read()
    assert values["sm_activity_percent"] == 100
    assert values["sm_occupancy_percent"] == 250  # whoever takes it finds it out of bounds
    assert str(values["pcie_transmit_bytes_per_second"]) == "nan"


def test_a_chip_without_counters_is_given_no_sample(fake: FakeNvml) -> None:
    gpm = FakeGpm(fake, supported=False)
    counters = GpmCounters(Nvml(library=fake), 0)
    with pytest.raises(ReadingError) as caught:
        counters.read()
    assert caught.value.problem.code is ProblemCode.NOT_SUPPORTED
    assert "Hopper" in caught.value.problem.reason
    assert gpm.samples == []


@pytest.mark.parametrize("call", ["nvmlGpmSampleAlloc", SAMPLE, "nvmlGpmMetricsGet"])
def test_what_was_allocated_is_given_back_whatever_failed(fake: FakeNvml, call: str) -> None:
    gpm = FakeGpm(fake)
    counters = GpmCounters(Nvml(library=fake), 0)
    if call != "nvmlGpmSampleAlloc":
        counters.read()
    fake.answer(call, UNKNOWN)
    with pytest.raises(NvmlError):
        counters.read()
    counters.close()
    counters.close()
    assert gpm.samples == []


# Energy


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def energies(fake: FakeNvml, *millijoules: int) -> list[Any]:
    clock = Clock()
    counter = EnergyCounter(Nvml(library=fake, in_flight=CallsInFlight(clock)), 0)
    energies = []
    for counter_value in millijoules:
        fake.answer(ENERGY, counter_value)
        energies.append(counter.read()["energy_joules"])
        clock.now += 1
    return energies


def test_energy_counts_from_the_first_sample(fake: FakeNvml) -> None:
    assert energies(fake, 4_200_000_000, 4_200_700_500, 4_201_400_500) == [0, 700.5, 1400.5]


def test_a_counter_that_runs_backwards_gives_nothing_and_takes_nothing(fake: FakeNvml) -> None:
    first, second, back, again = energies(fake, 1_000_000, 1_500_000, 200_000, 900_000)
    assert (first, second, again) == (0, 500, 1200)
    assert code(back) is ProblemCode.INVALID_VALUE


@pytest.mark.parametrize("garbage", [0xFFFFFFFFFFFFFFFF, 1 << 40])
def test_a_leap_that_no_board_can_make_does_not_count(fake: FakeNvml, garbage: int) -> None:
    first, leap, back, again = energies(fake, 1_000_000, garbage, 1_700_000, 2_400_000)
    assert (first, again) == (0, 700)
    assert code(leap) is code(back) is ProblemCode.INVALID_VALUE


def test_energy_between_two_selections_counts(fake: FakeNvml) -> None:
    clock = Clock()
    counter = EnergyCounter(Nvml(library=fake, in_flight=CallsInFlight(clock)), 0)
    fake.answer(ENERGY, 0)
    counter.read()
    counter.close()
    clock.now += 1000
    fake.answer(ENERGY, 500_000_000)
    assert counter.read() == {"energy_joules": 500_000}


# PCIe rates


@pytest.mark.parametrize(("answer", "expected"), [(0, 0), (59_600_000, 59_600_000_000), (0xFFFFFFFF, None)])
def test_pcie_rates_are_bytes_per_second(fake: FakeNvml, answer: int, expected: float | None) -> None:
    fake.answer("nvmlDeviceGetPcieThroughput", lambda handle, direction: answer if direction else 7)
    rates = PcieThroughput(Nvml(library=fake), 0).read()
    assert rates["pcie_transmit_bytes_per_second"] == 7000
    received = rates["pcie_receive_bytes_per_second"]
    assert code(received) is ProblemCode.INVALID_VALUE if expected is None else received == expected


# Shares of processes


def sample(pid: int, stamp: int, percent: int) -> Any:  # noqa: ANN401
    return SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=percent)


class Samples:
    """The driver's samples; each call gives those after the time that it is asked with."""

    def __init__(self, fake: FakeNvml) -> None:
        self.fake = fake
        self.held: list[Any] = []
        self.asked: list[int] = []
        fake.answer(SHARES, self)

    def __call__(self, handle: int, seen: int) -> list[Any]:
        self.asked.append(seen)
        newer = [sample for sample in self.held if sample.timeStamp > seen]
        if not newer:
            raise NOTHING_RAN
        return newer


NOW = 1_000.0
"""Unix time of these tests; the driver counts in microseconds."""


def shares_of(fake: FakeNvml) -> ProcessShares:
    return ProcessShares(Nvml(library=fake), 0, lambda: NOW)


def test_a_share_is_the_newest_sample_since_the_previous_read(fake: FakeNvml) -> None:
    samples, shares = Samples(fake), shares_of(fake)
    samples.held = [sample(7, 100, 90)]
    assert code(shares.read()) is ProblemCode.NOT_READ  # the sample is older than the first read
    samples.held += [sample(7, 300, 50), sample(7, 200, 40), sample(8, 250, 3)]
    assert shares.read() == {7: 50, 8: 3}
    assert samples.asked == [0, 100]
    assert shares.read() == {}  # nothing ran since
    assert samples.asked[-1] == 300


@pytest.mark.parametrize("nothing", [NOTHING_RAN, NO_SAMPLES])
def test_nothing_ran_is_no_failure(fake: FakeNvml, nothing: Exception) -> None:
    fake.answer(SHARES, nothing)
    shares = shares_of(fake)
    shares.read()
    assert shares.read() == {}
    fake.answer(SHARES, [sample(7, 100, 20)])
    assert shares.read() == {7: 20}


def test_a_failure_is_raised(fake: FakeNvml) -> None:
    fake.answer(SHARES, NOT_SUPPORTED)
    with pytest.raises(ReadingError) as caught:
        shares_of(fake).read()
    assert caught.value.problem.code is ProblemCode.NOT_SUPPORTED


def test_an_invalid_share_is_missing(fake: FakeNvml) -> None:
    samples, shares = Samples(fake), shares_of(fake)
    samples.held = [sample(7, 100, 1)]
    shares.read()
    samples.held += [sample(7, 200, 0xFFFFFFFF), sample(8, 200, 100)]
    values = shares.read()
    assert isinstance(values, dict)
    assert code(values[7]) is ProblemCode.INVALID_VALUE
    assert values[8] == 100


def test_after_a_pause_samples_of_the_pause_are_skipped(fake: FakeNvml) -> None:
    samples, shares = Samples(fake), shares_of(fake)
    samples.held = [sample(7, 100, 1)]
    shares.read()
    shares.close()
    samples.held += [sample(7, 200, 99)]
    assert code(shares.read()) is ProblemCode.NOT_READ
