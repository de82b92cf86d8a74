"""The overview at every size of terminal, on hosts of every shape."""

import pytest
from rich.cells import cell_len

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from tests import builders
from tests.frames import machine, troubled
from tests.present.split import split_frame
from tests.ui.fakes import FakeLive, app_on, later, screen_lines

SIZES = [(60, 10), (80, 24), (99, 15), (100, 30), (120, 40), (160, 50), (300, 100)]
LOST = Problem(ProblemCode.GPU_LOST, "The GPU has fallen off the bus.")


def mixed() -> Frame:
    """Models, users and programs with wide names; a GPU without processes, and one whose processes are unknown."""
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA RTX PRO 6000 Blackwell Max-Q", "訓練用グラフィックスカード", None)
    program = builders.process(user="利用者名前", command="python 学習スクリプト.py --設定 大きい")
    processes = ((program,) * 1, (), None, (builders.process(7, user=None, command=None),))
    devices = [builders.device(index, name=names[index], processes=processes[index]) for index in range(4)]
    return builders.frame(devices=tuple(devices))


def without_values() -> Frame:
    return builders.frame(devices=tuple(Device(index) for index in range(3)))


def many_troubled() -> Frame:
    devices = list(machine(64).devices)
    devices[0] = builders.device(0, state=DeviceState.LOST, age_seconds=5.0, problems={"state": LOST})
    devices[9] = builders.device(9, state=DeviceState.UNRESPONSIVE, age_seconds=12.0)
    return builders.frame(devices=tuple(devices))


HOSTS = {
    **{f"{gpus} GPUs": machine(gpus) for gpus in (1, 2, 8, 16, 17, 256)},
    "MIG": split_frame(),
    "troubled": troubled(),
    "mixed": mixed(),
    "without values": without_values(),
    "64 troubled": many_troubled(),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("host", HOSTS)
async def test_every_part_has_its_place(host: str) -> None:
    frame = HOSTS[host]
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=SIZES[-1]) as pilot:
        stream.put(frame)
        await pilot.pause()
        for number, (width, height) in enumerate(SIZES):
            await pilot.resize_terminal(width, height)
            stream.put(later(frame, 1.0 + number))
            await pilot.pause()
            lines = screen_lines(app)
            assert [cell_len(line) for line in lines] == [width] * height
            shown = "\n".join(lines)
            assert "1 GPUs" in lines[0]
            assert "▸" in shown, "the selected GPU is visible"
            assert "GPU Util" in shown or "GPU Name" in shown or "GPUs by utilization" in shown
            assert "PID" in shown or "No process" in shown or "unknown" in shown or "not available" in shown
            assert "Help" in lines[-1] or "?" in lines[-1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("host", ["8 GPUs", "256 GPUs", "MIG", "troubled"])
async def test_the_last_gpu_can_be_selected_at_every_size(host: str) -> None:
    frame = HOSTS[host]
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=SIZES[0]) as pilot:
        for number, (width, height) in enumerate(SIZES[:4]):
            await pilot.resize_terminal(width, height)
            stream.put(later(frame, 1.0 + number))
            await pilot.press("end")
            await pilot.pause()
            assert app.screen.key == frame.devices[-1].key  # type: ignore[attr-defined]
            assert any("▸" in line for line in screen_lines(app))


async def test_one_gpu_gets_a_chart_of_half_of_the_screen() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(machine(1))
        await pilot.pause()
        assert app.screen.query_one("#chart-section").size.height >= 20
        assert "100% ┤" in "\n".join(screen_lines(app))
