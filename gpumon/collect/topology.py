"""Reads how the GPUs are connected: each value with one driver call, and no call waits for another GPU's.

The connections are read once. The counters of the NVLinks can be read again, from which the rates of each link follow.

A worker makes the calls one after the other. A call that does not return within `CALL_SECONDS` is left behind with its
worker; its GPU is not queried again, and the next worker goes on with the rest.
"""

import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.collect import nvml
from gpumon.collect.attributes import IdentityQueries
from gpumon.collect.calls import Abandoned, CallsInFlight
from gpumon.collect.device import IDENTITY_CALLS
from gpumon.collect.nvlinks import read_counters, read_links, with_counters, with_nvlinks, without_counters
from gpumon.collect.nvml import Handle, Nvml, NvmlError, ReadingError
from gpumon.collect.nvml_session import start_problem
from gpumon.collect.pci_paths import NO_NODE, max_lanes, near_cpus, network_cards, numa_node
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import sysfs_bus_id
from gpumon.core.text import safe_text
from gpumon.core.topology import GpuPair, LinkedGpu, P2PStatus, PathLevel, Topology

CALL_SECONDS: Final = 1.0
TOTAL_SECONDS: Final = 6.0
FIRST_RATE_SECONDS: Final = 0.5
"""Time between the first two readings of the counters."""
RATE_SECONDS: Final = 2.0
"""Time between two later ones."""
_TICK_SECONDS: Final = 0.02
_IDENTITY: Final = ("uuid", "pci_bus_id", "name")
_GPU_FIELDS: Final = tuple(item.name for item in fields_of(LinkedGpu) if item.name not in {"index", "problems"})
_NO_DEVICES: Final = Problem(ProblemCode.NO_DEVICES, "The NVIDIA driver is loaded but reports no GPU.")
_NO_CPUS: Final = Problem(ProblemCode.NOT_FOUND, "The kernel does not report the processors near this GPU.")
_NO_LANES: Final = Problem(ProblemCode.NOT_FOUND, "The kernel does not report the lanes of this GPU.")
_PCIE_CALLS: Final = (
    ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)
_LEVELS: Final = {
    nvml.TOPOLOGY_INTERNAL: PathLevel.INTERNAL,
    nvml.TOPOLOGY_SINGLE: PathLevel.PIX,
    nvml.TOPOLOGY_MULTIPLE: PathLevel.PXB,
    nvml.TOPOLOGY_HOSTBRIDGE: PathLevel.PHB,
    nvml.TOPOLOGY_NODE: PathLevel.NODE,
    nvml.TOPOLOGY_SYSTEM: PathLevel.SYS,
}
_PAIR_CALLS: Final[tuple[tuple[str, str, tuple[int, ...], Mapping[int, PathLevel | P2PStatus]], ...]] = (
    ("level", "nvmlDeviceGetTopologyCommonAncestor", (), _LEVELS),
    ("p2p", "nvmlDeviceGetP2PStatus", (nvml.P2P_READ,), dict(enumerate(P2PStatus))),
)
"""Field of `GpuPair`, NVML function, its further arguments, and what its results mean."""


class _Task(NamedTuple):
    """Calls for one GPU or one pair: ``fail`` stores the reason if they do not return."""

    run: Callable[[], None]
    fail: Callable[[Problem], None]
    indices: tuple[int, ...] = ()


class TopologyReader:
    """Reads the connections of all GPUs.

    Args:
        api: The choke point.
        in_flight: The calls in flight, the same object that ``api`` uses.
        sys: Where sysfs is mounted.
        call_seconds: A call that takes longer is left behind.
        total_seconds: After this time, what is missing stays missing.
    """

    def __init__(
        self,
        api: Nvml,
        in_flight: CallsInFlight,
        sys: Path = Path("/sys"),
        call_seconds: float = CALL_SECONDS,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self._api = api
        self._in_flight = in_flight
        self._sys = sys
        self._call_seconds = call_seconds
        self._total_seconds = total_seconds
        self._handles: dict[int, Handle] = {}
        self._gpus: dict[int, LinkedGpu] = {}
        self._pairs: dict[tuple[int, int], GpuPair] = {}
        self._unusable: dict[int, Problem] = {}
        self._problems: dict[str, Problem] = {}
        self._todo: deque[_Task] = deque()
        self._current: _Task | None = None
        self._done = threading.Event()
        self._counted_at: dict[int, float] = {}
        """When the counters of the NVLinks of a GPU were read."""

    def read(self) -> Topology:
        """The connections; what the driver does not return in time is missing, with the reason."""
        self._todo.append(_Task(self._open, self._fail_driver))
        return self._read_all()

    def read_rates(self) -> Topology:
        """The connections that `read` has returned, with the rates of the NVLinks since the previous reading."""
        linked = [index for index, gpu in self._gpus.items() if gpu.links]
        self._todo += [_Task(partial(self._read_rates, i), partial(self._fail_rates, i), (i,)) for i in linked]
        return self._read_all()

    def _read_all(self) -> Topology:
        self._done.clear()
        deadline = self._in_flight.clock() + self._total_seconds
        worker = self._start_worker()
        while not self._done.wait(_TICK_SECONDS):
            now = self._in_flight.clock()
            call = self._in_flight.of_thread(worker.ident)
            is_late = now >= deadline
            if call is None or not (is_late or now - call.started >= self._call_seconds):
                continue
            if worker.ident is None or not self._in_flight.abandon(worker.ident, call):
                continue
            problem = Problem(
                ProblemCode.UNRESPONSIVE,
                f"The driver does not respond: {call.call} has not returned for {now - call.started:.0f} s.",
                "Check the kernel log for an Xid (dmesg | grep -i xid).",
            )
            self._give_up(problem, everything=is_late)
            if is_late:
                break
            worker = self._start_worker()
        gpus = tuple(self._gpus[index] for index in sorted(self._gpus))
        bus_ids = {gpu.index: sysfs_bus_id(gpu.pci_bus_id) for gpu in gpus if gpu.pci_bus_id is not None}
        pairs = tuple(with_nvlinks(self._pairs[ends], self._gpus) for ends in sorted(self._pairs))
        return Topology(gpus, pairs, network_cards(self._sys, bus_ids), self._problems)

    def _start_worker(self) -> threading.Thread:
        worker = threading.Thread(target=self._work, name="gpumon-topology", daemon=True)
        worker.start()
        return worker

    def _work(self) -> None:
        try:
            while self._todo:
                self._current = task = self._todo.popleft()
                problem = next((self._unusable[index] for index in task.indices if index in self._unusable), None)
                if problem is not None:
                    task.fail(problem)
                    continue
                try:
                    task.run()
                except NvmlError as error:
                    task.fail(error.problem)
                except Exception as error:  # noqa: BLE001 - the rest can still be read, and the reader waits for the end
                    reason = f"gpumon failed to read this: {type(error).__name__}: {safe_text(str(error), 100)}."
                    task.fail(Problem(ProblemCode.UNKNOWN, reason))
        except Abandoned:
            return
        self._done.set()

    def _give_up(self, problem: Problem, *, everything: bool) -> None:
        """Store the reason for the task of an abandoned worker, and for all others if there is no time left."""
        task = self._current
        assert task is not None
        task.fail(problem)
        if len(task.indices) == 1:
            self._unusable[task.indices[0]] = problem
        while everything and self._todo:
            self._todo.popleft().fail(problem)

    def _fail_driver(self, problem: Problem) -> None:
        self._problems["driver"] = problem

    def _open(self) -> None:
        try:
            self._api.call("nvmlInitWithFlags", nvml.INIT_FLAG_NO_GPUS)
        except NvmlError as error:
            if error.problem.code is not ProblemCode.DRIVER_TOO_OLD:
                self._problems["driver"] = start_problem(error)
                return
            self._api.call("nvmlInit")
        count = self._api.call("nvmlDeviceGetCount")
        if not count:
            self._problems["driver"] = _NO_DEVICES
        self._gpus = {index: LinkedGpu(index) for index in range(count)}
        self._pairs = {(one, other): GpuPair(one, other) for one in range(count) for other in range(one + 1, count)}
        self._todo += [_Task(partial(self._read_gpu, i), partial(self._fail_gpu, i), (i,)) for i in self._gpus]
        self._todo += [_Task(partial(self._read_pair, e), partial(self._fail_pair, e), e) for e in self._pairs]

    def _read_gpu(self, index: int) -> None:
        handle = self._handles[index] = self._api.call("nvmlDeviceGetHandleByIndex", index)
        queries = IdentityQueries(self._api, handle)
        values: dict[str, Any] = {
            field: queries.query(field, call, convert) for field, call, convert in IDENTITY_CALLS if field in _IDENTITY
        }
        values |= {field: queries.query(field, call, int) for field, call in _PCIE_CALLS}
        values["memory_numa_node"] = queries.query("memory_numa_node", "nvmlDeviceGetNumaNodeId", int)
        problems = queries.problems
        if values["pci_bus_id"] is not None:
            device = self._sys / "bus/pci/devices" / sysfs_bus_id(values["pci_bus_id"])
            values |= {"cpus": near_cpus(device), "numa_node": numa_node(device), "pcie_width_gpu": max_lanes(device)}
        for field, problem in (("cpus", _NO_CPUS), ("numa_node", NO_NODE), ("pcie_width_gpu", _NO_LANES)):
            if values.get(field) is None:
                problems[field] = problem
        self._gpus[index] = LinkedGpu(index, **values, problems=problems)
        links = read_links(self._api, handle)
        if isinstance(links, Problem):
            self._gpus[index] = replace(self._gpus[index], problems={**problems, "links": links})
        else:
            self._gpus[index] = replace(self._gpus[index], links=links)

    def _fail_gpu(self, index: int, problem: Problem) -> None:
        """Give the reason for what was not read of a GPU."""
        if index not in self._handles:
            self._unusable[index] = problem
        gpu = self._gpus[index]
        missing = [field for field in _GPU_FIELDS if getattr(gpu, field) is None and field not in gpu.problems]
        self._gpus[index] = replace(gpu, problems={**gpu.problems, **dict.fromkeys(missing, problem)})

    def _read_rates(self, index: int) -> None:
        """Read the counters of the NVLinks of a GPU again."""
        gpu, handle = self._gpus[index], self._handles[index]
        answers = read_counters(self._api, handle, gpu.links or ())
        now = self._in_flight.clock()
        before = self._counted_at.get(index, now)
        self._counted_at[index] = now
        self._gpus[index] = replace(gpu, links=with_counters(gpu.links or (), answers, now - before))

    def _fail_rates(self, index: int, problem: Problem) -> None:
        """Give the reason why the rates of a GPU are missing."""
        gpu = self._gpus[index]
        self._gpus[index] = replace(gpu, links=without_counters(gpu.links or (), problem))

    def _read_pair(self, ends: tuple[int, int]) -> None:
        handles = tuple(self._handles[index] for index in ends)
        values: dict[str, Any] = {}
        problems: dict[str, Problem] = {}
        for field, call, arguments, known in _PAIR_CALLS:
            try:
                number = self._api.call(call, *handles, *arguments)
            except ReadingError as error:
                problems[field] = error.problem
                continue
            if number in known:
                values[field] = known[number]
            else:
                reason = f"The driver returned {number}, which gpumon does not know."
                problems[field] = Problem(ProblemCode.INVALID_VALUE, reason)
        self._pairs[ends] = GpuPair(*ends, **values, problems=problems)

    def _fail_pair(self, ends: tuple[int, int], problem: Problem) -> None:
        self._pairs[ends] = GpuPair(*ends, problems={"level": problem, "p2p": problem})


def topologies(reader: TopologyReader, control: int) -> Iterator[Topology]:
    """The connections at once, then again with the rates of the NVLinks, until a descriptor reaches its end.

    The connections do not wait for the counters of the NVLinks, so that a driver that crashes there costs only these.

    Args:
        reader: Reads them.
        control: The descriptor; it is open as long as the connections are shown.
    """
    yield reader.read()
    reader.read_rates()
    pause = FIRST_RATE_SECONDS
    while not select.select([control], [], [], pause)[0]:
        yield reader.read_rates()
        pause = RATE_SECONDS
