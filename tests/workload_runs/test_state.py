"""What is made of a run's events, and of an end that does not go with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.workload_metrics import Measurement
from gpumon.workload_runs.catalogue import RunRequest, WorkloadInfo
from gpumon.workload_runs.protocol import RunEvent, RunEventKind, VerdictKind
from gpumon.workload_runs.results import recent_results
from gpumon.workload_runs.state import RunState
from gpumon.workload_runs.supervised_run import RunEnded

FIGURE = {"name": "rate", "value": 5.0, "unit": "GB/s", "repetitions": 3, "limit": None, "limit_source": ""}


@pytest.fixture
def state() -> RunState:
    info = WorkloadInfo("made", Path("made.py"), "", "", "", ())
    return RunState(RunRequest(info, "cpu", {}, Path("python")))


def event(kind: RunEventKind, **fields: Any) -> RunEvent:  # noqa: ANN401
    return RunEvent(kind, 100.0, fields)


@pytest.mark.parametrize(
    ("said", "exit_code", "reason", "verdict"),
    [
        ("ok", 0, "", VerdictKind.OK),
        ("warn", 0, "", VerdictKind.WARN),
        ("fail", 1, "", VerdictKind.FAIL),
        ("ok", 1, "", VerdictKind.FAIL),
        ("ok", -11, "The workload was ended by SIGSEGV.", VerdictKind.FAIL),
        ("cancelled", 1, "The workload ran longer than its limit of 5 s.", VerdictKind.FAIL),
        ("cancelled", 1, "", VerdictKind.CANCELLED),
    ],
)
def test_an_end_that_belies_the_verdict_counts_for_more(
    state: RunState, said: str, exit_code: int, reason: str, verdict: VerdictKind
) -> None:
    state.apply(event(RunEventKind.RESULT, verdict=said, why="All is well.", figures=[FIGURE]))
    state.apply(RunEnded(exit_code, cancelled=False, reason=reason))
    assert state.result is not None
    assert state.result.verdict is verdict
    assert state.result.measurements == (Measurement.of(FIGURE),)
    assert reason in state.result.why


def test_a_part_that_could_not_run_does_not_speak_for_the_whole(state: RunState) -> None:
    state.apply(event(RunEventKind.ERROR, **{"class": "UnsupportedError"}, text="Not in that part."))
    assert state.unsupported_reason == "Not in that part."
    state.apply(event(RunEventKind.RESULT, verdict="ok", why="It went on without.", figures=[FIGURE]))
    assert state.unsupported_reason is None


def test_the_remaining_time_follows_the_pace_so_far(state: RunState) -> None:
    assert state.remaining_seconds(10.0) is None
    state.record_start(100.0)
    state.apply(event(RunEventKind.PROGRESS, done=1, total=4))
    assert state.remaining_seconds(110.0) == 30.0
    state.apply(RunEnded(0, cancelled=False, reason=""))
    assert state.remaining_seconds(110.0) is None


def test_what_is_read_back_is_as_harmless_as_what_comes_from_a_workload(tmp_path: Path) -> None:
    kept = {"schema": 1, "workload": "made\x1b[2J", "figures": [FIGURE, {"name": "bad"}, 5], "verdict": "ok"}
    (tmp_path / "results.jsonl").write_text(json.dumps(kept) + "\n")
    (result,) = recent_results(tmp_path / "results.jsonl")
    assert result["workload"] == "made\ufffd[2J"
    assert result["figures"] == [FIGURE]
