"""Workloads on the screen: real children with a torch that does nothing, and runs whose events a test sends."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input

from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.present.paint.sparkline import MARK
from gpumon.session.workload_controller import WorkloadController
from gpumon.ui.app import GpumonApp
from gpumon.ui.messages import RunsChanged
from gpumon.ui.screens.confirm import ConfirmStartDialog, QuitDialog
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.run import CodeScreen, LogScreen, MemorySummaryScreen, RunScreen
from gpumon.ui.screens.workload_form import WorkloadForm
from gpumon.ui.screens.workloads import WorkloadsScreen
from gpumon.ui.widgets.line_table import LineTable
from gpumon.workload_runs.catalogue import BrokenWorkload, Catalogue
from gpumon.workload_runs.interpreter import Interpreter
from gpumon.workload_runs.protocol import VerdictKind
from gpumon.workload_runs.supervised_run import RunEnded
from tests import builders, runs
from tests.frames import machine
from tests.ui.fakes import FakeLive, FakeRecording, FakeStream, app_on, screen_text, seen, until

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
    context.result("speed", float(answer.read_text()) if answer.exists() else 1.0, "laps/s", 3)
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

    def refresh(controller: WorkloadController) -> None:
        controller.catalogue = Catalogue(
            (runs.workload(), runs.workload("oom", why_not_cpu="The CPU has no allocator to show.")), (BROKEN,)
        )
        controller.interpreter = PYTHON
        controller.earlier = (
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
        controller._ring()

    monkeypatch.setattr(WorkloadController, "refresh", refresh)


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


def app_of(pilot: Pilot[Any]) -> GpumonApp:
    app = pilot.app
    assert isinstance(app, GpumonApp)
    return app


async def open_form(pilot: Pilot[Any], name: str = "tiny") -> WorkloadForm:
    """From the overview to the form of a workload."""
    await pilot.press("5")
    await until(pilot, lambda: isinstance(app_of(pilot).session.workloads.interpreter, Interpreter), "an interpreter")
    table = app_of(pilot).screen.query_one("#workloads", LineTable)
    await until(pilot, lambda: name in [row.key for row in table.rows], name)
    table.cursor = [row.key for row in table.rows].index(name)
    await pilot.press("enter")
    await pilot.pause()
    form = app_of(pilot).screen
    assert isinstance(form, WorkloadForm)
    return form


def select_cpu(form: WorkloadForm) -> None:
    form.query_one(f"#device-{len(form._choices) - 1}").action_turn()  # type: ignore[attr-defined]


async def start_tiny(pilot: Pilot[Any]) -> None:
    form = await open_form(pilot)
    if form._device != "cpu":
        select_cpu(form)
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
        await pilot.press("v")
        await seen(pilot, "a line for the log")
        await pilot.press("escape")
        say(tiny, "50")
        await seen(pilot, "It went left 7 times.")
        assert "OK" in screen_text(app)
        await pilot.press("r")
        await until(pilot, lambda: len(app.session.workloads.registry.runs) == 2)
        await seen(pilot, "+0.0 %")
        say(tiny, "55")
        await pilot.press("r")
        await seen(pilot, "+10.0 %")
        await pilot.press("escape")
        assert screen_text(app).count("55 laps/s") == 1
        assert screen_text(app).count("50 laps/s") == 2


@pytest.mark.long
async def test_a_run_is_stopped_and_is_cancelled(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await start_tiny(pilot)
        await seen(pilot, "25 % done")
        (entry,) = app.session.workloads.registry.runs
        await pilot.press("X")
        assert "STOPPING" in screen_text(app) or entry.ended
        await seen(pilot, "CANCELLED")
        assert entry.state.result is not None
        assert entry.state.result.verdict is VerdictKind.CANCELLED
        await until(pilot, lambda: not entry.child.running)


@pytest.mark.long
async def test_one_workload_at_a_time_on_a_device(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 40)) as pilot:
        await start_tiny(pilot)
        await seen(pilot, "25 % done")
        await pilot.press("escape", "escape")
        assert isinstance(app.screen, OverviewScreen)
        form = await open_form(pilot)
        assert "Select a device." in screen_text(app)
        select_cpu(form)
        await pilot.pause()
        assert "CPU is busy with tiny: a device runs one workload at a time." in screen_text(app)
        assert form.query_one("#start", Button).disabled
        await pilot.press("f5")
        assert len(app.session.workloads.registry.runs) == 1
        say(tiny, "1")
        await until(pilot, lambda: not app.session.workloads.registry.running)
        app.drawing.draw()
        assert not form.query_one("#start", Button).disabled, "it is free again"


async def test_leaving_gpumon_stops_what_runs(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await start_tiny(pilot)
        await seen(pilot, "25 % done")
        (entry,) = app.session.workloads.registry.runs
        await pilot.press("q")
        assert isinstance(app.screen, QuitDialog)
        await pilot.press("enter", "q", "escape")
        assert isinstance(app.screen, RunScreen), "Cancel has the focus"
        assert not entry.is_stopping
        began = time.monotonic()
        await pilot.press("q", "tab", "enter")
        assert time.monotonic() - began < PATIENCE_SECONDS
    assert entry.child.wait(PATIENCE_SECONDS)


async def test_an_interpreter_typed_in_is_looked_at_before_the_start(tiny: Path) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 40)) as pilot:
        form = await open_form(pilot)
        form.query_one("#python", Input).value = "/nowhere/python"
        await pilot.press("f5")
        await seen(pilot, "There is no program /nowhere/python.")
        assert app.session.workloads.registry.runs == []
        form.query_one("#python", Input).value = ""
        await pilot.pause()
        assert "There is no program" not in screen_text(app)
        await pilot.press("f5")
        await until(pilot, lambda: len(app.session.workloads.registry.runs) == 1)


# The list


async def test_without_torch_it_says_why_and_the_list_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(_: str | None = None) -> Interpreter:
        problem = Problem(ProblemCode.NO_TORCH, "No Python with torch was found.", "Name one.")
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)

    go_on = threading.Event()

    def load_late() -> Catalogue:
        assert go_on.wait(PATIENCE_SECONDS)
        return Catalogue((runs.workload(),))

    monkeypatch.setattr("gpumon.workload_runs.interpreter.find_interpreter", find_none)
    monkeypatch.setattr("gpumon.workload_runs.catalogue.load_catalogue", load_late)
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("5")
        assert "Searching for workloads ..." in screen_text(app)
        go_on.set()
        await seen(pilot, "! No Python with torch was found. Name one.")
        await seen(pilot, "matmul")
        await pilot.press("enter")
        await seen(pilot, "! No Python with torch was found. Enter one here.")


@pytest.mark.usefixtures("shelf")
async def test_a_file_that_is_no_workload_says_why() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        await pilot.press("5", "end")
        assert "/workloads/mine.py is not a workload. ImportError: No module named 'numpyy'" in screen_text(app)
        await pilot.press("enter")
        assert isinstance(app.screen, WorkloadsScreen)


@pytest.mark.usefixtures("shelf")
async def test_runs_are_opened_and_stopped_from_the_table() -> None:
    app = app_on(FakeLive())
    app.session.workloads.registry.runs = [runs.live_run()]
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("5", "tab", "enter")
        assert isinstance(app.screen, RunScreen)
        await pilot.press("escape", "X")
        assert app.session.workloads.registry.runs[0].is_stopping
        await seen(pilot, "STOPPING")


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
        assert app.session.workloads.registry.runs == []
        await pilot.press("x")
        assert "! size: '102400x' is not an integer." in screen_text(app)
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
        assert [field.value for field in inputs] == ["8192", "20"]
        assert "[bf16]" in screen_text(app)
        inputs[1].value = "7"
        select_cpu(form)
        await pilot.pause()
        assert [field.value for field in inputs] == ["1024", "7"]
        assert "[fp32]" in screen_text(app)
        assert [target.label for target in form._targets] == ["CPU"]
        form.query_one("#device-1").action_turn()  # type: ignore[attr-defined]
        form.query_one("#device-0").action_turn()  # type: ignore[attr-defined]
        await pilot.pause()
        assert [target.label for target in form._targets] == ["GPU 0", "GPU 1"]


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("stream", [FakeRecording(), FakeStream("pipe")])
async def test_gpus_of_another_machine_are_never_offered(stream: FakeStream) -> None:
    app = app_on(stream)
    async with app.run_test(size=(100, 40)) as pilot:
        stream.put(machine())
        await pilot.pause()
        form = await open_form(pilot, "matmul")
        assert [offer.key for offer in form._choices] == ["cpu"]
        assert "Only the CPU: GPUs are available while gpumon shows this host live" in screen_text(app)


# Confirmation


async def app_that_asks(pilot: Pilot[Any], stream: FakeStream, frame: Frame) -> None:
    stream.put(frame)
    await pilot.pause()
    waiting = runs.new_run()
    runs.send_plan(waiting)
    app_of(pilot).session.workloads.registry.runs = [waiting]
    pilot.app.post_message(RunsChanged())
    await pilot.pause()


# The run


@pytest.mark.long
@pytest.mark.usefixtures("shelf")
async def test_memory_and_log_in_full() -> None:
    app = app_on(FakeLive())
    app.session.workloads.registry.runs = [runs.live_run()]
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("5", "tab", "enter", "v")
        assert isinstance(app.screen, LogScreen)
        assert "! a warning [/] of torch" in screen_text(app)
        await pilot.press("v")
        assert isinstance(app.screen, MemorySummaryScreen)
        assert "PyTorch CUDA memory summary" in screen_text(app)
        await pilot.press("v")
        assert isinstance(app.screen, RunScreen)


@pytest.mark.usefixtures("shelf")
async def test_workloads_that_need_a_gpu_are_marked_on_a_host_without_one() -> None:
    stream = FakeLive()
    stream.put(builders.frame(devices=(), problems={"driver": Problem(ProblemCode.LIBRARY_NOT_FOUND, "No driver.")}))
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("5", "down")
        await pilot.pause()
        text = " ".join(screen_text(app).split())
        assert "oom !no GPU" in text
        assert "matmul GPU, CPU" in text
        assert "This host has no GPU to run it on: The CPU has no allocator to show." in text


CODE = "def step(model, batch):\n    # forward and backward\n    model(batch).sum().backward()\n" + "x = 1" * 60


@pytest.mark.usefixtures("shelf")
async def test_the_code_of_a_run_is_a_view_and_can_be_copied() -> None:
    app = app_on(FakeLive())
    run = runs.live_run()
    run.request = replace(run.request, workload=runs.workload(code=CODE))
    app.session.workloads.registry.runs = [run]
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("5", "tab", "enter", "v", "v")
        assert isinstance(app.screen, CodeScreen)
        assert "Code of matmul on GPU 0" in screen_text(app)
        assert "# Parameters: dtype=bf16, size=8192, duration=20, inject_error=no" in screen_text(app)
        assert "model(batch).sum().backward()" in screen_text(app)
        await pilot.press("y")
        assert app.clipboard.endswith(CODE), "long lines are not broken"
        await pilot.press("v")
        assert isinstance(app.screen, MemorySummaryScreen)
        await pilot.press("v")
        assert isinstance(app.screen, RunScreen)


async def test_the_code_is_shown_before_a_workload_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Catalogue((runs.workload(code=CODE), runs.workload("empty")))
    monkeypatch.setattr("gpumon.workload_runs.catalogue.load_catalogue", lambda: listed)
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await pilot.press("5")
        await seen(pilot, "empty")
        await pilot.press("v")
        assert isinstance(app.screen, CodeScreen)
        assert "# Parameters on the CPU: dtype=fp32, size=1024" in screen_text(app)
        await pilot.press("v")
        assert isinstance(app.screen, WorkloadsScreen)
        await pilot.press("down", "v")
        assert isinstance(app.screen, WorkloadsScreen)
        assert [notice.message for notice in app._notifications] == ["Its file names no code to show."]


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(("reason", "times"), [("No fp8.", 1), ("This GPU has no fp8. " + "Really. " * 20 + "No.", 2)])
async def test_why_a_workload_is_not_supported_is_shown_once(reason: str, times: int) -> None:
    app = app_on(FakeLive())
    run = runs.new_run()
    runs.send_plan(run)
    runs.report_error(run, "UnsupportedError", reason)
    run.state.apply(RunEnded(3, cancelled=False, reason=""))
    app.session.workloads.registry.runs = [run]
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("5", "tab", "enter")
        await pilot.pause()
        assert screen_text(app).count("fp8") == times, "one line at the top, and the rest of a longer one in the result"


@pytest.mark.long
@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("size", [(80, 24), (160, 50), (60, 10), (20, 5), (8, 3), (300, 100)])
async def test_every_screen_in_every_size(size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    app.session.workloads.registry.runs = [runs.live_run(), runs.ended_run(), runs.new_run()]
    for number, run in enumerate(app.session.workloads.registry.runs):
        run.key = str(number)
    async with app.run_test(size=size) as pilot:
        stream.put(machine())
        await pilot.press("5")
        assert isinstance(app.screen, WorkloadsScreen)
        await pilot.press("enter")
        assert isinstance(app.screen, WorkloadForm)
        await pilot.press("escape")
        for entry in app.session.workloads.registry.runs:
            app.push_screen(RunScreen(entry))
            await pilot.pause()
            while True:
                await pilot.press("v")
                if isinstance(app.screen, RunScreen):
                    break
            await pilot.press("escape")
        await app_that_asks(pilot, stream, machine(2))
        await until(pilot, lambda: isinstance(app.screen, ConfirmStartDialog), "the question")
        await pilot.press("escape")


# Marks


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "strips"), [({}, 1), ({"devices": ("gpu", "memory", "util-history", "memory-history")}, 2)]
)
async def test_beginning_and_end_are_marked_on_the_strips(columns: dict[str, tuple[str, ...]], strips: int) -> None:
    stream = FakeLive()
    stream.start()
    app = GpumonApp(stream, columns=columns)
    entry = runs.new_run()
    app.session.workloads.registry.runs = [entry]
    runs.send_plan(entry)
    async with app.run_test(size=(160, 30)) as pilot:
        for number in range(30):
            if number == 10:
                entry.state.record_start(runs.BEGAN)
            if number == 20:
                ended = runs.ended_run()
                entry.state.result, entry.state.end = ended.state.result, ended.state.end
            stream.put(builders.frame(monotonic_seconds=100.0 + 4 * number))
            await pilot.pause()
        rows = [text for text in screen_text(app).splitlines() if "69/140 GiB" in text]
        assert [text.count(MARK) for text in rows] == [2 * strips, 0], "begin and end, on each strip of its GPU"
        places = [place for place, cell in enumerate(rows[0]) if cell == MARK]
        assert places[1] - places[0] == 10
        assert app.session.store.marks(builders.device(0).key, 30) == {10, 20}


# Pictures


def pictured(*entries: Any) -> GpumonApp:  # noqa: ANN401
    stream = FakeLive()
    stream.put(machine(2))
    app = app_on(stream)
    app.session.workloads.clock = lambda: runs.BEGAN + 12
    app.session.workloads.registry.runs = list(entries)
    for number, entry in enumerate(entries):
        entry.key = str(number)
    return app


@pytest.mark.long
@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
@pytest.mark.parametrize("screen", ["list", "form", "run", "result"])
def test_pictures(snap_compare: Compare, screen: str, size: tuple[int, int]) -> None:
    entries = {"run": [runs.live_run()], "result": [runs.ended_run()]}.get(
        screen, [runs.live_run(), runs.ended_run("fail")]
    )
    keys = {"list": ["5"], "form": ["5", "enter", "down", "down", "down", "end", "x"]}
    app = pictured(*entries)

    async def press(pilot: Pilot[Any]) -> None:
        await pilot.press(*keys.get(screen, ["5", "tab", "enter"]))
        for field in app.screen.query(Input):
            field.cursor_blink = False
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=press)
