"""What a driver does not have or answers wrongly: missing in that one place, with its reason, and used nowhere."""

import csv
import json
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, Frame
from gpumon.core.problems import ProblemCode
from gpumon.core.store import Store
from gpumon.operations.export import export
from gpumon.streams.recording import RecordingWriter
from tests.collect.conftest import Live
from tests.collect.test_faults import states

pytestmark = pytest.mark.xdist_group("clock")

PARTS = {
    "power": {"power_watts", "power_limit_watts", "power_instant_watts"},
    "temp": {f"temperature_{what}celsius" for what in ("", "slowdown_", "shutdown_", "memory_")},
    "util": {f"utilization_{unit}_percent" for unit in ("gpu", "memory", "encoder", "decoder")},
    "mem": {f"memory_{part}_bytes" for part in ("total", "used", "reserved", "free", "unattributed")}
    | {"bar1_total_bytes", "bar1_used_bytes"},
    "clock": {f"clock_{kind}_hertz" for kind in ("sm", "sm_max", "memory", "memory_max", "video", "video_max")},
    "pcie": {"pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max", "pcie_replay_count"},
    "ecc": {f"ecc_{kind}_{since}_count" for kind in ("corrected", "uncorrected") for since in ("volatile", "aggregate")}
    | {f"remapped_rows_{what}" for what in ("correctable_count", "uncorrectable_count", "pending", "failure")},
    "nvlink": {"nvlink_links_count", "nvlink_bytes_per_second"},
    "procs": {"memory_unattributed_bytes"},
    "name": set(),
    "uuid": set(),
    "pci": set(),
}
"""What a GPU loses whose driver does not have a category of calls."""

FIELDS = {"clock": "throttle_reasons", "procs": "processes", "name": "name", "uuid": "uuid", "pci": "pci_bus_id"}
GARBAGE = {
    "util": "utilization_gpu_percent",
    "power": "power_watts",
    "temp": "temperature_celsius",
    "mem": "memory_used_bytes",
    "zeromem": "memory_total_bytes",
    "powerlimit": "power_limit_watts",
}


def is_read(device: Device) -> bool:
    """Whether the first turn of every lane has come."""
    return {"nvlink_bytes_per_second", "pcie_replay_count", "remapped_rows_pending"} <= set(device.readings)


def log_after(path: Path, seconds: float) -> dict[str, Any]:
    """The first call log of a moment later than ``seconds`` of the library's life."""
    deadline = time.monotonic() + seconds + 15
    while time.monotonic() < deadline:
        if path.exists():
            log: dict[str, Any] = json.loads(path.read_text())
            if log["t"] > seconds:
                return log
        time.sleep(0.05)
    raise AssertionError("no call log")


def test_what_a_driver_lacks_is_missing_there_alone_and_is_not_asked_for_again(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    fault = ",".join(f"notsupported:{part}:{index}" for index, part in enumerate(PARTS))
    watched = live(gpus=len(PARTS) + 1, fault=fault, NVML_MOCK_LOG=str(path), NVML_MOCK_FAN="1")
    watched.until(lambda frame: bool(frame.devices) and is_read(frame.devices[-1]))
    frame = watched.collect(0.5)[-1]
    assert set(states(frame)) == {"ok"}
    *broken, whole = frame.devices
    for (part, lost), device in zip(PARTS.items(), broken, strict=True):
        assert set(whole.readings) - set(device.readings) == lost & set(whole.readings), part
        for metric in lost:
            derived = metric == "memory_unattributed_bytes"
            assert device.problems[metric].code is (ProblemCode.NOT_READ if derived else ProblemCode.NOT_SUPPORTED)
        if part in FIELDS:
            assert getattr(device, FIELDS[part]) is None, part
            assert device.problems[FIELDS[part]].code is ProblemCode.NOT_SUPPORTED
    early = log_after(path, 2.5)
    late = log_after(path, early["t"] + 1.5)
    assert late["total"] > early["total"] + 100
    assert late["errors_by_fn"] == early["errors_by_fn"]


def test_garbage_reaches_neither_history_nor_sums_nor_files(live: Live, tmp_path: Path) -> None:
    fault = ",".join(f"garbage:{kind}:{index}" for index, kind in enumerate(GARBAGE))
    watched = live(gpus=len(GARBAGE) + 1, fault=fault)
    watched.until(lambda frame: bool(frame.devices) and is_read(frame.devices[-1]))
    frames = watched.collect(1)
    store = Store(bucket_seconds=1)
    recording = tmp_path / "garbage.jsonl"
    writer = RecordingWriter(recording)
    for frame in frames:
        store.apply(frame)
        writer.write(frame)
    writer.close()
    _check_devices(frames[-1], store)
    _check_export(recording)
    drawn = [device.readings["power_watts"] for device in frames[-1].devices if "power_watts" in device.readings]
    assert len(drawn) == len(GARBAGE), "all but the one whose power cannot be true"


def _check_devices(frame: Frame, store: Store) -> None:
    for (kind, metric), device in zip(GARBAGE.items(), frame.devices, strict=False):
        assert metric not in device.readings, kind
        assert device.problems[metric].code is ProblemCode.INVALID_VALUE
        history = store.of_device(device.key)
        assert history is not None
        last = int(frame.monotonic_seconds)
        assert not any(history.timeline.columns(metric, last - 3, 5, 1.0)), kind
        for name, value in device.readings.items():
            assert METRICS[name].admits(value), (kind, name)
            assert any(history.timeline.columns(name, last - 3, 5, 1.0)), (kind, name)
        for name in METRICS:
            strip = store.history(device.key, name, 30)
            assert all(value is None or METRICS[name].admits(value) for value in strip)


def _check_export(recording: Path) -> None:
    text = StringIO()
    export(recording, list(METRICS), None, text, as_json=False)
    rows = list(csv.DictReader(StringIO(text.getvalue())))
    assert len(rows) > len(GARBAGE)
    for row in rows:
        index = int(row["index"])
        wrong = list(GARBAGE.values())[index] if index < len(GARBAGE) else None
        assert wrong is None or row[wrong] == ""
        assert all(row[name] == "" or METRICS[name].admits(float(row[name])) for name in METRICS)
