"""Reads Prometheus at an interval and writes snapshots to standard output, until standard input is closed.

A separate process: the answer for thousands of GPUs takes a second to read, in which a screen would not react. The
address arrives on standard input, so that no password is ever part of a command line.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import gc
import json
import os
import select
import time
from typing import Final

from gpumon.core.problems import Problem, ProblemCode
from gpumon.fleet.codec import SnapshotEncoder, encode_problem
from gpumon.fleet.model import IDLE_SECONDS, FleetError, FleetSnapshot
from gpumon.fleet.prometheus import Prometheus
from gpumon.fleet.query import fleet_query
from gpumon.fleet.settings import PrometheusAddress
from gpumon.fleet.snapshot import KnownGpus, SnapshotBuilder

MAX_KNOWN: Final = 1 << 16
_NO_MEMORY: Final = Problem(ProblemCode.NOT_READ, "The answer of Prometheus does not fit into memory.")


def main() -> None:
    """Run until the reader is gone."""
    settings = json.loads(sys.stdin.buffer.readline())
    encoder = SnapshotEncoder()
    known: KnownGpus = {}
    output = sys.stdout.buffer
    gc.disable()  # snapshots contain no cycles, and a collection would visit hundreds of thousands of objects
    while True:
        start = time.monotonic()
        has_failed = False
        try:
            address = PrometheusAddress(**settings["address"])
            line = encoder.encode(read_snapshot(address, settings["match"], settings["idle_seconds"], known))
        except FleetError as error:
            line, has_failed = encode_problem(error.problem), True
        except MemoryError:
            line, has_failed = encode_problem(_NO_MEMORY), True
        if has_failed or len(known) > MAX_KNOWN:  # labels such as the pod change
            known.clear()
            gc.collect()  # exceptions are parts of cycles, and may hold sockets
        output.write(line)
        output.flush()
        del line
        left = settings["interval_seconds"] - (time.monotonic() - start)
        if select.select([sys.stdin], [], [], max(0.0, left))[0] and not os.read(sys.stdin.fileno(), 1 << 10):
            return


def read_snapshot(
    address: PrometheusAddress, match: str = "", idle_seconds: float = IDLE_SECONDS, known: KnownGpus | None = None
) -> FleetSnapshot:
    """Read the fleet once.

    Args:
        address: How to reach Prometheus.
        match: Further label matchers, such as ``cluster="a"``.
        idle_seconds: The time whose highest utilization is read.
        known: GPUs of the query before by their labels.

    Raises:
        FleetError: There is no complete answer.
    """
    start = time.monotonic()
    builder = SnapshotBuilder(time.time(), known)
    prometheus = Prometheus(address)
    with prometheus.reading():
        for labels, value in prometheus.query(fleet_query(match, idle_seconds)):
            builder.add(labels, value)
    return builder.build(time.monotonic() - start, prometheus.read_bytes)


if __name__ == "__main__":
    main()
