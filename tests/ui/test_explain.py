"""The Explain screen: pasted and typed text, errors of a run, reading in a thread, and every terminal size."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from gpumon.errors.explain import explain_text
from gpumon.errors.explanation import Explanation
from gpumon.errors.load import ERRORS
from gpumon.operations.evidence import LiveEvidence, with_evidence
from gpumon.present.explain import SAMPLE, explanation_lines, known_error_in
from gpumon.present.paint.line import Line, Role, plain, width_of
from gpumon.present.run import body_lines, error_lines, explainable_text, head_lines
from gpumon.ui.app import GpumonApp
from gpumon.ui.messages import RunsChanged
from gpumon.ui.screens import explain as explain_module
from gpumon.ui.screens.confirm import ConfirmStartDialog
from gpumon.ui.screens.explain import ExplainScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.run import RunScreen
from gpumon.ui.widgets import paste_area
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.paste_area import PasteArea, harmless
from gpumon.workload_runs.protocol import RunEventKind
from gpumon.workload_runs.supervised_run import LogLine, RunEnded
from tests import runs
from tests.frames import HOSTILE, machine
from tests.ui.fakes import FakeLive, app_on, screen_text, seen, until
from tests.ui.test_workloads import PATIENCE_SECONDS, Compare

SHAPES = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (24x2 and 12x5)"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered"
ASKS = "It provokes an assert on the GPU, which kills the CUDA context of the process that meets it."


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the user is read or written."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


@pytest.fixture(autouse=True)
def driver_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory by which the driver is detected; it does not exist."""
    monkeypatch.setattr(explain_module, "DRIVER_FILES", tmp_path / "nvidia")
    return tmp_path / "nvidia"


def texts(lines: list[Line]) -> list[str]:
    return [plain(line) for line in lines]


def lines_of(explanation: Explanation, width: int, *, is_long: bool = False) -> list[Line]:
    return [item.line for item in explanation_lines(explanation, width, is_long=is_long)]


def screen_of(pilot: Pilot[Any]) -> ExplainScreen:
    screen = pilot.app.screen
    assert isinstance(screen, ExplainScreen)
    return screen


def cause_of(screen: ExplainScreen) -> str | None:
    cause = None if screen.explanation is None else screen.explanation.cause
    return None if cause is None else cause.error.id


async def paste(pilot: Pilot[Any], text: str) -> None:
    pilot.app.post_message(events.Paste(text))
    await pilot.pause()


async def explained(pilot: Pilot[Any], error: str | None) -> None:
    screen = screen_of(pilot)
    await until(pilot, lambda: screen.explanation is not None and cause_of(screen) == error, f"{error} is explained")
    await pilot.pause()


async def test_evidence_is_collected_if_the_driver_is_loaded(
    driver_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_files.mkdir()
    live = LiveEvidence()
    live.__dict__["frame"] = machine()
    monkeypatch.setattr(explain_module, "with_evidence", lambda explanation: with_evidence(explanation, live))
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 150)) as pilot:
        await pilot.press("7")
        await paste(pilot, SAMPLE)
        await explained(pilot, "oom")
        await pilot.press("enter")
        await until(pilot, lambda: "GPU 0 memory" in screen_text(app), "the host's memory is shown")
        assert "of 140 GiB used; by process: 4000" in screen_text(app)


async def test_evidence_is_collected_for_one_text_at_a_time(
    driver_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_files.mkdir()
    asked: list[str] = []
    goes_on = threading.Event()

    def without_evidence(explanation: Explanation) -> Explanation:
        asked.append(explanation.matches[0].error.id)
        goes_on.wait(10)
        return explanation

    monkeypatch.setattr(explain_module, "with_evidence", without_evidence)
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("7")
        await paste(pilot, SAMPLE)
        await explained(pilot, "oom")
        await until(pilot, lambda: asked == ["oom"], "evidence is collected")
        screen = screen_of(pilot)
        for text in (ASSERT, SHAPES):
            screen.action_clear()
            await paste(pilot, text)
            await explained(pilot, {ASSERT: "device-assert", SHAPES: "shape"}[text])
        assert asked == ["oom"], "the other texts wait"
        goes_on.set()
        await until(pilot, lambda: asked == ["oom", "shape"], "then for the current text")


# Lines


@pytest.mark.parametrize("width", [50, 78, 158])
@pytest.mark.parametrize("text", [SAMPLE, SHAPES + "\n" + ASSERT, "nothing\nof note"], ids=("oom", "two", "nothing"))
def test_an_explanation_fits_its_width(text: str, width: int) -> None:
    lines = lines_of(explain_text(text), width)
    assert lines[0][0].role is Role.HEADING
    too_wide = [line for line in lines if width_of(plain(line)) > width]
    assert all(line[-1].role is Role.ACCENT for line in too_wide), "only code is not broken"


def test_the_cause_is_first_and_the_other_errors_are_listed() -> None:
    explanation = explain_text(f"{SHAPES}\n{ASSERT}\n")
    short, shown = (texts(lines_of(explanation, 100, is_long=is_long)) for is_long in (False, True))
    assert "mat1 and mat2" in short[0]
    assert shown[0] == short[0]
    assert ERRORS["shape"].title in "\n".join(shown)
    assert ERRORS["device-assert"].title in "\n".join(shown)


def test_sizes_and_code_are_shown() -> None:
    lines = lines_of(explain_text(SAMPLE), 100, is_long=True)
    shown = "\n".join(texts(lines))
    assert "20.0 GiB" in shown
    assert "4242" in shown
    code = [plain(line).strip() for line in lines if line and line[-1].role is Role.ACCENT]
    assert any("nvidia-smi" in text for text in code)


@pytest.mark.parametrize(("text", "heading"), [("well", "in 1 line"), ("a\n" * 1500, "in 1,500 lines")])
def test_an_unknown_error_can_be_reported(text: str, heading: str) -> None:
    lines = texts(lines_of(explain_text(text), 100, is_long=True))
    assert any(line.rstrip().endswith(heading) for line in lines)
    assert "open an issue" in " ".join(lines)


# Pasted text


def test_pasted_text_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    assert harmless("a\r\nb\rc\n\x1b[31mred\x1b[0m\td") == "a\nb\nc\nred     d"
    assert "\x1b" not in harmless(HOSTILE)
    assert [len(line) for line in harmless("x" * 10_000).split("\n")] == [4096, 4096, 1808]
    monkeypatch.setattr(paste_area, "MAX_CHARACTERS", 100)
    assert len(harmless("y\n" * 100)) <= 100


async def test_indentation_is_kept_on_the_screen() -> None:
    frames = 'Traceback (most recent call last):\n  File "train.py", line 3\n    if x:\n\ty = 1\n'
    traceback = f"{frames}{SAMPLE.splitlines()[-1]}\n"
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 90)) as pilot:
        await pilot.press("7")
        await paste(pilot, traceback)
        await explained(pilot, "oom")
        await pilot.press("enter")
        await pilot.pause()
        shown = [line.rstrip() for line in screen_text(app).splitlines()]
        start = shown.index(" Traceback (most recent call last):")
        assert shown[start + 1 : start + 4] == ['   File "train.py", line 3', "     if x:", "         y = 1"]
        explanation = screen_of(pilot).explanation
        assert explanation is not None
        assert explanation.cause is not None
        (code,) = (fix.code for fix in explanation.cause.fixes if "optimizer.step()" in fix.code)
        first = max(number for number, text in enumerate(shown) if text == "     " + code.splitlines()[0])
        copied = "\n".join(line.removeprefix("     ") for line in shown[first : first + 5])
        assert copied == code
        compile(copied, "fix", "exec")
        svg = app.export_screenshot()
        assert svg.count("<text ") == svg.count('<text xml:space="preserve" ')


async def test_a_paste_is_explained_and_another_one_replaces_it() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press("7")
        assert "Paste a log or a traceback" in screen_text(app)
        await paste(pilot, SAMPLE)
        await explained(pilot, "oom")
        assert ERRORS["oom"].title in screen_text(app)
        assert app.focused is app.screen.query_one("#meaning")
        await pilot.press("end")
        await paste(pilot, f"step 1\r\n\x1b[31m{SHAPES}\x1b[0m\r\n")
        await explained(pilot, "shape")
        assert app.screen.query_one("#meaning", LineTable).cursor == 0, "a new explanation begins at its top"
        assert app.screen.query_one(PasteArea).text == f"step 1\n{SHAPES}\n"
        await pilot.press("ctrl+l")
        assert app.screen.query_one(PasteArea).text, "this key redraws, as on every screen"
        await pilot.press("ctrl+n")
        await until(pilot, lambda: screen_of(pilot).explanation is None)
        await seen(pilot, "Paste a log or a traceback")
        await pilot.press("escape")
        assert isinstance(app.screen, ExplainScreen), "it has left the text"
        await pilot.press("escape")
        assert isinstance(app.screen_stack[-1], OverviewScreen)


async def test_typed_text_is_explained_and_triggers_no_binding() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("7", "ctrl+n", *"quit: ", "space", *"CUDA out of ")
        area = app.screen.query_one(PasteArea)
        assert area.text == "quit:  CUDA out of "
        area.text = SAMPLE
        await explained(pilot, "oom")
        await pilot.press("tab")
        assert app.focused is app.screen.query_one("#meaning")
        await pilot.press("tab")
        assert app.focused is area


async def test_the_list_leads_to_each_fix_which_is_copied_alone_or_with_all() -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("7")
        await seen(pilot, "device-assert")
        await pilot.press("slash", *"id:no-kernel", "enter", "enter")
        await seen(pilot, ERRORS["no-kernel-image"].title)
        first, second, *_ = [fix.code or fix.text for fix in ERRORS["no-kernel-image"].fixes]
        await pilot.press("down", "y")
        assert app.clipboard == first
        await pilot.press("down", "y")
        assert app.clipboard == second
        await pilot.press("Y")
        assert app.clipboard.startswith(f"{first}\n{second}\n")
        await pilot.press("escape", "escape", "1")
        assert isinstance(app.screen, OverviewScreen), "a digit changes the screen"


# Reading in the background


class Slow:
    """An explanation that waits for the test."""

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
    """Delays every explanation."""
    held = Slow()
    monkeypatch.setattr(explain_module, "explain_text", held)
    yield held
    held.go_on.set()


async def test_a_long_text_does_not_block_the_screen(slow: Slow) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("7")
        await paste(pilot, "a line of a log\n" * 5_000 + SHAPES)
        await until(pilot, lambda: bool(slow.texts))
        await seen(pilot, "Reading ...")
        assert slow.threads[0] is not threading.main_thread()
        app.screen.query_one(PasteArea).focus()
        await pilot.press(*"then ")
        assert app.screen.query_one(PasteArea).text.startswith("then a line"), "keys work during reading"
        slow.go_on.set()
        await explained(pilot, "shape")
        await until(pilot, lambda: slow.texts[-1].startswith("then a line"), "text typed during reading is explained")
        assert len(slow.texts) <= 3, "one reading at a time"


async def test_the_screen_may_be_closed_during_reading(slow: Slow) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("7")
        await paste(pilot, SHAPES)
        await until(pilot, lambda: bool(slow.texts))
        await pilot.press("escape")
        slow.go_on.set()
        slow.threads[0].join(PATIENCE_SECONDS)
        app.post_message(RunsChanged())
        await pilot.pause()
        assert isinstance(app.screen, OverviewScreen)


# Errors of a run


def open_run(app: GpumonApp, entry: Any) -> None:  # noqa: ANN401
    app.session.workloads.clock = lambda: runs.BEGAN + 12
    app.session.workloads.registry.runs = [entry]
    app.push_screen(RunScreen(entry))


@pytest.mark.parametrize("key", ["e"])
async def test_an_error_of_a_run_is_explained(key: str) -> None:
    app, entry = app_on(FakeLive()), runs.live_run()
    runs.report_error(entry, "RuntimeError", SHAPES.removeprefix("RuntimeError: "), expected=True)
    async with app.run_test(size=(100, 50)) as pilot:
        open_run(app, entry)
        await seen(pilot, f"{ERRORS['shape'].title}: ")
        await seen(pilot, "e Explain")
        await pilot.press(key)
        await explained(pilot, "shape")
        assert app.screen.query_one(PasteArea).text == SHAPES
        assert "Errors of matmul on GPU 0, H200" in screen_text(app)
        await pilot.press("escape")
        assert isinstance(app.screen, RunScreen)


def test_the_errors_of_a_run() -> None:
    entry = runs.live_run()
    runs.report_error(entry, "UnsupportedError", "torch finds no GPU.")
    assert explainable_text(entry) == "", "gpumon's own message needs no explanation"
    runs.report_error(entry, "RuntimeError", "one", expected=True)
    runs.report_error(entry, "ValueError", "two")
    assert explainable_text(entry) == "RuntimeError: one\n\nValueError: two"


def test_a_run_that_died_without_an_error_is_explained_by_its_output() -> None:
    entry = runs.new_run()
    entry.child.log.extend([LogLine("stdout", "hello"), LogLine("stderr", SHAPES)])
    assert explainable_text(entry) == ""
    entry.state.apply(RunEnded(-11, cancelled=False, reason="The workload was ended by SIGSEGV."))
    assert explainable_text(entry) == f"hello\n{SHAPES}"


def test_a_known_error_shows_its_summary() -> None:
    entry = runs.new_run()
    runs.report_error(entry, "RuntimeError", SHAPES, expected=True)
    runs.report_error(entry, "KeyError", "'nothing of ours'")
    shown = texts(error_lines(entry.state.errors, 200))
    known = ERRORS["shape"]
    assert shown.count(f"   {known.title}: {known.summary}") == 1
    assert known_error_in("KeyError: 'nothing of ours'") is None


def test_code_in_a_step_keeps_its_lines() -> None:
    entry = runs.live_run()
    runs.send(entry, RunEventKind.STEP, 12, text="In a separate process:\n    $ python train.py\n    print(1)")
    assert "\n" not in "".join(texts(head_lines(entry, runs.BEGAN + 12, 100)))
    body = texts(body_lines(entry, runs.BEGAN + 12, 100))
    assert any(text.endswith("    $ python train.py") for text in body)
    assert any(text.endswith("    print(1)") for text in body)


# Confirmation


@pytest.mark.parametrize(("keys", "begins"), [(["tab", "enter"], True), (["enter"], False)])
async def test_what_kills_its_context_asks_though_nobody_works_there(keys: list[str], begins: bool) -> None:
    app, waiting = app_on(FakeLive()), runs.new_run()
    runs.send_plan(waiting, asks=ASKS)
    async with app.run_test(size=(100, 30)) as pilot:
        app.session.workloads.registry.runs = [waiting]
        app.post_message(RunsChanged())
        await seen(pilot, "matmul asks for confirmation. It provokes an assert on the GPU")
        assert isinstance(app.screen, ConfirmStartDialog)
        text = screen_text(app)
        assert "other process" not in text
        assert "Start anyway" in text
        await pilot.press(*keys)
        await pilot.pause()
        assert (waiting.state.began_seconds is not None) is begins
        assert waiting.is_stopping is not begins


@pytest.mark.parametrize("asks", [None, 7, ["x"], ""])
def test_an_odd_plan_asks_nothing(asks: object) -> None:
    waiting = runs.new_run()
    runs.send_plan(waiting, asks=asks)
    assert waiting.state.confirmation_reason == ""


# Screenshots


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
@pytest.mark.parametrize("text", [SAMPLE, ""], ids=("oom", "empty"))
def test_pictures(snap_compare: Compare, text: str, size: tuple[int, int]) -> None:
    stream = FakeLive()
    stream.put(machine(2))
    app = app_on(stream)

    async def press(pilot: Pilot[Any]) -> None:
        await pilot.press("7")
        if text:
            await paste(pilot, text)
            await explained(pilot, "oom")

    assert snap_compare(app, terminal_size=size, run_before=press)


@pytest.mark.long
@pytest.mark.parametrize("size", [(60, 10), (20, 5), (8, 3), (300, 100)])
async def test_every_terminal_size(size: tuple[int, int]) -> None:
    app = app_on(FakeLive())
    async with app.run_test(size=size) as pilot:
        app.push_screen(ExplainScreen(SAMPLE))
        await pilot.pause()
        await explained(pilot, "oom")
        await pilot.press("end", "tab", "x", "escape", "escape")
        assert isinstance(app.screen, OverviewScreen)
