"""The outcome of the doctor's child for stand-ins of a driver library and a torch that work, fail, crash, and hang."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.health.doctor.facts import Steps
from gpumon.operations.doctor.children import Children
from tests.nvml_mock import compiler

PATIENCE_SECONDS = 60.0
CUDA = """
#include <signal.h>
#include <string.h>
#include <unistd.h>
int cuDriverGetVersion(int *version) { *version = 13010; return 0; }
int cuInit(unsigned flags) { HOW }
int cuGetErrorName(int code, const char **name) { *name = "CUDA_ERROR_SYSTEM_NOT_READY"; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "NVIDIA H200", size); return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { memset(uuid, 0x10 + device, 16); return 0; }
int cuDeviceCanAccessPeer(int *can, int one, int other) { *can = one < other; return 0; }
"""
TORCH = """
import os
from types import SimpleNamespace as Some

__version__ = "2.13.0+cu130"
version = Some(cuda="13.0", hip=None)
_C = Some(_cuda_getArchFlags=lambda: "sm_90 compute_90")


class Tensor:
    def __init__(self, value):
        self.value = value

    def sum(self):
        return self.value

    def __matmul__(self, other):
        return Tensor(16**3)


def arange(count, device):
    assert device != ("cuda", 1) or HOW
    return Tensor(2016)


def ones(*shape, device):
    return Tensor(36)


def device(kind, ordinal):
    return kind, ordinal


properties = [
    Some(name="NVIDIA H200", uuid="aaaaaaaa-0000", major=9, minor=0),
    Some(name="NVIDIA H200", uuid="bbbbbbbb-0000", major=9, minor=0),
]
cuda = Some(
    is_available=lambda: True,
    device_count=lambda: 2,
    get_device_properties=lambda ordinal: properties[ordinal],
    nccl=Some(version=lambda: (2, 29, 7)),
)
nn = Some(functional=Some(conv2d=lambda one, other: one))
backends = Some(cudnn=Some(is_available=lambda: True, version=lambda: 91300))
distributed = Some(is_available=lambda: True, is_nccl_available=lambda: True)
"""


def driver(folder: Path, how: str, seconds: float = PATIENCE_SECONDS) -> Steps:
    """The steps on a host with such a driver library."""
    if compiler() is None:
        pytest.skip("needs a C compiler (cc or gcc) to build the stand-in for libcuda.so.1")
    (folder / "cuda.c").write_text(CUDA.replace("HOW", how))
    command = [str(compiler()), "-w", "-fPIC", "-shared", "-o", str(folder / "libcuda.so.1"), str(folder / "cuda.c")]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    return Children().run(Path(sys.executable), ["driver"], seconds, environment)


def torch(folder: Path, how: str, *words: str) -> Steps:
    """The steps of a Python with such a torch."""
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(TORCH.replace("HOW", how))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return Children().run(Path(sys.executable), ["torch", *words], PATIENCE_SECONDS, environment)


def test_a_driver_that_works(tmp_path: Path) -> None:
    result = driver(tmp_path, "return 0;")
    assert (result.ended_in, result.ended_by) == ("", "")
    assert result.value("libraries", "libraries")["libcuda.so.1"]["path"] == str(tmp_path / "libcuda.so.1")
    assert result.value("version", "version") == 13010
    assert result.value("init", "code") == 0
    assert [device["uuid"] for device in result.value("devices", "devices")] == [
        "GPU-10101010-1010-1010-1010-101010101010",
        "GPU-11111111-1111-1111-1111-111111111111",
    ]
    assert result.value("peers", "apart") == [[1, 0]]


def test_a_driver_that_refuses(tmp_path: Path) -> None:
    result = driver(tmp_path, "return 802;")
    assert result.value("init", "code") == 802
    assert result.value("init", "name") == "CUDA_ERROR_SYSTEM_NOT_READY"
    assert result.get("devices") is None


def test_a_driver_that_crashes(tmp_path: Path) -> None:
    result = driver(tmp_path, "raise(SIGSEGV); return 0;")
    assert (result.ended_in, result.ended_by) == ("init", "killed by SIGSEGV")
    assert result.value("version", "version") == 13010, "the steps before count"


def test_a_torch_that_works(tmp_path: Path) -> None:
    result = torch(tmp_path, "True")
    assert (result.ended_in, result.ended_by) == ("", "")
    assert [name for name, step in result.done.items() if step.error] == []
    assert result.value("build", "architectures") == ["sm_90", "compute_90"]
    assert [device["uuid"] for device in result.value("devices", "devices")] == [
        "GPU-aaaaaaaa-0000",
        "GPU-bbbbbbbb-0000",
    ]
    for step in ("kernel 0", "kernel 1", "cublas", "cudnn"):
        assert result.value(step, "is_right") is True, step
    assert result.value("nccl", "version") == "2.29.7"


def test_a_gpu_that_fails_costs_its_own_step(tmp_path: Path) -> None:
    result = torch(tmp_path, "False")
    assert result.error("kernel 1").startswith("AssertionError")
    assert result.value("kernel 0", "is_right") is True
    assert result.value("cublas", "is_right") is True


def test_a_gpu_that_is_to_be_left_out_is_not_touched(tmp_path: Path) -> None:
    result = torch(tmp_path, "True", "--exclude", "GPU-aaaaaaaa-0000")
    assert result.get("kernel 0") is None
    assert result.value("kernel 1", "is_right") is True


def test_a_torch_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = Children().run(Path(sys.executable), ["torch"], PATIENCE_SECONDS, environment)
    assert "libcudart.so.13" in result.error("import")
    assert result.get("available") is None


@pytest.mark.parametrize("left_out", ["all", "GPU-cccccccc-0000"])
def test_a_torch_that_tells_no_uuids_computes_on_no_gpu_where_any_is_to_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    monkeypatch.setitem(globals(), "TORCH", re.sub(r'uuid="[^"]*", ', "", TORCH))
    result = torch(tmp_path, "True", "--exclude", left_out)
    assert [device["uuid"] for device in result.value("devices", "devices")] == ["", ""]
    assert not [step for step in result.done if step.startswith(("kernel", "cublas", "cudnn"))]
