"""Which workloads there are: gpumon's own, files in the configuration's folder, and those of installed packages.

What a file is, is asked of a child; nothing of it is ever imported into gpumon.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from gpumon.core.text import safe_text
from gpumon.jobs.parameters import Parameter, parameter_from

ENTRY_POINT_GROUP: Final = "gpumon.workloads"
_PATIENCE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """A workload as it describes itself.

    Attributes:
        name: Short name.
        file: Where it is.
        purpose: What it finds out, in one line.
        needs: What it takes, in words.
        why_not_cpu: Why it cannot run on the CPU; empty if it can.
        parameters: What can be chosen.
        origin: ``gpumon``, ``configuration`` or the name of a package.
    """

    name: str
    file: Path
    purpose: str
    needs: str
    why_not_cpu: str
    parameters: tuple[Parameter, ...]
    origin: str = "gpumon"


@dataclass(frozen=True, slots=True)
class BrokenWorkload:
    """A file that is none, and why."""

    file: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All that was found.

    Attributes:
        workloads: By name; gpumon's own first.
        broken: Files that are none.
    """

    workloads: tuple[WorkloadInfo, ...]
    broken: tuple[BrokenWorkload, ...] = ()

    def get(self, name: str) -> WorkloadInfo | None:
        """The workload of a name."""
        return next((each for each in self.workloads if each.name == name), None)


def workloads_folder() -> Path:
    """The folder of gpumon's own workloads: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "workloads"
    return installed if installed.is_dir() else package.parent / "workloads"


def runner() -> Path:
    """The program that runs a workload's file."""
    return workloads_folder() / "_run.py"


def configuration_folder() -> Path:
    """Where users put workloads of their own."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "gpumon" / "workloads"


def load_catalogue() -> Catalogue:
    """Finds and describes every workload; of two with one name, the first stays."""
    own = sorted(workloads_folder().glob("[!_]*.py"))
    found = list(_described(own, "gpumon"))
    for file, origin in (*_configured(), *_installed()):
        found += _described([file], origin)
    named: dict[str, WorkloadInfo] = {}
    broken = []
    for each in found:
        if isinstance(each, BrokenWorkload):
            broken.append(each)
        elif each.name in named:
            taken = named[each.name]
            broken.append(BrokenWorkload(each.file, f"There is a workload {each.name} already, in {taken.file}."))
        else:
            named[each.name] = each
    return Catalogue(tuple(named.values()), tuple(broken))


def _configured() -> Iterator[tuple[Path, str]]:
    folder = configuration_folder()
    if folder.is_dir():
        yield from ((file, "configuration") for file in sorted(folder.glob("[!_]*.py")))


def _installed() -> Iterator[tuple[Path, str]]:
    """Files that packages announce, found by their place: importing a module would run its package."""
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            module = point.module
        except AttributeError:  # what a package wrote there is not the name of a module
            continue
        if point.dist is None:
            continue
        place = point.dist.locate_file(module.replace(".", "/") + ".py")
        yield Path(str(place)), safe_text(point.dist.name, 60)


def _described(files: Sequence[Path], origin: str) -> Iterator[WorkloadInfo | BrokenWorkload]:
    """What the files say of themselves, in one child."""
    if not files:
        return
    said = {each.get("file"): each for each in _ask(files)}
    for file in files:
        answer = said.get(str(file))
        if answer is None:
            yield BrokenWorkload(file, "It did not describe itself: it ended or hung while it was loaded.")
        elif "error" in answer:
            yield BrokenWorkload(file, safe_text(str(answer["error"]), 300))
        else:
            yield _info(file, answer, origin)


def _ask(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    command = [sys.executable, str(runner()), "--describe", *map(str, files)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as child:
        try:
            output = child.communicate(timeout=_PATIENCE_SECONDS)[0]
        except subprocess.TimeoutExpired as late:
            output = late.stdout or b""
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # it is not waited for yet, so its group is still its own
    for line in output.splitlines():
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict) and isinstance(answer.get("file"), str):
            yield answer


def _info(file: Path, said: dict[str, Any], origin: str) -> WorkloadInfo | BrokenWorkload:
    try:
        return WorkloadInfo(
            name=safe_text(str(said["name"]), 40),
            file=file,
            purpose=safe_text(str(said["purpose"]), 200),
            needs=safe_text(str(said["needs"]), 200),
            why_not_cpu=safe_text(str(said["why_not_cpu"]), 300),
            parameters=tuple(parameter_from(each) for each in said["parameters"]),
            origin=origin,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return BrokenWorkload(file, f"Its description makes no sense: {safe_text(str(error), 200)}")
