"""Start the collector, which writes frames to standard output and ends when standard input is closed.

Settings arrive on standard input. The file is started by path, so that the user's working directory is never on
``sys.path``.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import argparse
import mmap
import os
import traceback

from gpumon.collect.calls import CALLS, CallsInFlight
from gpumon.collect.host import set_process_name
from gpumon.collect.loop import CollectorLoop
from gpumon.collect.nvml import Nvml
from gpumon.core.collector_contract import BREADCRUMB_BYTES
from gpumon.core.json_text import json_line


def main() -> None:
    """Run until the reader of the frames or the writer of the settings is gone."""
    parser = argparse.ArgumentParser(prog="python -m gpumon.collect", description=__doc__)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two frames")
    parser.add_argument("--breadcrumb", type=int, metavar="FD", help="shared memory for the name of the running call")
    parser.add_argument(
        "--drop", action="append", default=[], choices=CALLS, metavar="CALL", help="never call this NVML function"
    )
    parser.add_argument("--background", action="store_true", help="read rarely what is expensive or rarely changes")
    parser.add_argument("--topology", action="store_true", help="write the topology as one line, and end")
    parser.add_argument(
        "--follow", action="store_true", help="with --topology: go on with the rates of the NVLinks, a line each time"
    )
    options = parser.parse_args()
    set_process_name()
    if options.background:
        from gpumon.core.heap import collect_rarely  # late: other collectors never need it

        collect_rarely()
    breadcrumb = None if options.breadcrumb is None else mmap.mmap(options.breadcrumb, BREADCRUMB_BYTES)
    in_flight = CallsInFlight()
    api = Nvml(breadcrumb, options.drop, in_flight=in_flight)
    output, control = sys.stdout.fileno(), sys.stdin.fileno()
    code = 1
    try:
        if options.topology:
            from gpumon.collect.topology import TopologyReader, topologies  # late: a collector never needs these
            from gpumon.core.topology import to_document

            reader = TopologyReader(api, in_flight)
            for topology in topologies(reader, control) if options.follow else (reader.read(),):
                print(json_line(to_document(topology)), flush=True)
            code = 0
        else:
            code = CollectorLoop(
                api,
                in_flight,
                interval=options.interval,
                output=output,
                control=control,
                is_background=options.background,
            ).run()
    except Exception:  # noqa: BLE001 - os._exit below would hide the traceback
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # the exit handlers of the driver library may wait for a lock that a hanging call holds


if __name__ == "__main__":
    main()
