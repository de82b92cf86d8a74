"""What a new user sees: the tour of the demo, and the screen without a driver."""

import pytest

from gpumon.core.problems import Problem, ProblemCode
from gpumon.present.first_run import TOUR_KEYS, first_run_lines, tour_line
from gpumon.present.paint.line import plain, width_of
from gpumon.ui.keymap import KEY_MEANINGS, key_text
from gpumon.ui.screens.workload_form import WorkloadForm
from gpumon.ui.widgets.fields import Tick
from tests import builders
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, FakeStream, app_on, screen_lines, screen_text, session_on

NO_LIBRARY = Problem(
    ProblemCode.NOT_FOUND,
    "The NVIDIA driver library (libnvidia-ml.so.1) is not installed on this host.",
    "Install the NVIDIA driver; start a container with the NVIDIA Container Toolkit (--gpus all).",
)
SIZES = [(80, 24), (60, 10)]


# The tour of the demo


def tour_of(text: str) -> bool:
    return "3 for memory" in text or "3 memory" in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", SIZES)
async def test_the_demo_names_keys_to_try_until_esc(size: tuple[int, int]) -> None:
    stream = FakeRecording("demo")
    app = app_on(stream)
    async with app.run_test(size=size) as pilot:
        stream.put(machine(8))
        await pilot.pause()
        assert tour_of(screen_text(app))
        assert "Help" in screen_lines(app)[-1], "nothing is pushed out"
        assert sum("train" in line for line in screen_lines(app)) >= 1
        await pilot.press("escape")
        await pilot.pause()
        assert not tour_of(screen_text(app))


@pytest.mark.parametrize(("stream", "tour"), [(FakeRecording("demo"), 5), (FakeRecording("host"), 0), (FakeLive(), 0)])
def test_the_tour_of_the_demo_is_gone_after_a_few_keys(stream: FakeStream, tour: int) -> None:
    session = session_on(stream, machine(8))
    for key in range(6):
        state = session.view_state()
        assert state is not None
        assert state.has_tour is (key < tour)
        assert session.count_tour_key(ends=False) is (key == tour - 1)


def test_the_tour_names_three_keys_that_exist() -> None:
    assert len(TOUR_KEYS) == 3
    assert set(TOUR_KEYS) <= {key_text(key) for key in KEY_MEANINGS}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_tour_fits_its_width(width: int) -> None:
    text = plain(tour_line(machine(8), width))
    assert width_of(text) <= width
    assert all(key in text for key in TOUR_KEYS)
    assert ("Demo of 8" in text) is (width >= 80)


# Without a driver


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", SIZES)
async def test_without_a_driver_the_screen_says_why_and_what_works_anyway(size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=size) as pilot:
        stream.put(builders.frame(devices=(), problems={"driver": NO_LIBRARY}))
        await pilot.pause()
        text = " ".join(screen_text(app).split())
        assert NO_LIBRARY.reason in text
        assert NO_LIBRARY.remedy in text
        for word in ("demo", "workloads on the CPU", "xplain"):
            assert word in text
        stream.put(machine(2))
        await pilot.pause()
        assert "No GPU to show" not in screen_text(app)
        assert "train" in screen_text(app)


@pytest.mark.parametrize(("width", "height"), [*SIZES, (300, 100)])
def test_the_text_without_a_driver_fits(width: int, height: int) -> None:
    lines = first_run_lines(NO_LIBRARY, width, height)
    assert max(width_of(plain(line)) for line in lines) <= width
    assert len(lines) <= height - 4, "tabs, title, host and footer"


@pytest.mark.long
async def test_without_a_driver_workloads_run_on_the_cpu() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(builders.frame(devices=(), problems={"driver": NO_LIBRARY}))
        await pilot.press("5")
        for _ in range(100):
            await pilot.pause(0.05)
            if "matmul" in screen_text(app):
                break
        await pilot.press("enter")
        assert isinstance(app.screen, WorkloadForm)
        (cpu,) = [tick for tick in app.screen.query(Tick) if str(tick.id).startswith("device-")]
        assert cpu.ticked
        assert not cpu.disabled
