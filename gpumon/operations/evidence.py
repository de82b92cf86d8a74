"""What this machine says to an error now: who holds the memory, what the GPUs and the driver can do, Xids, limits.

A log may come from another machine, so nothing here changes what was found; it stands beside it.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from gpumon.core.exits import CommandError
from gpumon.core.model import Device, Frame, bare_uuid
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.core.xids import xid_text
from gpumon.diagnosis.explanation import Explanation, Match
from gpumon.jobs.interpreter import find_interpreter
from gpumon.operations.doctor.files import kernel_errors
from gpumon.operations.doctor.limits import host_limits
from gpumon.operations.status import look

DRIVER_FILES: Final = Path("/proc/driver/nvidia")
"""It is there while the driver's kernel module is loaded."""
_LOOK_SECONDS: Final = 5.0
_TORCH_SECONDS: Final = 20.0
_MOST_XIDS: Final = 5
_MOST_HOLDERS: Final = 4
_ASK_TORCH: Final = """\
import torch
print(torch.__version__, "for CUDA", torch.version.cuda, "has code for", *torch.cuda.get_arch_list())"""


class Machine:
    """What can be asked of this machine, each asked once and only if somebody wants to know."""

    @cached_property
    def frame(self) -> Frame | None:
        """The GPUs now, or None where they cannot be seen."""
        try:
            return look(patience=_LOOK_SECONDS)
        except CommandError:
            return None

    @cached_property
    def torch(self) -> str:
        """The torch of the training environment and what it has code for; empty if that cannot be asked."""
        try:
            asked = [str(find_interpreter().path), "-c", _ASK_TORCH]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=_TORCH_SECONDS, check=False)
        except (CommandError, OSError, subprocess.TimeoutExpired):
            return ""
        return safe_text(done.stdout.strip()) if done.returncode == 0 else ""

    @cached_property
    def xids(self) -> tuple[tuple[str, int], ...] | None:
        """The Xids in the kernel log, or None where this user may not read it."""
        try:
            return kernel_errors().xids
        except CommandError:
            return None

    @cached_property
    def shared_memory(self) -> tuple[int, int] | None:
        """Size of ``/dev/shm`` and what is free of it."""
        limits = host_limits()
        if limits.shared_bytes is None or limits.shared_free_bytes is None:
            return None
        return limits.shared_bytes, limits.shared_free_bytes

    @property
    def visible_devices(self) -> str | None:
        """``CUDA_VISIBLE_DEVICES`` of this shell."""
        return os.environ.get("CUDA_VISIBLE_DEVICES")


def with_evidence(explanation: Explanation, machine: Machine | None = None) -> Explanation:
    """Puts what the machine says now beside the cause, if it can say something to it.

    Args:
        explanation: What was found in a log.
        machine: Where to look; this one if None.
    """
    asked = machine or Machine()
    matches = (
        replace(match, evidence=dict(_evidence(match, asked))) if match.is_cause else match
        for match in explanation.matches
    )
    return replace(explanation, matches=tuple(matches))


def _evidence(match: Match, machine: Machine) -> Iterator[tuple[str, str]]:
    error_id = match.error.id
    uuid = match.figures.get("gpu_uuid")
    if uuid is not None and machine.frame is not None:
        known = {bare_uuid(device.uuid): device.label for device in _devices(machine) if device.uuid is not None}
        label = known.get(bare_uuid(str(uuid)))
        yield f"cuda:{match.figures['gpu']}", "no GPU of this machine" if label is None else f"GPU {label}"
    for ids, witness in WITNESSES:
        if error_id in ids or (witness is _xids and error_id.startswith("xid-")):
            yield from witness(machine)


def _memory(machine: Machine) -> Iterator[tuple[str, str]]:
    """Who holds the memory of each GPU."""
    for device in _devices(machine):
        used, total = device.get("memory_used_bytes"), device.get("memory_total_bytes")
        processes = sorted(device.processes or (), key=lambda each: -(each.memory_bytes or 0))
        holders = ", ".join(f"{each.pid} {bytes_text(each.memory_bytes)}" for each in processes[:_MOST_HOLDERS])
        held = f"; by process: {holders}" if holders else ""
        yield f"GPU {device.index} memory", f"{bytes_text(used)} of {bytes_text(total)} used{held}"


def _capability(machine: Machine) -> Iterator[tuple[str, str]]:
    """What the GPUs can do, and what torch has code for."""
    for device in _devices(machine):
        if device.compute_capability is not None:
            yield f"GPU {device.index}", f"{device.name}, compute capability {device.compute_capability}"
    if machine.torch:
        yield "torch", machine.torch


def _driver(machine: Machine) -> Iterator[tuple[str, str]]:
    """Which CUDA the driver can run."""
    if machine.frame is None:
        return
    problem = machine.frame.problems.get("driver")
    if problem is not None:
        yield "driver", str(problem)
    elif machine.frame.driver_version is not None:
        most = machine.frame.cuda_driver_version
        yield "driver", f"{machine.frame.driver_version}, runs CUDA up to {most or 'a version that it does not tell'}"


def _visible(machine: Machine) -> Iterator[tuple[str, str]]:
    """Which GPUs a program would see."""
    if machine.frame is not None:
        yield "GPUs", str(len(machine.frame.devices))
    visible = machine.visible_devices
    yield "CUDA_VISIBLE_DEVICES", "not set" if visible is None else safe_text(visible) or "empty: no GPU can be seen"


def _shared(machine: Machine) -> Iterator[tuple[str, str]]:
    """How large the shared memory is, which workers and NCCL use."""
    if machine.shared_memory is not None:
        total, free = machine.shared_memory
        yield "size of /dev/shm", f"{bytes_text(total)}, {bytes_text(free)} free"


def _xids(machine: Machine) -> Iterator[tuple[str, str]]:
    """What the driver has written to the kernel log."""
    if machine.xids is None:
        yield "kernel log", "this user may not read it; sudo dmesg -T | grep -i xid"
    elif machine.xids:
        latest = (f"{xid_text(number)} on {bus_id}" for bus_id, number in machine.xids[-_MOST_XIDS:])
        yield "kernel log", f"{len(machine.xids)} since boot, the latest: {'; '.join(latest)}"
    else:
        yield "kernel log", "no Xid since boot"


def _devices(machine: Machine) -> tuple[Device, ...]:
    return () if machine.frame is None else machine.frame.devices


Witness = Callable[[Machine], Iterator[tuple[str, str]]]

WITNESSES: Final[tuple[tuple[frozenset[str], Witness], ...]] = (
    (
        frozenset(
            {
                *("oom", "oom-async-backend", "oom-preempted", "oom-raw", "expandable-map-oom", "busy"),
                *("cublas-init", "cudnn-init", "nccl-cuda"),
            }
        ),
        _memory,
    ),
    (frozenset({"no-kernel-image", "arch-warning", "ptx", "inductor-old-gpu", "sdpa"}), _capability),
    (
        frozenset(
            {"driver-old", "no-driver", "ptx", "compat-803-804", "nvml-mismatch", "nvml-missing", "init-unknown"}
        ),
        _driver,
    ),
    (frozenset({"no-gpus", "bad-ordinal", "load-map", "nccl-no-gpu", "nccl-usage", "init-unknown"}), _visible),
    (frozenset({"shm", "nccl-system"}), _shared),
    (
        frozenset(
            {
                *("illegal-address", "illegal-instruction", "launch-failure", "launch-timeout", "ecc", "nvlink"),
                *("cuda-unknown", "gpu-lost", "nvml-unknown", "nvml-reset", "nccl-timeout", "nccl-remote"),
            }
        ),
        _xids,
    ),
)
"""Who can say something to which errors; to a Xid the kernel log always can."""
