"""What this host reports about an error now: memory of processes, capabilities of GPUs and driver, Xids, limits.

A log may come from another host, so the evidence never changes an explanation; it is shown next to it.
"""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from gpumon.core.model import Device, Frame, bare_uuid
from gpumon.core.problems import CommandError
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text, of_text
from gpumon.core.xids import xid_text
from gpumon.errors.explanation import Explanation
from gpumon.errors.facts.versions import wheel_index
from gpumon.errors.match import Match
from gpumon.operations.doctor.files import host_limits, kernel_errors
from gpumon.operations.one_shot import sample_frame
from gpumon.workload_runs.interpreter import find_interpreter, python_environment

DRIVER_FILES: Final = Path("/proc/driver/nvidia")
"""This directory exists while the driver's kernel module is loaded."""
_FRAME_TIMEOUT_SECONDS: Final = 5.0
_TORCH_TIMEOUT_SECONDS: Final = 20.0
_MAX_XIDS: Final = 5
_MAX_HOLDERS: Final = 4
_PRINT_TORCH: Final = """\
import torch
print(torch.__version__, "for CUDA", torch.version.cuda, "has code for", *torch.cuda.get_arch_list())"""


class LiveEvidence:
    """The state of this host. Each part is queried once, when it is first used."""

    @cached_property
    def frame(self) -> Frame | None:
        """A frame with the GPUs, or None if they cannot be queried."""
        try:
            return sample_frame(timeout=_FRAME_TIMEOUT_SECONDS)
        except CommandError:
            return None

    @cached_property
    def torch(self) -> str:
        """Version and architectures of the training environment's torch; empty if torch cannot be queried."""
        try:
            command = [str(find_interpreter().path), "-c", _PRINT_TORCH]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_TORCH_TIMEOUT_SECONDS,
                check=False,
                env=python_environment(),
            )
        except (CommandError, OSError, subprocess.TimeoutExpired):
            return ""
        return safe_text(done.stdout.strip()) if done.returncode == 0 else ""

    @cached_property
    def xids(self) -> tuple[tuple[str, int], ...] | None:
        """The Xids in the kernel log, each with its PCI bus id, or None if this user may not read the log."""
        try:
            return kernel_errors().xids
        except CommandError:
            return None

    @cached_property
    def shared_memory(self) -> tuple[int, int] | None:
        """Size and free space of ``/dev/shm`` in bytes, or None if unknown."""
        limits = host_limits()
        if limits.shared_bytes is None or limits.shared_free_bytes is None:
            return None
        return limits.shared_bytes, limits.shared_free_bytes


def with_evidence(explanation: Explanation, live: LiveEvidence | None = None) -> Explanation:
    """Adds what this host reports about the cause, if anything."""
    live = live or LiveEvidence()
    matches = (
        replace(match, evidence=dict(_evidence(match, live))) if match.is_cause else match
        for match in explanation.matches
    )
    return replace(explanation, matches=tuple(matches))


def _evidence(match: Match, live: LiveEvidence) -> Iterator[tuple[str, str]]:
    uuid = match.values.get("gpu_uuid")
    if uuid is not None and live.frame is not None:
        known = {bare_uuid(device.uuid): device.label for device in _devices(live) if device.uuid is not None}
        label = known.get(bare_uuid(str(uuid)))
        yield f"cuda:{match.values['gpu']}", "not a GPU of this host" if label is None else f"GPU {label}"
    for name in match.error.host:
        yield from EVIDENCE_QUERIES[name](live)


def _memory(live: LiveEvidence) -> Iterator[tuple[str, str]]:
    """The processes that hold the memory of each GPU."""
    for device in _devices(live):
        used, total = device.get("memory_used_bytes"), device.get("memory_total_bytes")
        processes = sorted(device.processes or (), key=lambda process: -(process.memory_bytes or 0))
        holders = ", ".join(f"{process.pid} {bytes_text(process.memory_bytes)}" for process in processes[:_MAX_HOLDERS])
        held = f"; by process: {holders}" if holders else ""
        yield f"GPU {device.index} memory", f"{of_text(bytes_text(used), bytes_text(total))} used{held}"


def _capability(live: LiveEvidence) -> Iterator[tuple[str, str]]:
    """Compute capability of the GPUs, and the architectures that torch supports."""
    for device in _devices(live):
        if device.compute_capability is not None:
            index = wheel_index(device.compute_capability)
            wheels = "" if index is None else f"; wheels of {index} have code for it"
            yield f"GPU {device.index}", f"{device.name}, compute capability {device.compute_capability}{wheels}"
    if live.torch:
        yield "torch", live.torch


def _driver(live: LiveEvidence) -> Iterator[tuple[str, str]]:
    """The newest CUDA version that the driver supports."""
    if live.frame is None:
        return
    problem = live.frame.problems.get("driver")
    if problem is not None:
        yield "driver", str(problem)
    elif live.frame.driver_version is not None:
        newest = live.frame.cuda_driver_version
        yield "driver", f"{live.frame.driver_version}, supports CUDA up to {newest or 'an unknown version'}"


def _visible(live: LiveEvidence) -> Iterator[tuple[str, str]]:
    """The GPUs that a program started from this shell can use."""
    if live.frame is not None:
        yield "GPUs", str(len(live.frame.devices))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    yield "CUDA_VISIBLE_DEVICES", "not set" if visible is None else safe_text(visible) or "empty: no GPU is visible"


def _shared(live: LiveEvidence) -> Iterator[tuple[str, str]]:
    """Size of the shared memory, which DataLoader workers and NCCL use."""
    if live.shared_memory is not None:
        total, free = live.shared_memory
        yield "size of /dev/shm", f"{bytes_text(total)}, {bytes_text(free)} free"


def _xids(live: LiveEvidence) -> Iterator[tuple[str, str]]:
    """Xids that the driver has written to the kernel log."""
    if live.xids is None:
        yield "kernel log", "not readable by this user; run sudo dmesg -T | grep -i xid"
    elif live.xids:
        latest = (f"{xid_text(number)} on {bus_id}" for bus_id, number in live.xids[-_MAX_XIDS:])
        yield "kernel log", f"{len(live.xids)} since boot, latest: {'; '.join(latest)}"
    else:
        yield "kernel log", "no Xid since boot"


def _devices(live: LiveEvidence) -> tuple[Device, ...]:
    return () if live.frame is None else live.frame.devices


EVIDENCE_QUERIES: Final[Mapping[str, Callable[[LiveEvidence], Iterator[tuple[str, str]]]]] = {
    "memory": _memory,
    "capability": _capability,
    "driver": _driver,
    "visible": _visible,
    "shared": _shared,
    "xids": _xids,
}
"""The queries that provide evidence, by the names that entries give to them."""
