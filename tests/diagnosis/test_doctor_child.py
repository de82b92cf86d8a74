"""What the doctor's child tells of a driver library and of a torch: stand-ins that work, refuse, crash and hang."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.diagnosis.doctor.facts import Steps
from gpumon.operations.doctor.asking import Children, own_python
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
    """The steps on a machine with such a driver library."""
    if compiler() is None:
        pytest.skip("needs a C compiler (cc or gcc) to build the stand-in for libcuda.so.1")
    (folder / "cuda.c").write_text(CUDA.replace("HOW", how))
    command = [str(compiler()), "-w", "-fPIC", "-shared", "-o", str(folder / "libcuda.so.1"), str(folder / "cuda.c")]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    return Children().ask(own_python(), ["driver"], seconds, environment)


def torch(folder: Path, how: str, *words: str) -> Steps:
    """The steps of a Python with such a torch."""
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(TORCH.replace("HOW", how))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return Children().ask(Path(sys.executable), ["torch", *words], PATIENCE_SECONDS, environment)


def test_a_driver_that_works(tmp_path: Path) -> None:
    found = driver(tmp_path, "return 0;")
    assert (found.ended_in, found.ended_by) == ("", "")
    assert found.value("libraries", "libraries")["libcuda.so.1"]["path"] == str(tmp_path / "libcuda.so.1")
    assert found.value("version", "version") == 13010
    assert found.value("init", "code") == 0
    assert [each["uuid"] for each in found.value("devices", "devices")] == [
        "GPU-10101010-1010-1010-1010-101010101010",
        "GPU-11111111-1111-1111-1111-111111111111",
    ]
    assert found.value("peers", "apart") == [[1, 0]]


def test_a_driver_that_refuses(tmp_path: Path) -> None:
    found = driver(tmp_path, "return 802;")
    assert found.value("init", "code") == 802
    assert found.value("init", "name") == "CUDA_ERROR_SYSTEM_NOT_READY"
    assert found.get("devices") is None


def test_a_driver_that_crashes(tmp_path: Path) -> None:
    found = driver(tmp_path, "raise(SIGSEGV); return 0;")
    assert (found.ended_in, found.ended_by) == ("init", "killed by SIGSEGV")
    assert found.value("version", "version") == 13010, "what was found before counts"


def test_a_driver_that_hangs(tmp_path: Path) -> None:
    found = driver(tmp_path, "for (;;) pause();", seconds=5.0)
    assert (found.ended_in, found.ended_by) == ("init", "no answer within 5 s")


def test_a_torch_that_works(tmp_path: Path) -> None:
    found = torch(tmp_path, "True")
    assert (found.ended_in, found.ended_by) == ("", "")
    assert [step for step, each in found.done.items() if each.error] == []
    assert found.value("build", "architectures") == ["sm_90", "compute_90"]
    assert [each["uuid"] for each in found.value("devices", "devices")] == ["GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0000"]
    for step in ("kernel 0", "kernel 1", "cublas", "cudnn"):
        assert found.value(step, "is_right") is True, step
    assert found.value("nccl", "version") == "2.29.7"


def test_a_gpu_that_fails_costs_its_own_step(tmp_path: Path) -> None:
    found = torch(tmp_path, "False")
    assert found.error("kernel 1").startswith("AssertionError")
    assert found.value("kernel 0", "is_right") is True
    assert found.value("cublas", "is_right") is True


def test_a_gpu_that_is_to_be_left_out_is_not_touched(tmp_path: Path) -> None:
    found = torch(tmp_path, "True", "--leave-out", "GPU-aaaaaaaa-0000")
    assert found.get("kernel 0") is None
    assert found.value("kernel 1", "is_right") is True


def test_a_torch_that_takes_python_with_it(tmp_path: Path) -> None:
    found = torch(tmp_path, "os.abort()")
    assert (found.ended_in, found.ended_by) == ("kernel 1", "killed by SIGABRT")


def test_a_torch_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = Children().ask(Path(sys.executable), ["torch"], PATIENCE_SECONDS, environment)
    assert "libcudart.so.13" in found.error("import")
    assert found.get("available") is None


@pytest.mark.parametrize("left_out", ["all", "GPU-cccccccc-0000"])
def test_a_torch_that_tells_no_uuids_computes_on_no_gpu_where_any_is_to_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    monkeypatch.setitem(globals(), "TORCH", re.sub(r'uuid="[^"]*", ', "", TORCH))
    found = torch(tmp_path, "True", "--leave-out", left_out)
    assert [each["uuid"] for each in found.value("devices", "devices")] == ["", ""]
    assert not [step for step in found.done if step.startswith(("kernel", "cublas", "cudnn"))]


def test_all_gpus_are_left_out_at_a_word(tmp_path: Path) -> None:
    found = torch(tmp_path, "True", "--leave-out", "all")
    assert not [step for step in found.done if step.startswith(("kernel", "cublas", "cudnn"))]
    assert found.value("nccl", "version") == "2.29.7"


def test_pins_of_other_systems_are_no_pins_here(tmp_path: Path) -> None:
    folder = tmp_path / "torch-2.13.0.dist-info"
    folder.mkdir()
    here, elsewhere = platform.machine(), "another_machine"
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n"
        f'Requires-Dist: nvidia-here==1; platform_machine == "{here}"\n'
        f'Requires-Dist: nvidia-elsewhere==1; platform_machine == "{elsewhere}"\n'
        'Requires-Dist: triton==1; python_version < "3.0"\n'
    )
    found = torch(tmp_path, "True")
    pins = {pin[1] for pin in found.value("packages", "pins") if pin[0] == "torch"}
    assert "nvidia-here" in pins
    assert not pins & {"nvidia-elsewhere", "triton"}
