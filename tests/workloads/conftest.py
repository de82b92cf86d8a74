"""Workloads as they really run: a child of the interpreter that has torch, events on a pipe, leave to begin."""

import importlib
import importlib.util
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"
TORCH_PYTHON = os.environ.get("GPUMON_TEST_PYTHON") or (
    sys.executable if importlib.util.find_spec("torch") is not None else None
)
"""An interpreter with torch: this one, or the one that the environment names."""

needs_torch = pytest.mark.skipif(TORCH_PYTHON is None, reason="no torch here, and GPUMON_TEST_PYTHON names no python")


@dataclass(frozen=True)
class Ran:
    """A workload that has run to its end."""

    events: list[dict[str, Any]]
    exit_code: int
    stderr: str

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of a kind, in order."""
        return [each for each in self.events if each["event"] == event]

    @property
    def result(self) -> dict[str, Any]:
        """The result."""
        (result,) = self.of("result")
        return result

    def figure(self, name: str) -> dict[str, Any]:
        """The figure of a name."""
        (found,) = [each for each in self.result["figures"] if each["name"] == name]
        return dict(found)


def load_workload(name: str) -> ModuleType:
    """A workload's file as a module, or a module of the kit (``_kit.machine``); torch is not needed for that."""
    if "_kit" not in sys.modules:
        runpy.run_path(str(WORKLOADS / "_run.py"))["_provide_kit"]()
    if name.startswith("_kit."):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"gpumon_test_{name}", WORKLOADS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Judge(SimpleNamespace):
    """As much of a context as a verdict needs."""

    cancelled = False

    def ok(self, why: str) -> tuple[str, str]:
        return "ok", why

    def warn(self, why: str) -> tuple[str, str]:
        return "warn", why

    def fail(self, why: str) -> tuple[str, str]:
        return "fail", why


RunWorkload = Callable[..., Ran]


@pytest.fixture
def run_workload() -> RunWorkload:
    """Runs a workload by name, or by the path of its file; what else is given are its parameters."""

    def run(workload: str | Path, device: str = "cpu", timeout: float = 100, **parameters: object) -> Ran:
        file = workload if isinstance(workload, Path) else WORKLOADS / f"{workload}.py"
        events, told = os.pipe()
        control, leave = os.pipe()
        os.write(leave, b"go\n")
        command = [TORCH_PYTHON or sys.executable, str(WORKLOADS / "_run.py"), str(file), "--events", str(told)]
        command += ["--control", str(control), "--device", device, "--parameters", json.dumps(parameters)]
        process = subprocess.Popen(
            command,
            pass_fds=(told, control),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            text=True,
        )
        os.close(told)
        os.close(control)
        try:
            with os.fdopen(events) as lines:
                found = [json.loads(line) for line in lines]
            stderr = process.communicate(timeout=timeout)[1]
        finally:
            process.kill()
            process.wait()
            os.close(leave)
        return Ran(found, process.returncode, stderr)

    return run
