"""Starts the collector on a host without gpumon. Its text is the program of ``python3 -c``: no gpumon there.

Standard output first has one line: ``gpumon: Python 3.12``, the version here. Standard input then brings a line with
the size of a collector, and the collector, which is kept in memory only: from Python 3.10 on the zip file of
`collector_bundle`, from 3.6 on the text of `reduced_collector`, and nothing for an older Python. What follows on
standard input are settings of the collector, which ends at the end of standard input.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys


def start(interval):
    """Reads the collector and runs it, seconds between two frames given; returns only if that is not possible."""
    sys.stdout.write("gpumon: Python %d.%d\n" % sys.version_info[:2])
    sys.stdout.flush()
    size = int(_read_line() or 0)
    parts = []
    while size > 0:
        data = os.read(0, min(size, 1 << 16))
        if not data:
            return
        parts.append(data)
        size -= len(data)
    if sys.version_info < (3, 10):
        names = {"__name__": "gpumon_old_python"}
        exec(compile(b"".join(parts), "<gpumon>", "exec"), names)
        names["run"](interval)
        return
    memory = os.memfd_create("gpumon")
    for data in parts:
        os.write(memory, data)
    sys.path.insert(0, "/proc/self/fd/%d" % memory)
    sys.argv = ["gpumon.collect", "--interval", str(interval)]
    import runpy

    runpy.run_module("gpumon.collect", run_name="__main__")


def _read_line():
    """Reads a line byte by byte: what follows belongs to the collector."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 1)
        if not data:
            break
        line += data
    return line
