"""Checks of the driver: loaded, found, of one version, and usable from here."""

import re
from typing import Any, Final

from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text_table import table
from gpumon.core.units import counted
from gpumon.health.checks import CheckResult, fail, ok, skip, warn
from gpumon.health.doctor.check import DoctorCheck
from gpumon.health.doctor.facts import CudaStart, DriverFiles

_CONTAINER: Final = "Start the container with the NVIDIA Container Toolkit (--gpus all), or restart it."
_RELOAD: Final = "Reboot, or unload and reload the nvidia kernel modules. In a container, restart the container."
_MAKE_NODES: Final = "Once the driver is loaded, sudo nvidia-modprobe -u -c 0 creates them."
_INSTALL: Final = "Install the NVIDIA driver. In a container, use the NVIDIA Container Toolkit (--gpus all)."
_SEE_DMESG: Final = "See dmesg for messages of the driver."
FABRIC_FIX: Final = (
    "Start the fabric manager with the same version as the driver: sudo systemctl enable --now nvidia-fabricmanager. "
    "For a virtual machine or a container, it runs on the host."
)
_FABRIC_NOT_READY: Final = 802
_CUINIT_ERRORS: Final = {
    int(code): (meaning, fix.format(fabric=FABRIC_FIX, reload=_RELOAD))
    for code, meaning, fix in (row.split(" | ") for row in table("gpumon.health.doctor", "cuinit_errors"))
}
_VERSION: Final = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", re.ASCII)


def loaded(files: DriverFiles, frame: Frame | Problem) -> CheckResult:
    """The kernel driver is loaded."""
    if isinstance(frame, Frame) and frame.driver_version:
        return ok(f"driver {frame.driver_version}")
    if files.version:
        return ok(f"kernel module {files.version}")
    problem = None if isinstance(frame, Problem) else frame.problems.get("driver")
    if problem is not None and problem.code not in {ProblemCode.LIBRARY_NOT_FOUND, ProblemCode.DRIVER_NOT_LOADED}:
        return skip(f"Whether it is loaded is not visible from here. {problem.reason}")
    if "nouveau" in files.modules:
        return fail(
            "The kernel uses nouveau instead of the NVIDIA driver.",
            "Install the NVIDIA driver, which disables nouveau.",
        )
    if files.is_container:
        return fail("This container does not see the NVIDIA kernel module.", _CONTAINER)
    return fail(
        "The NVIDIA kernel module is not loaded.", f"sudo modprobe nvidia; dmesg shows why it fails. {_INSTALL}"
    )


def nvml(frame: Frame | Problem) -> CheckResult:
    """NVML works, which nvidia-smi and every GPU monitor use."""
    problem = frame if isinstance(frame, Problem) else frame.problems.get("driver")
    if problem is not None:
        return fail(problem.reason, problem.remedy or _INSTALL)
    assert isinstance(frame, Frame)
    seconds = frame.sweep.seconds
    duration = "" if seconds is None else f", read in {seconds * 1000:.3g} ms"
    return ok(f"{counted(len(frame.gpus), 'GPU')}{duration}")


def cuda(start: CudaStart | Problem) -> CheckResult:
    """The CUDA driver library initializes."""
    if isinstance(start, Problem):
        return fail(start.reason, start.remedy or _RELOAD)
    steps = start.steps
    library = _library(start, "libcuda.so.1")
    if library is not None and library.get("error"):
        return fail(f"libcuda.so.1 cannot be loaded: {library['error']}.", _INSTALL)
    for step in ("libraries", "version", "init", "devices"):
        if steps.error(step):
            return fail(f"The CUDA driver library failed ({step}): {steps.error(step)}.", _RELOAD)
    code = steps.value("init", "code")
    if code != 0:
        meaning, fix = _CUINIT_ERRORS.get(code, ("CUDA does not initialize.", _RELOAD))
        return fail(f"{meaning} (cuInit returned {steps.value('init', 'name') or code})", fix)
    version = steps.value("version", "version") or 0
    devices = steps.value("devices", "devices") or ()
    return ok(f"CUDA {version // 1000}.{version % 1000 // 10}, {counted(len(devices), 'GPU')}")


def versions(files: DriverFiles, start: CudaStart | Problem) -> CheckResult:
    """The kernel module and the libraries have the same version."""
    by_name = {} if files.version is None else {"kernel module": files.version}
    if isinstance(start, CudaStart):
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            version = _VERSION.search(str((_library(start, name) or {}).get("path", "")))
            if version is not None:
                by_name[name] = version[1]
    listed = ", ".join(f"{name} {version}" for name, version in by_name.items())
    if len(set(by_name.values())) > 1:
        return fail(f"The versions differ: {listed}.", _RELOAD)
    if len(by_name) > 1:
        return ok(listed)
    return skip(f"Fewer than two versions are known{f': {listed}' if listed else ''}.")


def nodes(files: DriverFiles, frame: Frame | Problem) -> CheckResult:
    """The device nodes exist, and this user may open them."""
    if files.is_wsl:
        return ok("/dev/dxg replaces them")
    names = {node.path.rpartition("/")[2]: node for node in files.nodes}
    if not names:
        return fail("There are no device nodes /dev/nvidia*.", f"{_MAKE_NODES} {_CONTAINER}")
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in names]
    if missing:
        paths = " and ".join(f"/dev/{name}" for name in missing)
        return fail(f"There is no {paths}.", f"{_MAKE_NODES} {_CONTAINER}")
    closed = [node for node in files.nodes if not node.is_usable]
    if closed:
        paths = ", ".join(f"{node.path} ({node.mode})" for node in closed)
        return fail(
            f"This user may not read and write {paths}.",
            "Join the group that owns them (ls -l /dev/nvidia*), and log in again.",
        )
    gpus = [name for name in names if name.removeprefix("nvidia").isdecimal()]
    expected = len(frame.gpus) if isinstance(frame, Frame) else 0
    if len(gpus) < expected:
        return fail(f"Only {len(gpus)} of {counted(expected, 'GPU')} have a device node.", _CONTAINER)
    return ok(f"nvidiactl, nvidia-uvm and {counted(len(gpus), 'GPU')}")


def control_group(start: CudaStart) -> CheckResult:
    """The control group (cgroup) allows opening the device nodes."""
    error = start.steps.error("nodes")
    if error:
        return fail(f"Opening the device nodes failed: {error}.", _SEE_DMESG)
    opened: dict[str, Any] = start.steps.value("nodes", "opened") or {}
    present = {path: error for path, error in opened.items() if error != "ENOENT"}
    denied = [path for path, error in present.items() if error == "EPERM"]
    if denied:
        fix = f"A container loses the devices when systemd reloads its rules. {_CONTAINER}"
        return fail(f"The control group (cgroup) denies access to {', '.join(denied)}.", fix)
    broken = [f"{path} ({error})" for path, error in present.items() if error]
    if broken:
        return fail(f"These device nodes cannot be opened: {', '.join(broken)}.", _SEE_DMESG)
    return ok(f"{counted(len(present), 'node')} opened") if present else skip("There is no device node to open.")


def fabric_manager(files: DriverFiles, start: CudaStart | Problem) -> CheckResult:
    """The fabric manager runs where NVSwitch chips need it."""
    code = start.steps.value("init", "code") if isinstance(start, CudaStart) else None
    if code == _FABRIC_NOT_READY:
        return fail("The NVSwitch fabric is not set up: CUDA reports that the system is not ready.", FABRIC_FIX)
    if not files.switches:
        return skip("No NVSwitch was found on this host.")
    switches = counted(files.switches, "NVSwitch chip")
    if files.has_fabric_manager:
        return ok(f"running, {switches}")
    if code == 0:
        return ok(f"CUDA works with {switches}; the fabric manager runs elsewhere")
    return warn(f"There are {switches}, but no fabric manager is visible.", FABRIC_FIX)


def _library(start: CudaStart, name: str) -> dict[str, Any] | None:
    libraries = start.steps.value("libraries", "libraries")
    library = libraries.get(name) if isinstance(libraries, dict) else None
    return library if isinstance(library, dict) else None


DRIVER_CHECKS: Final = (
    DoctorCheck("driver.loaded", loaded, (DriverFiles, Frame), may_lack=(Frame,)),
    DoctorCheck("driver.nvml", nvml, (Frame,), may_lack=(Frame,)),
    DoctorCheck("driver.cuda", cuda, (CudaStart,), may_lack=(CudaStart,)),
    DoctorCheck("driver.versions", versions, (DriverFiles, CudaStart), may_lack=(CudaStart,)),
    DoctorCheck("driver.nodes", nodes, (DriverFiles, Frame), may_lack=(Frame,)),
    DoctorCheck("driver.cgroup", control_group, (CudaStart,)),
    DoctorCheck("driver.fabric_manager", fabric_manager, (DriverFiles, CudaStart), may_lack=(CudaStart,)),
)
