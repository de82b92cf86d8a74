"""All checks of the doctor, in the order in which they are told, and which of them can be made by now."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from gpumon.core.model import Frame
from gpumon.diagnosis.checks import Check
from gpumon.diagnosis.doctor.devices import DEVICE_RULES
from gpumon.diagnosis.doctor.driver import DRIVER_RULES
from gpumon.diagnosis.doctor.environment import ENVIRONMENT_RULES
from gpumon.diagnosis.doctor.facts import Pythons
from gpumon.diagnosis.doctor.host import HOST_RULES
from gpumon.diagnosis.doctor.python import FOUND, python_checks
from gpumon.diagnosis.doctor.rule import Facts
from gpumon.diagnosis.doctor.sharing import SHARING_RULES

RULES: Final = (*DRIVER_RULES, *DEVICE_RULES, *SHARING_RULES, *HOST_RULES, *ENVIRONMENT_RULES)

CHECK_IDS: Final = (*(rule.id for rule in RULES), FOUND)
"""Those that are known beforehand; each Python with torch has more."""


def ready(facts: Facts, done: Collection[str]) -> Iterator[Check]:
    """The checks whose facts are all there, without those that are done."""
    for rule in RULES:
        if rule.id not in done and all(need in facts for need in rule.needs):
            yield rule.check(facts)
    if FOUND not in done and Pythons in facts and Frame in facts:
        yield from python_checks(facts)


def in_order(checks: Iterable[Check]) -> list[Check]:
    """The checks in the order in which they are told; those of a Python stay in their own."""
    places = {check_id: place for place, check_id in enumerate(CHECK_IDS)}
    return sorted(checks, key=lambda check: places.get(check.id, len(places)))
