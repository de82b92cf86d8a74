"""PyTorch's memory in a running process, seen from outside: what runs in there, and what listens to it here.

A program that wants to be seen calls ``gpumon.probe.start()``; under ``gpumon watch`` it need not.
"""

__all__ = ["start", "stop"]


def start() -> None:
    """Starts the probe of this process, unless it has one. It is a thread, and costs less than 0.1 % of the time."""
    from gpumon.probe import agent  # late: gpumon itself only listens

    agent.start()


def stop() -> None:
    """Ends the probe of this process."""
    from gpumon.probe import agent

    agent.stop()
