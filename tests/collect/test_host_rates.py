"""Network and disk rates of the host, on a stand-in sysfs."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.collect import host_rates
from gpumon.collect.host_rates import COUNTER_RESET, NOT_REPORTED, SYSFS_HANGS, HostRates, RateReading
from gpumon.collect.schedule import NEEDS_TWO_SAMPLES
from gpumon.core.model import HOST_RATES

RECEIVE, TRANSMIT, READ, WRITE = HOST_RATES


class FakeHost:
    """A sysfs, a clock, and the reader of both."""

    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs
        self.now = 100.0
        self.rates = HostRates(sysfs, lambda: self.now)

    def write(self, path: str, text: str | int) -> Path:
        file = self.sysfs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return file

    def interface(self, name: str, received: int = 0, sent: int = 0, *, physical: bool = True) -> Path:
        self.write(f"class/net/{name}/statistics/rx_bytes", received)
        self.write(f"class/net/{name}/statistics/tx_bytes", sent)
        folder = self.sysfs / "class/net" / name
        if physical:
            (folder / "device").mkdir(exist_ok=True)
        return folder

    def disk(self, name: str, read: int = 0, written: int = 0, *, physical: bool = True) -> Path:
        """A disk; the numbers are sectors of 512 bytes."""
        self.write(f"block/{name}/stat", f"  10 0 {read} 5 20 0 {written} 9 0 7 14 0 0 0 0 0 0")
        folder = self.sysfs / "block" / name
        if physical:
            (folder / "device").mkdir(exist_ok=True)
        return folder

    def port(self, received: int, sent: int) -> None:
        """An InfiniBand port; its counters count words of four bytes."""
        self.write("class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", received)
        self.write("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", sent)

    def after(self, seconds: float) -> RateReading:
        self.now += seconds
        return self.rates.read()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    monkeypatch.setattr(host_rates, "_WAIT_SECONDS", 10.0)
    return FakeHost(tmp_path)


def test_rates_need_two_samples(host: FakeHost) -> None:
    host.interface("eth0", 1000, 2000)
    host.disk("nvme0n1", 100, 200)
    assert host.rates.read() == RateReading({}, dict.fromkeys(HOST_RATES, NEEDS_TWO_SAMPLES))
    host.interface("eth0", 5000, 2400)
    host.disk("nvme0n1", 140, 200)
    assert host.after(2) == RateReading({RECEIVE: 2000, TRANSMIT: 200, READ: 10240, WRITE: 0}, {})


def test_every_byte_counts_once(host: FakeHost) -> None:
    """Bridges, bonds, containers, virtual functions, partitions, LVM and RAID move the bytes of another device."""

    def count(value: int) -> None:
        host.interface("eth0", value, value)
        host.interface("eth1", value, value)
        vf = host.interface("eth1v0", value, value)
        (vf / "device/physfn").mkdir(exist_ok=True)
        for name in ("lo", "docker0", "bond0", "veth12", "eth0.7"):
            host.interface(name, 10 * value, 10 * value, physical=False)
        host.disk("sda", value, value)
        host.write("block/sda/sda1/stat", f"1 0 {value} 0 1 0 {value} 0 0 0 0")
        host.disk("nvme0c0n1", value, value)
        host.write("block/nvme0c0n1/hidden", 1)
        for name in ("loop0", "ram0", "zram0", "dm-0", "md127"):
            host.disk(name, 10 * value, 10 * value, physical=False)

    count(1000)
    host.rates.read()
    count(2000)
    assert host.after(1).rates == {RECEIVE: 2000, TRANSMIT: 2000, READ: 512_000, WRITE: 512_000}


def test_a_container_has_only_virtual_interfaces(host: FakeHost) -> None:
    for value in (0, 700):
        host.interface("eth0", value, value, physical=False)
        bridge = host.interface("br0", value, value, physical=False)
        (bridge / "bridge").mkdir(exist_ok=True)
        reading = host.after(1)
    assert reading.rates == {RECEIVE: 700, TRANSMIT: 700}
    assert set(reading.problems) == {READ, WRITE}


def test_infiniband_counts_words_and_includes_its_interface(host: FakeHost) -> None:
    host.interface("eth0")
    host.interface("ib0")
    host.write("class/net/ib0/type", 32)
    host.port(1000, 500)
    host.rates.read()
    host.interface("eth0", 7, 9)
    host.interface("ib0", 5000, 5000)
    host.port(3000, 1500)
    assert host.after(1).rates == {RECEIVE: 4 * 2000 + 7, TRANSMIT: 4 * 1000 + 9}


def test_a_counter_that_runs_backward_is_missing_once(host: FakeHost) -> None:
    host.interface("eth0", (1 << 32) - 100, 50)
    host.rates.read()
    host.interface("eth0", 100, 150)
    reading = host.after(1)
    assert reading.rates == {TRANSMIT: 100}
    assert reading.problems[RECEIVE] == COUNTER_RESET
    host.interface("eth0", 300, 150)
    assert host.after(1).rates == {RECEIVE: 200, TRANSMIT: 0}


def test_devices_that_come_and_go_add_nothing(host: FakeHost) -> None:
    host.disk("sda", 100, 100)
    host.disk("sdb", 900, 900)
    host.rates.read()
    (host.sysfs / "block/sdb/stat").unlink()
    host.disk("sda", 102, 100)
    assert host.after(1).rates == {READ: 1024, WRITE: 0}
    host.disk("sdc", 1 << 40, 1 << 40)
    host.after(20)  # finds the new disk, which has one sample
    host.disk("sdc", (1 << 40) + 2, 1 << 40)
    assert host.after(1).rates == {READ: 1024, WRITE: 0}


def test_counters_are_read_once_a_second(host: FakeHost) -> None:
    host.interface("eth0", 0, 0)
    host.rates.read()
    host.interface("eth0", 100, 0)
    assert host.after(0.25).rates[RECEIVE] == 400, "gpumon status has two samples within its second frame"
    host.interface("eth0", 1000, 0)
    for _ in range(7):
        assert host.after(0.125).rates[RECEIVE] == 400
    assert host.after(0.125).rates[RECEIVE] == 900


def test_a_counter_that_is_no_number_is_missing(host: FakeHost) -> None:
    host.interface("eth0", 0, 0)
    host.write("class/net/eth0/statistics/rx_bytes", "many")
    assert host.rates.read().problems[RECEIVE] == NOT_REPORTED
    assert host.after(1).rates == {TRANSMIT: 0}


@pytest.fixture
def hanging(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A host whose kernel does not return a counter until the event is set; until then, a pipe without a writer."""
    monkeypatch.setattr(host_rates, "_WAIT_SECONDS", 0.05)
    released = threading.Event()
    host.interface("eth0")
    pipe = host.sysfs / "class/net/eth0/statistics/rx_bytes"
    pipe.unlink()
    os.mkfifo(pipe)

    def release() -> None:
        released.wait()
        pipe.write_text("5\n")

    writer = threading.Thread(target=release)
    writer.start()
    yield released
    released.set()
    writer.join()


def test_a_counter_that_hangs_delays_no_frame(host: FakeHost, hanging: threading.Event) -> None:
    began = time.monotonic()
    assert host.rates.read().problems == dict.fromkeys(HOST_RATES, NEEDS_TWO_SAMPLES)
    assert host.after(1).problems[RECEIVE] == NEEDS_TWO_SAMPLES
    assert host.after(5).problems == dict.fromkeys(HOST_RATES, SYSFS_HANGS)
    assert time.monotonic() - began < 1
    hanging.set()
    deadline = time.monotonic() + 5
    while host.rates.read().problems[RECEIVE] == SYSFS_HANGS and time.monotonic() < deadline:
        time.sleep(0.01)
    assert host.rates.read().problems[RECEIVE] == NEEDS_TWO_SAMPLES
