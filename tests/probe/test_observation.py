"""The request ``observe``: where the main thread is, over a time."""

import sys
import time
from pathlib import Path

import pytest

from gpumon.core.stacks import MAX_FRAMES, MAX_SAMPLED_STACKS
from gpumon.core.steps import StepObservation
from gpumon.probe.agent import observation
from gpumon.probe.agent.training import Training, main_thread
from gpumon.probe.messages import RequestKind
from gpumon.probe.protocol import Reply, result_of
from tests.probe.children import complaints, pythons, running

BUSY = """
import sys, time, torch
torch.cuda.allocate(0, 1)
def slow():
    time.sleep(0.03)
def fast():
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        pass
def deep(depth):
    if depth:
        deep(depth - 1)
    else:
        fast()
print("ready", flush=True)
while True:
    slow()
    deep(100)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("python", pythons())
def test_the_stacks_of_the_main_thread_are_sampled(tmp_path: Path, python: str) -> None:
    with running(tmp_path, BUSY, python=python) as program:
        assert program.hear() == "ready"
        probe = program.probe()
        probe.until("statistics")
        started = time.monotonic()
        probe.send({"ask": "observe", "id": 5, "milliseconds": 2000, "hertz": 100})
        probe.send({"ask": "summary", "id": 6, "ordinal": 0})
        assert probe.until("answer")["id"] == 6, "others are served meanwhile"
        probe.send({"ask": "observe", "id": 7, "milliseconds": 2000, "hertz": 100})
        refused = probe.until("answer")
        assert (refused["id"], refused["ok"]) == (7, False)
        answer = probe.until("answer")
        assert time.monotonic() - started >= 2.0
        result = result_of(RequestKind.OBSERVE, Reply(5, None, answer))
        assert isinstance(result, StepObservation)
        assert result.steps == ()
        assert result.samples.seconds >= 2.0
        assert 0.8 < result.samples.samples_count / (100 * result.samples.seconds) < 1.05
        shares = dict.fromkeys(("slow", "fast"), 0)
        for stack in result.samples.stacks:
            assert len(stack.frames) <= MAX_FRAMES
            assert not any("agent" in frame.file for frame in stack.frames)
            for name in shares:
                shares[name] += stack.count * (stack.frames[0].function == name)
        assert sum(shares.values()) > 0.7 * result.samples.samples_count
        assert min(shares.values()) > 0.02 * result.samples.samples_count
        assert 0.0 < result.cpu_seconds <= result.process_cpu_seconds
    assert complaints(tmp_path) == ""


@pytest.mark.parametrize("arguments", [{}, {"milliseconds": "x", "hertz": 100}, {"milliseconds": None, "hertz": []}])
def test_an_observation_without_its_arguments_is_refused(tmp_path: Path, arguments: dict[str, object]) -> None:
    with running(tmp_path, BUSY) as program:
        program.hear()
        probe = program.probe()
        assert not probe.ask("observe", **arguments)["ok"]
        assert probe.until("statistics")["state"] == "live"


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extremes of both arguments, and more stacks than an answer may have."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    for number in range(2 * MAX_SAMPLED_STACKS):
        exec(f"def f{number}(): return sys._getframe()", globals())
    frames = [globals()[f"f{number}"]() for number in range(2 * MAX_SAMPLED_STACKS)]
    thread = main_thread()
    for milliseconds, hertz, seconds, count in ((0, 10**9, 1.0, 200), (10**9, 200, 30.0, 6000), (1000, -1, 1.0, 10)):
        monkeypatch.setattr(sys, "_current_frames", lambda: {thread: frames[int(now[0] * 1000) % len(frames)]})
        began, samples = now[0], observation.observe(Training(), {"milliseconds": milliseconds, "hertz": hertz})
        try:
            while True:
                now[0] += next(samples) + 0.0001
        except StopIteration as end:
            result = end.value
        assert now[0] - began == pytest.approx(seconds, abs=0.01)
        assert result["samples"]["samples_count"] == pytest.approx(count, abs=2)
        assert len(result["samples"]["stacks"]) <= MAX_SAMPLED_STACKS


def test_a_time_without_samples_counts_for_the_next_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    samples = observation.observe(Training(), {"milliseconds": 2000, "hertz": 100})
    next(samples)
    now[0] = 1.0  # another thread has held the GIL
    next(samples)
    now[0] = 3.0
    with pytest.raises(StopIteration) as end:
        next(samples)
    assert end.value.value["samples"]["samples_count"] == 101
