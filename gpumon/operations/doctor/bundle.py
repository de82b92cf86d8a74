"""The bundle: one file with the checks of the doctor and their facts, without names, addresses, or secrets.

It is plain text, so that its author can read it before sharing it.
"""

import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from gpumon import __version__
from gpumon.core.json_text import json_document
from gpumon.core.model import Device, Frame
from gpumon.core.new_files import new_file
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text
from gpumon.health.checks import document
from gpumon.health.doctor.environment import MAX_VALUE
from gpumon.health.doctor.facts import Environment, Pythons
from gpumon.operations.doctor.examination import Examination
from gpumon.operations.doctor.files import SYSTEM_ROOT, read_text
from gpumon.operations.doctor.redaction import Redactor, hosts_in, interfaces_in, libraries_in
from gpumon.operations.record import Anonymizer
from gpumon.operations.status import status_document

_FILES: Final = (
    "proc/version", "etc/os-release", "proc/cmdline", "proc/meminfo", "proc/loadavg", "proc/self/limits",
    "proc/self/cgroup", "proc/driver/nvidia/version", "proc/driver/nvidia/params",
)  # fmt: skip
_MAX_BYTES: Final = 1 << 16
_RELEVANT: Final = re.compile(
    r"^(?!SLURM.*(?:HOST|NODELIST|NODENAME|ALIASES|TOPOLOGY|ACCOUNT|CLUSTER|PARTITION|JOB_NAME|DIR|USER|COMMENT))"
    r"(?:(?:CUDA|NCCL|NVIDIA|PYTORCH|TORCH|OMP|MKL|KMP|NUMBA|XLA|SLURM|UCX|OMPI|GLOO|TRITON|CUDNN|CUBLAS|LD|PYTHON"
    r"|CONDA|GPUMON)_|(?:PATH|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|PYTHONPATH|LANG|TERM|LOCAL_RANK|RANK|WORLD_SIZE)$)"
)
"""Names of a cluster's hosts, accounts, and jobs are private."""
_MIN_USER_ID: Final = 1000
_NOBODY_ID: Final = 65534
_EXISTS: Final = "Choose another name, or remove the file."


class Removed(NamedTuple):
    """What a bundle omits.

    Attributes:
        counts: Number of replacements by kind.
        variables: Number of omitted environment variables.
    """

    counts: Mapping[str, int]
    variables: int

    def __str__(self) -> str:
        kinds = [f"{count} x {kind}" for kind, count in sorted(self.counts.items())]
        replaced = f"Replaced: {', '.join(kinds)}." if kinds else "Nothing was replaced."
        return f"{replaced} Omitted: {self.variables} environment variables, and arguments of command lines."


def refuse_existing(file: Path) -> None:
    """Checks that no file is overwritten, before the examination starts.

    Raises:
        CommandError: The file already exists.
    """
    if file.exists():
        raise CommandError.usage(ProblemCode.INVALID_VALUE, f"{safe_text(str(file))} already exists.", _EXISTS)


def save_bundle(file: Path, examination: Examination, root: Path = SYSTEM_ROOT) -> Removed:
    """Writes the bundle of a completed examination; returns what it omits.

    Raises:
        CommandError: The file already exists or cannot be written.
    """
    redactor = _redactor(examination, root)
    text, variables = _text(examination, redactor, root)
    try:
        with new_file(file, 0o600) as out:
            out.write(text.encode(errors="replace"))
    except FileExistsError:
        refuse_existing(file)
        raise
    except OSError as error:
        reason = f"{safe_text(str(file))} cannot be written: {(error.strerror or str(error)).lower()}."
        raise CommandError.usage(ProblemCode.NOT_WRITTEN, reason, "Choose another folder.") from None
    return Removed(dict(redactor.removed), variables)


def _text(examination: Examination, redactor: Redactor, root: Path) -> tuple[str, int]:
    """The complete bundle, and the number of environment variables that it omits."""
    environment = examination.facts.get(Environment)
    given = environment.variables if isinstance(environment, Environment) else {}
    shown = {name: redactor.variable(name, value) for name, value in sorted(given.items()) if _RELEVANT.search(name)}
    sections = [(title, redactor.text(text)) for title, text in _sections(examination, root)]
    sections.append(("environment", "\n".join(f"{name}={value}" for name, value in shown.items())))
    parts = [f"gpumon doctor bundle, gpumon {__version__}\n"]
    parts += [f"\n===== {title} =====\n{text.strip()}\n" for title, text in sections]
    return "".join(parts), len(given) - len(shown)


def _sections(examination: Examination, root: Path) -> Iterator[tuple[str, str]]:
    yield "doctor.json", json_document(document(examination.checks))
    frame = examination.facts.get(Frame)
    if isinstance(frame, Frame):
        yield "status.json", json_document(status_document(_without_arguments(frame)))
    pythons = examination.facts.get(Pythons)
    for python in pythons.asked if isinstance(pythons, Pythons) else ():
        installed = python.steps.value("packages", "installed") or ()
        if installed:
            yield f"packages of {python.found_in}", "\n".join("==".join(map(str, package)) for package in installed)
    for path in (*(root / name for name in _FILES), *sorted(root.glob("proc/driver/nvidia/gpus/*/information"))):
        text = read_text(path)[:_MAX_BYTES]
        if text:
            yield f"/{path.relative_to(root)}", text


def _without_arguments(frame: Frame) -> Frame:
    """The frame with shortened command lines; names and UUIDs stay, and are replaced with all others."""
    reduced = Anonymizer().apply(frame)
    return replace(
        reduced,
        host=replace(reduced.host, name=frame.host.name),
        devices=tuple(map(_with_names, reduced.devices, frame.devices)),
    )


def _with_names(reduced: Device, original: Device) -> Device:
    """The reduced device with its original UUID and the users of its processes."""
    processes = zip(reduced.processes or (), original.processes or (), strict=True)
    return replace(
        reduced,
        uuid=original.uuid,
        processes=None
        if original.processes is None
        else tuple(replace(one, user=other.user) for one, other in processes),
    )


def _redactor(examination: Examination, root: Path) -> Redactor:
    """A redactor for every name that the facts contain."""
    facts = examination.facts
    environment, frame = facts.get(Environment), facts.get(Frame)
    interfaces, libraries = set[str](), set[str]()
    users, hosts, homes = set(), {platform.node(), read_text(root / "etc/hostname").strip()}, {str(Path.home())}
    if isinstance(environment, Environment):
        users |= {environment.user, *(environment.get(name) or "" for name in ("USER", "LOGNAME", "SUDO_USER"))}
        hosts.add(environment.get("HOSTNAME") or "")
        interfaces |= set(environment.interfaces)
        for name, value in environment.variables.items():
            interfaces |= interfaces_in(name, value)
            # a check may show only the start of a long value
            libraries |= libraries_in(name, value) | libraries_in(name, safe_text(value, MAX_VALUE))
            hosts |= hosts_in(name, value)
        homes.add(environment.get("HOME") or "")
    if isinstance(frame, Frame):
        users |= {process.user or "" for device in frame.devices for process in device.processes or ()}
        hosts.add(frame.host.name or "")
    for line in read_text(root / "etc/passwd").splitlines():
        name, _, uid, _, _, home, *_ = (*line.split(":"), *[""] * 7)
        if uid.isdecimal() and _MIN_USER_ID <= int(uid) < _NOBODY_ID:
            users.add(name)
            homes.add(home)
    return Redactor(users, hosts, homes, interfaces, libraries)
