"""Runs workloads as gpumon does: a child of an interpreter with torch, events on a pipe, a confirmed start."""

import fcntl
import functools
import importlib
import importlib.util
import json
import os
import runpy
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.workloads import torch_server

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"
TORCH_PYTHON = os.environ.get("GPUMON_TEST_PYTHON") or (
    sys.executable if importlib.util.find_spec("torch") is not None else None
)
"""An interpreter with torch: this one, or the one that the environment names."""
_SERVERS: list[subprocess.Popen[bytes]] = []
"""Servers that this process started; they end with the test run."""


_CONTEXT = """
import importlib.util, runpy, sys, types
runpy.run_path(sys.argv[1] + "/_run.py")["_provide_kit"]()
spec = importlib.util.spec_from_file_location("probed", f"{sys.argv[1]}/{sys.argv[2]}.py")
w = sys.modules["probed"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(w)
import torch
torch.set_num_threads(1)
context = types.SimpleNamespace(torch=torch, checked=0, device=torch.device("cpu"), synchronize=lambda: None)
"""


def probe_of(name: str) -> str:
    """The beginning of a program that changes a workload, which it has as a module of that name."""
    return f"""
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("{name}_probe", {str(WORKLOADS / f"{name}.py")!r})
{name} = sys.modules["{name}_probe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module({name})
WORKLOAD = {name}.WORKLOAD
"""


def with_step(name: str, folder: Path, step: str) -> Path:
    """A file that is a workload which trains, with a custom step."""
    probe = folder / "probe.py"
    body = "".join(f"        {line}\n" for line in step.splitlines())
    method = f"class Changed(training.Trainer):\n    def step(self, batch, mark=lambda _: None):\n{body}"
    imports = "from _kit import training, training_run\n"
    probe.write_text(f"{probe_of(name)}{imports}{method}training_run.Trainer = Changed\n")
    return probe


def output_of(workload: str, text: str) -> str:
    """What a script prints that has the workload's file as ``w`` and, as ``context``, torch on the CPU."""
    command = [torch_python(), "-c", _CONTEXT + text, str(WORKLOADS), workload]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout


@functools.cache
def torch_python() -> str:
    """An interpreter that has imported torch already, for programs that need no GPU; one for all workers of pytest."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)
    folder = Path("/tmp", f"gpumon-{run[:16]}")  # the path of a socket has 107 bytes at most
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = folder / "python"
        if not python.exists():
            _serve(folder / "socket", python)
        return str(python)


def _serve(address: Path, python: Path) -> None:
    assert TORCH_PYTHON is not None
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    server = subprocess.Popen(
        [TORCH_PYTHON, "-X", "no_debug_ranges", torch_server.__file__, str(address), str(python), str(owner)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    _SERVERS.append(server)
    python.write_text(torch_server.CLIENT.format(python=TORCH_PYTHON, address=str(address)))
    python.chmod(0o755)


needs_torch = pytest.mark.skipif(TORCH_PYTHON is None, reason="no torch here, and GPUMON_TEST_PYTHON names no python")


@dataclass(frozen=True)
class Ran:
    """A workload that has run to its end."""

    events: list[dict[str, Any]]
    exit_code: int
    stderr: str

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of a kind, in order."""
        return [document for document in self.events if document["event"] == event]

    @property
    def result(self) -> dict[str, Any]:
        """The result."""
        (result,) = self.of("result")
        return result

    def metric(self, name: str) -> dict[str, Any]:
        """The result with a name."""
        (value,) = [value for value in self.result["figures"] if value["name"] == name]
        return dict(value)


def load_workload(name: str) -> ModuleType:
    """A workload's file as a module, or a module of the kit (``_kit.host``); torch is not needed for that."""
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

    def run(
        workload: str | Path, device: str = "cpu", timeout: float = 100, python: str | None = None, **parameters: object
    ) -> Ran:
        file = workload if isinstance(workload, Path) else WORKLOADS / f"{workload}.py"
        events, write_end = os.pipe()
        control, confirmation = os.pipe()
        os.write(confirmation, b"go\n")
        python = python or (torch_python() if device == "cpu" else TORCH_PYTHON) or sys.executable
        command = [python, str(WORKLOADS / "_run.py"), str(file), "--events", str(write_end)]
        command += ["--control", str(control), "--device", device, "--parameters", json.dumps(parameters)]
        process = subprocess.Popen(
            command,
            pass_fds=(write_end, control),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            text=True,
        )
        os.close(write_end)
        os.close(control)
        try:
            with os.fdopen(events) as lines:
                documents = [json.loads(line) for line in lines]
            stderr = process.communicate(timeout=timeout)[1]
        finally:
            process.kill()
            process.wait()
            os.close(confirmation)
        return Ran(documents, process.returncode, stderr)

    return run
