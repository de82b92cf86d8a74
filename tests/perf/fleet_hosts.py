"""Cost of the fleet screen through ssh; see `tests.perf.fleet`, option ``--ssh-hosts``.

A program in place of ssh sends one frame of the bundled recording, with eight GPUs, per second. gpumon runs in a
pseudo-terminal, started as users start it.
"""

import gzip
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from gpumon.streams.replay import demo_path
from tests.processes import cpu_seconds
from tests.terminal import Terminal

_FRAMES: Final = 60
_SETTLE_SECONDS: Final = 10.0
_FAKE_SSH: Final = """\
import os, sys, time
lines = open({frames!r}, "rb").readlines()
number = hash(sys.argv[-2]) % len(lines)
while True:
    os.write(1, lines[number % len(lines)])
    number += 1
    time.sleep(1)
"""


def measure_hosts(hosts: int, seconds: float) -> str:
    """Run gpumon on hosts; returns a line of a Markdown table.

    Args:
        hosts: How many.
        seconds: How long the CPU time is measured.
    """
    with tempfile.TemporaryDirectory() as home:
        frames = Path(home, "frames")
        with gzip.open(demo_path(), "rb") as recording:
            frames.write_bytes(b"".join(line for _, line in zip(range(_FRAMES), recording, strict=False)))
        program = Path(home, "ssh")
        program.write_text(f"#!{sys.executable} -IS\n{_FAKE_SSH.format(frames=str(frames))}")
        program.chmod(0o755)
        environment = {**os.environ, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, "HOME": home}
        environment["PATH"] = f"{home}:{environment['PATH']}"
        names = ",".join(f"host{number:02}" for number in range(hosts))
        command = [sys.executable, "-m", "gpumon", "fleet", "--hosts", names]
        with Terminal(command, environment, 50, 160) as terminal:
            terminal.wait_for(f"{8 * hosts:,} GPUs on {hosts} host", 120)
            time.sleep(_SETTLE_SECONDS)
            before, written = cpu_seconds([terminal.pid]), terminal.written
            time.sleep(seconds)
            percent = 100 * (cpu_seconds([terminal.pid]) - before) / seconds
            sent = (terminal.written - written) / seconds
            memory = int(Path(f"/proc/{terminal.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            started = time.monotonic()
            terminal.send("q")
            terminal.wait_exit()
            quit_seconds = time.monotonic() - started
    return f"| {hosts} | {percent:.1f} % | {memory >> 20} MiB | {sent / 1e3:.1f} kB/s | {quit_seconds:.2f} s |"
