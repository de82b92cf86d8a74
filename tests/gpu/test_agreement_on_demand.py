"""On a real GPU: values that are read rarely or on demand agree with nvidia-smi or another source of the driver."""

import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest

from gpumon.collect.activity import PcieThroughput
from gpumon.collect.nvml import Nvml
from gpumon.core.model import HOST_RATES, Device
from gpumon.core.problems import ProblemCode
from tests.gpu.test_agreement import (
    LOAD,
    SAMPLED_SECONDS,
    WARM_SECONDS,
    DetailedStream,
    loads,
    median_of,
    number_of,
    queried,
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

SLOW_SECONDS = 12.0
"""Every value has been read by then."""
RETIRED = {
    "retired_pages_corrected_count": "retired_pages/multiple_single_bit_retirement/retired_count",
    "retired_pages_uncorrected_count": "retired_pages/double_bit_retirement/retired_count",
}


def test_rarely_read_values_agree() -> None:
    with DetailedStream() as detailed:
        devices = detailed.seconds(SLOW_SECONDS)[-1].devices
    for device, gpu in zip(devices, queried(), strict=True):
        assert device.uuid == gpu.findtext("uuid")
        print({metric: device.get(metric) or device.problems[metric] for metric in RETIRED})
        for metric, path in RETIRED.items():
            assert device.get(metric) == number_of(gpu, path)
            assert device.get(metric) is not None or device.problems[metric].code is ProblemCode.NOT_SUPPORTED
        agree_on_video_clock(device, gpu)
        agree_on_thresholds(device, gpu)


def agree_on_video_clock(device: Device, gpu: ET.Element) -> None:
    maximum, now = number_of(gpu, "max_clocks/video_clock"), number_of(gpu, "clocks/video_clock")
    print("video clock", device.get("clock_video_hertz"), device.get("clock_video_max_hertz"), now, maximum)
    assert maximum is not None
    assert now is not None
    assert device.get("clock_video_max_hertz") == maximum * 1e6
    assert device.get("clock_video_hertz") == pytest.approx(now * 1e6, abs=60e6)


def agree_on_thresholds(device: Device, gpu: ET.Element) -> None:
    """nvidia-smi reports degrees, or since Ada distances to a limit that it does not report."""
    names = ("gpu_temp_max_threshold", "gpu_temp_slow_threshold", "gpu_temp_max_tlimit_threshold")
    shutdown, slowdown, shutdown_distance = (number_of(gpu, f"temperature/{name}") for name in names)
    mine = device.get("temperature_shutdown_celsius"), device.get("temperature_slowdown_celsius")
    print("shutdown and slowdown", mine, "nvidia-smi", shutdown, slowdown, shutdown_distance)
    if shutdown is not None or mine == (None, None):
        assert mine == (shutdown, slowdown)
        return
    slowdown_distance = number_of(gpu, "temperature/gpu_temp_slow_tlimit_threshold")
    assert None not in {*mine, shutdown_distance, slowdown_distance}
    assert (mine[0] or 0) - (mine[1] or 0) == pytest.approx((slowdown_distance or 0) - (shutdown_distance or 0), abs=1)


@pytest.mark.parametrize("role", [None, "matmul"])
def test_energy_is_power_over_time(role: str | None) -> None:
    if role is not None:
        pytest.importorskip("torch")
    with DetailedStream() as detailed, loads([] if role is None else [role], len(queried())):
        detailed.seconds(WARM_SECONDS)
        frames = [frame for frame in detailed.seconds(30) if "energy_joules" in frame.devices[0].readings]
    first, last = frames[0], frames[-1]
    seconds = last.monotonic_seconds - first.monotonic_seconds
    used = last.devices[0].readings["energy_joules"] - first.devices[0].readings["energy_joules"]
    power = statistics.mean(frame.devices[0].readings["power_watts"] for frame in frames)
    print(f"{used:.0f} J in {seconds:.1f} s are {used / seconds:.0f} W; power {power:.0f} W")
    assert used / seconds == pytest.approx(power, rel=0.1, abs=5)


@pytest.mark.parametrize("role", ["copies", "matmul"])
def test_sm_shares_of_processes_agree(role: str) -> None:
    """``nvidia-smi pmon`` prints the share of each process, or a dash for none."""
    pytest.importorskip("torch")
    command = ["nvidia-smi", "pmon", "-s", "u", "-d", "1", "-c", str(SAMPLED_SECONDS)]
    with DetailedStream() as detailed, loads([role], len(queried())):
        detailed.seconds(WARM_SECONDS)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pmon:
            frames = detailed.seconds(SAMPLED_SECONDS)
            text = pmon.communicate()[0]
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    theirs = [float(row[3]) for row in rows if row[0] == "0" and row[3].isdigit()][2:]
    processes = [process for frame in frames for process in frame.devices[0].processes or ()]
    mine = [process.sm_percent for process in processes if process.sm_percent is not None][2:]
    print(f"{role}: nvidia-smi pmon {theirs}  gpumon {mine}")
    assert mine, {str(problem) for process in processes for problem in process.problems.values()}
    assert theirs
    assert statistics.median(mine) == pytest.approx(statistics.median(theirs), abs=6)


def test_measured_pcie_rates_agree_with_the_counters() -> None:
    """The rates that stand in for the counters before Hopper, on a GPU that has both."""
    pytest.importorskip("torch")
    with subprocess.Popen([sys.executable, str(LOAD), "copies", "0", "60"], stdout=subprocess.PIPE) as load:
        try:
            assert load.stdout is not None
            assert load.stdout.readline().strip() == b"ready"
            with DetailedStream() as detailed:
                frames = detailed.seconds(SAMPLED_SECONDS)
            counted = median_of(frames, 0, "pcie_receive_bytes_per_second")
            measured, cost = measured_rates(10)
        finally:
            load.kill()
    print(f"received: counters {counted}, measured {measured}, {cost * 1e3:.1f} ms a sample")
    assert measured > 1e9
    if "sm_activity_percent" in frames[-1].devices[0].readings:
        assert measured == pytest.approx(counted, rel=0.15)


def measured_rates(count: int) -> tuple[float, float]:
    """Median of the received bytes per second of GPU 0, and mean seconds that a sample of both directions takes."""
    api = Nvml()
    api.call("nvmlInitWithFlags", 0)
    source = PcieThroughput(api, api.call("nvmlDeviceGetHandleByIndex", 0))
    started = time.perf_counter()
    values = [source.read()["pcie_receive_bytes_per_second"] for _ in range(count)]
    seconds = (time.perf_counter() - started) / count
    api.call("nvmlShutdown")
    return statistics.median(value for value in values if isinstance(value, (int, float))), seconds


def test_the_host_reports_its_rates() -> None:
    with DetailedStream() as detailed:
        host = detailed.seconds(3)[-1].host
    print({field: getattr(host, field) for field in HOST_RATES}, host.problems)
    assert host.disk_read_bytes_per_second is not None
    assert host.network_receive_bytes_per_second is not None
