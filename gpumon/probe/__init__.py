"""PyTorch's memory in a running process, seen from outside: what runs in there, and what listens to it here.

A program that wants to be seen calls ``gpumon.probe.start()``; under ``gpumon watch`` it need not.
"""

import sys
from contextlib import suppress
from typing import Any, Final

__all__ = ["start", "stop"]

_AGENT: Final = "_gpumon_probe_agent"
"""What the probe's module is called, whoever has loaded it: gpumon watch and gpumon attach do so without gpumon."""


def start() -> None:
    """Starts the probe of this process, unless it has one. It is a thread, and costs less than 0.1 % of the time."""
    with suppress(Exception):  # without descriptors or threads the program goes on without a probe
        _agent().start()


def stop() -> None:
    """Ends the probe of this process."""
    with suppress(Exception):
        _agent().stop()


def _agent() -> Any:  # noqa: ANN401 - a module
    """The probe's module. It is loaded late, since gpumon itself only listens."""
    if _AGENT in sys.modules:
        return sys.modules[_AGENT]
    from gpumon.probe import agent  # which takes that name, too

    return agent
