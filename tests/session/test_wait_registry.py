"""What the user wants to be notified of: when it is true, for how long, and once."""

import os
import subprocess
from dataclasses import replace

import pytest

from gpumon.core.device_use import FREE_SAMPLES
from gpumon.core.model import Device, Frame, Process
from gpumon.health.alerts import Alert
from gpumon.operations.pick_reservations import ProcessStart
from gpumon.session.wait_registry import WaitRegistry, wait_choices
from tests import builders


class Waiting:
    """A registry, what it has reported, and frames one second apart."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.commands: list[Alert] = []
        self.registry = WaitRegistry(lambda alerts, _: self.commands.extend(alerts))
        self.registry.report = self.reported.append
        self.second = 100.0

    def arm(self, device: Device | None, process: Process | None, wanted: str) -> None:
        choices = [choice for choice in wait_choices(device, process) if wanted in choice.label]
        assert len(choices) == 1, [choice.label for choice in wait_choices(device, process)]
        self.registry.arm([*self.registry.armed, *choices])

    def see(self, *devices: Device, seconds: float = 1.0) -> Frame:
        self.second += seconds
        frame = builders.frame(devices=devices, monotonic_seconds=self.second)
        self.registry.observe(frame)
        return frame


def used(percent: float, processes: tuple[Process, ...] | None = ()) -> Device:
    total = 100 << 30
    memory = {"memory_total_bytes": total, "memory_free_bytes": total * (1 - percent / 100)}
    return builders.device(0, processes=processes, readings=memory)


def test_a_gpu_becomes_free_and_is_reported_once() -> None:
    waiting = Waiting()
    busy = used(10, (builders.process(4000),))
    waiting.arm(busy, None, "is free")
    waiting.see(busy)
    waiting.see(replace(busy, processes=None))
    assert waiting.reported == [], "an unknown list is no free GPU"
    for _ in range(FREE_SAMPLES + 1):
        waiting.see(used(0))
    assert waiting.reported == ["GPU 0 is free."]
    assert waiting.registry.armed == []
    (alert,) = waiting.commands
    assert (alert.detail, alert.device_key, alert.device_index) == ("GPU 0 is free.", busy.key, 0)


def test_memory_above_a_share() -> None:
    waiting = Waiting()
    waiting.arm(used(10), None, "more than 90 %")
    waiting.arm(used(10), None, "more than 50 %")
    waiting.see(used(60))
    assert waiting.reported == ["GPU 0 uses 60 % of its memory."]
    waiting.see(used(95))
    assert waiting.reported[1:] == ["GPU 0 uses 95 % of its memory."]


def test_a_low_utilization_must_last() -> None:
    waiting = Waiting()
    idle, busy = (builders.device(0, readings={"utilization_gpu_percent": percent}) for percent in (1.0, 80.0))
    waiting.arm(idle, None, "is utilized below")
    waiting.see(idle)
    waiting.see(idle, seconds=250)
    waiting.see(busy)
    waiting.see(idle)
    waiting.see(idle, seconds=250)
    assert waiting.reported == [], "it was busy in between"
    waiting.see(idle, seconds=60)
    assert waiting.reported == ["GPU 0 is utilized to 1 %, for 5m."]


def test_a_process_ends() -> None:
    child = subprocess.Popen(["sleep", "60"])
    start = ProcessStart.of(child.pid)
    assert start is not None
    process = replace(builders.process(child.pid), start_ticks=start.start_ticks)
    waiting = Waiting()
    waiting.arm(None, process, f"PID {child.pid} has ended")
    try:
        waiting.see(used(10, (process,)))
        waiting.see(used(10))
        assert waiting.reported == [], "it uses no GPU, but it runs"
    finally:
        child.kill()
        child.wait()
    waiting.see(used(10, None))
    assert waiting.reported == [], "its GPU cannot be read"
    waiting.see(used(0))
    assert waiting.reported == [f"PID {child.pid} has ended."]


def test_a_process_that_cannot_be_identified_no_longer_uses_a_gpu() -> None:
    process = replace(builders.process(os.getpid()), start_ticks=None)
    waiting = Waiting()
    waiting.arm(None, process, "has ended")
    waiting.see(used(10, (process,)))
    waiting.see(used(0))
    assert waiting.reported == [f"PID {process.pid} no longer uses a GPU."]


@pytest.mark.parametrize("gone", [(), (builders.device(7),)])
def test_a_gpu_that_is_gone_is_not_free(gone: tuple[Device, ...]) -> None:
    waiting = Waiting()
    waiting.arm(used(10), None, "is free")
    waiting.see(*gone)
    assert waiting.reported == []
    assert len(waiting.registry.armed) == 1
