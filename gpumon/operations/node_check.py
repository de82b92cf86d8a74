"""May this node take a job? The checks of a node at one of three levels, for schedulers and monitoring."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.model import Frame
from gpumon.health.checks import Check, Status, verdict
from gpumon.health.doctor.devices import is_responding
from gpumon.health.doctor.facts import ANYTHING, Expected
from gpumon.health.doctor.rules import NODE_CHECKS, NODE_CHECKS_WITH_CUDA, NODE_WORKLOADS
from gpumon.operations.doctor.examination import DoctorOptions, Examination
from gpumon.operations.doctor.files import SYSTEM_ROOT

DEFAULT_MAX_SECONDS: Final = 480.0


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What is checked.

    Attributes:
        level: 1 starts nothing on a GPU; 2 also runs short workloads on free GPUs, and 3 a load.
        expected: What the administrator expects of the node.
        ignored: IDs of checks that do not count.
        force: Whether workloads may use GPUs that are in use, too.
        python: The interpreter that has torch, or None to search for one.
        root: The root of the file system.
        max_seconds: How long level 3 may take.
    """

    level: int = 1
    expected: Expected = ANYTHING
    ignored: frozenset[str] = frozenset()
    force: bool = False
    python: str | None = None
    root: Path = SYSTEM_ROOT
    max_seconds: float = DEFAULT_MAX_SECONDS


def known_ids() -> set[str]:
    """The IDs of all checks."""
    return {check.id for check in NODE_CHECKS_WITH_CUDA} | {workload.check_id for workload in NODE_WORKLOADS}


class NodeResult(NamedTuple):
    """What was seen.

    Attributes:
        checks: The checks, without those that are ignored.
        frame: The GPUs; None if they could not be read.
    """

    checks: list[Check]
    frame: Frame | None


def check_node(options: NodeOptions) -> NodeResult:
    """Checks this host; takes one to two seconds at level 1 where the driver responds, and a minute at level 2."""
    deadline = time.monotonic() + options.max_seconds
    checks = NODE_CHECKS if options.level == 1 else NODE_CHECKS_WITH_CUDA
    chosen = tuple(check for check in checks if check.id not in options.ignored)
    examination = Examination(
        DoctorOptions(root=options.root, checks=chosen, with_pythons=False, expected=options.expected)
    )
    examination.start()
    try:
        checks_done = examination.wait()
        fact = examination.facts.get(Frame)
    finally:
        examination.close()
    frame = fact if isinstance(fact, Frame) else None
    if options.level > 1 and frame is not None:
        from gpumon.operations.node_workloads import measured  # late: level 1 has to be fast

        workloads = [
            workload
            for workload in NODE_WORKLOADS
            if workload.level <= options.level and workload.check_id not in options.ignored
        ]
        checks_done += measured(frame, workloads, deadline, force=options.force, python=options.python)
    return NodeResult(checks_done, frame)


def summary_line(result: NodeResult, expected: Expected) -> str:
    """The one line of a Nagios plugin: ``OK - 8/8 NVIDIA H200, 27 checks``, or what is wrong, the worst first."""
    word = {Status.FAIL: "CRITICAL", Status.WARN: "WARNING"}.get(verdict(result.checks), "OK")
    devices = result.frame.gpus if result.frame is not None else ()
    responding = [device for device in devices if is_responding(device)]
    total = len(devices) if expected.gpus is None else expected.gpus
    names = "/".join(sorted({device.name or "unknown" for device in responding})) or "GPUs"
    wrong = [check for status in (Status.FAIL, Status.WARN) for check in result.checks if check.status is status]
    detail = " ".join(f"{check.id}: {check.detail}" for check in wrong)
    done = sum(check.status is not Status.SKIP for check in result.checks)
    return f"{word} - {len(responding)}/{total} {names}, {detail or f'{done} checks'}"
