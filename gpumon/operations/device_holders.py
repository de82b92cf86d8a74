"""Processes that use CUDA on a GPU but are not in the driver's list: those that could hold unattributed memory.

A CUDA context keeps the device file of its GPU open, and that of unified memory. A monitor has only the former open.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.procfs import nvidia_files, sysfs_bus_id
from gpumon.core.text import safe_bytes

_DEVICE_FILE: Final = "/dev/nvidia"
_CUDA_FILE: Final = "/dev/nvidia-uvm"
"""Open files of one process that are searched."""
_MAX_HOLDERS: Final = 8
_NAME_LENGTH: Final = 40


class DeviceHolder(NamedTuple):
    """A process with a CUDA context on a GPU.

    Attributes:
        pid: The process.
        name: Its name, as the kernel keeps it.
    """

    pid: int
    name: str


class Holders(NamedTuple):
    """Who could hold the unattributed memory of a device.

    Attributes:
        holders: Processes that use CUDA on the device and are not listed on it.
        are_hidden: Whether there are processes whose open files this user may not see.
    """

    holders: tuple[DeviceHolder, ...]
    are_hidden: bool


def device_holders(
    bus_ids: Mapping[str, str | None], listed: Mapping[str, Collection[int]], proc: Path = Path("/proc")
) -> dict[str, Holders]:
    """Search all processes for open device files. This reads thousands of links, so it belongs in a thread.

    The bus IDs of devices with unattributed memory, and the PIDs that the driver lists on them, are by `Device.key`.
    """
    files = {key: _file_of(bus_id, proc) for key, bus_id in bus_ids.items()}
    result: dict[str, list[DeviceHolder]] = {key: [] for key in bus_ids}
    are_hidden = False
    for pid in _pids(proc):
        try:
            opened = set(nvidia_files(proc / str(pid)))
        except PermissionError:
            are_hidden = True
            continue
        except OSError:  # it has ended
            continue
        if _CUDA_FILE not in opened:
            continue
        for key, file in files.items():
            has_device = file in opened if file is not None else any(map(_is_numbered, opened))
            if has_device and pid not in listed.get(key, ()):
                result[key].append(DeviceHolder(pid, _name(proc / str(pid))))
    return {key: Holders(tuple(holders[:_MAX_HOLDERS]), are_hidden) for key, holders in result.items()}


def _file_of(bus_id: str | None, proc: Path) -> str | None:
    """The device file of a GPU, by the minor number that the driver reports for its bus ID; None if unknown."""
    if bus_id is None:
        return None
    folder = proc / "driver/nvidia/gpus" / sysfs_bus_id(bus_id)
    try:
        lines = (folder / "information").read_text(errors="replace").splitlines()
    except OSError:
        return None
    numbers = [line.partition(":")[2].strip() for line in lines if line.startswith("Device Minor")]
    return f"{_DEVICE_FILE}{numbers[0]}" if numbers and numbers[0].isdecimal() else None


def _pids(proc: Path) -> Sequence[int]:
    """All processes."""
    try:
        return sorted(int(folder.name) for folder in proc.iterdir() if folder.name.isdecimal())
    except OSError:
        return ()


def _is_numbered(file: str) -> bool:
    return file.removeprefix(_DEVICE_FILE).isdecimal()


def _name(folder: Path) -> str:
    try:
        return safe_bytes((folder / "comm").read_bytes().strip(), _NAME_LENGTH)
    except OSError:
        return ""
