"""The topology of this host, read by a collector process that ends as soon as the topology is not shown."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.core.topology import Topology, from_document
from gpumon.streams.child import Child
from gpumon.streams.live import COLLECTOR

TIMEOUT_SECONDS: Final = 10.0
"""Longer than the collector takes with a driver that does not respond; more only if the host is overloaded."""
_COUNTED: Final = ("transmitted_bytes", "received_bytes", "transmit_bytes_per_second", "receive_bytes_per_second")
"""What the counters of an NVLink give."""
_COMMAND: Final = (sys.executable, str(COLLECTOR))


class TopologyFeed:
    """The topology of this host: first the connections, then, again and again, with the rates of the NVLinks.

    ``once`` reads the connections only, and no rates.
    """

    def __init__(
        self, command: Sequence[str] = _COMMAND, timeout: float = TIMEOUT_SECONDS, *, once: bool = False
    ) -> None:
        self._child = Child([*command, "--topology", *([] if once else ["--follow"])])
        self._timeout = timeout
        self._is_closed = False
        self._lock = Lock()

    def read(self) -> Topology:
        """Wait for the next reading.

        Raises:
            CommandError: The collector did not answer in time, or ended without an answer.
        """
        with self._lock:
            line = None if self._is_closed else self._child.read_line(self._timeout)
            if not line:
                where = f" in {call}" if (call := self._child.running_call()) else ""
                end = "" if line == b"" or self._is_closed else f": {self._child.end_text()}"
                how = f"ended{end}" if line is None else "did not respond"
                raise _failure(f"The collector {how}{where}.")
        try:
            return from_document(json.loads(line))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise _failure(f"The collector wrote no topology: {safe_text(str(error), 200)}.") from None

    def close(self) -> None:
        """End the collector; may be called from any thread."""
        self._child.end()
        with self._lock:
            self._is_closed = True
            self._child.close()


def read_topology(command: Sequence[str] = _COMMAND, timeout: float = TIMEOUT_SECONDS) -> Topology:
    """Read the connections of this host, without rates.

    Raises:
        CommandError: The collector did not answer in time, or ended without an answer.
    """
    with closing(TopologyFeed(command, timeout, once=True)) as feed:
        return feed.read()


def read_topology_with_rates() -> Topology:
    """Read the connections of this host, and the rates of the NVLinks if it has some.

    Raises:
        CommandError: The collector did not answer in time, or ended without an answer.
    """
    with closing(TopologyFeed()) as feed:
        topology = feed.read()
        if not any(gpu.links for gpu in topology.gpus):
            return topology
        try:
            return feed.read()
        except CommandError as error:
            return without_rates(topology, error.problem)


def without_rates(topology: Topology, problem: Problem) -> Topology:
    """The connections without the counters and rates of the NVLinks, and why."""
    values: dict[str, Any] = dict.fromkeys(_COUNTED)
    problems = dict.fromkeys(_COUNTED, problem)
    gpus = [
        replace(gpu, links=tuple(replace(link, **values, problems={**link.problems, **problems}) for link in gpu.links))
        if gpu.links
        else gpu
        for gpu in topology.gpus
    ]
    return replace(topology, gpus=tuple(gpus))


def _failure(reason: str) -> CommandError:
    return CommandError.missing(
        ProblemCode.COLLECTOR_DIED, reason, "Check the kernel log for an Xid (dmesg | grep -i xid)."
    )
