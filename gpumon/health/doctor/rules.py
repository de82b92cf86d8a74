"""All checks of the doctor in the order in which they are reported, and which of them can run by now."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from gpumon.core.model import Frame
from gpumon.health.checks import Check
from gpumon.health.doctor.check import DoctorCheck, Facts
from gpumon.health.doctor.devices import DEVICE_CHECKS
from gpumon.health.doctor.driver import DRIVER_CHECKS
from gpumon.health.doctor.environment import ENVIRONMENT_CHECKS
from gpumon.health.doctor.facts import Pythons
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
