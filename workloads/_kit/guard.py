"""The process that ends a workload and all its children when gpumon dies.

A death signal would follow the thread of gpumon that started the workload, and a thread of the workload may be held up
by a kernel. So a process forked before torch is loaded watches the pipe on which gpumon speaks: it hangs up when gpumon
is gone, however it went. A second pipe hangs up when the workload itself is gone; what it left behind is ended too.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

_BURIAL_MILLISECONDS = 3000
"""A workload that ended by itself is given this long to be missed by gpumon, which ends its group itself."""


def start_guard(control: int) -> None:
    """Forks the guard. The caller leads its process group, and has no thread yet.

    Args:
        control: Reading end of the pipe on which gpumon speaks; the guard looks only for its end.
    """
    alive, held = os.pipe()
    if os.fork():
        os.close(alive)
        os.set_inheritable(held, False)
        return  # `held` stays open until this process ends, and is nobody else's
    with suppress(BaseException):
        _watch(control, alive)
    os._exit(0)


def _watch(control: int, alive: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keep = {control, alive}
    # Pipes of the workload must not stay open because of the guard.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is wanted
        if int(name) not in keep:
            with suppress(OSError):
                os.close(int(name))
    poll = select.poll()
    poll.register(control, 0)
    poll.register(alive, 0)
    ended = {descriptor for descriptor, _ in poll.poll()}
    if ended == {alive}:
        only_control = select.poll()
        only_control.register(control, 0)
        only_control.poll(_BURIAL_MILLISECONDS)
    os.killpg(os.getpgid(0), signal.SIGKILL)
