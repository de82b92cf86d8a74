"""Checks of the host around the GPUs: its limits, its NUMA nodes, and how the GPUs reach each other."""

from typing import Final

from gpumon.core.procfs import sysfs_bus_id
from gpumon.core.units import bytes_text, counted
from gpumon.health.checks import CheckResult, fail, ok, skip, warn
from gpumon.health.doctor.check import DoctorCheck, Gpus, gpus_text, joined
from gpumon.health.doctor.facts import CudaStart, HostLimits, PciTopology

_MIN_SHARED_BYTES: Final = 1 << 30
"""A few DataLoader workers use up less than this; containers get 64 MiB by default."""
_MIN_TEMPORARY_BYTES: Final = 1 << 30
"""torch.compile and Triton write their kernels there."""
_MIN_LOCKED_BYTES: Final = 64 << 20
_MIN_FILES: Final = 4096
_MIN_PROCESSES: Final = 4096
_SMALL_MEMORY_SHARE: Final = 0.25
_ONE_GPU: Final = "There is only one GPU."
_NO_PCI_GPU: Final = "No GPU was found on the PCI bus."
_ACS_FIX: Final = (
    "Turn ACS off in the firmware for the bridges above the GPUs; only virtual machines with GPU passthrough need it."
)


def shared_memory(limits: HostLimits) -> CheckResult:
    """Shared memory (/dev/shm) has room for DataLoader workers and NCCL."""
    total, free = limits.shared_bytes, limits.shared_free_bytes
    if total is None or free is None:
        return fail(
            "There is no /dev/shm. DataLoader workers and NCCL need it.", "Mount it: sudo mount -t tmpfs shm /dev/shm."
        )
    text = f"{bytes_text(free)} free of {bytes_text(total)}"
    if total < _MIN_SHARED_BYTES:
        return warn(
            f"{text}. When it is full, DataLoader workers and NCCL crash with a bus error.",
            "Start the container with --shm-size=16g or --ipc=host, or mount a larger one.",
        )
    if free < _MIN_SHARED_BYTES:
        return warn(f"{text}: nearly full.", "Remove files that terminated programs left there: ls -la /dev/shm.")
    return ok(text)


def temporary_folder(limits: HostLimits) -> CheckResult:
    """The file system of temporary files has room for compiled kernels and checkpoints in the making."""
    free = limits.temporary_free_bytes
    if free is None:
        return skip("There is no /tmp.")
    if free < _MIN_TEMPORARY_BYTES:
        return warn(f"Only {bytes_text(free)} free in /tmp.", "Remove old files from /tmp, or set TMPDIR.")
    return ok(f"{bytes_text(free)} free in /tmp")


def ulimits(limits: HostLimits) -> CheckResult:
    """A process may open files, lock memory, and start threads as training needs it."""
    low, fixes = [], []
    if limits.open_files is not None and limits.open_files < _MIN_FILES:
        low.append(f"{limits.open_files} open files (too few for DataLoader workers).")
        fixes.append("ulimit -n 65536.")
    if limits.has_infiniband and limits.locked_bytes is not None and limits.locked_bytes < _MIN_LOCKED_BYTES:
        low.append(f"{bytes_text(limits.locked_bytes)} of locked memory (InfiniBand needs it unlimited).")
        fixes.append("ulimit -l unlimited; in a container, --ulimit memlock=-1.")
    if limits.processes is not None and limits.processes < _MIN_PROCESSES:
        low.append(f"{limits.processes} processes and threads.")
        fixes.append("ulimit -u 65536.")
    if low:
        return warn(joined(("At most", *low)), joined(fixes))
    files = "unlimited" if limits.open_files is None else str(limits.open_files)
    locked = "unlimited" if limits.locked_bytes is None else bytes_text(limits.locked_bytes)
    return ok(f"{files} open files, {locked} locked memory{'' if limits.has_infiniband else ', no InfiniBand'}")


def group_limits(limits: HostLimits) -> CheckResult:
    """The control group (cgroup) may use enough of the host's memory."""
    listed = []
    if limits.cpus_quota is not None:
        listed.append(f"{limits.cpus_quota:g} CPUs")
    memory, total = limits.memory_bytes, limits.memory_total_bytes
    if memory is not None:
        listed.append(f"{bytes_text(memory)} of memory")
        if total is not None and memory < _SMALL_MEMORY_SHARE * total:
            return warn(
                f"The control group may use {bytes_text(memory)} of the {bytes_text(total)} of this host. Above that, "
                "the kernel kills a process without a message (exit code 137).",
                "Request more memory (--memory, or the job's request), or use fewer workers.",
            )
    return ok(f"{', '.join(listed)} at most" if listed else "no limit")


def numa(gpus: Gpus, topology: PciTopology, limits: HostLimits) -> CheckResult:
    """This process may run on CPUs near each GPU."""
    local = {pci.bus_id: pci for pci in topology.devices if pci.node is not None and pci.cpus}
    placed = [
        (device, local[bus]) for device in gpus.devices if (bus := sysfs_bus_id(device.pci_bus_id or "")) in local
    ]
    if not placed:
        return skip("This host reports no NUMA nodes for its GPUs.")
    far = [(device, pci) for device, pci in placed if not pci.cpus & limits.cpus_allowed]
    nodes = sorted({pci.node for _, pci in placed if pci.node is not None})
    if far:
        node = far[0][1].node
        return warn(
            f"This process may not run on the CPUs near {gpus_text(device for device, _ in far)}.",
            f"Use numactl --cpunodebind={node} --membind={node}, and check the CPU set of the job.",
        )
    return ok(f"CPUs of NUMA node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))} allowed")


def peers(start: CudaStart) -> CheckResult:
    """The GPUs access each other's memory directly."""
    error = start.steps.error("peers")
    if error:
        return fail(f"The query failed: {error}.", "See dmesg for messages of the driver.")
    count, apart = start.steps.value("peers", "count"), start.steps.value("peers", "apart")
    if count is None or apart is None:
        return skip("CUDA does not initialize.")
    if count < 2:
        return skip(_ONE_GPU)
    if not apart:
        return ok(f"between all {count} GPUs")
    pairs = ", ".join(f"{one}-{other}" for one, other in apart if one < other)
    return warn(
        f"No direct access between these pairs of GPUs: {pairs}. Copies between them go through the host.",
        "GeForce cards do not support it. On other cards, check IOMMU and ACS: nvidia-smi topo -p2p r.",
    )


def acs(topology: PciTopology) -> CheckResult:
    """No PCIe bridge redirects traffic between GPUs through the CPU (ACS)."""
    if len(topology.devices) < 2:
        return skip(_ONE_GPU if topology.devices else _NO_PCI_GPU)
    if topology.redirecting:
        bridges = counted(len(topology.redirecting), "bridge")
        return warn(
            f"Traffic between GPUs is redirected by {bridges} above them ({', '.join(topology.redirecting[:4])}): NCCL "
            "over PCIe is slow, or hangs.",
            _ACS_FIX,
        )
    if topology.acs_problem is not None:
        return skip(topology.acs_problem.reason)
    return ok("no bridge above the GPUs redirects")


def iommu(topology: PciTopology) -> CheckResult:
    """The IOMMU does not translate traffic between GPUs."""
    if not topology.devices:
        return skip(_NO_PCI_GPU)
    translated = [device for device in topology.devices if device.iommu.startswith("DMA")]
    if translated and len(topology.devices) > 1:
        return warn(
            f"The IOMMU translates the addresses of {counted(len(translated), 'GPU')}: transfers between them over "
            "PCIe are slow, or fail.",
            "Boot with iommu=pt (passthrough), unless virtual machines need the translation.",
        )
    kinds = sorted({device.iommu for device in topology.devices if device.iommu})
    return ok(", ".join(kinds) or "off")


HOST_CHECKS: Final = (
    DoctorCheck("host.shm", shared_memory, (HostLimits,)),
    DoctorCheck("host.tmp", temporary_folder, (HostLimits,)),
    DoctorCheck("host.ulimits", ulimits, (HostLimits,)),
    DoctorCheck("host.cgroup", group_limits, (HostLimits,)),
    DoctorCheck("host.numa", numa, (Gpus, PciTopology, HostLimits)),
    DoctorCheck("host.p2p", peers, (CudaStart,)),
    DoctorCheck("host.acs", acs, (PciTopology,)),
    DoctorCheck("host.iommu", iommu, (PciTopology,)),
)
