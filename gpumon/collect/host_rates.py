"""Network and disk rates of the host, from the byte counters that the kernel keeps in sysfs.

Every byte is counted once. Of the network interfaces and disks, only those with a hardware device count: a bridge, a
bond, a VLAN, a container's interface, a partition, a loop device, LVM and RAID move the bytes of a device below them.
RDMA does not pass through a network interface, so the counters of the InfiniBand ports are added.

Reading a counter of an InfiniBand port is a firmware command, which may hang. The counters are therefore read in a
separate thread, once a second.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.collect.schedule import NEEDS_TWO_SAMPLES, Period
from gpumon.core.model import HOST_RATES
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.procfs import find_text

NOT_REPORTED: Final = Problem(ProblemCode.NOT_FOUND, "Not reported by this host.")
COUNTER_RESET: Final = Problem(ProblemCode.NOT_READ, "A counter was reset, or has reached its end and restarted.")
SYSFS_HANGS: Final = Problem(
    ProblemCode.UNRESPONSIVE, "The kernel does not return the counters of a network interface or disk."
)

_RECEIVE, _TRANSMIT, _READ, _WRITE = HOST_RATES
_FIRST_PERIOD_SECONDS: Final = 0.2
"""The second sample may follow the first one this soon, so that ``gpumon status`` has the rates."""
_WAIT_SECONDS: Final = 0.02
"""How long a frame waits for the counters; a slower sample is in the next frame."""
_HANG_SECONDS: Final = 3.0
_SECTOR_BYTES: Final = 512
_INFINIBAND_WORD_BYTES: Final = 4
_INFINIBAND_TYPE: Final = "32"
"""ARPHRD_INFINIBAND: an interface whose bytes the counters of its InfiniBand port include."""


class Counter(NamedTuple):
    """A file with byte counters.

    Attributes:
        path: The file.
        columns: For each rate, the column of the file that contains its counter.
        unit_bytes: Number of bytes of which the file counts one.
    """

    path: str
    columns: Mapping[str, int]
    unit_bytes: int = 1


class _Sample(NamedTuple):
    """The counters in bytes, by file, at a moment in monotonic seconds."""

    seconds: float
    totals: Mapping[str, Mapping[str, int]]


class RateReading(NamedTuple):
    """The rates of the host in bytes per second, and why a rate is missing, by field of `Host`."""

    rates: Mapping[str, float]
    problems: Mapping[str, Problem]


class HostRates:
    """The network and disk rates of this host.

    Args:
        sysfs: Root of the sysfs file system.
        clock: Monotonic seconds.
        period: Time between two samples.
    """

    def __init__(
        self,
        sysfs: Path = Path("/sys"),
        clock: Callable[[], float] = time.monotonic,
        period: Period = Period.ONE_SECOND,
    ) -> None:
        self._period = period
        self._sysfs = sysfs
        self._clock = clock
        self._counters: list[Counter] = []
        self._search_due = float("-inf")
        self._sample_due = float("-inf")
        self._last: _Sample | None = None
        self._reading = RateReading({}, dict.fromkeys(HOST_RATES, NEEDS_TWO_SAMPLES))
        self._requested = threading.Semaphore(0)
        self._done = threading.Event()
        self._done.set()
        self._thread: threading.Thread | None = None

    def read(self) -> RateReading:
        """The rates between the two latest samples; requests a new sample when it is due."""
        now = self._clock()
        if self._done.is_set() and now >= self._sample_due:
            self._sample_due = now + (_FIRST_PERIOD_SECONDS if self._last is None else self._period)
            self._done.clear()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpumon-host-rates", daemon=True)
                self._thread.start()
            self._requested.release()
            self._done.wait(_WAIT_SECONDS)
        if not self._done.is_set() and now - self._sample_due > _HANG_SECONDS:
            return RateReading({}, dict.fromkeys(HOST_RATES, SYSFS_HANGS))
        return self._reading

    def _run(self) -> None:
        while True:
            self._requested.acquire()
            try:
                self._sample()
            except OSError:  # a directory that this user may not enter
                self._reading = RateReading({}, dict.fromkeys(HOST_RATES, NOT_REPORTED))
            finally:
                self._done.set()

    def _sample(self) -> None:
        if self._clock() >= self._search_due:
            self._counters = [*network_counters(self._sysfs), *disk_counters(self._sysfs)]
            self._search_due = self._clock() + Period.TEN_SECONDS.value
        totals = {counter.path: values for counter in self._counters if (values := _totals(counter)) is not None}
        before, self._last = self._last, _Sample(self._clock(), totals)
        self._reading = _reading(before, self._last)


def _reading(before: _Sample | None, after: _Sample) -> RateReading:
    """The rates between two samples. A device that is in one sample only does not count."""
    rates: dict[str, float] = {}
    problems: dict[str, Problem] = {}
    for field in HOST_RATES:
        paths = [path for path, values in after.totals.items() if field in values]
        common = [] if before is None else [path for path in paths if field in before.totals.get(path, ())]
        if not paths:
            problems[field] = NOT_REPORTED
        elif before is None or not common or after.seconds <= before.seconds:
            problems[field] = NEEDS_TWO_SAMPLES
        else:
            steps = [after.totals[path][field] - before.totals[path][field] for path in common]
            if min(steps) < 0:
                problems[field] = COUNTER_RESET
            else:
                rates[field] = round(sum(steps) / (after.seconds - before.seconds), 1)
    return RateReading(rates, problems)


def network_counters(sysfs: Path) -> Iterator[Counter]:
    """The counters of the physical network interfaces and of the InfiniBand ports.

    In a container, the only interface is a virtual one; without a physical interface, the virtual ones count.
    """
    ports = [folder for folder in _folders(sysfs / "class/infiniband") for folder in _folders(folder / "ports")]
    infiniband = [counter for port in ports for counter in _port_counters(port / "counters")]
    interfaces = [folder for folder in _folders(sysfs / "class/net") if folder.name != "lo"]
    physical = [folder for folder in interfaces if (folder / "device").exists() and not _is_virtual_function(folder)]
    virtual = [folder for folder in interfaces if not any((folder / kind).exists() for kind in ("bridge", "bonding"))]
    for folder in physical or virtual:
        if not (infiniband and find_text(folder / "type") == _INFINIBAND_TYPE):
            yield Counter(str(folder / "statistics/rx_bytes"), {_RECEIVE: 0})
            yield Counter(str(folder / "statistics/tx_bytes"), {_TRANSMIT: 0})
    yield from infiniband


def disk_counters(sysfs: Path) -> Iterator[Counter]:
    """The counters of the disks. In ``stat``, the columns 2 and 6 are the sectors that were read and written."""
    for folder in _folders(sysfs / "block"):
        if (folder / "device").exists() and find_text(folder / "hidden") != "1":  # a path of a multipath NVMe is hidden
            yield Counter(str(folder / "stat"), {_READ: 2, _WRITE: 6}, _SECTOR_BYTES)


def _port_counters(folder: Path) -> Iterator[Counter]:
    for field, name in ((_RECEIVE, "port_rcv_data"), (_TRANSMIT, "port_xmit_data")):
        if (folder / name).exists():
            yield Counter(str(folder / name), {field: 0}, _INFINIBAND_WORD_BYTES)


def _is_virtual_function(interface: Path) -> bool:
    """Whether an interface is a part (SR-IOV) of another interface of this host, which counts its bytes too."""
    return (interface / "device/physfn").exists()


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _totals(counter: Counter) -> Mapping[str, int] | None:
    """The counters of a file in bytes; None if its device is gone, or if a column is not a number."""
    try:
        with open(counter.path, "rb", buffering=0) as file:  # noqa: PTH123 - read once a second
            columns = file.read(512).split()
        return {field: int(columns[column]) * counter.unit_bytes for field, column in counter.columns.items()}
    except (OSError, ValueError, IndexError):
        return None
