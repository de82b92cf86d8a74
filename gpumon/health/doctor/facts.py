"""The facts that the doctor judges: about the driver, the host, the environment, and each Python.

They are gathered elsewhere. A frame of the collector is a fact, too. A fact that could not be gathered is a `Problem`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpumon.core.problems import Problem


@dataclass(frozen=True, slots=True)
class DeviceNode:
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
    """What the file system shows of the driver.

    Attributes:
        version: Version of the loaded kernel module, or None.
        modules: Loaded kernel modules whose names begin with ``nvidia``, and ``nouveau``.
        nodes: Its device nodes.
        switches: How many NVSwitch chips the PCI bus shows.
        has_fabric_manager: Whether a fabric manager process is visible.
        has_persistence_daemon: Whether the persistence daemon runs.
        is_wsl: Whether this is WSL, where Windows has the driver.
        is_container: Whether this is a container.
    """

    version: str | None = None
    modules: tuple[str, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    switches: int = 0
    has_fabric_manager: bool = False
    has_persistence_daemon: bool = False
    is_wsl: bool = False
    is_container: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one step of a child process.

    Attributes:
        answer: Its result; empty if it failed.
        error: The exception as text; empty if there was none.
        seconds: Its duration.
    """

    answer: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Steps:
    """The outcome of a child process.

    Attributes:
        done: Its completed steps by name, in order.
        ended_in: The step during which it ended; empty if it completed.
        ended_by: Why it ended early: a signal, an exit code, or a timeout.
    """

    done: Mapping[str, Step] = field(default_factory=dict)
    ended_in: str = ""
    ended_by: str = ""

    def get(self, step: str) -> Step | None:
        """A step, or None if it was not started or did not complete."""
        return self.done.get(step)

    def value(self, step: str, name: str) -> Any:  # noqa: ANN401 - any JSON value
        """A value of a step's answer, or None."""
        outcome = self.done.get(step)
        return None if outcome is None else outcome.answer.get(name)

    def error(self, step: str) -> str:
        """Why a step failed, or why the child ended in it; empty if it succeeded or was not started."""
        if self.ended_in == step:
            return self.ended_by
        outcome = self.done.get(step)
        return "" if outcome is None else outcome.error


@dataclass(frozen=True, slots=True)
class CudaStart:
    """What the driver returns to a program that initializes CUDA."""

    steps: Steps


@dataclass(frozen=True, slots=True)
class KernelErrors:
    """GPU errors in the kernel log since boot.

    Attributes:
        xids: PCI bus ID of the GPU and number of the Xid, in the order of the log.
    """

    xids: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class HostLimits:
    """The resources that a process may use. None means unknown, or unlimited where the description says so.

    Attributes:
        shared_bytes: Size of ``/dev/shm``.
        shared_free_bytes: Free space in it.
        temporary_free_bytes: Free space in ``/tmp``.
        locked_bytes: Memory that a process may lock (``ulimit -l``); None means unlimited.
        open_files: Files that a process may open (``ulimit -n``); None means unlimited.
        processes: Processes that a user may have (``ulimit -u``); None means unlimited.
        memory_bytes: Memory that the control group may use; None means unlimited.
        memory_total_bytes: Installed memory.
        cpus_quota: Processors that the control group may use; None means unlimited.
        cpus_allowed: Processors on which this process may run.
        has_infiniband: Whether this host has InfiniBand or RoCE, which lock memory.
    """

    shared_bytes: int | None = None
    shared_free_bytes: int | None = None
    temporary_free_bytes: int | None = None
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
        bus_id: PCI bus ID as sysfs writes it, such as ``0000:1b:00.0``.
        node: NUMA node, or None if there is only one or it is not reported.
        cpus: Processors of that node.
        iommu: Type of its IOMMU group: ``DMA`` translates, ``identity`` passes through; empty without an IOMMU.
    """

    bus_id: str
    node: int | None = None
    cpus: frozenset[int] = frozenset()
    iommu: str = ""


@dataclass(frozen=True, slots=True)
class PciTopology:
    """How the GPUs are connected to the PCI bus.

    Attributes:
        devices: The GPUs.
        redirecting: Bridges above the GPUs that redirect traffic between GPUs to the root (ACS).
        acs_problem: Why ACS could not be read, or None.
    """

    devices: tuple[PciDevice, ...] = ()
    redirecting: tuple[str, ...] = ()
    acs_problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What the administrator expects of this host.

    Attributes:
        gpus: The number of GPUs; None for any.
        model: A part of the name of every GPU; empty for any.
    """

    gpus: int | None = None
    model: str = ""


ANYTHING: Final = Expected()
"""No expectation."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment that programs started from here get.

    Attributes:
        variables: Name to value.
        user: Login name.
        interfaces: Network interfaces of this host.
        cpu_count: Logical processors of this host.
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
    """One Python interpreter, and the outcome of the steps that it ran.

    Attributes:
        path: The interpreter.
        found_in: Where gpumon found it.
        steps: The outcome of its steps.
        refusal: Why gpumon did not run it; None if it did.
    """

    path: str
    found_in: str
    steps: Steps
    refusal: Problem | None = None

    @property
    def has_torch(self) -> bool:
        """Whether torch is installed, working or not."""
        return self.steps.value("python", "has_torch") is True


@dataclass(frozen=True, slots=True)
class Pythons:
    """The Python interpreters that were examined.

    Attributes:
        asked: In the order in which gpumon would use them.
        was_named: Whether the user named the only one.
    """

    asked: tuple[Python, ...] = ()
    was_named: bool = False
