"""Explanations on the screen: pasted, typed, of a run's errors, read in a thread, and in every size."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from gpumon.diagnosis.catalogue import BY_ID
from gpumon.diagnosis.explain import explain_text
from gpumon.diagnosis.explanation import Explanation
from gpumon.jobs.job import JobEnded, LogLine
from gpumon.jobs.protocol import EventKind
from gpumon.operations.evidence import Machine, with_evidence
from gpumon.ui.app import GpumonApp
from gpumon.ui.messages import JobsHaveNews
from gpumon.ui.paint.line import Line, Role, plain, width_of
from gpumon.ui.paint.text import wrapped
from gpumon.ui.screens import explain as explain_module
from gpumon.ui.screens.explain import ExplainScreen
from gpumon.ui.screens.leave import LeaveDialog
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.run import RunScreen
from gpumon.ui.view.explain import SAMPLE, explanation_lines, recognised
from gpumon.ui.view.run import body_lines, head_lines
from gpumon.ui.view.run_result import error_lines, troubles
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.paste_area import MOST_CHARACTERS, PasteArea, harmless
from tests.ui import runs
from tests.ui.fakes import HOSTILE, FakeLive, FakeRecording, app_on, machine, screen_text
from tests.ui.test_workloads import PATIENCE_SECONDS, Compare, seen, until

SHAPES = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (24x2 and 12x5)"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered"
ASKS = "It provokes an assert on the GPU, which kills the CUDA context of the process that meets it."


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's is read or written."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


@pytest.fixture(autouse=True)
def driver_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the driver would be seen; it is not there."""
    monkeypatch.setattr(explain_module, "DRIVER_FILES", tmp_path / "nvidia")
    return tmp_path / "nvidia"


def texts(lines: list[Line]) -> list[str]:
    return [plain(each) for each in lines]


def screen_of(pilot: Pilot[Any]) -> ExplainScreen:
    screen = pilot.app.screen
    assert isinstance(screen, ExplainScreen)
    return screen


def cause_of(screen: ExplainScreen) -> str | None:
    cause = None if screen.found is None else screen.found.cause
    return None if cause is None else cause.error.id


async def paste(pilot: Pilot[Any], text: str) -> None:
    pilot.app.post_message(events.Paste(text))
    await pilot.pause()


async def explained(pilot: Pilot[Any], error: str | None) -> None:
    screen = screen_of(pilot)
    await until(pilot, lambda: screen.found is not None and cause_of(screen) == error, f"{error} is explained")
    await pilot.pause()


async def test_the_machine_is_asked_where_there_is_a_driver(
    driver_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_files.mkdir()
    asked = Machine()
    asked.__dict__["frame"] = machine()
    monkeypatch.setattr(explain_module, "with_evidence", lambda found: with_evidence(found, asked))
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("e")
        await paste(pilot, SAMPLE)
        await until(pilot, lambda: "GPU 0 memory" in screen_text(app), "the machine's memory is told")
        assert "of 140 GiB used; by process: 4000" in screen_text(app)


async def test_the_machine_is_asked_about_one_text_at_a_time(
    driver_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_files.mkdir()
    asked: list[str] = []
    goes_on = threading.Event()

    def with_no_evidence(found: Explanation) -> Explanation:
        asked.append(found.matches[0].error.id)
        goes_on.wait(10)
        return found

    monkeypatch.setattr(explain_module, "with_evidence", with_no_evidence)
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("e")
        await paste(pilot, SAMPLE)
        await explained(pilot, "oom")
        await until(pilot, lambda: asked == ["oom"], "it is asked")
        screen = screen_of(pilot)
        for text in (ASSERT, SHAPES):
            screen.action_clear()
            await paste(pilot, text)
            await explained(pilot, {ASSERT: "device-assert", SHAPES: "shape"}[text])
        assert asked == ["oom"], "the others wait"
        goes_on.set()
        await until(pilot, lambda: asked == ["oom", "shape"], "then about what is there by now")


# Lines


@pytest.mark.parametrize("width", [50, 78, 158])
@pytest.mark.parametrize("text", [SAMPLE, SHAPES + "\n" + ASSERT, "nothing\nof note"], ids=("oom", "two", "nothing"))
def test_an_explanation_fits_its_width(text: str, width: int) -> None:
    lines = explanation_lines(explain_text(text), width)
    assert lines[0][0].role is Role.HEADING
    assert max(width_of(each) for each in texts(lines)) <= width


def test_the_first_cause_comes_first_and_the_rest_is_listed() -> None:
    said = texts(explanation_lines(explain_text(f"{SHAPES}\n{ASSERT}\n"), 100))
    assert said[0].startswith(BY_ID["device-assert"].title) or said[0].startswith(BY_ID["shape"].title)
    assert BY_ID["shape"].title in "\n".join(said)
    assert BY_ID["device-assert"].title in "\n".join(said)


def test_figures_of_the_message_and_code_to_copy_are_there() -> None:
    lines = explanation_lines(explain_text(SAMPLE), 100)
    said = "\n".join(texts(lines))
    assert "20.0 GiB" in said
    assert "4242" in said
    code = [plain(each).strip() for each in lines if each and each[-1].role is Role.ACCENT]
    assert any("nvidia-smi" in each for each in code)


@pytest.mark.parametrize(("text", "said"), [("well", "in a line"), ("a\n" * 1500, "in 1,500 lines")])
def test_what_is_not_known_is_said(text: str, said: str) -> None:
    lines = texts(explanation_lines(explain_text(text), 100))
    assert lines[0].rstrip().endswith(said)
    assert "open an issue" in " ".join(lines)


def test_long_lines_are_broken_and_indentation_stays() -> None:
    assert wrapped("one\n\n    if x:\n        y = 1", 40) == ["one", "", "    if x:", "        y = 1"]
    pieces = wrapped("    " + "word " * 30, 40)
    assert len(pieces) > 3
    assert all(each.startswith("    ") and len(each) <= 40 for each in pieces)
    assert max(map(len, wrapped("x" * 500, 40))) <= 40
    assert wrapped("", 40) == []


# What is pasted


def test_what_is_pasted_is_harmless() -> None:
    assert harmless("a\r\nb\rc\n\x1b[31mred\x1b[0m\td") == "a\nb\nc\nred d"
    assert "\x1b" not in harmless(HOSTILE)
    assert [len(each) for each in harmless("x" * 10_000).split("\n")] == [4096, 4096, 1808]
    assert len(harmless("y\n" * MOST_CHARACTERS)) <= MOST_CHARACTERS


async def test_a_paste_is_explained_and_another_takes_its_place() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press("e")
        assert "Paste a log or a traceback" in screen_text(app)
        await paste(pilot, SAMPLE)
        await explained(pilot, "oom")
        assert BY_ID["oom"].title in screen_text(app)
        assert app.focused is app.screen.query_one("#meaning")
        await pilot.press("G")
        await paste(pilot, f"step 1\r\n\x1b[31m{SHAPES}\x1b[0m\r\n")
        await explained(pilot, "shape")
        assert app.screen.query_one("#meaning", LineTable).cursor == 0, "a new explanation begins at its top"
        assert app.screen.query_one(PasteArea).text == f"step 1\n{SHAPES}\n"
        await pilot.press("ctrl+l")
        await until(pilot, lambda: screen_of(pilot).found is None)
        await seen(pilot, "Paste a log or a traceback")
        await pilot.press("escape")
        assert isinstance(app.screen, OverviewScreen)


async def test_what_is_typed_is_explained_too_and_is_no_command() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("e", *"quit: ", "space", *"CUDA out of ")
        area = app.screen.query_one(PasteArea)
        assert area.text == "quit:  CUDA out of "
        area.text = SAMPLE
        await explained(pilot, "oom")
        await pilot.press("tab")
        assert app.focused is app.screen.query_one("#meaning")
        await pilot.press("tab")
        assert app.focused is area


async def test_hostile_text_is_only_text() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press("e")
        await paste(pilot, f"{HOSTILE}\n{SHAPES} {HOSTILE}\n")
        await explained(pilot, "shape")
        assert "[/] [bold red]x[/bold]" in screen_text(app)
        assert "\x1b" not in screen_text(app)


async def test_it_is_opened_from_the_overview_and_the_palette() -> None:
    app = app_on(FakeRecording())
    async with app.run_test(size=(120, 30)) as pilot:
        assert "e Explain" in screen_text(app)
        assert "Explain" in [command.title for command in app.get_system_commands(app.screen)]
        await pilot.press("e", "e")
        assert [type(screen) for screen in app.screen_stack[1:]] == [OverviewScreen, ExplainScreen]
        assert "Explain" not in [command.title for command in app.get_system_commands(app.screen)]


# Meanwhile


class Slow:
    """An explanation that takes as long as the test wants."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.texts: list[str] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, text: str) -> Explanation:
        self.texts.append(text)
        self.threads.append(threading.current_thread())
        assert self.go_on.wait(PATIENCE_SECONDS)
        return explain_text(text)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """Holds every explanation up."""
    held = Slow()
    monkeypatch.setattr(explain_module, "explain_text", held)
    yield held
    held.go_on.set()


async def test_a_long_text_does_not_hold_up_the_screen(slow: Slow) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("e")
        await paste(pilot, "a line of a log\n" * 100_000 + SHAPES)
        await until(pilot, lambda: bool(slow.texts))
        await seen(pilot, "Reading ...")
        assert slow.threads[0] is not threading.main_thread()
        await pilot.press("tab", "end", *" then")
        assert app.screen.query_one(PasteArea).text.endswith(f"{SHAPES} then"), "keys work meanwhile"
        slow.go_on.set()
        await explained(pilot, "shape")
        await until(pilot, lambda: slow.texts[-1].endswith(" then"), "what was typed meanwhile counts")
        assert len(slow.texts) <= 3, "one reading at a time"


async def test_a_screen_that_was_closed_meanwhile_is_not_missed(slow: Slow) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("e")
        await paste(pilot, SHAPES)
        await until(pilot, lambda: bool(slow.texts))
        await pilot.press("escape")
        slow.go_on.set()
        slow.threads[0].join(PATIENCE_SECONDS)
        app.post_message(JobsHaveNews())
        await pilot.pause()
        assert isinstance(app.screen, OverviewScreen)


# Of a run


def open_run(app: GpumonApp, entry: Any) -> None:  # noqa: ANN401
    app.workshop.clock = lambda: runs.BEGAN + 12
    app.workshop.board.runs = [entry]
    app.push_screen(RunScreen(app.workshop, entry))


@pytest.mark.parametrize("key", ["e", "enter"])
async def test_an_error_of_a_run_leads_to_its_explanation(key: str) -> None:
    app, entry = app_on(FakeLive()), runs.live()
    runs.fail(entry, "RuntimeError", SHAPES.removeprefix("RuntimeError: "), expected=True)
    async with app.run_test(size=(100, 50)) as pilot:
        open_run(app, entry)
        await seen(pilot, f"{BY_ID['shape'].title}: ")
        await seen(pilot, "e Explain")
        await pilot.press(key)
        await explained(pilot, "shape")
        assert app.screen.query_one(PasteArea).text == SHAPES
        assert "What the errors of matmul on GPU 0, H200 mean" in screen_text(app)
        await pilot.press("escape")
        assert isinstance(app.screen, RunScreen)


async def test_a_run_without_errors_has_nothing_to_explain() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 50)) as pilot:
        open_run(app, runs.ended())
        await seen(pilot, "OK")
        assert "e Explain" not in screen_text(app)
        await pilot.press("e")
        assert isinstance(app.screen, RunScreen)


def test_what_there_is_to_explain_of_a_run() -> None:
    entry = runs.live()
    runs.fail(entry, "NotHereError", "torch finds no GPU.")
    assert troubles(entry) == "", "gpumon's own sentence explains itself"
    runs.fail(entry, "RuntimeError", "one", expected=True)
    runs.fail(entry, "ValueError", "two")
    assert troubles(entry) == "RuntimeError: one\n\nValueError: two"


def test_a_run_that_died_without_a_word_is_explained_by_what_it_printed() -> None:
    entry = runs.entry()
    entry.run.job.log.extend([LogLine("stdout", "hello"), LogLine("stderr", SHAPES)])
    assert troubles(entry) == ""
    entry.run.state.apply(JobEnded(-11, cancelled=False, reason="It was ended by SIGSEGV."))
    assert troubles(entry) == f"hello\n{SHAPES}"


def test_an_error_that_is_known_has_its_meaning_beside_it() -> None:
    entry = runs.entry()
    runs.fail(entry, "RuntimeError", SHAPES, expected=True)
    runs.fail(entry, "KeyError", "'nothing of ours'")
    said = texts(error_lines(entry.run.state.errors, 200))
    known = BY_ID["shape"]
    assert said.count(f"   {known.title}: {known.summary}") == 1
    assert recognised("KeyError: 'nothing of ours'") is None


def test_code_in_a_step_keeps_its_lines() -> None:
    entry = runs.live()
    runs.tell(entry, EventKind.STEP, 12, text="In a process of its own:\n    $ python train.py\n    print(1)")
    assert "\n" not in "".join(texts(head_lines(entry, runs.BEGAN + 12, 100)))
    body = texts(body_lines(entry, runs.BEGAN + 12, 100))
    assert any(each.endswith("    $ python train.py") for each in body)
    assert any(each.endswith("    print(1)") for each in body)


# What asks first


@pytest.mark.parametrize(("key", "begins"), [("y", True), ("n", False)])
async def test_what_kills_its_context_asks_though_nobody_works_there(key: str, begins: bool) -> None:
    app, waiting = app_on(FakeLive()), runs.entry()
    runs.plan(waiting, asks=ASKS)
    async with app.run_test(size=(100, 30)) as pilot:
        app.workshop.board.runs = [waiting]
        app.post_message(JobsHaveNews())
        await seen(pilot, "matmul asks first. It provokes an assert on the GPU")
        assert isinstance(app.screen, LeaveDialog)
        text = screen_text(app)
        assert "The others" not in text
        assert "Start (y)" in text
        await pilot.press(key)
        await pilot.pause()
        assert (waiting.run.state.began_seconds is not None) is begins
        assert waiting.stopping is not begins


@pytest.mark.parametrize("asks", [None, 7, ["x"], ""])
def test_an_odd_plan_asks_nothing(asks: object) -> None:
    waiting = runs.entry()
    runs.plan(waiting, asks=asks)
    assert waiting.run.state.asks == ""


# Pictures


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
@pytest.mark.parametrize("text", [SAMPLE, ""], ids=("oom", "empty"))
def test_pictures(snap_compare: Compare, text: str, size: tuple[int, int]) -> None:
    stream = FakeLive()
    stream.put(machine(2))
    app = app_on(stream)

    async def press(pilot: Pilot[Any]) -> None:
        await pilot.press("e")
        if text:
            await paste(pilot, text)
            await explained(pilot, "oom")

    assert snap_compare(app, terminal_size=size, run_before=press)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_picture_of_an_error_on_purpose(snap_compare: Compare, size: tuple[int, int]) -> None:
    stream = FakeLive()
    stream.put(machine(2))
    app, entry = app_on(stream), runs.ended()
    runs.fail(entry, "RuntimeError", SHAPES.removeprefix("RuntimeError: "), expected=True)

    async def press(pilot: Pilot[Any]) -> None:
        open_run(app, entry)
        await pilot.pause()
        await until(pilot, lambda: "e explains them" in screen_text(app))

    assert snap_compare(app, terminal_size=size, run_before=press)


@pytest.mark.parametrize("size", [(60, 10), (20, 5), (8, 3), (300, 100)])
async def test_it_stands_every_size(size: tuple[int, int]) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=size) as pilot:
        app.push_screen(ExplainScreen(app.workshop, SAMPLE))
        await pilot.pause()
        await explained(pilot, "oom")
        await pilot.press("G", "tab", "x", "escape")
        assert isinstance(app.screen, OverviewScreen)
