"""What a person's terminal meets: gpumon itself in a pseudo-terminal, on a stand-in for the driver."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.core.frames import encode
from tests import builders
from tests.cli.running import GPUMON as PROGRAM
from tests.nvml_mock import NvmlMock
from tests.processes import PROC, state, tree, wait_gone
from tests.terminal import Terminal

pytestmark = pytest.mark.xdist_group("clock")
"""One after the other in one process: they measure seconds, and see each other's hanging collectors."""

GPUMON = (PROGRAM, "--interval", "0.2")
ROWS = r"▸ *0 .*\d%"
"""A screen with values on it."""
BAR = "[━╸─]+ "

QUIT_GUARD_SECONDS = 3.0
"""It takes 0.1 to 0.2 s; a loaded machine of a CI service is given more."""

ENDING_SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT]
FOREIGN_ESCAPE = re.compile(
    b"\x1b[^[]"  # anything but a control sequence, which is all that Textual sends
    b"|\x1b\\[[\\d;]*[Jnt]"  # wiping the screen, queries and window operations
    b"|\xc2[\x80-\x9f]"  # C1 in UTF-8
    b"|\x07|\x00"
    b"|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]"  # bidi
)
POINTER_SHAPE = b"\x1b]22;default\x07"
"""The one string that Textual sends: the mouse pointer's shape."""

LEAVING = re.compile(rb"(?:\x1b\[\?[\d;]+[hl]|\x1b\[<u)*")


@pytest.fixture(scope="module")
def environment(nvml_mock: NvmlMock) -> dict[str, str]:
    """Three GPUs that are well."""
    return nvml_mock.environment(gpus=3)


def opened(terminal: Terminal) -> Terminal:
    """Waits for the first values."""
    terminal.wait_for(ROWS)
    return terminal


def assert_given_back(terminal: Terminal) -> None:
    assert terminal.restored(), terminal.raw[-300:]
    assert terminal.cooked(), "the line discipline echoes and takes lines"


def assert_all_gone(pids: Sequence[int], seconds: float = 10.0) -> None:
    assert len(pids) > 1, "there is a collector"
    assert all(wait_gone(pid, seconds) for pid in pids), {pid: state(pid) for pid in pids}


def memory_mebibytes(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+)", (PROC / str(pid) / "status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def run(
    argv: Sequence[str], environment: dict[str, str], stdin: int | None = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    """A command without any terminal."""
    return subprocess.run(
        argv, check=False, env={**environment, "TERM": "xterm"}, stdin=stdin, capture_output=True, text=True, timeout=20
    )


# Every end gives the terminal back


@pytest.mark.long
@pytest.mark.parametrize("number", ENDING_SIGNALS)
def test_a_signal_ends_it_cleanly(environment: dict[str, str], number: signal.Signals) -> None:
    with Terminal(GPUMON, environment) as terminal:
        pids = tree(opened(terminal).pid)
        terminal.signal(number)
        assert terminal.wait_exit() == 128 + number
        assert_given_back(terminal)
        assert_all_gone(pids)
        assert LEAVING.fullmatch(terminal.raw.rpartition(b"\x1b[?1049l")[2]), terminal.raw[-300:]


BROKEN_SHOW = "from gpumon.ui.screens.overview import OverviewScreen as it; name = 'show'"
BROKEN_RENDER = "from gpumon.ui.widgets.line_table import LineTable as it; name = 'render_line'"
BROKEN_MARKUP = "from gpumon.ui.widgets.text_lines import TextLines as it; name = 'show'; import rich.markup"
BREAK = """
__import__("logging").disable()  # in development mode, asyncio names what was slow
{what}
def broken(self, *_):
    raise {error}
setattr(it, name, broken)
from gpumon.cli import main
main()
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("what", "error"),
    [
        (BROKEN_SHOW, "ValueError('broken [/] on purpose')"),
        (BROKEN_RENDER, "ValueError('broken [/] on purpose')"),
        (BROKEN_MARKUP, "rich.markup.render('[bold]broken on purpose[/x]')"),
    ],
)
def test_an_exception_in_a_widget_is_a_sentence(environment: dict[str, str], what: str, error: str) -> None:
    program = BREAK.format(what=what, error=error)
    with Terminal([sys.executable, "-c", program, "--interval", "0.2"], environment) as terminal:
        assert terminal.wait_exit() == 1
        assert_given_back(terminal)
        said = terminal.raw.rpartition(b"\x1b[?1049l")[2]
        assert b"Traceback" not in terminal.raw
        assert re.search(rb"gpumon: .*(?:Value|Markup)Error: .*--debug.*\.\r\n$", said), said
        assert len(said.splitlines()) == 1


@pytest.mark.long
def test_debug_shows_where_an_exception_came_from(environment: dict[str, str]) -> None:
    program = BREAK.format(what=BROKEN_SHOW, error="ValueError('broken on purpose')")
    with Terminal([sys.executable, "-c", program, "--debug"], {**environment, "PYTHON_COLORS": "0"}) as terminal:
        assert terminal.wait_exit() == 1
        assert_given_back(terminal)
        said = terminal.raw.rpartition(b"\x1b[?1049l")[2]
        assert b"Traceback (most recent call last)" in said
        assert b"ValueError: broken on purpose" in said


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", ["", "hang:1=60", "hangall=60", "dstate:1=60", "slow=20000"])
def test_quit_key_works_whatever_the_driver_does(
    nvml_mock: NvmlMock, tmp_path: Path, fault: str, record_property: Callable[[str, object], None]
) -> None:
    control = tmp_path / "faults"
    control.write_text("")
    with Terminal(GPUMON, nvml_mock.environment(gpus=3, control=control)) as terminal:
        pids = tree(opened(terminal).pid)[:2]  # a process that the stand-in starts to get into state D is not gpumon's
        control.write_text(fault)
        if "=60" in fault:
            terminal.wait_for("UNRESPONSIVE")
        asked = time.monotonic()
        terminal.send("q")
        assert terminal.wait_exit() == 0
        seconds = time.monotonic() - asked
        record_property("quit_seconds", seconds)
        print(f"quit with {fault or 'a healthy driver'}: {seconds:.3f} s")
        assert_given_back(terminal)
        assert LEAVING.fullmatch(terminal.raw.rpartition(b"\x1b[?1049l")[2]), terminal.raw[-300:]
        assert_all_gone(pids)
        assert seconds < QUIT_GUARD_SECONDS


# Bytes that are no keys

NOT_UTF8 = (b"\xe9x", b"\xff", b"\x80", b"\xf0\x9f", b"\xed\xa0\x80")
NO_CHARACTER = (b"\x1b[1114112u", b"\x1b[99999999999999999999u", b"\x1b[:u")


@pytest.mark.long
def test_bytes_that_are_no_keys_do_nothing_and_the_mouse_is_left_to_the_terminal(environment: dict[str, str]) -> None:
    with Terminal([*GPUMON, "--no-mouse"], environment) as terminal:
        opened(terminal)
        assert terminal.raw.startswith(b"Waiting for the first values.\r\x1b[K"), "gone before the screen opens"
        for data in (NOT_UTF8, NO_CHARACTER):
            for some in data:
                terminal.send(some)
            terminal.send("?")
            terminal.wait_for("KEYS")
            terminal.send("?")  # closes the help; escape would wait for what may follow it
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_given_back(terminal)
        assert not re.search(rb"\x1b\[\?(?:1000|1002|1003|1006|1015|1016)h", terminal.raw)


@pytest.mark.long
def test_a_paste_that_is_not_utf8_is_explained_and_ctrl_c_ends_the_help(environment: dict[str, str]) -> None:
    with Terminal(GPUMON, environment) as terminal:
        opened(terminal).send("7")
        terminal.wait_for("Explain an error")
        terminal.send(b"\x1b[200~caf\xe9 qqq \xff\r\nRuntimeError: CUDA error: out of memory\r\n\x1b[201~")
        shown = terminal.wait_for("1 DO     List the processes")
        assert "caf\ufffd qqq \ufffd" in shown
        terminal.send("\x1b[B?")  # the text has the focus until the cursor leaves it
        terminal.wait_for("KEYS")
        terminal.send("\x03")
        assert terminal.wait_exit() == 0
        assert_given_back(terminal)


# The terminal goes away, or no process reads it


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,)])
def test_a_terminal_that_goes_away_ends_everything(
    environment: dict[str, str], ignored: Sequence[signal.Signals]
) -> None:
    with Terminal(GPUMON, environment, ignored=ignored) as terminal:
        pids = tree(opened(terminal).pid)
        terminal.hang_up()
        assert terminal.wait_exit() == 128 + signal.SIGHUP
        assert_all_gone(pids, 2.0)


NOTE_FRAMES = """
import sys
from gpumon.core.store import Store
notes = open(sys.argv.pop(1), "a", buffering=1)
apply = Store.apply
def noting(self, frame):
    notes.write(f"{frame.monotonic_seconds}\\n")
    apply(self, frame)
Store.apply = noting
from gpumon.cli import main
main()
"""


def flood(terminal: Terminal) -> None:
    """Stops reading and makes it draw far more than the kernel keeps."""
    terminal.pause_reading()
    for _ in range(12):
        terminal.send("\x0c")
        time.sleep(0.02)


def stand_still(terminal: Terminal, notes: Path) -> None:
    """Waits until the screen's loop has stood still for four seconds; before that it fills what the kernel keeps."""
    began = since = time.monotonic()
    seen = (terminal.written, notes.read_text())
    while time.monotonic() - since < 4:
        assert time.monotonic() - began < 20, "the screen's loop goes on"
        time.sleep(0.1)
        now = (terminal.written, notes.read_text())
        if now != seen:
            seen, since = now, time.monotonic()


@pytest.mark.long
def test_a_terminal_that_is_not_read_holds_up_nothing_else(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    notes, recording = tmp_path / "notes", tmp_path / "recording.jsonl"
    environment = nvml_mock.environment(gpus=8)
    argv = [sys.executable, "-c", NOTE_FRAMES, str(notes), "--interval", "0.1"]
    recorder = subprocess.Popen([GPUMON[0], "record", "--interval", "0.1", str(recording)], env=environment)
    try:
        with Terminal(argv, environment, rows=100, cols=300) as terminal:
            opened(terminal)
            before = memory_mebibytes(terminal.pid)
            flood(terminal)
            stand_still(terminal, notes)
            terminal.resume_reading()
            terminal.send("?")
            terminal.wait_for("KEYS")
            times = [float(text) for text in notes.read_text().split()]
            assert times[-1] - times[0] > 4
            assert max(later - earlier for earlier, later in pairwise(times)) < 2, "the history has no gap"
            assert memory_mebibytes(terminal.pid) < before + 30
            terminal.send("qq")  # the first one closes the help
            assert terminal.wait_exit() == 0
    finally:
        recorder.terminate()
        recorder.wait(5)
    lines = recording.read_text().splitlines()
    times = [json.loads(line)["monotonic_seconds"] for line in lines if "monotonic_seconds" in line]
    assert times[-1] - times[0] > 4
    assert max(later - earlier for earlier, later in pairwise(times)) < 2


def test_sigterm_ends_it_while_nobody_reads(environment: dict[str, str]) -> None:
    with Terminal(GPUMON, environment, rows=100, cols=300) as terminal:
        pids = tree(opened(terminal).pid)
        flood(terminal)
        time.sleep(0.5)
        terminal.signal(signal.SIGTERM)
        assert terminal.wait_exit() == 128 + signal.SIGTERM
        assert_all_gone(pids)
        terminal.resume_reading()
        deadline = time.monotonic() + 10
        while not terminal.restored() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert_given_back(terminal)
        assert b"Traceback" not in terminal.raw


# Suspending and sizes


def test_ctrl_z_and_fg_in_a_shell(environment: dict[str, str]) -> None:
    with Terminal(["sh", "-i"], {**environment, "PS1": "prompt$ "}) as terminal:
        terminal.wait_for(r"prompt\$")
        terminal.send(f"{' '.join(GPUMON)}\n")
        opened(terminal)
        terminal.send("\x1a")
        terminal.wait_for("Stopped")
        assert_given_back(terminal)
        before = terminal.written
        time.sleep(0.5)
        assert terminal.written == before, "a stopped program writes nothing"
        terminal.send("fg\n")
        deadline = time.monotonic() + 15
        while not terminal.raw[before:].count(b"\x1b[?1049h"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        terminal.send("?")
        terminal.wait_for("KEYS")
        prompts = terminal.raw.count(b"prompt$")
        terminal.send("qq")  # the first one closes the help
        deadline = time.monotonic() + 10
        while not (terminal.restored() and terminal.cooked() and terminal.raw.count(b"prompt$") > prompts):
            assert time.monotonic() < deadline, terminal.screen()
            time.sleep(0.02)
        terminal.send("echo code $?\n")
        terminal.wait_for("code 0")


@pytest.mark.long
def test_many_sizes_in_a_second(environment: dict[str, str]) -> None:
    sizes = [(3, 8), (5, 20), (24, 80), (50, 160)]
    with Terminal(GPUMON, environment) as terminal:
        opened(terminal)
        for number in range(8):
            terminal.resize(*sizes[number % len(sizes)])
            time.sleep(1 / 30)
        for rows, cols in ((5, 20), (80, 300), (30, 100)):
            terminal.resize(rows, cols)
            shown = terminal.wait_for("too" if cols < 60 else r"\? Help", 20)
            assert len(shown.splitlines()) <= rows
        terminal.wait_for(ROWS)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_given_back(terminal)


# No terminal, or half of one


def test_without_any_terminal_it_prints_the_status(environment: dict[str, str]) -> None:
    done = run([GPUMON[0]], environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^ +\d H200", done.stdout, re.MULTILINE)) == 3
    assert "\x1b" not in done.stdout


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("redirection", "words"),
    [("< /dev/null", "standard input"), ("2> {errors}", "standard error"), ("< /dev/null 2> {errors}", "redirected")],
)
def test_half_a_terminal_is_refused(environment: dict[str, str], tmp_path: Path, redirection: str, words: str) -> None:
    errors = tmp_path / "errors"
    command = f"{GPUMON[0]} {redirection.format(errors=errors)}"
    with Terminal(["sh", "-c", command], environment) as terminal:
        assert terminal.wait_exit() == 2
        said = errors.read_text() if errors.exists() else terminal.raw.decode()
        assert words in said
        assert "gpumon status" in said
        assert "\x1b" not in said
        assert "Traceback" not in said


@pytest.mark.long
@pytest.mark.parametrize("term", ["TERM=dumb", "-u TERM"])
def test_a_terminal_that_can_do_nothing_gets_text(environment: dict[str, str], term: str) -> None:
    with Terminal(["sh", "-c", f"env {term} {GPUMON[0]}"], environment) as terminal:
        assert terminal.wait_exit() == 0
        assert b"H200" in terminal.raw
        assert b"\x1b" not in terminal.raw


@pytest.mark.long
@pytest.mark.parametrize("command", ["", "status", "status --json"])
def test_a_pipe_that_closes_early_is_no_failure(environment: dict[str, str], command: str) -> None:
    done = run(["sh", "-c", f"{GPUMON[0]} {command} | head -1"], environment)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


# Text from other people's processes


@pytest.fixture
def hostile_pids() -> Iterator[list[int]]:
    """Processes with command lines that mean harm."""
    argvs: list[list[bytes]] = [
        [b"\x1b]0;PWNED\x07\x1b[2J\x1b[31mred", b"1000"],
        [b"\x1bP+q\x1b\\\x1b]52;c;UFdORUQ=\x07\xc2\x9b2J\xc2\x9d0;x\xc2\x9c", b"1000"],
        ["\u202egnp.exe\u2066 [/] [bold red]x[/bold] [@click=app.quit]y[/]".encode(), b"1000"],
        [b"new\nline\r\ttab\x08\x08\xff\xfe invalid", b"1000"],
    ]
    started = [subprocess.Popen(argv, executable="/bin/sleep") for argv in argvs]
    long = [sys.executable, "-c", "import time; time.sleep(1000)", *["\x1b[2J" + "L" * 100_000] * 15]
    started.append(subprocess.Popen(long))
    yield [process.pid for process in started]
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.long
def test_command_lines_are_inert_on_the_screen(nvml_mock: NvmlMock, hostile_pids: list[int]) -> None:
    environment = nvml_mock.environment(gpus=1, pids=hostile_pids, NVML_MOCK_PROCS="8")
    with Terminal(GPUMON, environment, rows=50, cols=200) as terminal:
        shown = opened(terminal).wait_for("PWNED")
        for pid in hostile_pids:
            assert re.search(rf"\b{pid}\b", shown)
        assert "[/] [bold red]x[/bold]" in shown
        terminal.send("\t")
        for number in (0, 2):
            terminal.send("\x1b[H" + "j" * number + "\r")
            terminal.wait_for(r"PID \d+ on GPU 0")
            terminal.send("\x1b")
            terminal.wait_for("Processes on GPU 0")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        raw = terminal.raw.replace(POINTER_SHAPE, b"")
        match = FOREIGN_ESCAPE.search(raw)
        assert match is None, raw[match.start() - 40 : match.end() + 40]


# The mouse


def row_of(terminal: Terminal, pattern: str) -> int:
    """The row of a text, counted from 1; a banner moves it."""
    return next(number for number, line in enumerate(terminal.screen().splitlines(), 1) if re.search(pattern, line))


@pytest.mark.long
def test_the_mouse_moves_opens_and_scrolls(nvml_mock: NvmlMock) -> None:
    with Terminal(GPUMON, nvml_mock.environment(gpus=64), rows=24, cols=100) as terminal:
        opened(terminal)
        row = row_of(terminal, "by utilization") + 3
        terminal.send(f"\x1b[<0;10;{row}M\x1b[<0;10;{row}m")
        terminal.wait_for(r"by utilization +▸16 [\s\S]*GPU 16  H200 ")  # the cell of the heat map
        terminal.send("v")
        terminal.wait_for(rf"▸16 +{BAR}")
        terminal.send("\x1b[H")
        terminal.wait_for(rf"▸0 +{BAR}")
        row = row_of(terminal, rf"▸0 +{BAR}")
        terminal.send(f"\x1b[<0;10;{row + 3}M\x1b[<0;10;{row + 3}m")
        terminal.wait_for(rf"▸3 +{BAR}")
        terminal.send(f"\x1b[<65;10;{row + 1}M" * 3)
        terminal.wait_for(rf"(?m)^ 2\d +{BAR}")
        terminal.send(f"\x1b[<0;10;{row + 1}M\x1b[<0;10;{row + 1}m" * 2)
        terminal.wait_for(r"GPU \d+  H200[\s\S]*All values")


# What it sends


def test_nothing_changed_is_no_byte(environment: dict[str, str], tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    frames = [builders.frame(monotonic_seconds=100.0 + second) for second in range(60)]
    recording.write_text("".join(encode(frame) + "\n" for frame in frames))
    with Terminal([GPUMON[0], "replay", str(recording)], environment) as terminal:
        opened(terminal).send(" ")
        terminal.wait_for("PAUSED")
        time.sleep(0.5)
        before = terminal.written
        time.sleep(3)
        assert terminal.written == before


# The end of the collector, seen on the screen
