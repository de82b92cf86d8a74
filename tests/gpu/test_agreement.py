"""On real GPUs, idle and under loads: every figure is what ``nvidia-smi -q`` and ``nvidia-smi dmon`` say of it."""

import re
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.core.model import Device, Frame
from gpumon.streams.live import LiveStream

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240), pytest.mark.xdist_group("gpu")]

LOAD = Path(__file__).with_name("load.py")
WARM_SECONDS = 4.0
WATCHED_SECONDS = 12
MIB = float(1 << 20)
LOADS: dict[str, tuple[str, ...]] = {
    "idle": (),
    "matmul": ("matmul",),
    "copies": ("copies",),
    "training": ("training",),
    "mixed": ("training", "copies", "matmul", "holding"),
}
"""What runs on the first GPU, the second and so on, over and over."""
WOBBLES = {"training": 3.0, "mixed": 3.0}
"""A training pauses now and then, and two readers do not fall into the same pauses."""
MOMENTARY = {"utilization_gpu_percent", "utilization_memory_percent", "power_watts", "temperature_celsius"}
"""The driver tells them of its last second at most; for a load that pauses, two readers hear different ones."""


class Field(NamedTuple):
    """A figure of ``nvidia-smi -q -x`` and gpumon's own.

    Attributes:
        path: Where it stands below ``gpu``.
        metric: Its name in gpumon.
        scale: From the one to the other.
        off: How far two readings of one moment may lie apart.
    """

    path: str
    metric: str
    scale: float = 1.0
    off: float = 0.0


FIELDS = (
    Field("fb_memory_usage/total", "memory_total_bytes", MIB, MIB),
    Field("fb_memory_usage/reserved", "memory_reserved_bytes", MIB, 2 * MIB),
    Field("fb_memory_usage/used", "memory_used_bytes", MIB, 2 * MIB),
    Field("fb_memory_usage/free", "memory_free_bytes", MIB, 2 * MIB),
    Field("bar1_memory_usage/total", "bar1_total_bytes", MIB, MIB),
    Field("temperature/gpu_temp", "temperature_celsius", 1, 2),
    Field("temperature/memory_temp", "temperature_memory_celsius", 1, 6),
    Field("gpu_power_readings/average_power_draw", "power_watts", 1, 30),
    Field("gpu_power_readings/current_power_limit", "power_limit_watts", 1, 0.5),
    Field("clocks/mem_clock", "clock_memory_hertz", 1e6),
    Field("max_clocks/sm_clock", "clock_sm_max_hertz", 1e6),
    Field("max_clocks/mem_clock", "clock_memory_max_hertz", 1e6),
    Field("fan_speed", "fan_percent", 1, 2),
    Field("utilization/encoder_util", "utilization_encoder_percent", 1, 2),
    Field("utilization/decoder_util", "utilization_decoder_percent", 1, 2),
    Field("pci/pci_gpu_link_info/pcie_gen/max_link_gen", "pcie_generation_max"),
    Field("pci/pci_gpu_link_info/link_widths/current_link_width", "pcie_width"),
    Field("pci/pci_gpu_link_info/link_widths/max_link_width", "pcie_width_max"),
    Field("pci/replay_counter", "pcie_replay_count"),
    Field("ecc_errors/volatile/dram_uncorrectable", "ecc_uncorrected_volatile_count"),
    Field("ecc_errors/aggregate/dram_correctable", "ecc_corrected_aggregate_count"),
    Field("remapped_rows/remapped_row_corr", "remapped_rows_correctable_count"),
    Field("remapped_rows/remapped_row_unc", "remapped_rows_uncorrectable_count"),
)
WORDS: dict[str, Callable[[Device], str | None]] = {
    "uuid": lambda device: device.uuid,
    "product_name": lambda device: device.name,
    "product_architecture": lambda device: device.architecture,
    "vbios_version": lambda device: device.vbios_version,
    "persistence_mode": lambda device: device.persistence_mode,
    "compute_mode": lambda device: device.compute_mode,
    "mig_mode/current_mig": lambda device: device.mig_mode,
    "mig_mode/pending_mig": lambda device: device.mig_mode_pending,
    "ecc_mode/current_ecc": lambda device: device.ecc_mode,
    "ecc_mode/pending_ecc": lambda device: device.ecc_mode_pending,
    "performance_state": lambda device: f"P{device.get('performance_state') or 0:.0f}",
}
"""What ``nvidia-smi -q -x`` says in words; case and underscores aside, gpumon says the same."""


class Column(NamedTuple):
    """A column of ``nvidia-smi dmon``, or a figure of GPM that stands behind them, and gpumon's own.

    Attributes:
        name: Its head, or GPM's number.
        metric: Its name in gpumon.
        scale: From the one to the other.
        off: How far the medians of some seconds may lie apart.
        share: How far besides, as a share of the value.
    """

    name: str
    metric: str
    scale: float
    off: float
    share: float


COLUMNS = (
    Column("pwr", "power_watts", 1.0, 25.0, 0.05),
    Column("gtemp", "temperature_celsius", 1.0, 2.0, 0.0),
    Column("mtemp", "temperature_memory_celsius", 1.0, 6.0, 0.0),  # it is read every ten seconds
    Column("sm", "utilization_gpu_percent", 1.0, 6.0, 0.05),
    Column("mem", "utilization_memory_percent", 1.0, 6.0, 0.05),
    Column("mclk", "clock_memory_hertz", 1e6, 0.0, 0.0),
    Column("pclk", "clock_sm_hertz", 1e6, 45e6, 0.05),
    Column("fb", "memory_used_bytes", MIB, 2 * MIB, 0.0),
    Column("bar1", "bar1_used_bytes", MIB, 2 * MIB, 0.0),
    Column("pci", "pcie_replay_count", 1.0, 0.0, 0.0),
)
ACTIVITIES = (
    Column("2", "sm_activity_percent", 1.0, 4.0, 0.05),
    Column("3", "sm_occupancy_percent", 1.0, 4.0, 0.05),
    Column("5", "tensor_activity_percent", 1.0, 4.0, 0.05),
    Column("10", "dram_activity_percent", 1.0, 4.0, 0.05),
    Column("11", "fp64_activity_percent", 1.0, 2.0, 0.05),
    Column("12", "fp32_activity_percent", 1.0, 2.0, 0.1),
    Column("13", "fp16_activity_percent", 1.0, 2.0, 0.1),
    Column("20", "pcie_transmit_bytes_per_second", MIB, 300e6, 0.05),
    Column("21", "pcie_receive_bytes_per_second", MIB, 300e6, 0.05),
    Column("60", "nvlink_receive_bytes_per_second", MIB, 300e6, 0.05),
    Column("61", "nvlink_transmit_bytes_per_second", MIB, 300e6, 0.05),
)
"""GPM's numbers; columns of their own behind dmon's."""


@contextmanager
def loads(roles: Sequence[str], count: int) -> Iterator[None]:
    """One load a GPU, from when all work."""
    with ExitStack() as stack:
        started = []
        for index in range(count if roles else 0):
            role = roles[index % len(roles)]
            process = subprocess.Popen([sys.executable, str(LOAD), role, str(index), "200"], stdout=subprocess.PIPE)
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == b"ready"
        yield


class Watch:
    """gpumon's collector with a look at every GPU, as the Device screen takes it."""

    def __init__(self) -> None:
        self.stream = LiveStream(1.0)

    def __enter__(self) -> "Watch":  # noqa: PYI034 - typing has no Self in Python 3.10
        self.stream.start()
        self.stream.look([device.uuid for device in self.seconds(3)[-1].devices if device.uuid])
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def seconds(self, seconds: float) -> list[Frame]:
        """The frames of some seconds from now on."""
        self.stream.inbox.drain()
        frames = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.stream.inbox.arrived.wait(0.5)
            frames += [each for each in self.stream.inbox.drain() if isinstance(each, Frame)]
        assert frames
        return frames


def queried() -> list[ET.Element]:
    done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=True)
    return ET.fromstring(done.stdout).findall("gpu")


def words(text: str | None) -> str:
    return (text or "").lower().replace("_", " ").replace("(", " ").split("/")[0].strip()


def figure(gpu: ET.Element, path: str) -> float | None:
    """The number in a text such as ``143771 MiB``; None where it says that there is none."""
    found = re.match(r"P?(-?[\d.]+)", gpu.findtext(path) or "")
    return None if found is None else float(found[1])


class Dmon:
    """``nvidia-smi dmon`` beside whatever else happens."""

    def __init__(self, seconds: int) -> None:
        numbers = ",".join(each.name for each in ACTIVITIES)
        command = ["nvidia-smi", "dmon", "-s", "pucvmet", "-d", "1", "-c", str(seconds), "--gpm-metrics", numbers]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def middles(self) -> dict[int, dict[str, float]]:
        """The median of every column, by GPU; GPM's columns by their number. Its first line has no rates yet."""
        text, _ = self._process.communicate()
        names = next(line.split()[1:] for line in text.splitlines() if line.startswith("# gpu"))
        standard = names[: len(names) - len(ACTIVITIES)]
        columns = [*standard, *(each.name for each in ACTIVITIES)]
        print(" ".join(names))
        rows: dict[int, list[list[str]]] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                rows.setdefault(int(line.split()[0]), []).append(line.split())
        return {index: self._middles(columns, table[2:]) for index, table in rows.items()}

    def _middles(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, float]:
        by_column = zip(columns, zip(*rows, strict=True), strict=True)
        return {name: statistics.median(map(float, cells)) for name, cells in by_column if all(map(_is_number, cells))}


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+", text) is not None


def middle(frames: Sequence[Frame], index: int, metric: str) -> float | None:
    values = [frame.devices[index].get(metric) for frame in frames]
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def compare(name: str, theirs: Sequence[float | None], mine: float | None, slack: float) -> str | None:
    """What is wrong; nothing if gpumon's value lies among theirs, or neither has one."""
    known = [value for value in theirs if value is not None]
    print(f"{name:52} nvidia-smi {known}  gpumon {mine}")
    if not known and mine is None:
        return None
    if not known or mine is None:
        return f"{name}: nvidia-smi {known}, gpumon {mine}"
    return None if min(known) - slack <= mine <= max(known) + slack else f"{name}: {known} against {mine}"


def wrong_fields(before: Sequence[ET.Element], frame: Frame, after: Sequence[ET.Element], *, pauses: bool) -> list[str]:
    wrong = []
    for device, first, last in zip(frame.devices, before, after, strict=True):
        assert device.uuid == first.findtext("uuid")
        for path, mine in WORDS.items():
            theirs = {words(each.findtext(path)) for each in (first, last)}
            said = words(mine(device))
            print(f"{device.index} {path:50} nvidia-smi {theirs}  gpumon {said!r}")
            if said not in theirs and not theirs <= {"n", ""}:
                wrong.append(f"{device.index} {path}: {theirs} against {said!r}")
        for field in FIELDS:
            if pauses and field.metric in MOMENTARY:
                continue
            readings = [figure(each, field.path) for each in (first, last)]
            scaled = [None if value is None else value * field.scale for value in readings]
            wrong.append(compare(f"{device.index} {field.path}", scaled, device.get(field.metric), field.off) or "")
    return [each for each in wrong if each]


def wrong_middles(theirs: Mapping[int, Mapping[str, float]], frames: Sequence[Frame], wobble: float) -> list[str]:
    wrong = []
    for index, columns in theirs.items():
        for each in (*COLUMNS, *ACTIVITIES):
            if wobble > 1 and each.metric in MOMENTARY:
                continue
            value = columns.get(each.name)
            scaled = None if value is None else value * each.scale
            slack = (each.off + each.share * abs(scaled or 0.0)) * wobble
            mine = middle(frames, index, each.metric)
            wrong.append(compare(f"{index} {each.name} {each.metric}", [scaled], mine, slack) or "")
    return [each for each in wrong if each]


@pytest.mark.parametrize("load", LOADS)
def test_every_field_agrees(load: str) -> None:
    if load != "idle":
        pytest.importorskip("torch")
    with Watch() as watch, loads(LOADS[load], len(queried())):
        watch.seconds(WARM_SECONDS)
        before = queried()
        frame = watch.seconds(1.5)[-1]
        after = queried()
        dmon = Dmon(WATCHED_SECONDS)
        frames = watch.seconds(WATCHED_SECONDS)
        middles = dmon.middles()
        wobble = WOBBLES.get(load, 1.0)
        wrong = wrong_fields(before, frame, after, pauses=wobble > 1) + wrong_middles(middles, frames, wobble)
        assert not wrong, "\n".join(wrong)
        if load == "matmul":
            assert_power_cap(frames)


def assert_power_cap(frames: Sequence[Frame]) -> None:
    """At its power limit a GPU says so. Dense products bring a chip of a server there; others end the test here."""
    devices = [device for frame in frames[2:] for device in frame.devices]
    capped = [each for each in devices if each.readings["power_watts"] > 0.985 * each.readings["power_limit_watts"]]
    if not capped:
        pytest.skip("the products do not reach the power limit of this chip")
    assert all("sw_power_cap" in (each.throttle_reasons or ()) for each in capped)


def test_nvlink_rates_are_those_of_the_copy() -> None:
    if len(queried()) < 2:
        pytest.skip("it takes two GPUs")
    pytest.importorskip("torch")
    command = [sys.executable, str(LOAD), "peers", "0", "60"]
    with Watch() as watch, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as copying:
        assert copying.stdout is not None
        assert "ready\n" in iter(copying.stdout.readline, "")
        watch.seconds(WARM_SECONDS)
        frames = watch.seconds(WATCHED_SECONDS)
        copying.terminate()
        rates = [float(line.split()[1]) for line in copying.stdout if line.startswith("rate")]
    rate = statistics.median(rates)
    sent = middle(frames, 0, "nvlink_transmit_bytes_per_second")
    received = middle(frames, 1, "nvlink_receive_bytes_per_second")
    print(f"copied {rate / 1e9:.1f} GB/s, sent {(sent or 0) / 1e9:.1f}, received {(received or 0) / 1e9:.1f}")
    assert sent == pytest.approx(rate, rel=0.15)
    assert received == pytest.approx(rate, rel=0.15)
