"""One examination of this machine: gathers the facts side by side, each with a deadline, and judges as they come.

What hangs costs its own checks alone: its thread or child is left behind, and the examination goes on.
"""

import os
import pwd
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.exits import CommandError
from gpumon.core.inbox import Inbox
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.diagnosis.checks import Check
from gpumon.diagnosis.doctor.facts import (
    CudaStart,
    DriverFiles,
    Environment,
    HostLimits,
    KernelErrors,
    PciTopology,
    Pythons,
)
from gpumon.diagnosis.doctor.rule import Facts, Gpus, gpus_of
from gpumon.diagnosis.doctor.rules import in_order, ready
from gpumon.jobs.interpreter import every_interpreter
from gpumon.operations.doctor.asking import Children, own_python
from gpumon.operations.doctor.files import MACHINE, driver_files, kernel_errors
from gpumon.operations.doctor.limits import host_limits
from gpumon.operations.doctor.pci import topology
from gpumon.operations.doctor.pythons import ask_pythons
from gpumon.operations.status import look
from gpumon.streams.live import LiveStream

_FRAME_SECONDS: Final = 8.0
_DRIVER_SECONDS: Final = 12.0
_PYTHON_SECONDS: Final = 26.0
_FILE_SECONDS: Final = 6.0
_GRACE_SECONDS: Final = 1.5
"""A gatherer with a limit of its own gets this much longer to say that it was reached."""
_INTERVAL: Final = 0.25
_DRIVER_ORDER: Final = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What is examined.

    Attributes:
        python: The one interpreter to ask, or None for all that can be found.
        root: Where the machine's files are.
        variables: The environment.
        tries_gpus: Whether torch may run a first kernel on GPUs, which takes half a gigabyte of each for a moment.
    """

    python: str | None = None
    root: Path = MACHINE
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    tries_gpus: bool = True


class _Gatherer(NamedTuple):
    """What gathers one kind of fact.

    Attributes:
        kind: Its type.
        gather: Does it.
        seconds: How long that may take.
        what: What it is, at the beginning of a sentence.
        after: The fact that it begins with, if it needs one.
    """

    kind: type
    gather: Callable[[], object]
    seconds: float
    what: str
    after: type | None = None


class Examination:
    """An examination.

    Args:
        wish: What is examined.

    Attributes:
        inbox: Checks as they are made.

    Raises:
        CommandError: There is no such interpreter as was named.
    """

    def __init__(self, wish: Wish | None = None) -> None:
        self.inbox: Inbox[Check] = Inbox()
        self._wish = wish or Wish()
        self._named = None if self._wish.python is None else every_interpreter(self._wish.python)
        self._children = Children()
        self._stream = LiveStream(_INTERVAL)
        self._facts: dict[type, object] = {}
        self._checks: list[Check] = []
        self._arrived: queue.SimpleQueue[tuple[type, object]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._gatherers = self._plan()
        self._thread = threading.Thread(target=self._run, name="gpumon-doctor", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether no more checks come."""
        return self._over.is_set()

    @property
    def facts(self) -> Facts:
        """What was gathered."""
        return dict(self._facts)

    @property
    def checks(self) -> list[Check]:
        """The checks up to now, in the order in which they are told."""
        return in_order(list(self._checks))

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def wait(self) -> list[Check]:
        """Waits for the end, which comes within `DEADLINE_SECONDS`; returns the checks."""
        self._over.wait()
        return self.checks

    def close(self) -> None:
        """Ends what still runs, and waits for nothing."""
        self._over.set()
        self._children.end()
        threading.Thread(target=self._stream.close, name="gpumon-doctor-close", daemon=True).start()

    def _plan(self) -> tuple[_Gatherer, ...]:
        root = self._wish.root
        return (
            _Gatherer(Frame, self._look, _FRAME_SECONDS, "NVML"),
            _Gatherer(DriverFiles, lambda: driver_files(root), _FILE_SECONDS, "/proc"),
            _Gatherer(CudaStart, self._ask_driver, _DRIVER_SECONDS, "The CUDA driver library"),
            _Gatherer(KernelErrors, lambda: kernel_errors(root), _FILE_SECONDS, "The kernel log"),
            _Gatherer(HostLimits, lambda: host_limits(root), _FILE_SECONDS, "/proc"),
            _Gatherer(PciTopology, lambda: topology(root), _FILE_SECONDS, "/sys"),
            _Gatherer(Environment, self._environment, _FILE_SECONDS, "The system"),
            _Gatherer(Pythons, self._ask_pythons, _PYTHON_SECONDS, "Python", after=Frame),
        )

    def _run(self) -> None:
        try:
            self._gather_all()
        finally:
            self._over.set()
            self.inbox.ring()

    def _gather_all(self) -> None:
        deadlines = {each.kind: self._begin(each) for each in self._gatherers if each.after is None}
        while deadlines and not self._over.is_set():
            try:
                kind, fact = self._arrived.get(timeout=max(0.0, min(deadlines.values()) - time.monotonic()))
            except queue.Empty:
                kind = min(deadlines, key=lambda each: deadlines[each])
                fact = _late(next(each for each in self._gatherers if each.kind is kind))
            if deadlines.pop(kind, None) is None:
                continue  # it comes too late: its checks are made
            self._settle(kind, fact)
            deadlines |= {each.kind: self._begin(each) for each in self._gatherers if each.after is kind}

    def _begin(self, gatherer: _Gatherer) -> float:
        """Starts a gatherer in a thread of its own; returns when its time is up."""

        def gather() -> None:
            self._arrived.put((gatherer.kind, _gathered(gatherer.gather)))

        threading.Thread(target=gather, name="gpumon-doctor-fact", daemon=True).start()
        return time.monotonic() + gatherer.seconds + _GRACE_SECONDS

    def _settle(self, kind: type, fact: object) -> None:
        self._facts[kind] = fact
        if kind is Frame:
            assert isinstance(fact, (Frame, Problem))
            self._facts[Gpus] = gpus_of(fact)
        for check in ready(self._facts, {each.id for each in self._checks}):
            self._checks.append(check)
            self.inbox.put(check)

    def _look(self) -> Frame:
        return look(self._stream, _FRAME_SECONDS)

    def _ask_driver(self) -> CudaStart:
        """All GPUs in the driver's own order, whatever the environment hides."""
        variables = {name: value for name, value in self._wish.variables.items() if name != "CUDA_VISIBLE_DEVICES"}
        return CudaStart(self._children.ask(own_python(), ["driver"], _DRIVER_SECONDS, variables | _DRIVER_ORDER))

    def _ask_pythons(self) -> Pythons:
        frame = self._facts[Frame]
        assert isinstance(frame, (Frame, Problem))
        found = every_interpreter(environment=self._wish.variables) if self._named is None else self._named
        was_named, tries_gpus = self._named is not None, self._wish.tries_gpus
        return ask_pythons(self._children, found, frame, _PYTHON_SECONDS, was_named=was_named, tries_gpus=tries_gpus)

    def _environment(self) -> Environment:
        interfaces = sorted(each.name for each in (self._wish.root / "sys/class/net").glob("*"))
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        return Environment(self._wish.variables, user, tuple(interfaces), len(os.sched_getaffinity(0)))


DEADLINE_SECONDS: Final = _FRAME_SECONDS + _PYTHON_SECONDS + 2 * _GRACE_SECONDS
"""An examination takes no longer, whatever hangs."""


def _gathered(gather: Callable[[], object]) -> object:
    """The fact, or why it could not be gathered."""
    try:
        return gather()
    except CommandError as error:
        return error.problem
    except Exception as error:  # noqa: BLE001 - whatever it is, it costs the checks that need this fact, and no others
        return Problem(ProblemCode.UNKNOWN, f"It could not be read: {safe_text(str(error), 200)}.")


def _late(gatherer: _Gatherer) -> Problem:
    return Problem(
        ProblemCode.UNRESPONSIVE,
        f"{gatherer.what} did not answer within {gatherer.seconds + _GRACE_SECONDS:g} s.",
        "Look at dmesg for what the driver says; what hangs in it ends with a reset of the GPU, or a reboot.",
    )
