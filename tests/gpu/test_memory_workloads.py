"""On a real GPU: managed memory, the memory hierarchy, memory tests, burn-in, and the list of devices."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.test_live import smi, status
from tests.gpu.test_workloads import WorkloadProcess, assert_memory_freed, metrics, show, used_bytes

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240), pytest.mark.xdist_group("gpu")]

GIBIBYTE = 1 << 30
MAX_STEP_FACTOR = 1.5


@pytest.fixture(autouse=True)
def separate_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def finished(*argv: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result of a workload that leaves no memory behind, and all of its events."""
    before = used_bytes()
    workload = WorkloadProcess(*argv)
    result = workload.finish()
    show(result)
    assert_memory_freed(before)
    return result, workload.events


def by_case(result: dict[str, Any], name: str) -> dict[str, float]:
    return {figure.get("case", ""): figure["value"] for figure in result["figures"] if figure["name"] == name}


def test_prefetched_managed_memory_is_faster_than_first_touch() -> None:
    before = used_bytes()
    workload = WorkloadProcess("managed")
    for _ in workload:
        pass
    workload.process.wait(30)
    if workload.process.returncode == 3:
        pytest.skip(next(event["text"] for event in workload.events if event["event"] == "error"))
    result = workload.finish()
    show(result)
    rates = by_case(result, "to_gpu")
    assert result["verdict"] == "ok"
    assert set(rates) == {"explicit copy", "first touch", "prefetch", "read mostly"}
    assert rates["prefetch"] > rates["first touch"]
    assert by_case(result, "second_read")["first touch"] > 5 * rates["first touch"], "the pages stay on the GPU"
    assert by_case(result, "to_host")["read mostly"] > by_case(result, "to_host")["first touch"]
    assert_memory_freed(before)


def test_the_step_of_the_hierarchy_is_at_the_size_of_l2() -> None:
    result, events = finished("hierarchy")
    print(*(event["text"] for event in events if event["event"] == "step"), sep="\n")
    chip = next(event["chip"] for event in events if event["event"] == "plan")
    assert result["verdict"] == "ok", result["why"]
    step = metrics(result)["l2_step"] * (1 << 20)
    assert 1 / MAX_STEP_FACTOR < step / chip["l2_bytes"] < MAX_STEP_FACTOR
    bandwidth, latency = by_case(result, "bandwidth"), by_case(result, "latency")
    assert bandwidth["registers"] > bandwidth["shared memory"] > bandwidth["L2"] > bandwidth["DRAM"]
    assert latency["registers"] < latency["shared memory"] < latency["L2"] < latency["DRAM"]
    occupancy, rates = by_case(result, "occupancy"), by_case(result, "dram_bandwidth")
    assert rates[max(occupancy, key=occupancy.__getitem__)] > rates[min(occupancy, key=occupancy.__getitem__)]
    useful = by_case(result, "useful_bandwidth")
    assert useful["stride 1"] > 3 * useful["stride 8"]
    sweep = [figure for figure in result["figures"] if figure["name"] == "read_bandwidth"]
    assert [figure["position"] for figure in sweep] == sorted(figure["position"] for figure in sweep)


def test_nearly_all_memory_is_tested() -> None:
    free = status()["devices"][0]["memory_free_bytes"]
    result, _ = finished("memtest", "--set", "duration=5")
    values = metrics(result)
    assert result["verdict"] in {"ok", "warn"}, result["why"]
    assert values["wrong_words"] == 0
    assert values["rounds"] >= 1
    assert values["memory_tested"] * GIBIBYTE > 0.9 * (free - 3 * GIBIBYTE)
    assert "ECC" in result["why"] or "remapped" in result["why"]


@pytest.mark.parametrize("mode", ["alternating", "together"])
def test_a_short_burn(mode: str) -> None:
    result, _ = finished("burn", "--duration", "20s", "--set", f"mode={mode}", "--set", "phase_seconds=5")
    values = metrics(result)
    assert result["verdict"] in {"ok", "warn"}, result["why"]
    assert "no wrong result" in result["why"]
    assert "The highest temperature was" in result["why"]
    assert values["wrong_words"] == values["wrong_elements"] == 0
    assert values["memory_compared"] * 1e9 >= values["memory_tested"] * GIBIBYTE
    assert values["throughput"] > 1
    assert {"sm_clock", "power", "temperature"} <= set(values)


def test_the_list_of_devices_agrees_with_nvidia_smi() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "devices", "--json"], capture_output=True, text=True, check=True
    )
    print(
        subprocess.run([sys.executable, "-m", "gpumon", "devices"], capture_output=True, text=True, check=True).stdout
    )
    devices = json.loads(done.stdout)["devices"]
    theirs = smi("gpu", "index", "uuid", "name", "compute_cap")
    assert [device["uuid"] for device in devices] == [row["uuid"] for row in theirs]
    for device, row in zip(devices, theirs, strict=True):
        assert (device["name"], device["compute_capability"]) == (row["name"], row["compute_cap"])
        assert device["warp_size"] == 32
        assert device["sm_count"] > 0
        assert device["l2_bytes"] > 1 << 20
        missing = {name for name, value in device.items() if value is None}
        assert missing <= set(device["problems"])
