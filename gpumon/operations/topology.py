"""The topology of this host, read once by a collector process that then ends."""

import json
import sys
from collections.abc import Sequence
from typing import Final

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.core.topology import Topology, from_document
from gpumon.streams.child import Child
from gpumon.streams.live import COLLECTOR

TIMEOUT_SECONDS: Final = 10.0
"""Longer than the collector takes with a driver that does not respond; more only if the host is overloaded."""


def read_topology(
    command: Sequence[str] = (sys.executable, str(COLLECTOR)), timeout: float = TIMEOUT_SECONDS
) -> Topology:
    """Read the topology of this host.

    Args:
        command: The collector; another program in tests.
        timeout: Maximum wait in seconds.

    Raises:
        CommandError: The collector did not answer in time, or ended without an answer.
    """
    child = Child([*command, "--topology"])
    try:
        line = child.read_line(timeout)
        if not line:
            call = child.running_call()
            where = f" in {call}" if call else ""
            how = "did not respond" if line == b"" else f"ended: {child.end_text()}"
            raise _failure(f"The collector {how}{where}.")
    finally:
        child.end()
    try:
        return from_document(json.loads(line))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _failure(f"The collector wrote no topology: {safe_text(str(error), 200)}.") from None


def _failure(reason: str) -> CommandError:
    problem = Problem(ProblemCode.COLLECTOR_DIED, reason, "Check the kernel log for an Xid (dmesg | grep -i xid).")
    return CommandError(problem, ExitCode.MISSING_PREREQUISITE)
