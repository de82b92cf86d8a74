"""What the doctor judges by: facts of the driver, the machine around the GPUs, the environment and each Python.

Nothing here is gathered; a frame of the collector is a fact as well. A fact that could not be gathered is a `Problem`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpumon.core.problems import Problem


@dataclass(frozen=True, slots=True)
class Node:
    """A device node of the driver.

    Attributes:
        path: Such as ``/dev/nvidia0``.
        mode: Its permissions, such as ``rw-rw-rw-``.
        is_usable: Whether its permissions let this user read and write.
    """

    path: str
    mode: str
    is_usable: bool


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """What the driver has put into the file system.

    Attributes:
        version: Of the kernel module that is loaded, or None.
        modules: Loaded kernel modules whose names begin with ``nvidia``.
        nodes: Its device nodes.
        switches: How many NVSwitch chips the PCI bus shows.
        has_fabric_manager: Whether the fabric manager runs where it can be seen.
        has_persistence_daemon: Whether the persistence daemon runs.
        is_wsl: Whether this is Linux under Windows, where Windows has the driver.
        is_container: Whether this is a container.
    """

    version: str | None = None
    modules: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    switches: int = 0
    has_fabric_manager: bool = False
    has_persistence_daemon: bool = False
    is_wsl: bool = False
    is_container: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What a child found in one step.

    Attributes:
        answer: What it found; empty if it failed.
        error: The exception, as text; empty if there was none.
        seconds: How long it took.
    """

    answer: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Steps:
    """What a child found.

    Attributes:
        done: Its steps by name, in their order.
        ended_in: The step in which it ended before its time; empty if it came to its end.
        ended_by: How it ended then: a signal, an exit code, or that its time was up.
    """

    done: Mapping[str, Step] = field(default_factory=dict)
    ended_in: str = ""
    ended_by: str = ""

    def get(self, step: str) -> Step | None:
        """A step, or None if it was not made or did not come to its end."""
        return self.done.get(step)

    def value(self, step: str, name: str) -> Any:  # noqa: ANN401 - it is whatever the child has written
        """A value of a step's answer, or None."""
        found = self.done.get(step)
        return None if found is None else found.answer.get(name)

    def error(self, step: str) -> str:
        """Why a step failed, or that the child ended in it; empty if it went well or was not made."""
        if self.ended_in == step:
            return self.ended_by
        found = self.done.get(step)
        return "" if found is None else found.error


@dataclass(frozen=True, slots=True)
class CudaStart:
    """What the driver answers to a program that begins to use CUDA."""

    steps: Steps


@dataclass(frozen=True, slots=True)
class KernelErrors:
    """Errors of GPUs that the kernel log tells of, since boot.

    Attributes:
        xids: Bus id of the GPU and number of the error, in the order of the log.
    """

    xids: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What a process may take of this machine; None is not known, or without limit where the name says so.

    Attributes:
        shared_bytes: Size of ``/dev/shm``.
        shared_free_bytes: What is free of it.
        locked_bytes: Memory that a process may lock (``ulimit -l``); None is without limit.
        open_files: Files that a process may open (``ulimit -n``); None is without limit.
        processes: Processes that a user may have (``ulimit -u``); None is without limit.
        memory_bytes: Memory that the control group may use; None is without limit.
        memory_total_bytes: Installed memory.
        cpus_quota: Processors that the control group may use; None is without limit.
        cpus_allowed: Processors on which this process may run.
        has_infiniband: Whether the machine has InfiniBand or RoCE, which lock memory.
    """

    shared_bytes: int | None = None
    shared_free_bytes: int | None = None
    locked_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    cpus_quota: float | None = None
    cpus_allowed: frozenset[int] = frozenset()
    has_infiniband: bool = False


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A GPU as the PCI bus shows it.

    Attributes:
        bus_id: As sysfs writes it, such as ``0000:1b:00.0``.
        node: NUMA node, or None where there is only one or none is told.
        cpus: Processors of that node.
        iommu: How the IOMMU handles it: ``DMA`` translates, ``identity`` passes through; empty without IOMMU.
    """

    bus_id: str
    node: int | None = None
    cpus: frozenset[int] = frozenset()
    iommu: str = ""


@dataclass(frozen=True, slots=True)
class PciTopology:
    """How the GPUs hang on the PCI bus.

    Attributes:
        devices: The GPUs.
        redirecting: Bridges above the GPUs that send traffic between GPUs up to the root (ACS).
        acs_problem: Why that could not be read, or None.
    """

    devices: tuple[PciDevice, ...] = ()
    redirecting: tuple[str, ...] = ()
    acs_problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of programs that are started from here.

    Attributes:
        variables: Name to value.
        user: Login name.
        interfaces: Network interfaces of this machine.
        cpu_count: Its logical processors.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    interfaces: tuple[str, ...] = ()
    cpu_count: int = 1

    def get(self, name: str) -> str | None:
        """A variable, or None if it is not set."""
        return self.variables.get(name)


@dataclass(frozen=True, slots=True)
class Python:
    """One Python, and what its torch answered.

    Attributes:
        path: The program.
        found_in: How gpumon came to it.
        steps: What it answered.
    """

    path: str
    found_in: str
    steps: Steps

    @property
    def has_torch(self) -> bool:
        """Whether it has torch, however that works."""
        return self.steps.value("python", "has_torch") is True


@dataclass(frozen=True, slots=True)
class Pythons:
    """Every Python that was asked.

    Attributes:
        asked: In the order in which gpumon would use them.
        was_named: Whether the user has named the one.
    """

    asked: tuple[Python, ...] = ()
    was_named: bool = False
