"""`gpumon devices` on stand-in hosts: NVML with and without a CUDA driver, the JSON document, and faults."""

import json
import subprocess
from pathlib import Path

import pytest

from gpumon.core.device_properties import PROPERTY_NAMES
from gpumon.core.gpu_models import GEFORCE_HALVES, capabilities, models
from tests.cli.running import run
from tests.health.test_doctor_child import CUDA
from tests.nvml_mock import NvmlMock, compiler
from tests.workloads.conftest import load_workload

QUERY = """
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (attribute == 82) return 1;
    *value = attribute == 16 ? 132 : attribute == 10 ? 32 : attribute == 38 ? 60 << 20 : attribute * 1024;
    return 0;
}
"""
UUID_CALL = "int cuDeviceGetUuid(unsigned char *uuid, int device) { memset(uuid, 0x10 + device, 16); return 0; }"


def with_cuda(nvml_mock: NvmlMock, folder: Path, uuids: list[str], how: str = "return 0;") -> dict[str, str]:
    """The environment of a host whose CUDA driver lists GPUs with these UUIDs."""
    rows = ",".join(
        "{" + ",".join(f"0x{byte:02x}" for byte in bytes.fromhex(uuid.removeprefix("GPU-").replace("-", ""))) + "}"
        for uuid in uuids
    )
    own = f"static unsigned char U[][16] = {{{rows}}};\n"
    own += "int cuDeviceGetUuid(unsigned char *uuid, int device) { memcpy(uuid, U[device], 16); return 0; }"
    source = CUDA.replace("HOW", how).replace(UUID_CALL, own).replace("*count = 2", f"*count = {len(uuids)}") + QUERY
    (folder / "cuda.c").write_text(source)
    command = [str(compiler()), "-w", "-fPIC", "-shared", "-o", str(folder / "libcuda.so.1"), str(folder / "cuda.c")]
    subprocess.run(command, check=True)
    environment = nvml_mock.environment(gpus=2)
    return {**environment, "LD_LIBRARY_PATH": f"{environment['LD_LIBRARY_PATH']}:{folder}"}


def uuids_of(nvml_mock: NvmlMock) -> list[str]:
    document = json.loads(run("devices", "--json", env=nvml_mock.environment(gpus=2)).stdout)
    return [device["uuid"] for device in document["devices"]]


@pytest.mark.long
def test_every_property_is_listed(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    environment = with_cuda(nvml_mock, tmp_path, uuids_of(nvml_mock))
    done = run("devices", "--json", env={**environment, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    device = document["devices"][1]
    assert set(device) == {*PROPERTY_NAMES, "problems"}
    assert (device["index"], device["compute_capability"], device["sm_count"]) == (1, "9.0", 132)
    assert (device["core_count"], device["warp_size"], device["l2_bytes"]) == (132 * 128, 32, 60 << 20)
    assert (device["memory_bus_width_bits"], device["pcie_width_max"]) == (6016, 16)
    missing = {name for name, value in device.items() if value is None}
    assert "registers_per_sm" in missing
    assert missing == set(device["problems"])
    assert device["problems"]["registers_per_sm"]["code"] == "not_supported"


def test_peaks_and_the_data_sheet(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    environment = with_cuda(nvml_mock, tmp_path, uuids_of(nvml_mock))
    device = json.loads(run("devices", "--json", env=environment).stdout)["devices"][0]
    clock = device["clock_sm_max_hertz"]
    assert device["peak_operations_per_second"]["bf16"] == 4096 * 132 * clock
    assert device["tensor_core_generation"] == 4
    assert device["memory_bandwidth_bytes_per_second"] == 2 * device["clock_memory_max_hertz"] * 6016 / 8
    text = run("devices", env={**environment, "COLUMNS": "120"}).stdout
    assert "H200 SXM: 989 TFLOP/s bf16, 4,800 GB/s, 700 W; by its clocks 108% of its TFLOP/s" in text
    table = run("devices", "--reference", env=environment).stdout
    assert all(model.name in table for model in models())


def test_rates_are_those_of_the_workloads() -> None:
    peaks = load_workload("_kit.peaks")
    known = {capability: row.rates for capability, row in capabilities().items() if row.rates}
    assert {f"{major}.{minor}": rates for (major, minor), rates in peaks._RATES.items()} == known
    assert peaks._GEFORCE_HALVES == GEFORCE_HALVES


def test_gpus_of_one_kind_are_listed_together(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    uuids = uuids_of(nvml_mock)
    done = run("devices", env={**with_cuda(nvml_mock, tmp_path, uuids), "COLUMNS": "80"})
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("GPUs 0, 1: NVIDIA" in text for text in lines) == 1
    assert "SMs                       132 (16,896 FP32 cores)  CUDA" in lines
    assert "L2 cache                  60.0 MiB  CUDA" in lines
    assert "Registers per SM          –  CUDA" in lines
    assert [text for text in lines if text.startswith("GPU ")] == [
        f"GPU {index}   {uuid}" for index, uuid in enumerate(uuids)
    ]


def test_a_gpu_that_cuda_does_not_list_has_the_reason(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    environment = with_cuda(nvml_mock, tmp_path, uuids_of(nvml_mock)[:1])
    first, second = json.loads(run("devices", "--json", env=environment).stdout)["devices"]
    assert [(gpu["sm_count"], gpu["sm_count_source"]) for gpu in (first, second)] == [(132, "cuda"), (132, "nvml")]
    assert second["peak_operations_per_second"] == first["peak_operations_per_second"]
    assert "CUDA does not list this GPU" in second["problems"]["l2_bytes"]["reason"]
    without = {**environment, "NVML_MOCK_FAULT": "notsupported:nvmlDeviceGetNumGpuCores"}
    _, second = json.loads(run("devices", "--json", env=without).stdout)["devices"]
    assert second["sm_count"] is second["sm_count_source"] is None
    assert second["problems"]["core_count"] == second["problems"]["sm_count"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("return 802;", "CUDA cannot be initialized: CUDA_ERROR_SYSTEM_NOT_READY."),
        ("raise(SIGSEGV); return 0;", "did not answer: killed by SIGSEGV."),
    ],
)
def test_a_cuda_driver_that_fails_costs_only_its_values(
    nvml_mock: NvmlMock, tmp_path: Path, how: str, words: str
) -> None:
    done = run("devices", "--json", env=with_cuda(nvml_mock, tmp_path, uuids_of(nvml_mock), how))
    assert done.returncode == 0
    device = json.loads(done.stdout)["devices"][0]
    assert device["memory_total_bytes"] > 0
    assert device["sm_count"] == 132
    assert words in device["problems"]["l2_bytes"]["reason"]
