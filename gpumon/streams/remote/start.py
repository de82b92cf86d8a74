"""Starts the collector on a host without gpumon. Its text is the program of ``python3 -c``: no gpumon there.

Standard input brings a line with the size of the zip file of `collector_bundle`, and then the file, which is kept in
memory only. Standard output first has one line: ``gpumon: ready``, or ``gpumon: `` and the version of a Python that is
too old. What follows on standard input are settings of the collector, which ends at the end of standard input.
"""
# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys


def start(interval):
    """Reads the collector and runs it, seconds between two frames given; returns only if that is not possible."""
    if sys.version_info < (3, 10):
        sys.stdout.write("gpumon: Python %d.%d\n" % sys.version_info[:2])
        return
    sys.stdout.write("gpumon: ready\n")
    sys.stdout.flush()
    size = int(_read_line())
    memory = os.memfd_create("gpumon")
    while size > 0:
        data = os.read(0, min(size, 1 << 16))
        if not data:
            return
        os.write(memory, data)
        size -= len(data)
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
