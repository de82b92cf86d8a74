"""One examination of this host: gathers all facts in parallel, each with a timeout, and checks them as they arrive.

A fact that hangs costs only its own checks: its thread or child is abandoned, and the examination continues.
"""

import os
import pwd
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.inbox import Inbox
from gpumon.core.limits import limit_problem
from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.health.checks import Check
from gpumon.health.doctor.check import DoctorCheck, Facts, Gpus, gpus_of
from gpumon.health.doctor.facts import (
    ANYTHING,
    CudaStart,
    DriverFiles,
    Environment,
    Expected,
    HostLimits,
    KernelErrors,
    PciTopology,
    Pythons,
)
from gpumon.health.doctor.rules import DOCTOR_CHECKS, in_order, ready
from gpumon.operations.doctor.children import DRIVER_SECONDS, Children, examine_pythons, query_cuda
from gpumon.operations.doctor.files import SYSTEM_ROOT, driver_files, host_limits, kernel_errors, pci_topology
from gpumon.operations.one_shot import sample_frame
from gpumon.streams.live import LiveStream
from gpumon.workload_runs.interpreter import every_interpreter

_FRAME_SECONDS: Final = 8.0
_PYTHON_SECONDS: Final = 26.0
_FILE_SECONDS: Final = 6.0
_GRACE_SECONDS: Final = 1.5
"""A gatherer that enforces its own timeout gets this much longer to report it."""
_INTERVAL_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What is examined.

    Attributes:
        python: The only interpreter to examine, or None for all that gpumon finds.
        root: The root of the file system.
        variables: The environment variables.
        tests_gpus: Whether torch may run a first kernel on GPUs, which takes half a gigabyte of each for a moment.
        checks: The checks; only the facts that they need are gathered.
        with_pythons: Whether the Python interpreters are examined, too.
        expected: What is expected of this host.
    """

    python: str | None = None
    root: Path = SYSTEM_ROOT
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    tests_gpus: bool = True
    checks: tuple[DoctorCheck, ...] = DOCTOR_CHECKS
    with_pythons: bool = True
    expected: Expected = ANYTHING


class _Gatherer(NamedTuple):
    """The source of one kind of fact.

    Attributes:
        kind: The type of the fact.
        gather: Returns the fact.
        seconds: The timeout.
        source: Its name at the beginning of a sentence.
        after: The fact that must be there first, if there is one.
    """

    kind: type
    gather: Callable[[], object]
    seconds: float
    source: str
    after: type | None = None


class Examination:
    """An examination.

    Attributes:
        inbox: The results of the checks as they arrive.

    Raises:
        CommandError: The named interpreter does not exist.
    """

    def __init__(self, options: DoctorOptions | None = None) -> None:
        self.inbox: Inbox[Check] = Inbox()
        self._options = options or DoctorOptions()
        self._named = None if self._options.python is None else every_interpreter(self._options.python)
        self._children = Children()
        self._stream = LiveStream(_INTERVAL_SECONDS)
        self._facts: dict[type, object] = {Expected: self._options.expected}
        self._checks: list[Check] = []
        self._arrived: queue.SimpleQueue[tuple[type, object]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._gatherers = self._plan()
        self._thread = threading.Thread(target=self._run, name="gpumon-doctor", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether all checks have arrived."""
        return self._over.is_set()

    @property
    def facts(self) -> Facts:
        """The facts gathered so far."""
        return dict(self._facts)

    @property
    def checks(self) -> list[Check]:
        """The results so far, in the order in which they are reported."""
        return in_order(list(self._checks))

    def start(self) -> None:
        """Starts the examination."""
        self._thread.start()

    def wait(self) -> list[Check]:
        """Waits for the end, whatever hangs; returns the results."""
        self._over.wait()
        return self.checks

    def close(self) -> None:
        """Ends everything that still runs, without waiting."""
        self._over.set()
        self._children.close()
        with suppress(RuntimeError):  # the system starts no more threads; the collector ends with this process
            threading.Thread(target=self._stream.close, name="gpumon-doctor-close", daemon=True).start()

    def _plan(self) -> tuple[_Gatherer, ...]:
        root = self._options.root
        needed = {need for check in self._options.checks for need in check.needs} | {Frame}
        if self._options.with_pythons:
            needed.add(Pythons)
        gatherers = (
            _Gatherer(Frame, lambda: sample_frame(self._stream, _FRAME_SECONDS), _FRAME_SECONDS, "NVML"),
            _Gatherer(DriverFiles, lambda: driver_files(root), _FILE_SECONDS, "/proc"),
            _Gatherer(CudaStart, self._start_cuda, DRIVER_SECONDS, "The CUDA driver library"),
            _Gatherer(KernelErrors, lambda: kernel_errors(root), _FILE_SECONDS, "The kernel log"),
            _Gatherer(HostLimits, lambda: host_limits(root), _FILE_SECONDS, "/proc"),
            _Gatherer(PciTopology, lambda: pci_topology(root), _FILE_SECONDS, "/sys"),
            _Gatherer(Environment, self._environment, _FILE_SECONDS, "The system"),
            _Gatherer(Pythons, self._pythons, _PYTHON_SECONDS, "Python", after=Frame),
        )
        return tuple(gatherer for gatherer in gatherers if gatherer.kind in needed)

    def _run(self) -> None:
        try:
            self._gather_all()
        finally:
            self._over.set()
            self.inbox.ring()

    def _gather_all(self) -> None:
        deadlines = {gatherer.kind: self._begin(gatherer) for gatherer in self._gatherers if gatherer.after is None}
        while deadlines and not self._over.is_set():
            try:
                kind, fact = self._arrived.get(timeout=max(0.0, min(deadlines.values()) - time.monotonic()))
            except queue.Empty:
                kind = min(deadlines, key=deadlines.__getitem__)
                fact = _timeout_problem(next(gatherer for gatherer in self._gatherers if gatherer.kind is kind))
            if deadlines.pop(kind, None) is None:
                continue  # too late: its checks have run without it
            self._add_fact(kind, fact)
            deadlines |= {
                gatherer.kind: self._begin(gatherer) for gatherer in self._gatherers if gatherer.after is kind
            }

    def _begin(self, gatherer: _Gatherer) -> float:
        """Starts a gatherer in a separate thread; returns its deadline."""

        def gather() -> None:
            self._arrived.put((gatherer.kind, _gathered(gatherer.gather)))

        try:
            threading.Thread(target=gather, name="gpumon-doctor-fact", daemon=True).start()
        except RuntimeError as error:
            self._arrived.put((gatherer.kind, _problem_of(error)))
        return time.monotonic() + gatherer.seconds + _GRACE_SECONDS

    def _add_fact(self, kind: type, fact: object) -> None:
        self._facts[kind] = fact
        if kind is Frame:
            assert isinstance(fact, (Frame, Problem))
            self._facts[Gpus] = gpus_of(fact)
        for check in ready(self._facts, {check.id for check in self._checks}, self._options.checks):
            self._checks.append(check)
            self.inbox.put(check)

    def _start_cuda(self) -> CudaStart:
        return CudaStart(query_cuda(self._children, self._options.variables))

    def _pythons(self) -> Pythons:
        frame = self._facts[Frame]
        assert isinstance(frame, (Frame, Problem))
        interpreters = self._named or every_interpreter(environment=self._options.variables)
        return examine_pythons(
            self._children,
            interpreters,
            frame,
            _PYTHON_SECONDS,
            was_named=self._named is not None,
            tests_gpus=self._options.tests_gpus,
        )

    def _environment(self) -> Environment:
        interfaces = sorted(path.name for path in (self._options.root / "sys/class/net").glob("*"))
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        return Environment(self._options.variables, user, tuple(interfaces), len(os.sched_getaffinity(0)))


def _gathered(gather: Callable[[], object]) -> object:
    """The fact, or why it could not be gathered."""
    try:
        return gather()
    except CommandError as error:
        return error.problem
    except Exception as error:  # noqa: BLE001 - an error costs only the checks that need this fact
        return _problem_of(error)


def _problem_of(error: Exception) -> Problem:
    unknown = Problem(ProblemCode.UNKNOWN, f"This could not be read: {safe_text(str(error), 200)}.")
    return limit_problem(error) or unknown


def _timeout_problem(gatherer: _Gatherer) -> Problem:
    return Problem(
        ProblemCode.UNRESPONSIVE,
        f"{gatherer.source} did not answer within {gatherer.seconds + _GRACE_SECONDS:g} s.",
        "See dmesg for messages of the driver. A call that hangs in the driver needs a reset of the GPU, or a reboot.",
    )
