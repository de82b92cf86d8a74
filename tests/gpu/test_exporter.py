"""On a real GPU: what the exporter serves agrees with nvidia-smi."""

import re
import subprocess
import sys
import time
import urllib.request
from functools import partial

import pytest

from tests.gpu.test_live import MEBIBYTE, smi

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120), pytest.mark.xdist_group("gpu")]

_LOAD = """
import time, torch
held = torch.zeros(4 << 30, dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
print("ready", flush=True)
time.sleep(60)
"""


def values(text: str, name: str, label: str) -> dict[str, float]:
    """Values of a metric by a label."""
    by_label = {}
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            match = re.search(rf'{label}="([^"]*)"', line)
            assert match is not None
            by_label[match[1]] = float(line.rpartition(" ")[2])
    return by_label


def test_the_exporter_agrees_with_nvidia_smi() -> None:
    command = [sys.executable, "-m", "gpumon", "exporter", "--listen", "127.0.0.1:0"]
    load = subprocess.Popen([sys.executable, "-c", _LOAD], stdout=subprocess.PIPE, text=True)
    with load, subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as exporter:
        try:
            assert load.stdout is not None
            assert load.stdout.readline() == "ready\n"
            assert exporter.stderr is not None
            url = exporter.stderr.readline().split()[1]
            time.sleep(4)
            start = time.perf_counter()
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
            seconds = time.perf_counter() - start
            rows = smi("gpu", "uuid", "memory.used", "temperature.gpu", "power.draw", "clocks.sm")
            apps = smi("compute-apps", "pid", "used_memory")
        finally:
            exporter.terminate()
            load.kill()
    memory = values(text, "gpumon_gpu_memory_used_bytes", "uuid")
    for row in rows:
        uuid, exported = row["uuid"], partial(values, text, label="uuid")
        assert memory[uuid] == pytest.approx(float(row["memory.used"]) * MEBIBYTE, abs=32 * MEBIBYTE)
        temperature, power = float(row["temperature.gpu"]), float(row["power.draw"])
        assert exported("gpumon_gpu_temperature_celsius")[uuid] == pytest.approx(temperature, abs=3)
        assert exported("gpumon_gpu_power_watts")[uuid] == pytest.approx(power, rel=0.25, abs=25)
        assert exported("gpumon_gpu_clock_sm_hertz")[uuid] == pytest.approx(float(row["clocks.sm"]) * 1e6, rel=0.25)
    processes = values(text, "gpumon_process_gpu_memory_bytes", "pid")
    expected = {row["pid"]: float(row["used_memory"]) * MEBIBYTE for row in apps}
    assert processes == pytest.approx(expected, abs=MEBIBYTE)
    assert values(text, "gpumon_gpu_sm_activity_ratio", "uuid").keys() == {row["uuid"] for row in rows}
    print(f"{len(text.encode())} bytes in {seconds * 1e3:.0f} ms")
