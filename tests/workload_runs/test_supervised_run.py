"""A workload from its start to its end, whatever it does: one end, last, with its reason, and nothing left."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.workload_runs import supervised_run
from gpumon.workload_runs.protocol import RunEvent, RunEventKind, VerdictKind
from gpumon.workload_runs.supervised_run import RunEnded
from tests.processes import is_running, state, tree, wait_gone
from tests.workload_runs.conftest import FINE, NO_TORCH, PATIENCE, Play, Stage

HOLD = "while not context.stopping: time.sleep(0.01)\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); context.step('deaf')\nwhile True: time.sleep(1)"
IN_C = "signal.pthread_sigmask(signal.SIG_BLOCK, {15}); context.step('in C'); ctypes.PyDLL(None).sleep(60)"
"""A C call that holds the interpreter's lock, so that neither a signal handler nor another thread gets to run."""


def ended_once(play: Play) -> RunEnded:
    """The end, after a look at whether it is the only one and the last to arrive."""
    end = play.to_end()
    assert [index for index, item in enumerate(play.arrivals) if isinstance(item, RunEnded)] == [len(play.arrivals) - 1]
    assert play.child.pid is None or wait_gone(play.child.pid, PATIENCE)
    return end


# A normal run


def test_it_says_hello_tells_its_plan_waits_for_leave_and_ends_with_a_result(stage: Stage) -> None:
    play = stage.play(stage.request("context.step('started')\n" + FINE, parameters={"size": 3}), leave=False)
    play.follow(lambda: play.state.awaits_confirmation)
    play.follow(lambda: len(play.state.memory) >= 2)
    assert play.state.hello is not None
    assert play.state.hello["pid"] == play.child.pid
    assert play.state.plan is not None
    assert (play.state.plan["torch"], play.state.plan["device"]) == ("2.9.0+cpu", "cpu")
    assert play.state.plan["parameters"] == {"size": 3}
    uses = {"memory_bytes": 0, "host_memory_bytes": 0, "seconds": 1.0, "peers": False, "asks": ""}
    assert play.state.plan["uses"] == uses
    assert not play.state.steps, "the work has not started"
    assert play.child.running
    play.allow()
    end = ended_once(play)
    assert end == RunEnded(0, cancelled=False, reason="", invalid_lines=0, log_bytes=0)
    assert play.result.verdict is VerdictKind.OK
    assert play.result.why.startswith("All is well."), "a note on a busy host may follow"
    assert play.result.measurements[0].metric.name == "speed"
    assert play.of(RunEventKind.BYE)
    assert not play.child.running


def test_what_it_prints_is_kept_made_safe_and_never_taken_for_an_event(stage: Stage) -> None:
    body = "print('\\x1b[2Jout'); print('{\"event\": \"step\"}'); os.write(2, b'err \\xff no end')\n" + FINE
    play = stage.play(stage.request(body))
    end = ended_once(play)
    assert {(line.stream, line.text) for line in play.child.log} == {
        ("stdout", "\ufffd[2Jout"),
        ("stdout", '{"event": "step"}'),
        ("stderr", "err \ufffd no end"),
    }
    assert (end.invalid_lines, end.log_bytes) == (0, 7 + 1 + 18 + 12)


def test_a_verdict_has_its_exit_code(stage: Stage) -> None:
    play = stage.play(stage.request("context.result('x', 1.0, 'W', 1); return context.fail('One element is wrong.')"))
    assert ended_once(play).exit_code == 1
    assert (play.result.verdict, play.result.why) == (VerdictKind.FAIL, "One element is wrong.")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return context.ok('All is well.')", "Nothing was measured"),
        ("context.checked += 1; return context.ok('All is well.')", "Nothing was measured"),
        ("context.result('x', 1.0, 'W', 1); return context.ok('All is well.')", "No result was checked"),
        ("context.result('x', 1.0, 'W', 1); return context.warn('All is well.')", "No result was checked"),
        ("context.result('x', 1.0, 'W', 0); return context.ok('All is well.')", "ValueError: x was never measured"),
        ("context.result('x', float('nan'), 'W', 1); return context.ok('')", "ValueError: x is not a finite number"),
        ("return None", "TypeError: run() must return a Verdict"),
        ("raise RuntimeError('CUDA error: an illegal\\nmore')", "RuntimeError: CUDA error: an illegal"),
        ("raise RuntimeError('\\x1b[2J\\x07bad')", "RuntimeError: \ufffd[2J\ufffdbad"),
        ("raise RuntimeError('')", "RuntimeError: no text"),
        ("sys.exit(0)", "The workload exited with code 0 without a result."),
        ("os._exit(7)", "The workload exited with code 7 without a result."),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "The workload was ended by SIGSEGV."),
        ("os.abort()", "The workload was ended by SIGABRT."),
        ("os.kill(os.getpid(), 35)", "The workload was ended by signal 35."),
    ],
)
def test_a_run_that_did_nothing_or_broke_off_is_not_fine(stage: Stage, body: str, why: str) -> None:
    play = stage.play(stage.request(body))
    ended_once(play)
    assert play.result.verdict is VerdictKind.FAIL
    assert play.result.why.startswith(why)
    assert "\n" not in play.result.why


def test_an_exception_is_reported_with_the_results_so_far(stage: Stage) -> None:
    play = stage.play(stage.request("context.result('x', 1.0, 'W', 2)\nraise MemoryError('first\\nsecond')"))
    assert ended_once(play).exit_code == 1
    (error,) = play.state.errors
    assert (error.kind, error.text, error.expected) == ("MemoryError", "first\nsecond", False)
    assert play.result.measurements[0].repetitions == 2


def test_an_error_that_belongs_to_what_is_shown_does_not_end_the_run(stage: Stage) -> None:
    play = stage.play(stage.request("context.error(RuntimeError('CUDA out of memory.'))\n" + FINE))
    ended_once(play)
    assert play.state.errors[0].expected
    assert play.result.verdict is VerdictKind.OK


# What it needs is not there


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"torch": NO_TORCH}, "cannot import torch: No module named torch. Choose the interpreter"),
        ({"why": "It needs a GPU."}, "It needs a GPU."),
        ({"body": "raise UnsupportedError('This torch has no fp8.')"}, "This torch has no fp8."),
        ({"uses": "1 / 0"}, None),
    ],
)
def test_what_it_cannot_do_here_is_no_failure(stage: Stage, changes: Mapping[str, Any], text: str | None) -> None:
    play = stage.play(stage.request(**changes))
    end = ended_once(play)
    if text is None:
        assert (play.state.unsupported_reason, end.exit_code) == (None, 1)
        return
    assert end.exit_code == 3
    assert play.state.result is None
    assert play.state.unsupported_reason is not None
    assert text in play.state.unsupported_reason


def test_an_interpreter_that_is_not_there_is_told_like_any_end(stage: Stage) -> None:
    play = stage.play(stage.request(python=Path("/nowhere/python")))
    assert ended_once(play) == RunEnded(None, False, "The workload could not be started: No such file or directory.")
    assert play.child.pid is None
    assert play.result.verdict is VerdictKind.FAIL
    play.child.allow()
    play.child.cancel()


def test_a_system_without_room_for_another_process_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = descriptors()
    monkeypatch.setattr(subprocess, "Popen", refuse)
    play = stage.play(stage.request())
    assert "The workload could not be started: Resource temporarily unavailable." in ended_once(play).reason
    assert descriptors() == before


# Silence and time


def test_a_hang_that_keeps_it_from_saying_anything_is_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_run, "SILENCE_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(supervised_run, "TERM_TIMEOUT_SECONDS", 0.2)
    play = stage.play(stage.request(IN_C))
    end = ended_once(play)
    assert end == RunEnded(-signal.SIGKILL, False, "No event for 2 s: the workload hangs.")
    assert (play.result.verdict, play.result.why) == (VerdictKind.FAIL, end.reason)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "body",
    [
        "for n in range(10**9): context.progress(n, 10**9); time.sleep(0.05)",
        "time.sleep(60)",
        "while True: os.write(2, b'x' * 65536)",
        "context.step('started')\nwhile True: os.write(context._reporter._descriptor, b'no event\\n' * 1000)",
    ],
    ids=["works on", "hangs without a word", "floods stderr", "floods the events"],
)
def test_whatever_it_does_it_is_ended_at_its_limit(stage: Stage, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_run, "TERM_TIMEOUT_SECONDS", 0.2)
    play = stage.play(stage.request(body, limit_seconds=0.5))
    assert ended_once(play).reason == "The workload ran longer than its limit of 0 s."
    assert play.result.verdict is VerdictKind.FAIL


def test_what_stops_when_its_limit_is_told_has_failed_and_was_not_cancelled(stage: Stage) -> None:
    play = stage.play(stage.request(HOLD + FINE, limit_seconds=0.3))
    end = ended_once(play)
    assert (end.exit_code, end.cancelled) == (1, False)
    assert play.result.verdict is VerdictKind.FAIL
    assert play.result.why.startswith("The workload ran longer than its limit of 0 s.")
    assert play.result.measurements, "what it had found is kept"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("seconds", "limit"), [("2.0", 126.0), ("10**400", 300.0), ("'soon'", 300.0)])
def test_a_limit_comes_from_the_plan_where_none_is_given(stage: Stage, seconds: str, limit: float) -> None:
    limits: list[float] = []

    class Noted(supervised_run._Supervisor):
        def _note(self, event: RunEvent) -> None:
            super()._note(event)
            limits.append(self._work_limit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervised_run, "_Supervisor", Noted)
        play = stage.play(stage.request(uses=f"Uses(0, {seconds})"))
        ended_once(play)
    assert limits[-1] == limit


def test_waiting_for_leave_is_no_work_and_has_no_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 0.0
    clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: time.monotonic() + passed)
    monkeypatch.setattr(supervised_run, "time", clock)
    play = stage.play(stage.request(limit_seconds=30.0), leave=False)
    play.follow(lambda: play.state.awaits_confirmation)
    passed, seen = 40.0, len(play.state.memory)
    play.follow(lambda: len(play.state.memory) >= seen + 2)
    play.allow()
    assert ended_once(play).reason == ""
    assert play.result.verdict is VerdictKind.OK


# Being stopped


def test_it_can_be_cancelled_before_it_says_hello(stage: Stage) -> None:
    play = stage.play(stage.request())
    play.child.cancel()
    end = ended_once(play)
    assert (end.cancelled, end.reason) == (True, "")
    assert play.result.verdict is VerdictKind.CANCELLED


def test_it_can_be_cancelled_while_it_works_and_more_than_once(stage: Stage) -> None:
    play = stage.play(stage.request("context.step('started')\n" + HOLD + FINE))
    play.to_step("started")
    play.child.cancel()
    play.child.cancel()
    assert ended_once(play).exit_code == 1
    assert play.result.verdict is VerdictKind.CANCELLED
    assert play.result.why.endswith(" was stopped before its end. All is well.")
    assert play.result.measurements
    play.child.cancel()
    play.child.allow()
    assert not play.child.inbox.drain()


@pytest.mark.parametrize("body", [DEAF, IN_C])
def test_what_does_not_stop_when_it_is_asked_to_is_ended(
    stage: Stage, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised_run, "TERM_TIMEOUT_SECONDS", 0.2)
    play = stage.play(stage.request(body))
    play.follow(lambda: play.state.steps)
    play.child.cancel()
    assert ended_once(play) == RunEnded(-signal.SIGKILL, cancelled=True, reason="")
    assert play.result.verdict is VerdictKind.CANCELLED
    assert play.result.why.endswith(" was stopped before its end.")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_from_outside_is_named(stage: Stage, number: signal.Signals) -> None:
    play = stage.play(stage.request("context.step('started')\n" + HOLD))
    play.to_step("started")
    assert play.child.pid is not None
    os.kill(play.child.pid, number)
    assert ended_once(play).exit_code == -number
    assert (play.result.verdict, play.result.why) == (VerdictKind.FAIL, f"The workload was ended by {number.name}.")


def test_a_process_that_does_not_die_is_told_and_left(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_run, "TERM_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(supervised_run, "KILL_TIMEOUT_SECONDS", 0.1)
    play = stage.play(stage.request("context.step('started')\n" + HOLD))
    play.to_step("started")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "killpg", lambda *_: None)
        play.child.cancel()
        play.follow(lambda: play.state.end)
    assert play.state.end is not None
    assert play.state.end.exit_code is None
    assert play.state.end.reason == f"PID {play.child.pid} cannot be killed: blocked in an uninterruptible driver call."
    assert play.child._process is not None
    assert wait_gone(play.child._process.pid, PATIENCE), "its guard ends it when the pipe to it is closed"
    play.child._process.reap(PATIENCE)


# Floods and rubbish


def test_a_flood_of_events_leaves_the_newest_and_the_end(stage: Stage) -> None:
    play = stage.play(stage.request("for n in range(20_000): context.step(str(n))\n" + FINE), leave=False)
    play.follow(lambda: play.state.awaits_confirmation)
    play.allow()
    assert play.child.wait(PATIENCE), "the job ends although nothing reads the inbox"
    ended_once(play)
    assert play.child.inbox.lost > 10_000
    assert play.state.steps[-1][1] == "19999"
    assert play.result.verdict is VerdictKind.OK


def test_lines_that_are_no_events_are_counted_and_the_run_goes_on(stage: Stage) -> None:
    body = (
        "context._reporter.relay(b'NCCL\\n{\"schema\": 1, \"event\": \"st\\n[]\\n' + b'x' * 300_000 + b'\\n')\n" + FINE
    )
    end = ended_once(play := stage.play(stage.request(body)))
    assert end.invalid_lines == 4
    assert play.result.verdict is VerdictKind.OK


# What it has started

CHILDREN = {
    "ordinary": "subprocess.Popen(['sleep', '60'], stdin=-3, stdout=-3, stderr=-3)",
    "holds stdout": "subprocess.Popen(['sleep', '60'])",
    "holds the events": "subprocess.Popen(['sleep', '60'], pass_fds=[context._reporter._descriptor])",
    "deaf": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; echo; sleep 60; sleep 60'])",
}
FORK = "pid = os.fork()\nif not pid: time.sleep(60); os._exit(0)\nchildren = [pid]"
START = f"children = [each.pid for each in [{', '.join(CHILDREN.values())}]]\n{FORK.replace('children = [pid]', '')}\n"
START += "context.step('started')\n"
ENDS = {
    "comes to its end": START + FINE,
    "is killed": START + "os.kill(os.getpid(), 9)",
    "is cancelled": START + HOLD,
    "fails": START + "1 / 0",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("end", ENDS)
def test_all_that_it_has_started_is_gone_after_its_end(stage: Stage, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_run, "TERM_TIMEOUT_SECONDS", 0.3)
    body = ENDS[end].replace("context.step('started')", "context.step('started'); sys.stdin.close(); time.sleep(0.3)")
    play = stage.play(stage.request(body))
    play.to_step("started")
    assert play.child.pid is not None
    family = tree(play.child.pid)
    assert len(family) >= 6
    if end == "is cancelled":
        play.child.cancel()
    ended_once(play)
    assert all(wait_gone(pid, PATIENCE) for pid in family)


def test_no_descriptor_and_no_zombie_is_left(stage: Stage) -> None:
    before, others = descriptors(), {*tree(os.getpid())}  # a command of an earlier test may have left one
    for number in range(6):
        play = stage.play(stage.request(["os._exit(0)", FINE, HOLD][number % 3]))
        if number % 3 == 2:
            play.child.cancel()
        ended_once(play)
        stage.plays.remove(play)
    assert descriptors() == before
    assert not [pid for pid in tree(os.getpid()) if pid not in others and state(pid) == "Z"]


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


# Parts in a fresh process


def part(stage: Stage, source: str, body: str, **changes: Any) -> Play:  # noqa: ANN401
    """A run that starts a part in a fresh process."""
    top = "def part(context):\n    " + source.strip().replace("\n", "\n    ")
    return stage.play(stage.request(body, top=top, parts='{"part": part}', **changes))


ASK = "found = context.fresh('part', {'ONLY_THERE': 'yes'}, size=5)\ncontext.step(repr(found))\n" + FINE


def test_a_part_answers_and_its_environment_is_its_own(stage: Stage) -> None:
    source = (
        "context.step('in the part')\n"
        "return {'it': os.environ.get('ONLY_THERE'), 'size': context.parameters.size, 'pid': os.getpid()}"
    )
    body = ASK + "\ncontext.step(str(os.environ.get('ONLY_THERE')))"
    body = ASK.replace("context.checked", "context.step(str(os.environ.get('ONLY_THERE')))\ncontext.checked", 1)
    play = part(stage, source, body, parameters={"size": 1})
    assert ended_once(play).invalid_lines == 0
    first, answer, own = [text for _, text in play.state.steps]
    assert (first, own) == ("in the part", "None")
    assert "'it': 'yes', 'size': 5" in answer
    assert len(play.of(RunEventKind.HELLO)) == len(play.of(RunEventKind.BYE)) == 1
    assert play.result.verdict is VerdictKind.OK


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("os._exit(9)", "RuntimeError: The process for 'part' ended with exit code 9: it reported no error"),
        (
            "os.kill(os.getpid(), 9)",
            "RuntimeError: The process for 'part' ended with exit code -9: it reported no error",
        ),
        ("raise KeyError('gone')", "RuntimeError: The process for 'part' ended with exit code 1: KeyError: 'gone'"),
        (
            "os.write(context._reporter._descriptor, b'{\"torn'); os._exit(9)",
            "RuntimeError: The process for 'part' ended with exit code 9: it reported no error",
        ),
    ],
)
def test_a_part_that_dies_is_reported(stage: Stage, source: str, why: str) -> None:
    play = part(stage, source, ASK)
    ended_once(play)
    assert (play.result.verdict, play.result.why) == (VerdictKind.FAIL, why)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", [HOLD + "return {}", DEAF], ids=["listens", "deaf"])
def test_it_can_be_cancelled_while_a_part_runs(stage: Stage, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_run, "TERM_TIMEOUT_SECONDS", 0.5)
    play = part(stage, "context.step('in the part')\n" + source, ASK)
    play.to_step("in the part")
    assert play.child.pid is not None
    family = tree(play.child.pid)
    assert len(family) == 3, "itself, its guard and the part"
    play.child.cancel()
    ended_once(play)
    assert play.result.verdict is VerdictKind.CANCELLED
    assert not [pid for pid in family if is_running(pid)] or all(wait_gone(pid, PATIENCE) for pid in family)
