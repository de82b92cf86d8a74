"""What belongs to a new metric, alert, screen, workload or probe value, and is easily forgotten.

CONTRIBUTING.md has the recipes. The catalogue of errors has its own test, `tests/health/test_catalogue.py`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.core.allocator import AllocatorStatistics
from gpumon.core.metrics import METRICS
from gpumon.core.model import Device
from gpumon.health.alerts import ALERT_RULES
from gpumon.probe.agent.allocator import Allocator
from gpumon.ui.app import GpumonApp
from gpumon.ui.base_app import BaseApp
from gpumon.ui.keymap import all_bindings
from gpumon.ui.selftest import STEPS
from gpumon.ui.selftest.screens import SCREEN_NAMES

ROOT = Path(__file__).resolve().parents[2]


def classes() -> Iterator[tuple[str, Path]]:
    """The name and the file of every class of gpumon and of the workloads; texts of programs have others."""
    for folder in ("gpumon", "workloads"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_symlink() or path.match("mistakes_*.py"):  # the latter have texts of programs
                continue
            for name in re.findall(r"^ *class (\w+)[(:]", path.read_text(), re.MULTILINE):
                yield name, path.relative_to(ROOT)


def test_the_name_of_a_class_is_used_once() -> None:
    every_class = list(classes())
    counts = Counter(name for name, _ in every_class)
    assert [(name, str(path)) for name, path in every_class if counts[name] > 1] == []


def test_an_alert_needs_metrics_or_fields_of_a_device() -> None:
    known = {*METRICS, *(field.name for field in fields(Device))}
    assert [(rule.label, need) for rule in ALERT_RULES for need in rule.needs if need not in known] == []


def screens_of_the_app() -> set[str]:
    """The screens that a key of the app opens: the help, and those that it names."""
    actions = [binding.action for owner, binding in all_bindings() if owner in {BaseApp, GpumonApp}]
    names = (re.match(r"(help)$|open_screen\('(\w+)'\)", action) for action in actions)
    return {name for match in names if match for name in match.groups() if name} - {"gpus"}


def test_the_selftest_opens_every_screen_of_the_app() -> None:
    assert set(SCREEN_NAMES) == screens_of_the_app(), "for the command palette"
    assert set(SCREEN_NAMES) - {step.__name__.removesuffix("_page") for _, step in STEPS} == set(), "with its key"


@pytest.mark.parametrize("path", sorted((ROOT / "workloads").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_workload_has_a_test(path: Path) -> None:
    assert (ROOT / "tests/workloads" / f"test_{path.name}").is_file()


def test_a_probe_sends_the_statistics_that_gpumon_reads() -> None:
    torch: Any = SimpleNamespace(
        library=SimpleNamespace(_cuda_memoryStats=lambda _: {}),
        has_native_backend=True,
        expandable_segments=False,
        device_identity=lambda _: ({"uuid": None, "name": None}, None),
    )
    assert set(Allocator(torch).statistics(0)) == {field.name for field in fields(AllocatorStatistics)}


@pytest.mark.parametrize(
    ("text", "homes"),
    [
        ("json.dumps(", {"cli/config_command"}),
        ('/stat"', {"core/procfs"}),
        ("SC_CLK_TCK", {"core/procfs"}),
        ('meminfo"', {"core/procfs", "operations/doctor/bundle"}),
        ("cpu.max", {"core/control_groups"}),
        ("signal.Signals(", {"core/units"}),
        ("get_terminal_size((", {"cli/output", "cli/explain", "cli/run_output", "present/text/status"}),
    ],
)
def test_a_fact_has_one_home(text: str, homes: set[str]) -> None:
    """The interpreters of the probe, of `gpumon attach` and of the reduced collector have no gpumon."""
    rooms = ((path, path.relative_to(ROOT / "gpumon").parts) for path in (ROOT / "gpumon").rglob("*.py"))
    files = [path for path, parts in rooms if "probe" not in parts and path.name != "old_python.py"]
    users = {str(path.relative_to(ROOT / "gpumon").with_suffix("")) for path in files if text in path.read_text()}
    assert users == homes
