"""All checks of the doctor in the order in which they are reported, and which of them can run by now."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.device_use import computing_processes
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.units import counted
from gpumon.health.checks import Check, CheckResult, fail, ok, skip, warn
from gpumon.health.doctor.check import DoctorCheck, Facts, Gpus, gpus_text
from gpumon.health.doctor.devices import DEVICE_CHECKS, is_responding
from gpumon.health.doctor.driver import DRIVER_CHECKS, fabric_manager
from gpumon.health.doctor.environment import ENVIRONMENT_CHECKS
from gpumon.health.doctor.facts import CudaStart, DriverFiles, Environment, Expected, Pythons
from gpumon.health.doctor.host import HOST_CHECKS
from gpumon.health.doctor.python import PYTHON_FOUND, python_checks
from gpumon.health.doctor.siblings import SIBLING_CHECKS

DOCTOR_CHECKS: Final = (*DRIVER_CHECKS, *DEVICE_CHECKS, *SIBLING_CHECKS, *HOST_CHECKS, *ENVIRONMENT_CHECKS)

CHECK_IDS: Final = (*(check.id for check in DOCTOR_CHECKS), PYTHON_FOUND)
"""The checks that are known in advance; each Python with torch adds its own."""


def ready(facts: Facts, done: Collection[str], checks: Iterable[DoctorCheck] = DOCTOR_CHECKS) -> Iterator[Check]:
    """Runs the checks whose facts are all there, without those that are done; those of Pythons if there are any."""
    for check in checks:
        if check.id not in done and all(need in facts for need in check.needs):
            yield check.run(facts)
    if PYTHON_FOUND not in done and Pythons in facts and Frame in facts:
        yield from python_checks(facts)


def in_order(checks: Iterable[Check]) -> list[Check]:
    """The checks in the order in which they are reported; those of a Python keep their own order."""
    order = {check_id: index for index, check_id in enumerate(CHECK_IDS)}
    return sorted(checks, key=lambda check: order.get(check.id, len(order)))


_NOT_STARTED: Final = Problem(ProblemCode.NOT_READ, "CUDA is started from level 2 on.")


def count(frame: Frame, expected: Expected) -> CheckResult:
    """As many GPUs respond as are expected."""
    number = sum(map(is_responding, frame.gpus))
    if expected.gpus is None:
        return ok(counted(number, "GPU")) if number else fail("No GPU responds.", "See gpumon doctor.")
    if number == expected.gpus:
        return ok(f"{number} of {expected.gpus}")
    fix = "Look for a missing GPU with lspci -d 10de: and in the kernel log, then reboot."
    return fail(f"{number} of {counted(expected.gpus, 'GPU')} respond.", fix)


def model(gpus: Gpus, expected: Expected) -> CheckResult:
    """Every GPU is of the expected product."""
    if not expected.model:
        return skip("No product is expected (--expect-model).")
    other = [device for device in gpus.devices if expected.model.lower() not in (device.name or "").lower()]
    if not other:
        return ok(expected.model)
    names = ", ".join(sorted({device.name or "unknown" for device in other}))
    return fail(f"{gpus_text(other)} is {names}, not {expected.model}.", "Correct the scheduler's description.")


def leftovers(gpus: Gpus) -> CheckResult:
    """No process computes on a GPU."""
    used = [device for device in gpus.devices if computing_processes(device)]
    if used:
        pids = sorted({process.pid for device in used for process in computing_processes(device)})
        listed = ", ".join(map(str, pids[:4])) + (" and more" if len(pids) > 4 else "")
        return warn(f"Processes on {gpus_text(used)}: PID {listed}.", "End what an earlier job has left: kill -9 PID.")
    known = [device for device in gpus.devices if device.processes is not None]
    return ok("none") if known else skip("The GPUs or their driver do not report this.")


_EXPECTED: Final = (
    DoctorCheck("gpu.count", count, (Frame, Expected)),
    DoctorCheck("gpu.model", model, (Gpus, Expected)),
    DoctorCheck("gpu.leftovers", leftovers, (Gpus,)),
)
_SHARED: Final = tuple(check for check in DOCTOR_CHECKS if Environment not in check.needs)
"""The environment is that of one user, and a job gets another one."""

NODE_CHECKS: Final = (
    *(check for check in _SHARED if CudaStart not in check.needs),
    DoctorCheck("driver.fabric_manager", partial(fabric_manager, start=_NOT_STARTED), (DriverFiles,)),
    *_EXPECTED,
)
"""The checks of level 1, which start nothing on a GPU."""

NODE_CHECKS_WITH_CUDA: Final = (*_SHARED, *_EXPECTED)
"""The checks from level 2 on."""


class NodeWorkload(NamedTuple):
    """What a level runs.

    Attributes:
        name: The workload.
        level: The lowest level that runs it.
        settings: Parameters that differ from the defaults.
        is_joint: Whether one run uses all free GPUs together, instead of one run for each at the same time.
        fills_time: Whether it is a load that lasts until the time of the check is over.
        has_warnings: Whether a warning of the workload is one of the check. The rates of a few seconds are only
            compared between the GPUs.
    """

    name: str
    level: int
    settings: Mapping[str, str] = MappingProxyType({})
    is_joint: bool = False
    fills_time: bool = False
    has_warnings: bool = False

    @property
    def check_id(self) -> str:
        """The ID of its check."""
        return f"gpu.{self.name}"


NODE_WORKLOADS: Final = (
    NodeWorkload("matmul", 2, {"duration": "3"}),
    NodeWorkload("transfer", 2),
    NodeWorkload("collectives", 3, {"operation": "all_reduce"}, is_joint=True, has_warnings=True),
    NodeWorkload("burn", 3, fills_time=True, has_warnings=True),
)
"""What levels 2 and 3 run, one after the other: kernels, copies, NCCL, and last the load, which takes the time left."""
