"""Facts read from files and the kernel log: about the driver, the PCI bus, and the limits of this process.

Every path is below a root, so that tests can lay out a host of their choice.
"""

import errno
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.control_groups import control_groups, cpu_quota, read_groups
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.procfs import find_text, read_meminfo
from gpumon.core.text import safe_text
from gpumon.health.doctor.facts import DeviceNode, DriverFiles, HostLimits, KernelErrors, PciDevice, PciTopology

_NVIDIA: Final = "0x10de"
_GPU_CLASSES: Final = ("0x0300", "0x0302")
_SWITCH_CLASS: Final = "0x0680"
_BUS_ID: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_FIRST_EXTENDED: Final = 0x100
_HEADER_BYTES: Final = 4
_ACS: Final = 0x000D
_ACS_CONTROL: Final = 6
_ACS_REDIRECTS: Final = 0b1100
"""Request and completion redirect, bits of the ACS control register."""


def pci_topology(root: Path) -> PciTopology:
    """The GPUs and the bridges above them."""
    devices = list(_folders(root, _GPU_CLASSES))
    bridges = {bridge.name: bridge for device in devices for bridge in _bridges(device)}
    redirecting, problem = [], None
    for name, bridge in bridges.items():
        config = _bytes(bridge / "config")
        if len(config) <= _FIRST_EXTENDED:
            problem = Problem(
                ProblemCode.NO_PERMISSION,
                "Only root may read the ACS settings; sudo lspci -vvv | grep ACSCtl shows them (SrcValid+ is on).",
            )
        elif _acs_control(config) & _ACS_REDIRECTS:
            redirecting.append(name)
    return PciTopology(tuple(_device(device) for device in devices), tuple(sorted(redirecting)), problem)


def numbers_of(text: str) -> frozenset[int]:
    """The numbers of a list such as ``0-3,8``; an empty set for another text."""
    numbers: set[int] = set()
    try:
        for part in filter(None, text.strip().split(",")):
            first, _, last = part.partition("-")
            numbers.update(range(int(first), int(last or first) + 1))
    except ValueError:
        return frozenset()
    return frozenset(numbers)


def _folders(root: Path, classes: tuple[str, ...]) -> Iterator[Path]:
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        if find_text(folder / "vendor") == _NVIDIA and find_text(folder / "class").startswith(classes):
            yield folder


def _device(folder: Path) -> PciDevice:
    node = find_text(folder / "numa_node")
    return PciDevice(
        bus_id=folder.name,
        node=int(node) if node.isdecimal() else None,
        cpus=numbers_of(find_text(folder / "local_cpulist")),
        iommu=find_text(folder / "iommu_group" / "type"),
    )


def _bridges(device: Path) -> Iterator[Path]:
    """The bridges between a device and the CPU: sysfs nests devices as the bus does."""
    yield from (parent for parent in device.resolve().parents if _BUS_ID.fullmatch(parent.name))


def _acs_control(config: bytes) -> int:
    """The ACS control register, or 0 if a bridge has none."""
    offset, seen = _FIRST_EXTENDED, set()
    while _FIRST_EXTENDED <= offset <= len(config) - _HEADER_BYTES and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + _HEADER_BYTES], "little")
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[offset + _ACS_CONTROL : offset + _ACS_CONTROL + 2], "little")
        offset = header >> 20
    return 0


def _bytes(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


SYSTEM_ROOT: Final = Path("/")

_VERSION: Final = re.compile(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", re.ASCII)
_XID: Final = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)", re.ASCII)
_LIMIT: Final = re.compile(r"^Max (.+?)\s{2,}(\S+)", re.MULTILINE)
_CONTAINER_FILES: Final = (".dockerenv", "run/.containerenv")
_CONTAINER_GROUPS: Final = re.compile(r"docker|kubepods|containerd|libpod|lxc")
_PERSISTENCE_DAEMON: Final = "nvidia-persiste"
"""Process names in /proc, which the kernel truncates to 15 characters."""
_JOURNAL: Final = ("journalctl", "--dmesg", "--boot", "--no-pager", "--grep", "NVRM: Xid")
_JOURNAL_SECONDS: Final = 5.0
_RECORD_BYTES: Final = 1 << 16
_UNREADABLE: Final = Problem(
    ProblemCode.NO_PERMISSION, "This user may not read the kernel log; sudo dmesg | grep -i xid shows it."
)


def driver_files(root: Path = SYSTEM_ROOT) -> DriverFiles:
    """What the file system shows of the driver."""
    process_names = set(_process_names(root))
    return DriverFiles(
        version=_kernel_version(root),
        modules=_modules(root),
        nodes=tuple(_nodes(root)),
        switches=sum(1 for _ in _folders(root, (_SWITCH_CLASS,))),
        has_fabric_manager="nv-fabricmanage" in process_names,
        has_persistence_daemon=_PERSISTENCE_DAEMON in process_names,
        is_wsl=(root / "dev/dxg").exists(),
        is_container=_is_container(root),
    )


def kernel_errors(root: Path = SYSTEM_ROOT) -> KernelErrors:
    """The Xids in the kernel log.

    Raises:
        CommandError: This user may not read it.
    """
    text: str | None = None
    try:
        text = _kernel_messages(root / "dev/kmsg")
    except OSError:
        if root == SYSTEM_ROOT:
            text = _journal()
    if text is None:
        raise CommandError(_UNREADABLE, ExitCode.MISSING_PREREQUISITE)
    return KernelErrors(tuple((match[1].lower(), int(match[2])) for match in _XID.finditer(text)))


def host_limits(root: Path = SYSTEM_ROOT) -> HostLimits:
    """The resources that this process may use."""
    soft = dict(_LIMIT.findall(read_text(root / "proc/self/limits")))
    total_bytes = read_meminfo(root / "proc").get("MemTotal")
    shared, temporary = _file_system(root / "dev/shm"), _file_system(root / "tmp")
    groups = list(control_groups(root / "proc/self", root / "sys/fs/cgroup"))
    return HostLimits(
        shared_bytes=None if shared is None else shared[0],
        shared_free_bytes=None if shared is None else shared[1],
        temporary_free_bytes=None if temporary is None else temporary[1],
        locked_bytes=_number(soft.get("locked memory")),
        open_files=_number(soft.get("open files")),
        processes=_number(soft.get("processes")),
        memory_bytes=_lowest_memory_limit(groups, total_bytes),
        memory_total_bytes=total_bytes,
        cpus_quota=min((quota for quota in map(cpu_quota, groups) if quota is not None), default=None),
        cpus_allowed=frozenset(os.sched_getaffinity(0)),
        has_infiniband=any((root / "sys/class/infiniband").glob("*")),
    )


def read_text(path: Path) -> str:
    """The text of a small file; empty if the file cannot be read.

    Raises:
        OSError: This process has reached its limit on open files, which says nothing about the file.
    """
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise
        return ""


def _kernel_version(root: Path) -> str | None:
    match = _VERSION.search(read_text(root / "proc/driver/nvidia/version"))
    if match is not None:
        return match[1]
    return safe_text(read_text(root / "sys/module/nvidia/version").strip(), 40) or None


def _modules(root: Path) -> tuple[str, ...]:
    names = (line.partition(" ")[0] for line in read_text(root / "proc/modules").splitlines())
    return tuple(safe_text(name, 40) for name in names if name.startswith("nvidia") or name == "nouveau")


def _nodes(root: Path) -> Iterator[DeviceNode]:
    folder = root / "dev"
    for path in (folder / "nvidiactl", folder / "nvidia-uvm", *sorted(folder.glob("nvidia[0-9]*"))):
        with suppress(OSError):
            mode = stat.filemode(path.stat().st_mode)[1:]
            yield DeviceNode(f"/dev/{path.name}", mode, os.access(path, os.R_OK | os.W_OK))


def _process_names(root: Path) -> Iterator[str]:
    for path in (root / "proc").glob("[0-9]*/comm"):
        yield read_text(path).strip()


def _is_container(root: Path) -> bool:
    groups = read_groups(root / "proc/1") + read_groups(root / "proc/self")
    return any((root / name).exists() for name in _CONTAINER_FILES) or bool(_CONTAINER_GROUPS.search(groups))


def _kernel_messages(path: Path) -> str:
    """Everything in the kernel's ring buffer, without waiting for more."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    records = []
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BrokenPipeError:  # a record was overwritten before it was read; the next one is readable
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
    """The Xids in the journal, which some users may read who may not read the ring buffer; None for other users."""
    try:
        done = subprocess.run(_JOURNAL, capture_output=True, timeout=_JOURNAL_SECONDS, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    is_readable = done.returncode == 0 or (done.returncode == 1 and not done.stderr.strip())
    return done.stdout if is_readable else None


def _file_system(path: Path) -> tuple[int, int] | None:
    """Size and free bytes of a mounted file system."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _lowest_memory_limit(groups: list[Path], total: int | None) -> int | None:
    """The lowest limit; a limit that is not below the host's memory does not count."""
    texts = (read_text(group / name) for group in groups for name in ("memory.max", "memory.limit_in_bytes"))
    lowest = min((int(text) for text in texts if text.strip().isdecimal()), default=None)
    return None if lowest is None or (total is not None and lowest >= total) else lowest


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
