"""Facts that stand in files: of the driver, of this process's limits, and in the kernel log.

Every path is below a root, so that a test can lay out a machine of its own.
"""

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.diagnosis.doctor.facts import DriverFiles, KernelErrors, Node
from gpumon.operations.doctor.pci import count_switches

MACHINE: Final = Path("/")

_VERSION: Final = re.compile(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", re.ASCII)
_XID: Final = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)", re.ASCII)
_CONTAINER_FILES: Final = (".dockerenv", "run/.containerenv")
_CONTAINER_GROUPS: Final = re.compile(r"docker|kubepods|containerd|libpod|lxc")
_FABRIC_MANAGER: Final = "nv-fabricmanage"
_PERSISTENCE_DAEMON: Final = "nvidia-persiste"
"""As the kernel has their names, cut at fifteen characters."""
_JOURNAL: Final = ("journalctl", "--dmesg", "--boot", "--no-pager", "--grep", "NVRM: Xid")
_JOURNAL_SECONDS: Final = 5.0
_RECORD_BYTES: Final = 1 << 16
_UNREADABLE: Final = Problem(
    ProblemCode.NO_PERMISSION,
    "This user may not read the kernel log; sudo dmesg | grep -i xid shows it.",
)


def driver_files(root: Path = MACHINE) -> DriverFiles:
    """What the driver has put into the file system."""
    running = set(_process_names(root))
    return DriverFiles(
        version=_kernel_version(root),
        modules=_modules(root),
        nodes=tuple(_nodes(root)),
        switches=count_switches(root),
        has_fabric_manager=_FABRIC_MANAGER in running,
        has_persistence_daemon=_PERSISTENCE_DAEMON in running,
        is_wsl=(root / "dev/dxg").exists(),
        is_container=_is_container(root),
    )


def kernel_errors(root: Path = MACHINE) -> KernelErrors:
    """The Xids in the kernel log.

    Raises:
        CommandError: This user may not read it.
    """
    text: str | None = None
    try:
        text = _kernel_messages(root / "dev/kmsg")
    except OSError:
        if root == MACHINE:
            text = _journal()
    if text is None:
        raise CommandError(_UNREADABLE, ExitCode.NOT_THERE)
    return KernelErrors(tuple((found[1].lower(), int(found[2])) for found in _XID.finditer(text)))


def read_text(path: Path) -> str:
    """A small file's text, or nothing where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _kernel_version(root: Path) -> str | None:
    found = _VERSION.search(read_text(root / "proc/driver/nvidia/version"))
    if found is not None:
        return found[1]
    return safe_text(read_text(root / "sys/module/nvidia/version").strip(), 40) or None


def _modules(root: Path) -> tuple[str, ...]:
    names = (line.partition(" ")[0] for line in read_text(root / "proc/modules").splitlines())
    return tuple(safe_text(name, 40) for name in names if name.startswith("nvidia") or name == "nouveau")


def _nodes(root: Path) -> Iterator[Node]:
    folder = root / "dev"
    for path in (folder / "nvidiactl", folder / "nvidia-uvm", *sorted(folder.glob("nvidia[0-9]*"))):
        with suppress(OSError):
            mode = stat.filemode(path.stat().st_mode)[1:]
            yield Node(f"/dev/{path.name}", mode, os.access(path, os.R_OK | os.W_OK))


def _process_names(root: Path) -> Iterator[str]:
    for path in (root / "proc").glob("[0-9]*/comm"):
        yield read_text(path).strip()


def _is_container(root: Path) -> bool:
    groups = read_text(root / "proc/1/cgroup") + read_text(root / "proc/self/cgroup")
    return any((root / name).exists() for name in _CONTAINER_FILES) or bool(_CONTAINER_GROUPS.search(groups))


def _kernel_messages(path: Path) -> str:
    """All that the kernel's buffer holds, without waiting for more."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    records = []
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BrokenPipeError:  # a record was overwritten before it was read; the next one can be
                continue
            except BlockingIOError:
                break
            if not record:
                break
            records.append(record)
    finally:
        os.close(descriptor)
    return b"".join(records).decode(errors="replace")


def _journal() -> str | None:
    """The Xids in the journal, which some users may read who may not read the kernel's buffer; None if not this one."""
    try:
        done = subprocess.run(_JOURNAL, capture_output=True, timeout=_JOURNAL_SECONDS, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    is_told = done.returncode == 0 or (done.returncode == 1 and not done.stderr.strip())
    return done.stdout if is_told else None
