"""GPUs that are called anything, come and go, are many, or have an old driver: the table stays whole and right."""

import re
import time

import pytest

from gpumon.core.model import Frame
from gpumon.core.problems import ProblemCode
from gpumon.ui.widgets.line_table import LineTable
from tests.collect.conftest import Live
from tests.collect.test_faults import all_ok, states
from tests.nvml_mock import NvmlMock
from tests.ui.fakes import FakeLive, app_on, screen_lines

pytestmark = pytest.mark.xdist_group("clock")

WIDTH, HEIGHT = 80, 24


async def drawn(*frames: Frame) -> tuple[list[str], list[str]]:
    """The overview after these frames, at the least usual size, at the top of the table and at its end."""
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        for frame in frames:
            stream.put(frame)
            await pilot.pause()
        if app.screen.has_class("heat-map"):
            await pilot.press("v")
            await pilot.pause()
        top = screen_lines(app)
        await pilot.press("end")
        await pilot.pause()
        assert app.screen.query_one("#devices", LineTable).cursor == len(frames[-1].devices) - 1
        end = screen_lines(app)
        await pilot.press("enter")  # the last device over time, with every value
        await pilot.pause()
        assert all(len(line) == WIDTH for line in screen_lines(app))
        assert app.failure is None
    app.session.close()
    return top, end


def rows(lines: list[str]) -> list[int]:
    """The GPUs whose rows are in sight."""
    matches = (re.match(r"[▸ ] *(\d+) +[━╸─]+ +\d+% ", line) for line in lines)
    return [int(match[1]) for match in matches if match]


@pytest.mark.long
@pytest.mark.parametrize("garbage", ["name", "emptyname", "longname", "esc", "uuid"])
async def test_hostile_names_change_neither_keys_nor_layout(live: Live, garbage: str) -> None:
    frame = live(fault=f"garbage:{garbage}:1,garbage:{garbage}:2").until(all_ok(3))
    assert len({device.key for device in frame.devices}) == 3
    broken = frame.devices[2]
    if garbage == "name":
        assert broken.name == "NVIDIA \ufffd\ufffd\ufffd H200", "what can be read of it is shown"
    elif garbage == "emptyname":
        assert broken.name is None
        assert broken.problems["name"].code is ProblemCode.INVALID_VALUE
    elif garbage != "uuid":
        assert broken.name is not None
        assert broken.name.isprintable()
    lines, _ = await drawn(frame)
    assert all(len(line) == WIDTH for line in lines)
    for device in frame.devices:
        row = next(line for line in lines[1:] if line.lstrip("▸ ").startswith(f"{device.index} "))
        assert f"{device.readings['temperature_celsius']:.0f}" in row


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", ["zeromem", "powerlimit", "mem", "power", "util", "temp"])
async def test_invalid_values_can_be_drawn(live: Live, fault: str) -> None:
    frame = live(fault=f"garbage:{fault}").until(all_ok(3))
    lines, _ = await drawn(frame)
    assert all(len(line) == WIDTH for line in lines)
    assert "–" in "\n".join(lines)


def test_a_driver_older_than_process_lists_with_instances_says_so(live: Live, old_nvml_mock: NvmlMock) -> None:
    (device,) = live(gpus=1, mock=old_nvml_mock, NVML_MOCK_PIDS="1").until(all_ok(1)).devices
    assert device.processes is None
    assert device.problems["processes"].code is ProblemCode.DRIVER_TOO_OLD
    assert device.problems["memory_unattributed_bytes"].reason


def test_gpus_that_go_and_come_back_keep_their_histories(live: Live) -> None:
    watched = live(gpus=4)
    keys = [device.key for device in watched.until(all_ok(4)).devices]
    watched.fault("count:2")
    frame = watched.until(lambda frame: len(frame.devices) == 2)
    assert [device.key for device in frame.devices] == keys[:2]
    assert states(frame) == ["ok", "ok"]
    watched.heal()
    frame = watched.until(all_ok(4))
    assert [device.key for device in frame.devices] == keys
    assert watched.stream.replaced == 0


@pytest.mark.long
@pytest.mark.parametrize("gpus", [16, 64, 256])
async def test_many_gpus_scroll_and_are_there_soon(live: Live, gpus: int) -> None:
    began = time.monotonic()
    watched = live(gpus=gpus, interval=1.0)
    frame = watched.until(lambda frame: states(frame) == ["ok"] * gpus, timeout=30)
    assert time.monotonic() - began < 15, "it takes less than a second where nothing else runs"
    top, end = await drawn(frame)
    assert rows(top)[0] == 0
    assert rows(end)[-1] == gpus - 1
    assert len(rows(top)) >= 8
    assert watched.stream.replaced == 0
