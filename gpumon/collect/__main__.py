"""Starts the collector: frames go to standard output, settings come on standard input, whose end is the end.

It is started by path, so that the user's working directory is never on ``sys.path``.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import argparse
import mmap
import os
import traceback

from gpumon.collect.calls import CALLS
from gpumon.collect.flights import Flights
from gpumon.collect.host import take_collector_name
from gpumon.collect.loop import Collector
from gpumon.collect.nvml import Nvml
from gpumon.core.breadcrumb import BREADCRUMB_BYTES


def main() -> None:
    """Runs until the reader or the control pipe goes away."""
    parser = argparse.ArgumentParser(prog="python -m gpumon.collect", description=__doc__)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds from frame to frame")
    parser.add_argument("--breadcrumb", type=int, metavar="FD", help="shared memory to note the running call in")
    parser.add_argument("--drop", action="append", default=[], choices=CALLS, metavar="CALL", help="never call it")
    options = parser.parse_args()
    take_collector_name()
    breadcrumb = None if options.breadcrumb is None else mmap.mmap(options.breadcrumb, BREADCRUMB_BYTES)
    flights = Flights()
    api = Nvml(breadcrumb, options.drop, flights=flights)
    output, control = sys.stdout.fileno(), sys.stdin.fileno()
    code = 1
    try:
        code = Collector(api, flights, interval=options.interval, output=output, control=control).run()
    except Exception:  # noqa: BLE001 - the ordinary way out is not open to it either
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # the driver library's own exit handlers may wait for a lock that a call in it holds


if __name__ == "__main__":
    main()
