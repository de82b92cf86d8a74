"""The topology screen: what was read, a reason in its place, and reading again."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.topology import GpuPair, LinkedGpu, NvLink, P2PStatus, PathLevel, Topology
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import topology as screen_module
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.topology import TopologyScreen
from tests import builders
from tests.ui.fakes import FakeLive, app_on, screen_text, seen, until


def host(gpus: int, links_up: int) -> Topology:
    links = tuple(NvLink(number, number < links_up, 26_562_000_000, crc_count=0) for number in range(18))
    cards = tuple(LinkedGpu(index, name="NVIDIA H200", cpus="0-55", links=links) for index in range(gpus))
    pairs = tuple(
        GpuPair(one, other, PathLevel.NODE, links_up, P2PStatus.OK)
        for one in range(gpus)
        for other in range(one + 1, gpus)
    )
    return Topology(cards, pairs)


class FakeFeed:
    """Answers with one topology after the other, then never again, or fails with a problem."""

    def __init__(self, *answers: Topology | Problem) -> None:
        self.answers = list(answers)
        self.closed = threading.Event()

    def read(self) -> Topology:
        if not self.answers:
            self.closed.wait(10)
            raise CommandError(Problem(ProblemCode.COLLECTOR_DIED, "Closed."), ExitCode.MISSING_PREREQUISITE)
        answer = self.answers.pop(0)
        if isinstance(answer, Problem):
            raise CommandError(answer, ExitCode.MISSING_PREREQUISITE)
        return answer

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def feeds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeFeed]]:
    """Those that the screen opens, in order; the last one is opened again and again."""
    waiting: list[FakeFeed] = []
    monkeypatch.setattr(screen_module, "TopologyFeed", lambda: waiting.pop(0) if waiting else FakeFeed())
    yield waiting
    for feed in waiting:
        feed.close()


async def opened(pilot: Pilot[None], stream: FakeLive) -> TopologyScreen:
    stream.put(builders.frame())
    await pilot.pause()
    await pilot.press("L")
    await until_read(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, TopologyScreen)
    return screen


async def until_read(pilot: Pilot[None]) -> None:
    screen = pilot.app.screen
    await until(pilot, lambda: isinstance(screen, TopologyScreen) and screen.result is not None)
    await pilot.pause()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(100, 60), (120, 40), (80, 24), (60, 10)])
async def test_sixteen_gpus(size: tuple[int, int], feeds: list[FakeFeed]) -> None:
    feeds.append(FakeFeed(host(16, 18)))
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


async def test_reading_again_and_a_reason(feeds: list[FakeFeed]) -> None:
    first = FakeFeed(host(2, 17))
    feeds += [first, FakeFeed(Problem(ProblemCode.COLLECTOR_DIED, "The collector ended."))]
    stream = FakeLive()
    app: GpumonApp = app_on(stream)
    async with app.run_test(size=(100, 40)) as pilot:
        await opened(pilot, stream)
        assert "2 findings" in screen_text(app)
        assert "NVLink 17 is down, 17 of 18 are up." in screen_text(app)
        await pilot.press("r")
        await until_read(pilot)
        assert first.closed.is_set()
        assert "The collector ended." in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, OverviewScreen)


def with_traffic(topology: Topology, sent: int) -> Topology:
    """The same connections a moment later: GPU 0 sends on its links, more on each next one."""
    first, *others = topology.gpus
    links = tuple(
        replace(link, transmit_bytes_per_second=sent * (1 + link.number), receive_bytes_per_second=0)
        for link in first.links or ()
    )
    return replace(topology, gpus=(replace(first, links=links), *others))


async def test_the_traffic_on_each_link_is_shown_while_the_screen_is_in_front(feeds: list[FakeFeed]) -> None:
    gate = FakeFeed(host(2, 18), with_traffic(host(2, 18), 1_000_000_000))
    again = FakeFeed(with_traffic(host(2, 18), 400_000_000))
    feeds += [gate, again]
    stream = FakeLive()
    app: GpumonApp = app_on(stream)
    async with app.run_test(size=(100, 45)) as pilot:
        await opened(pilot, stream)
        await seen(pilot, "GPU 0   out   171.0 1.0 2.0 3.0")
        assert "  18" in screen_text(app)
        await pilot.press("question_mark")
        await pilot.pause()
        await until(pilot, gate.closed.is_set, "nothing is read behind another screen")
        await pilot.press("escape")
        await seen(pilot, "GPU 0   out    68.4 0.4 0.8 1.2")
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert again.closed.is_set()
