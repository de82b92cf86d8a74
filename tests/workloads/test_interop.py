"""The interop workload, on the CPU."""

from pathlib import Path

from tests.workloads.conftest import RunWorkload, needs_torch, probe_of

pytestmark = needs_torch

_LIBRARY = """
import ctypes, types
class Array:
    def __init__(self, tensor):
        self.__array_interface__ = {"data": (tensor.data_ptr() + OFFSET, False)}
        self.tensor = tensor
    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(**arguments)
    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()
sys.modules["numpy"] = types.SimpleNamespace(from_dlpack=Array)
original = interop.views
interop.views = lambda tensor, library, module: {"DLPack": lambda: Array(tensor)}
"""
"""A stand-in for NumPy, which need not be installed."""


def test_the_same_memory_is_shared(run_workload: RunWorkload, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(probe_of("interop") + _LIBRARY.replace("OFFSET", "0"))
    ran = run_workload(probe, size_mebibytes=1)
    assert ran.result["verdict"] == "ok", ran.result
    assert {value["case"] for value in ran.result["figures"]} == {"numpy, DLPack", "torch, DLPack", "copy"}
    probe.write_text(probe_of("interop") + _LIBRARY.replace("OFFSET", "4 "))  # by size, no old cache fits
    assert run_workload(probe, size_mebibytes=1).result["why"] == "Not the same memory: numpy, DLPack."


def test_a_missing_library_is_named(run_workload: RunWorkload, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(probe_of("interop") + 'sys.modules["numpy"] = None\n')
    ran = run_workload(probe, size_mebibytes=1)
    assert ran.result["verdict"] == "ok"
    assert "pip install numpy" in ran.result["why"]
