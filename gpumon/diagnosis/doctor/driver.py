"""Checks of the driver: loaded, found, of one version, and reachable from here."""

import re
from typing import Any, Final

from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.diagnosis.checks import Finding, fail, ok, skip, warn
from gpumon.diagnosis.doctor.facts import CudaStart, DriverFiles
from gpumon.diagnosis.doctor.rule import Rule
from gpumon.diagnosis.doctor.wording import counted

_CONTAINER: Final = "Start the container with the NVIDIA container toolkit (--gpus all), or restart it."
_RELOAD: Final = "Reboot, or unload and load the nvidia kernel modules anew; in a container, restart it."
_MAKE_NODES: Final = "sudo nvidia-modprobe -u -c 0 makes them once the driver is loaded."
_INSTALL: Final = "Install the NVIDIA driver; in a container, start it with the NVIDIA container toolkit (--gpus all)."
_FABRIC: Final = (
    "Start the fabric manager, of exactly the driver's version: sudo systemctl enable --now nvidia-fabricmanager; in "
    "a virtual machine or container it runs on the host."
)
_NO_FABRIC_CODE: Final = 802
_STARTS: Final = {
    3: ("CUDA cannot initialize.", "Check /dev/nvidia-uvm and its permissions: sudo nvidia-modprobe -u -c 0."),
    34: ("libcuda.so.1 is a stub made for compiling.", "Take the CUDA toolkit's stubs out of LD_LIBRARY_PATH."),
    46: ("Every GPU is busy or closed to CUDA.", "Look at the compute mode: nvidia-smi -q -d COMPUTE."),
    100: ("CUDA sees no GPU.", "Look at nvidia-smi -L; in a container, start it with --gpus all."),
    _NO_FABRIC_CODE: ("The NVSwitch fabric is not set up.", _FABRIC),
    803: ("libcuda.so.1 does not fit the loaded kernel driver.", _RELOAD),
    804: (
        "A CUDA compatibility library is in use that these GPUs do not support.",
        "Take the folder cuda/compat out of LD_LIBRARY_PATH.",
    ),
    999: (
        "CUDA gives no cause, as where the driver was changed, or after a suspend.",
        "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm; in a container, restart it.",
    ),
}
"""What cuInit answers, in words, and what to do about it."""
_ABSENT: Final = frozenset({ProblemCode.LIBRARY_NOT_FOUND, ProblemCode.DRIVER_NOT_LOADED})
_VERSION: Final = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", re.ASCII)
_REFUSED: Final = "EPERM"
_NOT_THERE: Final = "ENOENT"


def loaded(files: DriverFiles, frame: Frame | Problem) -> Finding:
    """The kernel driver is loaded."""
    if isinstance(frame, Frame) and frame.driver_version:
        return ok(f"driver {frame.driver_version}")
    if files.version:
        return ok(f"kernel module {files.version}")
    problem = None if isinstance(frame, Problem) else frame.problems.get("driver")
    if problem is not None and problem.code not in _ABSENT:
        return skip(f"It is not told here whether it is loaded. {problem.reason}")
    if "nouveau" in files.modules:
        return fail(
            "The kernel uses nouveau, not NVIDIA's driver.", "Install the NVIDIA driver, which disables nouveau."
        )
    if files.is_container:
        return fail("No NVIDIA kernel module can be seen in this container.", _CONTAINER)
    return fail("The NVIDIA kernel module is not loaded.", f"sudo modprobe nvidia; dmesg says why it fails. {_INSTALL}")


def nvml(frame: Frame | Problem) -> Finding:
    """NVML answers, which nvidia-smi and every monitor use."""
    problem = frame if isinstance(frame, Problem) else frame.problems.get("driver")
    if problem is not None:
        return fail(problem.reason, problem.remedy or _INSTALL)
    assert isinstance(frame, Frame)
    seconds = frame.sweep.seconds
    took = "" if seconds is None else f", read in {seconds * 1000:.3g} ms"
    return ok(f"{counted(len(frame.gpus), 'GPU')}{took}")


def cuda(start: CudaStart | Problem) -> Finding:
    """The CUDA driver library starts."""
    if isinstance(start, Problem):
        return fail(start.reason, start.remedy or _RELOAD)
    steps = start.steps
    library = _library(start, "libcuda.so.1")
    if library is not None and library.get("error"):
        return fail(f"It cannot be loaded: {library['error']}.", _INSTALL)
    for step in ("libraries", "version", "init", "devices"):
        if steps.error(step):
            return fail(f"The CUDA driver library failed ({step}): {steps.error(step)}.", _RELOAD)
    code = steps.value("init", "code")
    if code != 0:
        words, fix = _STARTS.get(code, ("CUDA does not start.", _RELOAD))
        return fail(f"{words} (cuInit answered {steps.value('init', 'name') or code})", fix)
    version = steps.value("version", "version") or 0
    devices = steps.value("devices", "devices") or ()
    return ok(f"CUDA {version // 1000}.{version % 1000 // 10}, {counted(len(devices), 'GPU')}")


def versions(files: DriverFiles, start: CudaStart | Problem) -> Finding:
    """Kernel module and libraries are of one version."""
    found = {} if files.version is None else {"kernel module": files.version}
    if isinstance(start, CudaStart):
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            version = _VERSION.search(str((_library(start, name) or {}).get("path", "")))
            if version is not None:
                found[name] = version[1]
    told = ", ".join(f"{name} {version}" for name, version in found.items())
    if len(set(found.values())) > 1:
        return fail(f"They are of different versions: {told}.", _RELOAD)
    return ok(told) if len(found) > 1 else skip(f"There are not two versions to compare{told and f': {told}'}.")


def nodes(files: DriverFiles, frame: Frame | Problem) -> Finding:
    """The device nodes are there and can be opened by this user."""
    if files.is_wsl:
        return ok("/dev/dxg stands for them")
    names = {node.path.rpartition("/")[2]: node for node in files.nodes}
    if not names:
        return fail("There are no device nodes /dev/nvidia*.", f"{_MAKE_NODES} {_CONTAINER}")
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in names]
    if missing:
        told = " and ".join(f"/dev/{name}" for name in missing)
        return fail(f"There is no {told}.", f"{_MAKE_NODES} {_CONTAINER}")
    closed = [node for node in files.nodes if not node.is_usable]
    if closed:
        told = ", ".join(f"{node.path} ({node.mode})" for node in closed)
        return fail(
            f"This user may not read and write {told}.",
            "Join the group that owns them (ls -l /dev/nvidia*), and log in again.",
        )
    gpus = [name for name in names if name.removeprefix("nvidia").isdecimal()]
    expected = len(frame.gpus) if isinstance(frame, Frame) else 0
    if len(gpus) < expected:
        return fail(f"There are nodes of {len(gpus)} of {counted(expected, 'GPU')}.", _CONTAINER)
    return ok(f"nvidiactl, nvidia-uvm and {counted(len(gpus), 'GPU')}")


def control_group(start: CudaStart) -> Finding:
    """The control group lets the device nodes be opened."""
    error = start.steps.error("nodes")
    if error:
        return fail(f"Opening the device nodes failed: {error}.", "Look at dmesg for what the driver says.")
    opened: dict[str, Any] = start.steps.value("nodes", "opened") or {}
    there = {path: error for path, error in opened.items() if error != _NOT_THERE}
    refused = [path for path, error in there.items() if error == _REFUSED]
    if refused:
        fix = f"A container loses them when systemd reloads its rules. {_CONTAINER}"
        return fail(f"The control group (cgroup) refuses {', '.join(refused)}.", fix)
    broken = [f"{path} ({error})" for path, error in there.items() if error]
    if broken:
        return fail(f"They cannot be opened: {', '.join(broken)}.", "Look at dmesg for what the driver says.")
    return ok(f"{counted(len(there), 'node')} opened") if there else skip("There is no device node to open.")


def fabric_manager(files: DriverFiles, start: CudaStart | Problem) -> Finding:
    """The fabric manager runs where NVSwitch chips need it."""
    code = start.steps.value("init", "code") if isinstance(start, CudaStart) else None
    if code == _NO_FABRIC_CODE:
        return fail("The NVSwitch fabric is not set up: CUDA answers that the system is not ready.", _FABRIC)
    if not files.switches:
        return skip("This machine shows no NVSwitch.")
    switches = counted(files.switches, "NVSwitch chip")
    if files.has_fabric_manager:
        return ok(f"it runs, for {switches}")
    if code == 0:
        return ok(f"CUDA starts on {switches}; it runs elsewhere")
    return warn(f"There are {switches}, and no fabric manager can be seen.", _FABRIC)


def _library(start: CudaStart, name: str) -> dict[str, Any] | None:
    libraries = start.steps.value("libraries", "libraries")
    found = libraries.get(name) if isinstance(libraries, dict) else None
    return found if isinstance(found, dict) else None


DRIVER_RULES: Final = (
    Rule("driver.loaded", loaded, (DriverFiles, Frame), may_lack=(Frame,)),
    Rule("driver.nvml", nvml, (Frame,), may_lack=(Frame,)),
    Rule("driver.cuda", cuda, (CudaStart,), may_lack=(CudaStart,)),
    Rule("driver.versions", versions, (DriverFiles, CudaStart), may_lack=(CudaStart,)),
    Rule("driver.nodes", nodes, (DriverFiles, Frame), may_lack=(Frame,)),
    Rule("driver.cgroup", control_group, (CudaStart,)),
    Rule("driver.fabric_manager", fabric_manager, (DriverFiles, CudaStart), may_lack=(CudaStart,)),
)
