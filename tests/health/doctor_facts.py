"""Facts of a healthy host, for tests of the doctor that change one of them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumon.core.model import ComputeMode, Device, Frame, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.doctor.check import Facts, Gpus, gpus_of
from gpumon.health.doctor.facts import (
    CudaStart,
    DeviceNode,
    DriverFiles,
    Environment,
    HostLimits,
    KernelErrors,
    PciDevice,
    PciTopology,
    Python,
    Pythons,
    Step,
    Steps,
)
from tests import builders

NO_DRIVER = Problem(ProblemCode.LIBRARY_NOT_FOUND, "There is no driver library.", "Install the driver.")
WELL = {"remapped_rows_pending": 0, "remapped_rows_failure": 0, "ecc_uncorrected_volatile_count": 0}
DEVICE_ATTRIBUTES: dict[str, Any] = {
    "compute_capability": "9.0",
    "persistence_mode": Switch.ENABLED,
    "compute_mode": ComputeMode.DEFAULT,
    "ecc_mode": Switch.ENABLED,
    "ecc_mode_pending": Switch.ENABLED,
    "mig_mode": Switch.DISABLED,
    "mig_mode_pending": Switch.DISABLED,
}


def gpu(index: int = 0, **changes: Any) -> Device:  # noqa: ANN401
    """A GPU that is busy and well; ``readings`` among the changes are merged into its own."""
    readings = {**WELL, **changes.pop("readings", {})}
    return builders.device(index, **{"cuda_index": index, **DEVICE_ATTRIBUTES, "readings": readings, **changes})


def machine(**changes: Any) -> Frame:  # noqa: ANN401
    """A frame of two such GPUs."""
    return builders.frame(**{"devices": (gpu(0), gpu(1)), **changes})


def without_driver() -> Frame:
    """A frame of a host without a driver."""
    return builders.frame(devices=(), driver_version=None, cuda_driver_version=None, problems={"driver": NO_DRIVER})


def nodes(*names: str) -> tuple[DeviceNode, ...]:
    """Device nodes that every user may open."""
    return tuple(DeviceNode(f"/dev/{name}", "rw-rw-rw-", True) for name in names)


FILES = DriverFiles(
    version="580.95.05", modules=("nvidia", "nvidia_uvm"), nodes=nodes("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
)
LIBRARIES = {
    "libcuda.so.1": {"path": "/usr/lib/libcuda.so.580.95.05", "error": ""},
    "libnvidia-ml.so.1": {"path": "/usr/lib/libnvidia-ml.so.580.95.05", "error": ""},
}
START: dict[str, dict[str, Any]] = {
    "nodes": {"opened": dict.fromkeys(("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1"), "")},
    "libraries": {"libraries": LIBRARIES},
    "version": {"version": 13000},
    "init": {"code": 0, "name": ""},
    "devices": {"devices": [{"name": "NVIDIA H200", "uuid": "x"}, {"name": "NVIDIA H200", "uuid": "y"}]},
    "peers": {"count": 2, "apart": []},
}
TORCH: dict[str, dict[str, Any]] = {
    "python": {"version": "3.12.3", "prefix": "/opt/venv", "has_torch": True},
    "packages": {"installed": [["torch", "2.13.0+cu130"], ["numpy", "2.4.6"]], "pins": []},
    "import": {"version": "2.13.0+cu130", "cuda": "13.0", "hip": None},
    "build": {"architectures": ["sm_80", "sm_90", "compute_120"]},
    "allocator": {"said": {}},
    "available": {"available": True, "count": 2, "warnings": []},
    "devices": {"devices": [{"name": "NVIDIA H200", "uuid": gpu(place).uuid} for place in (0, 1)]},
    "kernel 0": {"is_right": True},
    "kernel 1": {"is_right": True},
    "cublas": {"is_right": True},
    "cudnn": {"is_right": True, "is_there": True, "version": 91300},
    "nccl": {"is_there": True, "version": "2.29.7"},
    "libraries": {"paths": []},
}


def steps(answers: dict[str, dict[str, Any]], **changes: dict[str, Any] | str | None) -> Steps:
    """The steps of a child: a changed answer, an error as text, or None for a step that was not started."""
    done = {name: Step(answer, "", 0.1) for name, answer in answers.items()}
    for name, change in changes.items():
        step = name.replace("__", " ")
        if change is None:
            done.pop(step, None)
        else:
            done[step] = Step({}, change) if isinstance(change, str) else Step(change)
    return Steps(done)


def start(**changes: dict[str, Any] | str | None) -> CudaStart:
    """A start of CUDA that is well but for the changes."""
    return CudaStart(steps(START, **changes))


def python(**changes: dict[str, Any] | str | None) -> Python:
    """A Python whose torch is well but for the changes."""
    return Python("/opt/venv/bin/python", "VIRTUAL_ENV", steps(TORCH, **changes))


def died(in_step: str, by: str = "killed by SIGSEGV") -> Python:
    """A Python that ended in a step."""
    before = list(TORCH)[: list(TORCH).index(in_step)]
    done = {name: Step(TORCH[name]) for name in before}
    return Python("/opt/venv/bin/python", "VIRTUAL_ENV", Steps(done, in_step, by))


TOPOLOGY = PciTopology(tuple(PciDevice(f"0000:{bus}:00.0", 0, frozenset({0, 1}), "identity") for bus in ("1b", "1c")))
LIMITS = HostLimits(
    shared_bytes=64 << 30, shared_free_bytes=63 << 30, temporary_free_bytes=64 << 30, locked_bytes=None,
    open_files=1 << 20, processes=None, memory_bytes=None, memory_total_bytes=2 << 40, cpus_quota=None,
    cpus_allowed=frozenset(range(8)),
)  # fmt: skip
ENVIRONMENT = Environment({}, "ada", ("eth0", "lo"), 8)


def facts(frame: Frame | Problem | None = None, **changes: Any) -> Facts:  # noqa: ANN401
    """All facts of a healthy host; the changes are facts by the names of their types."""
    shown = machine() if frame is None else frame
    well: dict[type, object] = {
        Frame: shown,
        Gpus: gpus_of(shown),
        DriverFiles: FILES,
        CudaStart: start(),
        KernelErrors: KernelErrors(),
        HostLimits: LIMITS,
        PciTopology: TOPOLOGY,
        Environment: ENVIRONMENT,
        Pythons: Pythons((python(),)),
    }
    by_name = {kind.__name__: kind for kind in well}
    return well | {by_name[name]: fact for name, fact in changes.items()}


def environment(**variables: str) -> Environment:
    """An environment with these variables."""
    return replace(ENVIRONMENT, variables=variables)


EMIT = """
def emit(**event):
    os.write(int(sys.argv[sys.argv.index("--fd") + 1]), json.dumps(event).encode() + b"\\n")
"""


def program(path: Path, body: str) -> Path:
    """A program in place of Python that writes any events with ``emit``."""
    path.write_text(f"#!{sys.executable}\nimport json, os, signal, sys, time\n{EMIT}\n{body}\n")
    path.chmod(0o755)
    return path
