"""Discovery of workloads: gpumon's own, files in the configuration folder, and those of installed packages.

A child process imports a workload file and describes it; gpumon itself never imports the file.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpumon.core.json_fields import object_in
from gpumon.core.ownership import ownership_problem
from gpumon.core.state_file import open_regular
from gpumon.core.text import safe_text
from gpumon.core.workload_metrics import WorkloadMetric
from gpumon.workload_runs.interpreter import python_environment
from gpumon.workload_runs.parameters import Value, WorkloadParameter, parse_parameter

_TIMEOUT_SECONDS: Final = 10.0
_MAX_CODE_LINES: Final = 2000
_MAX_CODE_WIDTH: Final = 200


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """The description of a workload by its own file.

    Attributes:
        name: Short name.
        file: Path of the file.
        purpose: What the workload measures or checks, in one line.
        needs: Required resources, as text.
        why_not_cpu: Why the workload cannot run on the CPU; empty if it can.
        parameters: The parameters of the workload.
        metrics: What it declares that it measures.
        origin: ``gpumon``, ``configuration`` or the name of a package.
        code: Source text of the functions that do the measured work; empty if the file names none.
        program: A short program of the same steps, to copy and run, from ``_programs`` next to the file; or empty.
    """

    name: str
    file: Path
    purpose: str
    needs: str
    why_not_cpu: str
    parameters: tuple[WorkloadParameter, ...]
    origin: str = "gpumon"
    code: str = ""
    program: str = ""
    metrics: tuple[WorkloadMetric, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokenWorkload:
    """A file that is not a usable workload, and the reason."""

    file: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All workloads that were found.

    Attributes:
        workloads: Workloads with unique names; gpumon's own first.
        broken: Files that are not usable workloads.
    """

    workloads: tuple[WorkloadInfo, ...]
    broken: tuple[BrokenWorkload, ...] = ()

    def get(self, name: str) -> WorkloadInfo | None:
        """The workload with a name, or None."""
        return next((workload for workload in self.workloads if workload.name == name), None)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One workload on one device.

    Attributes:
        workload: The workload.
        device: The device in the child's CUDA numbering, such as ``cuda:0``, or ``cpu``.
        parameters: Value of every parameter.
        python: The interpreter.
        environment: Environment variables that differ from those of gpumon.
        limit_seconds: Time limit of the run; None for a limit derived from the workload's plan.
    """

    workload: WorkloadInfo
    device: str
    parameters: Mapping[str, Value]
    python: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_seconds: float | None = None


def workloads_folder() -> Path:
    """The folder of gpumon's own workloads: inside the installed package, or next to the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "workloads"
    return installed if installed.is_dir() else package.parent / "workloads"


def runner() -> Path:
    """Path of the program that runs a workload file."""
    return workloads_folder() / "_run.py"


def configuration_folder() -> Path:
    """The folder of the user's workloads."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "gpumon" / "workloads"


def load_catalogue() -> Catalogue:
    """Find and describe every workload; of two workloads with the same name, the first one is used."""
    own = sorted(workloads_folder().glob("[!_]*.py"))
    candidates = list(_described(own, "gpumon"))
    for file in _configured():
        problem = ownership_problem(file)
        candidates += _described([file], "configuration") if problem is None else [BrokenWorkload(file, str(problem))]
    for file, origin in _installed():
        candidates += _described([file], origin)
    workloads: dict[str, WorkloadInfo] = {}
    broken = []
    for candidate in candidates:
        if isinstance(candidate, BrokenWorkload):
            broken.append(candidate)
        elif candidate.name in workloads:
            reason = f"Workload {candidate.name} already exists in {workloads[candidate.name].file}."
            broken.append(BrokenWorkload(candidate.file, reason))
        else:
            workloads[candidate.name] = candidate
    return Catalogue(tuple(workloads.values()), tuple(broken))


def workload_names() -> list[str]:
    """Names of gpumon's own workloads and of the user's, by file name alone: nothing is read."""
    return sorted({file.stem for file in (*workloads_folder().glob("[!_]*.py"), *_configured())})


def _configured() -> Iterator[Path]:
    folder = configuration_folder().absolute()
    if folder.is_dir():
        yield from sorted(folder.glob("[!_]*.py"))


def _installed() -> Iterator[tuple[Path, str]]:
    """Files that packages register as entry points, located by path, since an import would run the package."""
    from importlib.metadata import entry_points  # late: takes 25 ms to import, and the screen rarely needs it

    for point in entry_points(group="gpumon.workloads"):
        try:
            module = point.module
        except AttributeError:  # the entry point does not name a module
            continue
        if point.dist is None:
            continue
        path = point.dist.locate_file(module.replace(".", "/") + ".py")
        yield Path(str(path)), safe_text(point.dist.name, 60)


def _described(files: Sequence[Path], origin: str) -> Iterator[WorkloadInfo | BrokenWorkload]:
    """Describe files in one child process."""
    if not files:
        return
    descriptions = {description["file"]: description for description in _descriptions(files)}
    for file in files:
        description = descriptions.get(str(file))
        if description is None:
            yield BrokenWorkload(file, "No description: the file exited or hung while it was loaded.")
        elif "error" in description:
            yield BrokenWorkload(file, safe_text(str(description["error"]), 300))
        else:
            yield _info(file, description, origin)


def _descriptions(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    command = [sys.executable, str(runner()), "--describe", *map(str, files)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=python_environment(),
    ) as child:
        try:
            output = child.communicate(timeout=_TIMEOUT_SECONDS)[0]
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # not reaped yet, so its group id is not reused
    for line in output.splitlines():
        description = object_in(line)
        if description is not None and isinstance(description.get("file"), str):
            yield description


def _info(file: Path, description: dict[str, Any], origin: str) -> WorkloadInfo | BrokenWorkload:
    try:
        return WorkloadInfo(
            name=safe_text(str(description["name"]), 40),
            file=file,
            purpose=safe_text(str(description["purpose"]), 200),
            needs=safe_text(str(description["needs"]), 200),
            why_not_cpu=safe_text(str(description["why_not_cpu"]), 300),
            parameters=tuple(parse_parameter(parameter) for parameter in description["parameters"]),
            origin=origin,
            code=_safe_code(description.get("code")),
            program=_safe_code(_program(file)),
            metrics=tuple(WorkloadMetric.of(metric) for metric in description.get("metrics", ())),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        return BrokenWorkload(file, f"The description is invalid: {safe_text(str(error), 200)}")


def _program(file: Path) -> str:
    program = file.parent / "_programs" / file.name
    try:
        with os.fdopen(open_regular(program, os.O_RDONLY), encoding="utf-8") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _safe_code(code: object) -> str:
    """Source text without control characters, in a bounded number of lines."""
    lines = code.splitlines()[:_MAX_CODE_LINES] if isinstance(code, str) else []
    return "\n".join(safe_text(line.expandtabs(4), _MAX_CODE_WIDTH) for line in lines)
