"""Workloads on the screen: real children with a torch that does nothing, and runs that a test tells what to say."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Button, Input

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.jobs.catalogue import BrokenWorkload, Catalogue
from gpumon.jobs.interpreter import Interpreter
from gpumon.jobs.protocol import VerdictKind
from gpumon.ui import workshop as workshop_module
from gpumon.ui.app import GpumonApp
from gpumon.ui.jobs import CPU, JobBoard, gpu_place
from gpumon.ui.messages import JobsHaveNews
from gpumon.ui.paint.history import MARK
from gpumon.ui.screens.leave import LeaveDialog
from gpumon.ui.screens.lines import LogScreen, MemoryScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.run import RunScreen
from gpumon.ui.screens.workload_form import WorkloadForm
from gpumon.ui.screens.workloads import WorkloadsScreen
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.workshop import Workshop
from tests import builders
from tests.ui import runs
from tests.ui.fakes import HOSTILE, FakeLive, FakeRecording, FakeStream, Refreshes, app_on, machine, screen_text

PATIENCE_SECONDS = 15.0
PYTHON = Interpreter(Path("/opt/torch/bin/python"), "PATH")
BROKEN = BrokenWorkload(Path("/home/ada/.config/gpumon/workloads/mine.py"), "ImportError: No module named 'numpyy'")
Compare = Callable[..., bool]

TORCH = """
__version__ = "0.0.fake"
class version:
    cuda = None
class device:
    def __init__(self, text):
        self.type = text.partition(":")[0]
"""

TINY = '''
import os, time
from pathlib import Path
from _kit import Uses, Workload, choice, flag, integer, number

def run(context):
    """Goes on until a file says how fast it was."""
    answer = Path(os.environ["TINY_ANSWER"])
    context.step("It waits for an answer.")
    print("a line for the log")
    while not context.stopping and not answer.exists():
        context.progress(1, 4)
        context.metric("speed", 5.0, "laps/s")
        time.sleep(0.02)
    context.progress(4, 4)
    context.checked += 1
    context.figure("speed", float(answer.read_text()) if answer.exists() else 1.0, "laps/s", 3)
    return context.ok(f"It went {context.parameters.way} {context.parameters.laps} times.")

WORKLOAD = Workload(
    "tiny", "Goes round.", "Nothing.", lambda context: Uses(0, 1.0), run,
    (
        integer("laps", 5, 1, 100, "How often.", default_cpu=7),
        number("share", 0.5, 0.1, 1, "How much.", unit="%"),
        choice("way", "left", ("left", "right"), "Which way."),
        flag("loud", False, "Whether it can be heard."),
    ),
)
'''


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the user's is read or written."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return tmp_path


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be run is known at once and always the same."""

    def look_around(workshop: Workshop) -> None:
        workshop.catalogue = Catalogue(
            (runs.workload(), runs.workload("oom", why_not_cpu="The CPU has no allocator to show.")), (BROKEN,)
        )
        workshop.interpreter = PYTHON
        workshop.earlier = (
            {
                "time_seconds": runs.BEGAN,
                "workload": "matmul",
                "device_name": "NVIDIA H200",
                "verdict": "ok",
                "parameters": {"dtype": "bf16", "size": 8192},
                "figures": [{"name": "throughput", "value": 610.0, "unit": "TFLOP/s", "repetitions": 9}],
            },
            {"schema": 1, "figures": []},
        )

    monkeypatch.setattr(Workshop, "look_around", look_around)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workload of the user's that ends when a file is there, and a torch that does nothing; yields that file."""
    folder = tmp_path / "config" / "gpumon" / "workloads"
    folder.mkdir(parents=True)
    (folder / "tiny.py").write_text(TINY)
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "torch.py").write_text(TORCH)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("TINY_ANSWER", str(tmp_path / "answer"))
    yield tmp_path / "answer"
    say(tmp_path / "answer", "0")


def say(answer: Path, text: str) -> None:
    """Writes a file that is never seen empty."""
    written = answer.with_suffix(".new")
    written.write_text(text)
    written.replace(answer)


async def until(pilot: Pilot[Any], holds: Callable[[], bool], what: str = "") -> None:
    """Waits for something to hold."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what}\n{screen_text(app_of(pilot))}"
        await pilot.pause(0.05)


async def seen(pilot: Pilot[Any], text: str) -> None:
    await until(pilot, lambda: text in screen_text(app_of(pilot)), text)


def app_of(pilot: Pilot[Any]) -> GpumonApp:
    app = pilot.app
    assert isinstance(app, GpumonApp)
    return app


async def open_form(pilot: Pilot[Any], name: str = "tiny") -> WorkloadForm:
    """From the overview to the form of a workload."""
    await pilot.press("w")
    await seen(pilot, name)
    await until(pilot, lambda: isinstance(app_of(pilot).workshop.interpreter, Interpreter), "an interpreter")
    table = app_of(pilot).screen.query_one("#workloads", LineTable)
    table.cursor = [row.key for row in table.rows].index(name)
    await pilot.press("enter")
    await pilot.pause()
    form = app_of(pilot).screen
    assert isinstance(form, WorkloadForm)
    return form


def tick_cpu(form: WorkloadForm) -> None:
    form.query_one(f"#place-{len(form._offers) - 1}").action_turn()  # type: ignore[attr-defined]


async def start_tiny(pilot: Pilot[Any]) -> None:
    form = await open_form(pilot)
    if form._device != "cpu":
        tick_cpu(form)
        await pilot.pause()
    await pilot.press("f5")
    await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run's screen")


# Real children


async def test_a_run_from_its_form_to_its_kept_and_compared_result(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 40)) as pilot:
        await start_tiny(pilot)
        await seen(pilot, "It waits for an answer.")
        await seen(pilot, "25 % done")
        await seen(pilot, "5 laps/s")
        assert "RUNNING" in screen_text(app)
        await pilot.press("l")
        await seen(pilot, "a line for the log")
        await pilot.press("escape")
        say(tiny, "50")
        await seen(pilot, "It went left 7 times.")
        assert "OK" in screen_text(app)
        await pilot.press("r")
        await until(pilot, lambda: len(app.workshop.board.runs) == 2)
        await seen(pilot, "+0.0 %")
        say(tiny, "55")
        await pilot.press("r")
        await seen(pilot, "+10.0 %")
        await pilot.press("escape")
        assert screen_text(app).count("55 laps/s") == 1
        assert screen_text(app).count("50 laps/s") == 2


async def test_a_run_is_stopped_and_is_cancelled(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await start_tiny(pilot)
        await seen(pilot, "25 % done")
        (entry,) = app.workshop.board.runs
        await pilot.press("x")
        assert "STOPPING" in screen_text(app) or entry.run.ended
        await seen(pilot, "CANCELLED")
        assert entry.run.state.result is not None
        assert entry.run.state.result.verdict is VerdictKind.CANCELLED
        await until(pilot, lambda: not entry.run.job.running)


async def test_one_workload_at_a_time_on_a_device(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 40)) as pilot:
        await start_tiny(pilot)
        await seen(pilot, "25 % done")
        await pilot.press("escape", "escape")
        assert isinstance(app.screen, OverviewScreen)
        form = await open_form(pilot)
        assert "Choose where it runs." in screen_text(app)
        tick_cpu(form)
        await pilot.pause()
        assert "CPU is busy with tiny: one workload at a time runs on a device." in screen_text(app)
        assert form.query_one("#start", Button).disabled
        await pilot.press("f5")
        assert len(app.workshop.board.runs) == 1
        say(tiny, "1")
        await until(pilot, lambda: not app.workshop.board.running)
        app.draw()
        assert not form.query_one("#start", Button).disabled, "it is free again"


async def test_leaving_gpumon_stops_what_runs(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await start_tiny(pilot)
        await seen(pilot, "25 % done")
        (entry,) = app.workshop.board.runs
        began = time.monotonic()
        await pilot.press("q")
        assert time.monotonic() - began < PATIENCE_SECONDS
    assert entry.run.job.wait(PATIENCE_SECONDS)


async def test_the_overview_says_that_a_workload_runs(tiny: Path) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        stream.put(machine())
        await start_tiny(pilot)
        await pilot.press("escape", "escape")
        await seen(pilot, "gpumon  1 workload runs (w)")
        say(tiny, "1")
        await until(pilot, lambda: "workload runs" not in screen_text(app))


async def test_an_interpreter_typed_in_is_looked_at_before_the_start(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 40)) as pilot:
        form = await open_form(pilot)
        form.query_one("#python", Input).value = "/nowhere/python"
        await pilot.press("f5")
        await seen(pilot, "There is no program /nowhere/python.")
        assert app.workshop.board.runs == []
        form.query_one("#python", Input).value = ""
        await pilot.pause()
        assert "There is no program" not in screen_text(app)
        await pilot.press("f5")
        await until(pilot, lambda: len(app.workshop.board.runs) == 1)


# The list


async def test_without_torch_it_says_why_and_the_list_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(_: str | None = None) -> Interpreter:
        problem = Problem(ProblemCode.NO_TORCH, "No Python with torch was found.", "Name one.")
        raise CommandError(problem, ExitCode.NOT_THERE)

    go_on = threading.Event()

    def load_late() -> Catalogue:
        assert go_on.wait(PATIENCE_SECONDS)
        return Catalogue((runs.workload(),))

    monkeypatch.setattr(workshop_module, "find_interpreter", find_none)
    monkeypatch.setattr(workshop_module, "load_catalogue", load_late)
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("w")
        assert "Looking for workloads ..." in screen_text(app)
        go_on.set()
        await seen(pilot, "! No Python with torch was found. Name one.")
        await seen(pilot, "matmul")
        await pilot.press("enter")
        await seen(pilot, "! No Python with torch was found. Name one here.")


@pytest.mark.usefixtures("shelf")
async def test_a_file_that_is_no_workload_says_why() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await pilot.press("w", "end")
        assert "/workloads/mine.py is no workload. ImportError: No module named 'numpyy'" in screen_text(app)
        await pilot.press("enter")
        assert isinstance(app.screen, WorkloadsScreen)


@pytest.mark.usefixtures("shelf")
async def test_runs_are_opened_and_stopped_from_the_table() -> None:
    app = app_on(FakeLive())
    app.workshop.board.runs = [runs.live()]
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("w", "tab", "enter")
        assert isinstance(app.screen, RunScreen)
        await pilot.press("escape", "x")
        assert app.workshop.board.runs[0].stopping
        await seen(pilot, "STOPPING")


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("verdict", ["ok", "warn", "fail", "cancelled"])
async def test_every_verdict_can_be_read(verdict: str) -> None:
    app = app_on(FakeLive())
    app.workshop.board.runs = [runs.ended(verdict)]
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("w")
        assert verdict.upper() in screen_text(app)
        assert "+1.2 %" in screen_text(app)
        await pilot.press("tab", "enter")
        assert f"{verdict.upper()}  " in screen_text(app)


# The form


@pytest.mark.usefixtures("shelf")
async def test_a_value_is_checked_as_it_is_typed() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 40)) as pilot:
        form = await open_form(pilot, "matmul")
        start, size = form.query_one("#start", Button), form.query("ParameterField #value").results(Input)
        next(iter(size)).focus()
        await pilot.press("end", "0")
        assert "size" in screen_text(app)
        await pilot.press("0")
        assert "! size: 102400 is not 64 to 32768." in screen_text(app)
        assert start.disabled
        await pilot.press("f5")
        assert app.workshop.board.runs == []
        await pilot.press("x")
        assert "! size: '102400x' is not a whole number." in screen_text(app)
        await pilot.press("backspace", "backspace", "backspace")
        assert "! size" not in screen_text(app)
        assert not start.disabled


@pytest.mark.usefixtures("shelf")
async def test_defaults_follow_the_device_and_what_was_typed_stays() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(100, 40)) as pilot:
        stream.put(machine(2))
        await pilot.pause()
        form = await open_form(pilot, "matmul")
        inputs = list(form.query("ParameterField #value").results(Input))
        assert [each.value for each in inputs] == ["8192", "20"]
        assert "[bf16]" in screen_text(app)
        inputs[1].value = "7"
        tick_cpu(form)
        await pilot.pause()
        assert [each.value for each in inputs] == ["1024", "7"]
        assert "[fp32]" in screen_text(app)
        assert [each.words for each in form._places] == ["CPU"]
        form.query_one("#place-1").action_turn()  # type: ignore[attr-defined]
        form.query_one("#place-0").action_turn()  # type: ignore[attr-defined]
        await pilot.pause()
        assert [each.words for each in form._places] == ["GPU 0", "GPU 1"]


@pytest.mark.usefixtures("shelf")
async def test_choices_go_round() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 40)) as pilot:
        form = await open_form(pilot, "matmul")
        form.query_one("ParameterField #value").focus()
        await pilot.press("right", "right")
        assert "[bf16]" in screen_text(app)
        await pilot.press("space")
        assert "[fp32]" in screen_text(app)
        await pilot.press("left", "down")
        assert "[bf16]" in screen_text(app)
        assert "size: Rows of the matrices. 64 to 32768." in screen_text(app)


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("stream", [FakeRecording(), FakeStream("pipe")])
async def test_gpus_of_another_machine_are_never_offered(stream: FakeStream) -> None:
    app = app_on(stream)
    async with app.run_test(size=(100, 40)) as pilot:
        stream.put(machine())
        await pilot.pause()
        form = await open_form(pilot, "matmul")
        assert [offer.key for offer in form._offers] == ["cpu"]
        assert "Only the CPU: GPUs are offered while gpumon shows this machine live" in screen_text(app)


@pytest.mark.usefixtures("shelf")
async def test_a_workload_that_needs_a_gpu_says_so() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 40)) as pilot:
        form = await open_form(pilot, "oom")
        assert "CPU  not possible: The CPU has no allocator to show." in screen_text(app)
        await pilot.press("f5")
        assert isinstance(app.screen, WorkloadForm)
        assert form._places == []


def test_a_gpu_is_named_by_its_uuid_and_the_others_follow() -> None:
    devices = (*machine(2).devices, builders.device(2, uuid=None))
    place = gpu_place(devices[1], devices)
    assert place is not None
    assert (place.words, place.device) == ("GPU 1", "cuda:0")
    assert place.environment == {"CUDA_VISIBLE_DEVICES": f"{devices[1].uuid},{devices[0].uuid}"}
    assert gpu_place(devices[2], devices) is None


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("keys", [["w"], ["w", "enter"], ["w", "tab", "enter"], ["w", "tab", "enter", "l"]])
async def test_the_same_again_refreshes_nothing(keys: list[str]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    app.workshop.clock = lambda: runs.BEGAN + 12
    app.workshop.board.runs = [runs.live()]
    async with app.run_test(size=(120, 40)) as pilot:
        stream.put(builders.frame(devices=(builders.device(1),)))
        await pilot.press(*keys)
        await pilot.pause()
        app.draw()
        await pilot.pause()
        spies = [Refreshes(widget) for widget in app.screen.query("*").results(Widget)]
        app.draw()
        await pilot.pause()
        assert [spy.regions for spy in spies if spy.regions] == []


# Leave to begin


async def app_that_asks(pilot: Pilot[Any], stream: FakeStream, frame: Frame) -> None:
    stream.put(frame)
    await pilot.pause()
    waiting = runs.entry()
    runs.plan(waiting)
    app_of(pilot).workshop.board.runs = [waiting]
    pilot.app.post_message(JobsHaveNews())
    await pilot.pause()


@pytest.mark.parametrize(("key", "begins"), [("y", True), ("n", False), ("escape", False), ("enter", False)])
async def test_it_asks_before_it_works_beside_others(key: str, begins: bool) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(100, 30)) as pilot:
        await app_that_asks(pilot, stream, machine(2))
        (entry,) = app.workshop.board.runs
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog), "the question")
        text = screen_text(app)
        assert "1 other works where matmul is to run, on GPU 0:" in text
        assert "GPU 0  ada  PID 4000  holds 69.3 GiB" in text
        assert "python train.py --config large.yaml" in text
        assert "12.0 GiB of GPU memory, about 20 s" in text
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(app.screen, OverviewScreen)
        assert (entry.run.state.began_seconds is not None) is begins
        assert entry.stopping is not begins


async def test_it_does_not_ask_where_nobody_works() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        await app_that_asks(pilot, stream, builders.frame(devices=(builders.device(0, processes=()),)))
        (entry,) = app.workshop.board.runs
        await until(pilot, lambda: entry.run.state.began_seconds is not None)
        assert isinstance(app.screen, OverviewScreen)


async def test_the_question_goes_when_it_has_answered_itself() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test() as pilot:
        await app_that_asks(pilot, stream, machine(2))
        (entry,) = app.workshop.board.runs
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog), "the question")
        entry.stop()
        app.post_message(JobsHaveNews())
        await until(pilot, lambda: isinstance(app.screen, OverviewScreen))


async def test_the_question_is_inert_to_hostile_text() -> None:
    stream = FakeLive()
    app = app_on(stream)
    process = builders.process(4000, user=HOSTILE, command=HOSTILE)
    async with app.run_test(size=(100, 40)) as pilot:
        await app_that_asks(pilot, stream, builders.frame(devices=(builders.device(0, processes=(process,)),)))
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog), "the question")
        assert "[/] [bold red]x[/bold]" in screen_text(app)
        assert "\x1b" not in screen_text(app)


# The run


@pytest.mark.usefixtures("shelf")
async def test_memory_and_log_in_full() -> None:
    app = app_on(FakeLive())
    app.workshop.board.runs = [runs.live()]
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("w", "tab", "enter", "m")
        assert isinstance(app.screen, MemoryScreen)
        assert "PyTorch CUDA memory summary" in screen_text(app)
        await pilot.press("escape", "l")
        assert isinstance(app.screen, LogScreen)
        assert "! a warning [/] of torch" in screen_text(app)


@pytest.mark.usefixtures("shelf")
async def test_a_run_on_the_cpu_has_no_memory_summary() -> None:
    app = app_on(FakeLive())
    app.workshop.board.runs = [runs.live(gpu=None)]
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("w", "tab", "enter", "m")
        assert isinstance(app.screen, RunScreen)
        assert "256 MiB of host memory" in screen_text(app)


@pytest.mark.usefixtures("shelf")
async def test_errors_are_told_with_their_class() -> None:
    app = app_on(FakeLive())
    entry = runs.live(3)
    runs.fail(entry, "OutOfMemoryError", HOSTILE, expected=True)
    runs.fail(entry, "RuntimeError", "sticky")
    app.workshop.board.runs = [entry]
    async with app.run_test(size=(100, 50)) as pilot:
        await pilot.press("w", "tab", "enter")
        text = screen_text(app)
        assert "OutOfMemoryError (belongs to what is shown)" in text
        assert "! RuntimeError" in text


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("size", [(80, 24), (160, 50), (60, 10), (20, 5), (8, 3), (300, 100)])
async def test_every_screen_in_every_size(size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    app.workshop.board.runs = [runs.live(), runs.ended(), runs.entry()]
    for number, each in enumerate(app.workshop.board.runs):
        each.key = str(number)
    async with app.run_test(size=size) as pilot:
        stream.put(machine())
        await pilot.press("w")
        assert isinstance(app.screen, WorkloadsScreen)
        await pilot.press("enter")
        assert isinstance(app.screen, WorkloadForm)
        await pilot.press("escape")
        for entry in app.workshop.board.runs:
            app.push_screen(RunScreen(app.workshop, entry))
            await pilot.pause()
            for key in ("l", "m"):
                await pilot.press(key)
                if not isinstance(app.screen, RunScreen):
                    await pilot.press("escape")
            await pilot.press("escape")
        await app_that_asks(pilot, stream, machine(2))
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog), "the question")
        await pilot.press("n")


def titles(app: GpumonApp) -> list[str]:
    return [command.title for command in app.get_system_commands(app.screen)]


@pytest.mark.usefixtures("shelf")
async def test_keys_and_palette_lead_to_the_workloads() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(80, 24)) as pilot:
        assert "w Workloads" in screen_text(app)
        assert "Workloads" in titles(app)
        await pilot.press("w", "w")
        assert [type(screen) for screen in app.screen_stack[1:]] == [OverviewScreen, WorkloadsScreen]
        assert "Workloads" not in titles(app)
        await pilot.press("escape")
        assert isinstance(app.screen, OverviewScreen)


def test_the_board_forgets_old_runs_but_none_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    board = JobBoard(lambda: None)
    first = runs.live(1)
    board.runs = [*(runs.ended() for _ in range(60)), first]
    monkeypatch.setattr("gpumon.operations.workload.WorkloadRun.start", lambda _: None)
    board.start(runs.workload(), CPU, {}, PYTHON)
    assert len(board.runs) == 52
    assert board.running == [board.runs[0], first]
    with pytest.raises(ValueError, match="CPU is busy with matmul"):
        board.start_again(board.runs[0])


# Marks


async def test_beginning_and_end_are_marked_on_the_strips() -> None:
    stream = FakeLive()
    app = app_on(stream)
    entry = runs.entry()
    app.workshop.board.runs = [entry]
    runs.plan(entry)
    async with app.run_test(size=(160, 30)) as pilot:
        for number in range(30):
            if number == 10:
                entry.run.state.begin(runs.BEGAN)
            if number == 20:
                ended = runs.ended()
                entry.run.state.result, entry.run.state.end = ended.run.state.result, ended.run.state.end
            stream.put(builders.frame(monotonic_seconds=100.0 + 4 * number))
            await pilot.pause()
        rows = [text for text in screen_text(app).splitlines() if "69.3/140" in text]
        assert [text.count(MARK) for text in rows] == [4, 0], "begin and end, on both strips of its own GPU"
        places = [place for place, cell in enumerate(rows[0]) if cell == MARK]
        assert places[1] - places[0] == 10
        assert app.store.marks(builders.device(0).key, 30) == {10, 20}


# Pictures


def pictured(*entries: Any) -> GpumonApp:  # noqa: ANN401
    stream = FakeLive()
    stream.put(machine(2))
    app = app_on(stream)
    app.workshop.clock = lambda: runs.BEGAN + 12
    app.workshop.board.runs = list(entries)
    for number, entry in enumerate(entries):
        entry.key = str(number)
    return app


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
@pytest.mark.parametrize("screen", ["list", "form", "run", "result"])
def test_pictures(snap_compare: Compare, screen: str, size: tuple[int, int]) -> None:
    entries = {"run": [runs.live()], "result": [runs.ended()]}.get(screen, [runs.live(), runs.ended("fail")])
    keys = {"list": ["w"], "form": ["w", "enter", "down", "down", "down", "end", "x"]}
    app = pictured(*entries)

    async def press(pilot: Pilot[Any]) -> None:
        await pilot.press(*keys.get(screen, ["w", "tab", "enter"]))
        for field in app.screen.query(Input):
            field.cursor_blink = False
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=press)


def test_picture_of_the_question(snap_compare: Compare) -> None:
    app = pictured()

    async def ask(pilot: Pilot[Any]) -> None:
        waiting = runs.entry()
        runs.plan(waiting)
        app.workshop.board.runs = [waiting]
        app.post_message(JobsHaveNews())
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog), "the question")

    assert snap_compare(app, terminal_size=(80, 24), run_before=ask)
