"""Frames for tests: a healthy host, one with failures, and one on which every text is hostile."""

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from tests import builders

NO_DRIVER = Problem(ProblemCode.LIBRARY_NOT_FOUND, "The NVIDIA driver is not installed.", "Install it.")
HOSTILE = "[/] [bold red]x[/bold] \x1b]0;owned\x07\x1b[2J\u202egnp.exe\x00\nnext line\x9b31m"
"""Markup that fails to parse, markup that sets colors, and control sequences of terminals."""


def machine(gpus: int = 8, **changes: object) -> Frame:
    """A host whose GPUs differ a little, so that a mixed-up row is noticed."""
    devices = tuple(
        builders.device(index, readings={"utilization_gpu_percent": float((index * 13) % 101)}) for index in range(gpus)
    )
    return builders.frame(**{"devices": devices, **changes})


def troubled() -> Frame:
    """Eight GPUs, of which one is lost, one unresponsive, one too hot, and one has unattributed memory."""
    devices = list(machine().devices)
    lost = Problem(ProblemCode.GPU_LOST, "The GPU has fallen off the bus.")
    devices[1] = builders.device(
        1, state=DeviceState.LOST, age_seconds=None, readings=_nothing(), processes=None, problems={"state": lost}
    )
    devices[2] = builders.device(2, state=DeviceState.UNRESPONSIVE, age_seconds=12.0)
    devices[3] = builders.device(
        3, throttle_reasons=("hw_thermal_slowdown",), readings={"temperature_celsius": 91.0, "pcie_width": 8}
    )
    devices[4] = builders.device(4, readings={"memory_unattributed_bytes": 5 << 30})
    return builders.frame(devices=tuple(devices))


def hostile() -> Frame:
    """A host on which every text is hostile."""
    problem = Problem(ProblemCode.UNKNOWN, HOSTILE, HOSTILE)
    process = builders.process(4000, user=HOSTILE, command=HOSTILE, problems={"memory_bytes": problem})
    device: Device = builders.device(
        0,
        uuid=HOSTILE,
        pci_bus_id=HOSTILE,
        name=HOSTILE,
        architecture=HOSTILE,
        throttle_reasons=(HOSTILE,),
        processes=(process,),
        readings={"power_watts": None},
        problems={"power_watts": problem, "uuid": problem, "state": problem},
    )
    lost = builders.device(1, state=DeviceState.LOST, problems={"state": problem})
    host = builders.frame().host
    return builders.frame(
        devices=(device, lost),
        host=type(host)(HOSTILE, host.cpu_count, host.cpu_percent, host.load),
        driver_version=HOSTILE,
        cuda_driver_version=HOSTILE,
        problems={"left_behind": problem},
    )


def _nothing() -> dict[str, None]:
    return dict.fromkeys(builders.READINGS)
