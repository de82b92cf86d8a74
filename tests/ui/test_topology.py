"""The topology screen: what was read, a reason in its place, and reading again."""

import pytest
from textual.pilot import Pilot

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.topology import GpuPair, LinkedGpu, NvLink, P2PStatus, PathLevel, Topology
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import topology as screen_module
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.topology import TopologyScreen
from tests import builders
from tests.ui.fakes import FakeLive, app_on, screen_text


def host(gpus: int, links_up: int) -> Topology:
    links = tuple(NvLink(number, number < links_up, 26_562_000_000, crc_count=0) for number in range(18))
    cards = tuple(LinkedGpu(index, name="NVIDIA H200", cpus="0-55", links=links) for index in range(gpus))
    pairs = tuple(
        GpuPair(one, other, PathLevel.NODE, links_up, P2PStatus.OK)
        for one in range(gpus)
        for other in range(one + 1, gpus)
    )
    return Topology(cards, pairs)


async def opened(pilot: Pilot[None], stream: FakeLive) -> TopologyScreen:
    stream.put(builders.frame())
    await pilot.pause()
    await pilot.press("L")
    await until_read(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, TopologyScreen)
    return screen


async def until_read(pilot: Pilot[None]) -> None:
    for _ in range(100):
        await pilot.pause(0.02)
        if isinstance(pilot.app.screen, TopologyScreen) and pilot.app.screen.result is not None:
            break
    await pilot.pause()


@pytest.mark.parametrize("size", [(100, 60), (120, 40), (80, 24), (60, 10)])
async def test_sixteen_gpus(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "read_topology", lambda: host(16, 18))
    stream = FakeLive()
    app: GpumonApp = app_on(stream)
    async with app.run_test(size=size) as pilot:
        await opened(pilot, stream)
        text = screen_text(app)
        assert "Topology" in text
        assert "GPU 1       NV18 X" in text
        assert ("G15" in text) == (size[0] >= 100)
        await pilot.press("end")
        await pilot.pause()
        assert "Nothing is wrong with the connections." in screen_text(app)


async def test_reading_again_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Topology | None] = [host(2, 17), None]

    def read() -> Topology:
        answer = answers.pop(0)
        if answer is None:
            raise CommandError(
                Problem(ProblemCode.COLLECTOR_DIED, "The collector ended."), ExitCode.MISSING_PREREQUISITE
            )
        return answer

    monkeypatch.setattr(screen_module, "read_topology", read)
    stream = FakeLive()
    app: GpumonApp = app_on(stream)
    async with app.run_test(size=(100, 40)) as pilot:
        await opened(pilot, stream)
        assert "2 findings" in screen_text(app)
        assert "NVLink 17 is down, 17 of 18 are up." in screen_text(app)
        await pilot.press("r")
        await until_read(pilot)
        assert "The collector ended." in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, OverviewScreen)
