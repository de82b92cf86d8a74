"""PyTorch's memory in running processes: the probe, the ways to load it into a process, and the client that reads it.

A program calls ``gpumon.probe.start()`` to be visible to gpumon; under ``gpumon watch`` it does not have to.
"""

import sys
from contextlib import suppress
from typing import Any, Final

__all__ = ["start", "stop"]

_AGENT: Final = "_gpumon_probe_agent"
"""Name of the probe's package in `sys.modules`, also where gpumon watch or gpumon attach has loaded it."""


def start() -> None:
    """Start the probe of this process, unless there is one. It is a thread that uses less than 0.1 % of the time."""
    with suppress(Exception):  # without a free descriptor or thread the program goes on without a probe
        _agent().start()


def stop() -> None:
    """Stop the probe of this process."""
    with suppress(Exception):
        _agent().stop()


def _agent() -> Any:  # noqa: ANN401 - a module
    """The probe's package. It is imported late, because gpumon itself is only a client."""
    if _AGENT in sys.modules:
        return sys.modules[_AGENT]
    from gpumon.probe import agent  # also registers itself under that name

    return agent
