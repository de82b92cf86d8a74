"""Checks of the machine around the GPUs: its limits, its memory nodes, and how the GPUs reach each other."""

from typing import Final

from gpumon.core.model import Device
from gpumon.core.units import bytes_text
from gpumon.diagnosis.checks import Finding, fail, ok, skip, warn
from gpumon.diagnosis.doctor.facts import CudaStart, HostLimits, PciTopology
from gpumon.diagnosis.doctor.rule import Gpus, Rule
from gpumon.diagnosis.doctor.wording import counted, gpus_text, sentences

_LEAST_SHARED: Final = 1 << 30
"""Less is used up by a few workers of a DataLoader; containers get 64 MiB by default."""
_LEAST_LOCKED: Final = 64 << 20
_LEAST_FILES: Final = 4096
_LEAST_PROCESSES: Final = 4096
_SMALL_MEMORY_SHARE: Final = 0.25
_ONE_GPU: Final = "There is one GPU."
_BOOT: Final = "In the firmware, switch ACS off for the bridges above the GPUs; it has no use without virtual machines."


def shared_memory(limits: HostLimits) -> Finding:
    """The shared memory (/dev/shm) has room for the workers of a DataLoader and for NCCL."""
    total, free = limits.shared_bytes, limits.shared_free_bytes
    if total is None or free is None:
        return fail(
            "There is no /dev/shm: DataLoader workers and NCCL need it.", "Mount it: sudo mount -t tmpfs shm /dev/shm."
        )
    told = f"{bytes_text(free)} free of {bytes_text(total)}"
    if total < _LEAST_SHARED:
        return warn(
            f"{told}: DataLoader workers and NCCL end with a bus error when it is full.",
            "Start the container with --shm-size=16g or --ipc=host, or mount a larger one.",
        )
    if free < _LEAST_SHARED:
        return warn(f"{told}: it is nearly full.", "Remove what ended programs have left there: ls -la /dev/shm.")
    return ok(told)


def ulimits(limits: HostLimits) -> Finding:
    """A process may open files, lock memory and start threads as training needs it."""
    low, fixes = [], []
    if limits.open_files is not None and limits.open_files < _LEAST_FILES:
        low.append(f"{limits.open_files} open files (DataLoader workers run out of them).")
        fixes.append("ulimit -n 65536.")
    if limits.has_infiniband and limits.locked_bytes is not None and limits.locked_bytes < _LEAST_LOCKED:
        low.append(f"{bytes_text(limits.locked_bytes)} of locked memory (InfiniBand needs it without limit).")
        fixes.append("ulimit -l unlimited; in a container, --ulimit memlock=-1.")
    if limits.processes is not None and limits.processes < _LEAST_PROCESSES:
        low.append(f"{limits.processes} processes and threads.")
        fixes.append("ulimit -u 65536.")
    if low:
        return warn(sentences(("At most", *low)), sentences(fixes))
    files = "any number of" if limits.open_files is None else str(limits.open_files)
    locked = "unlimited" if limits.locked_bytes is None else bytes_text(limits.locked_bytes)
    return ok(f"{files} files, {locked} locked memory{'' if limits.has_infiniband else ', and no InfiniBand'}")


def group_limits(limits: HostLimits) -> Finding:
    """The control group leaves enough of the machine's memory."""
    told = []
    if limits.cpus_quota is not None:
        told.append(f"{limits.cpus_quota:g} CPUs")
    memory, total = limits.memory_bytes, limits.memory_total_bytes
    if memory is not None:
        told.append(f"{bytes_text(memory)} of memory")
        if total is not None and memory < _SMALL_MEMORY_SHARE * total:
            return warn(
                f"The control group may use {bytes_text(memory)} of this machine's {bytes_text(total)}: beyond that "
                "the kernel ends a process without a word (exit code 137).",
                "Ask for more memory (--memory, or the job's request), or use fewer workers.",
            )
    return ok(f"{', '.join(told)} at most" if told else "no limit")


def numa(gpus: Gpus, topology: PciTopology, limits: HostLimits) -> Finding:
    """This process may run near each GPU."""
    near = {each.bus_id: each for each in topology.devices if each.node is not None and each.cpus}
    placed = [(device, near[bus]) for device in gpus.devices if (bus := sysfs_bus_id(device)) in near]
    if not placed:
        return skip("The machine tells no memory nodes of its GPUs.")
    far = [(device, pci) for device, pci in placed if not pci.cpus & limits.cpus_allowed]
    nodes = sorted({pci.node for _, pci in placed if pci.node is not None})
    if far:
        node = far[0][1].node
        return warn(
            f"Programs from here may not run on the processors near {gpus_text(device for device, _ in far)}.",
            f"numactl --cpunodebind={node} --membind={node} brings them near; look at the job's CPU set, too.",
        )
    return ok(f"on node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}, which may be used")


def peers(start: CudaStart) -> Finding:
    """The GPUs reach each other's memory directly."""
    error = start.steps.error("peers")
    if error:
        return fail(f"Asking for it failed: {error}.", "Look at dmesg for what the driver says.")
    count, apart = start.steps.value("peers", "count"), start.steps.value("peers", "apart")
    if count is None or apart is None:
        return skip("CUDA does not start.")
    if count < 2:
        return skip(_ONE_GPU)
    if not apart:
        return ok(f"all {count} GPUs, each with each")
    shown = ", ".join(f"{one}-{other}" for one, other in apart if one < other)
    return warn(
        f"These pairs do not, so that copies between them go through the host: {shown}.",
        "GeForce cards cannot; others can unless IOMMU or ACS forbid it: nvidia-smi topo -p2p r.",
    )


def acs(topology: PciTopology) -> Finding:
    """No bridge sends traffic between GPUs over the processor (ACS)."""
    if len(topology.devices) < 2:
        return skip(_ONE_GPU if topology.devices else "The PCI bus shows no GPU.")
    if topology.redirecting:
        bridges = counted(len(topology.redirecting), "bridge")
        return warn(
            f"Traffic between GPUs is redirected by {bridges} above them ({', '.join(topology.redirecting[:4])}): NCCL "
            "over PCIe gets slow, or hangs.",
            _BOOT,
        )
    if topology.acs_problem is not None:
        return skip(topology.acs_problem.reason)
    return ok("no bridge above the GPUs redirects")


def iommu(topology: PciTopology) -> Finding:
    """The IOMMU does not stand between the GPUs."""
    if not topology.devices:
        return skip("The PCI bus shows no GPU.")
    translated = [each for each in topology.devices if each.iommu.startswith("DMA")]
    if translated and len(topology.devices) > 1:
        return warn(
            f"It translates the addresses of {counted(len(translated), 'GPU')}: transfers between them over PCIe get "
            "slow, or fail.",
            "Boot with iommu=pt (passthrough), unless virtual machines need it.",
        )
    kinds = sorted({each.iommu for each in topology.devices if each.iommu})
    return ok(f"{', '.join(kinds)}" if kinds else "off")


def sysfs_bus_id(device: Device) -> str:
    """A device's PCI bus id as sysfs writes it: ``0000:1b:00.0``."""
    domain, _, rest = (device.pci_bus_id or "").lower().partition(":")
    return f"{domain[-4:]}:{rest}"


HOST_RULES: Final = (
    Rule("host.shm", shared_memory, (HostLimits,)),
    Rule("host.ulimits", ulimits, (HostLimits,)),
    Rule("host.cgroup", group_limits, (HostLimits,)),
    Rule("host.numa", numa, (Gpus, PciTopology, HostLimits)),
    Rule("host.p2p", peers, (CudaStart,)),
    Rule("host.acs", acs, (PciTopology,)),
    Rule("host.iommu", iommu, (PciTopology,)),
)
