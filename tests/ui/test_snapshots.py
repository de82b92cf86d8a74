"""Pictures of complete screens: what is drawn, where, and in which colors. Frames are fixed and nothing has a clock."""

from collections.abc import Callable

import pytest

from gpumon.core.model import Frame
from tests import builders
from tests.frames import NO_DRIVER, machine, troubled
from tests.ui.fakes import FakeLive, app_on

Compare = Callable[..., bool]
HISTORY_FRAMES = 40


def growing(last: Frame) -> list[Frame]:
    """A history that rises and falls, and ends in a frame; in its middle nothing was measured."""
    frames = []
    for number in range(HISTORY_FRAMES):
        level = abs((number * 7) % 200 - 100)
        devices = tuple(
            builders.device(index, readings={"utilization_gpu_percent": float((level + 9 * index) % 101)})
            for index in range(8)
        )
        seconds = last.monotonic_seconds - 4.0 * (HISTORY_FRAMES - number)
        if not 20 <= number < 23:
            frames.append(builders.frame(devices=devices, monotonic_seconds=max(0.0, seconds + 200)))
    return [*frames, builders.frame(devices=last.devices, problems=last.problems, monotonic_seconds=300.0)]


def no_driver() -> Frame:
    return builders.frame(devices=(), driver_version=None, cuda_driver_version=None, problems={"driver": NO_DRIVER})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("theme", ["dark", "ansi"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_overview_of_a_troubled_machine(snap_compare: Compare, size: tuple[int, int], theme: str) -> None:
    stream = FakeLive()
    stream.put(*growing(troubled()))
    assert snap_compare(app_on(stream, theme), terminal_size=size)


def test_overview_of_a_machine_that_is_well(snap_compare: Compare) -> None:
    stream = FakeLive()
    stream.put(*growing(machine()))
    assert snap_compare(app_on(stream), terminal_size=(120, 40))


def test_no_driver(snap_compare: Compare) -> None:
    stream = FakeLive()
    stream.put(no_driver())
    assert snap_compare(app_on(stream), terminal_size=(80, 24))
