"""On real GPUs, idle and under load: every metric agrees with ``nvidia-smi -q`` and ``nvidia-smi dmon``."""

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
SAMPLED_SECONDS = 12
MIB = float(1 << 20)
LOADS: dict[str, tuple[str, ...]] = {
    "idle": (),
    "matmul": ("matmul",),
    "copies": ("copies",),
    "training": ("training",),
    "mixed": ("training", "copies", "matmul", "holding"),
}
"""The loads of the GPUs by index, repeated for further GPUs."""
QUICK_LOADS = {"idle", "copies", "training"}
TOLERANCE_FACTORS = {"training": 3.0, "mixed": 3.0}
"""Factors of the tolerances: a training job pauses at times, and two readers sample different pauses."""
MOMENTARY = {"utilization_gpu_percent", "utilization_memory_percent", "power_watts", "temperature_celsius"}
"""The driver averages these over at most one second; two readers of a load with pauses get different values."""


class Field(NamedTuple):
    """A field of ``nvidia-smi -q -x`` and the metric of gpumon.

    Attributes:
        path: Path of the field below ``gpu``, or paths with + between them for a sum.
        metric: Name of the metric in gpumon.
        scale: Factor from nvidia-smi's unit to gpumon's.
        tolerance: Maximum difference of two samples at the same time.
    """

    path: str
    metric: str
    scale: float = 1.0
    tolerance: float = 0.0


FIELDS = (
    Field("fb_memory_usage/total", "memory_total_bytes", MIB, MIB),
    Field("fb_memory_usage/reserved", "memory_reserved_bytes", MIB, 2 * MIB),
    Field("fb_memory_usage/used", "memory_used_bytes", MIB, 2 * MIB),
    Field("fb_memory_usage/free", "memory_free_bytes", MIB, 2 * MIB),
    Field("bar1_memory_usage/total", "bar1_total_bytes", MIB, MIB),
    Field("temperature/gpu_temp", "temperature_celsius", 1, 2),
    Field("temperature/memory_temp", "temperature_memory_celsius", 1, 12),  # read every ten seconds; it warms by 10
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
    Field(
        "ecc_errors/aggregate/sram_correctable+ecc_errors/aggregate/dram_correctable", "ecc_corrected_aggregate_count"
    ),
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
"""Text fields of ``nvidia-smi -q -x``, which gpumon reports in the same words except for case and underscores."""


class Column(NamedTuple):
    """A column of ``nvidia-smi dmon``, or one of the GPM metrics after them, and the metric of gpumon.

    Attributes:
        name: Heading of the column, or number of the GPM metric.
        metric: Name of the metric in gpumon.
        scale: Factor from dmon's unit to gpumon's.
        tolerance: Maximum difference of the medians of some seconds.
        share: Additional tolerance as a share of the value.
    """

    name: str
    metric: str
    scale: float
    tolerance: float
    share: float


COLUMNS = (
    Column("pwr", "power_watts", 1.0, 25.0, 0.05),
    Column("gtemp", "temperature_celsius", 1.0, 2.0, 0.0),
    Column("mtemp", "temperature_memory_celsius", 1.0, 12.0, 0.0),
    Column("sm", "utilization_gpu_percent", 1.0, 6.0, 0.05),
    Column("mem", "utilization_memory_percent", 1.0, 6.0, 0.05),
    Column("mclk", "clock_memory_hertz", 1e6, 0.0, 0.0),
    Column("pclk", "clock_sm_hertz", 1e6, 45e6, 0.05),
    Column("fb", "memory_used_bytes", MIB, 2 * MIB, 0.0),
    Column("bar1", "bar1_used_bytes", MIB, 2 * MIB, 0.0),
    Column("pci", "pcie_replay_count", 1.0, 0.0, 0.0),
)
ACTIVITIES = (
    Column("1", "engine_activity_percent", 1.0, 4.0, 0.05),
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
"""GPM metrics, which dmon prints as separate columns after its own."""


@contextmanager
def loads(roles: Sequence[str], count: int) -> Iterator[None]:
    """One load per GPU; yields when all of them work."""
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


class DetailedStream:
    """gpumon's collector with detailed sampling of every GPU, as the Device screen requests it."""

    def __init__(self) -> None:
        self.stream = LiveStream(1.0)

    def __enter__(self) -> "DetailedStream":  # noqa: PYI034 - typing has no Self in Python 3.10
        self.stream.start()
        self.stream.request_on_demand([device.uuid for device in self.seconds(3)[-1].devices if device.uuid])
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def seconds(self, seconds: float) -> list[Frame]:
        """The frames of the next seconds."""
        self.stream.inbox.drain()
        frames = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.stream.inbox.arrived.wait(0.5)
            frames += [arrival for arrival in self.stream.inbox.drain() if isinstance(arrival, Frame)]
        assert frames
        return frames


def queried() -> list[ET.Element]:
    done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=True)
    return ET.fromstring(done.stdout).findall("gpu")


def words(text: str | None) -> str:
    return (text or "").lower().replace("_", " ").replace("(", " ").split("/")[0].strip()


def number_of(gpu: ET.Element, path: str) -> float | None:
    """The number in a text such as ``143771 MiB``; None for a text without a number, such as ``N/A``."""
    matches = [re.match(r"P?(-?[\d.]+)", gpu.findtext(part) or "") for part in path.split("+")]
    return sum(float(match[1]) for match in matches if match) if all(matches) else None


class Dmon:
    """``nvidia-smi dmon`` in the background."""

    def __init__(self, seconds: int) -> None:
        numbers = ",".join(column.name for column in ACTIVITIES)
        command = ["nvidia-smi", "dmon", "-s", "pucvmet", "-d", "1", "-c", str(seconds), "--gpm-metrics", numbers]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def medians(self) -> dict[int, dict[str, float]]:
        """The median of every column, by GPU; GPM columns by their number. The first lines have no rates yet."""
        text, _ = self._process.communicate()
        names = next(line.split()[1:] for line in text.splitlines() if line.startswith("# gpu"))
        standard = names[: len(names) - len(ACTIVITIES)]
        columns = [*standard, *(column.name for column in ACTIVITIES)]
        print(" ".join(names))
        rows: dict[int, list[list[str]]] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                rows.setdefault(int(line.split()[0]), []).append(line.split())
        return {index: self._medians(columns, table[2:]) for index, table in rows.items()}

    def _medians(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, float]:
        by_column = zip(columns, zip(*rows, strict=True), strict=True)
        return {name: statistics.median(map(float, cells)) for name, cells in by_column if all(map(_is_number, cells))}


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+", text) is not None


def median_of(frames: Sequence[Frame], index: int, metric: str) -> float | None:
    values = [frame.devices[index].get(metric) for frame in frames]
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def compare(name: str, theirs: Sequence[float | None], mine: float | None, tolerance: float) -> str | None:
    """A description of the disagreement; None if gpumon's value lies among theirs, or neither has a value."""
    known = [value for value in theirs if value is not None]
    print(f"{name:52} nvidia-smi {known}  gpumon {mine}")
    if not known and mine is None:
        return None
    if not known or mine is None:
        return f"{name}: nvidia-smi {known}, gpumon {mine}"
    return None if min(known) - tolerance <= mine <= max(known) + tolerance else f"{name}: {known} against {mine}"


def wrong_fields(before: Sequence[ET.Element], frame: Frame, after: Sequence[ET.Element], *, pauses: bool) -> list[str]:
    wrong = []
    for device, first, last in zip(frame.devices, before, after, strict=True):
        assert device.uuid == first.findtext("uuid")
        for path, mine in WORDS.items():
            theirs = {words(gpu.findtext(path)) for gpu in (first, last)}
            text = words(mine(device))
            print(f"{device.index} {path:50} nvidia-smi {theirs}  gpumon {text!r}")
            if text not in theirs and not theirs <= {"n", ""}:
                wrong.append(f"{device.index} {path}: {theirs} against {text!r}")
        for field in FIELDS:
            if pauses and field.metric in MOMENTARY:
                continue
            values = [number_of(gpu, field.path) for gpu in (first, last)]
            scaled = [None if value is None else value * field.scale for value in values]
            wrong.append(
                compare(f"{device.index} {field.path}", scaled, device.get(field.metric), field.tolerance) or ""
            )
    return list(filter(None, wrong))


def wrong_medians(theirs: Mapping[int, Mapping[str, float]], frames: Sequence[Frame], factor: float) -> list[str]:
    wrong = []
    for index, columns in theirs.items():
        for column in (*COLUMNS, *ACTIVITIES):
            if factor > 1 and column.metric in MOMENTARY:
                continue
            value = columns.get(column.name)
            scaled = None if value is None else value * column.scale
            tolerance = (column.tolerance + column.share * abs(scaled or 0.0)) * factor
            mine = median_of(frames, index, column.metric)
            wrong.append(compare(f"{index} {column.name} {column.metric}", [scaled], mine, tolerance) or "")
    return list(filter(None, wrong))


@pytest.mark.parametrize(
    "load", [pytest.param(name, marks=[pytest.mark.quick] if name in QUICK_LOADS else []) for name in LOADS]
)
def test_every_field_agrees(load: str) -> None:
    if load != "idle":
        pytest.importorskip("torch")
    with DetailedStream() as detailed, loads(LOADS[load], len(queried())):
        detailed.seconds(WARM_SECONDS)
        before = queried()
        frame = detailed.seconds(1.5)[-1]
        after = queried()
        dmon = Dmon(SAMPLED_SECONDS)
        frames = detailed.seconds(SAMPLED_SECONDS)
        medians = dmon.medians()
        factor = TOLERANCE_FACTORS.get(load, 1.0)
        wrong = wrong_fields(before, frame, after, pauses=factor > 1) + wrong_medians(medians, frames, factor)
        assert not wrong, "\n".join(wrong)
        if load == "matmul":
            assert_power_cap(frames)


def assert_power_cap(frames: Sequence[Frame]) -> None:
    """A GPU at its power limit reports it. Dense products bring a server GPU to its limit; others skip the test."""
    devices = [device for frame in frames[2:] for device in frame.devices]
    capped = [gpu for gpu in devices if gpu.readings["power_watts"] > 0.985 * gpu.readings["power_limit_watts"]]
    if not capped:
        pytest.skip("the products do not reach the power limit of this chip")
    assert all("sw_power_cap" in (gpu.throttle_reasons or ()) for gpu in capped)


def test_nvlink_rates_are_those_of_the_copy() -> None:
    if len(queried()) < 2:
        pytest.skip("needs two GPUs")
    pytest.importorskip("torch")
    command = [sys.executable, str(LOAD), "peers", "0", "60"]
    with DetailedStream() as detailed, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as copying:
        assert copying.stdout is not None
        assert "ready\n" in iter(copying.stdout.readline, "")
        detailed.seconds(WARM_SECONDS)
        frames = detailed.seconds(SAMPLED_SECONDS)
        copying.terminate()
        rates = [float(line.split()[1]) for line in copying.stdout if line.startswith("rate")]
    rate = statistics.median(rates)
    sent = median_of(frames, 0, "nvlink_transmit_bytes_per_second")
    received = median_of(frames, 1, "nvlink_receive_bytes_per_second")
    print(f"copied {rate / 1e9:.1f} GB/s, sent {(sent or 0) / 1e9:.1f}, received {(received or 0) / 1e9:.1f}")
    assert sent == pytest.approx(rate, rel=0.15)
    assert received == pytest.approx(rate, rel=0.15)
