"""The gate: logs as programs wrote them are explained as an engineer would, and healthy ones are called healthy."""

import random
from collections.abc import Iterator
from typing import Final

import pytest

from gpumon.errors.cause import cause_of
from gpumon.errors.load import ERRORS
from gpumon.present.explain_text import AnswerRole, answer_lines
from tests.errors.texts import samples_of
from tests.errors.whole_logs import FailedLog, answer, answer_to, failed_logs, healthy_logs, judged, read_log

_FAILED: Final = failed_logs()
_HEALTHY: Final = healthy_logs()
_MIN_RIGHT: Final = 0.95
_MAX_WRONG: Final = 0.02
_MIN_USEFUL: Final = 0.85
_SEED: Final = 20
_PLACES: Final = 20
_SAMPLED_PLACES: Final = 60


def test_there_are_enough_logs() -> None:
    assert len(_FAILED) >= 60
    assert len(_HEALTHY) >= 60


def test_the_cause_is_right() -> None:
    judgments = {log.name: judged(log) for log in _FAILED}
    right = [name for name, item in judgments.items() if item.is_right]
    wrong = [name for name, item in judgments.items() if item.is_wrong]
    useful = [name for name, item in judgments.items() if item.is_useful]
    missed = sorted(set(judgments) - set(right))
    assert len(right) >= _MIN_RIGHT * len(_FAILED), f"missed: {missed}"
    assert len(wrong) <= _MAX_WRONG * len(_FAILED), f"wrong: {wrong}"
    assert len(useful) >= _MIN_USEFUL * len(_FAILED), f"first advice: {sorted(set(judgments) - set(useful))}"


def test_a_healthy_log_is_healthy() -> None:
    answers = {path.stem: answer_to(path) for path in _HEALTHY}
    assert {name: answer.headline for name, answer in answers.items() if answer.is_failure} == {}
    assert {name: answer.do for name, answer in answers.items() if answer.do is not None} == {}


def test_the_answer_is_short() -> None:
    counts = sorted(len(answer_lines(answer_to(log.path), 80)) for log in _FAILED)
    assert counts[len(counts) // 2] <= 12
    assert counts[-1] <= 14


def test_the_action_stands_on_line_three_at_the_latest() -> None:
    for log in _FAILED:
        lines = answer_lines(answer_to(log.path), 80)
        assert any(line.label.startswith("DO") for line in lines[:3]), log.name
        for line in lines:
            is_wide = len(line.label + line.text) > 80
            assert not is_wide or line.role is AnswerRole.CODE or " " not in line.text, log.name


def _notices() -> list[str]:
    return [text for error in ERRORS.values() if error.is_warning for text in samples_of(error.id)[:1]]


def _with_notice(log: FailedLog, notice: str, place: float) -> Iterator[str]:
    lines = log.path.read_text("utf-8", "replace").splitlines(keepends=True)
    row = round(place * len(lines))
    return iter((*lines[:row], f"{notice}\n", *lines[row:]))


def _assert_unchanged(log: FailedLog, notice: str, place: float) -> None:
    before, after = (
        cause_of(read_log(log.path.read_bytes())),
        cause_of(read_log("".join(_with_notice(log, notice, place)))),
    )
    assert before is not None
    assert after is not None, notice
    ids = [cause.root.match.error.id if cause.root.match else cause.root.text for cause in (before, after)]
    assert ids[0] == ids[1], (log.name, notice, place)


def test_a_notice_does_not_change_the_answer() -> None:
    chance = random.Random(_SEED)
    notices, logs = _notices(), chance.sample(_FAILED, 30)
    for _ in range(_SAMPLED_PLACES):
        _assert_unchanged(chance.choice(logs), chance.choice(notices), chance.random())


@pytest.mark.long
@pytest.mark.parametrize("log", random.Random(_SEED).sample(_FAILED, 30), ids=lambda log: log.name)
def test_no_notice_changes_the_answer_anywhere(log: FailedLog) -> None:
    for notice in _notices():
        for number in range(_PLACES):
            _assert_unchanged(log, notice, number / (_PLACES - 1))


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_interleaved_ranks_have_the_same_root(ranks: int) -> None:
    chance = random.Random(ranks)
    failing = chance.randrange(ranks)
    logs = [list(_rank_log(rank, is_failing=rank == failing)) for rank in range(ranks)]
    lines: list[str] = []
    while any(logs):
        log = chance.choice([log for log in logs if log])
        lines.append(log.pop(0))
    cause = cause_of(read_log("".join(lines)))
    assert cause is not None
    assert (cause.root.rank, cause.root.text) == (failing, "KeyError: 'labels'")
    assert f"rank {failing} of {ranks}" in answer("".join(lines)).headline


def _rank_log(rank: int, *, is_failing: bool) -> Iterator[str]:
    yield from (f"[rank{rank}]: step {step} loss 2.{step}\n" for step in range(5))
    if is_failing:
        for line in (
            "Traceback (most recent call last):",
            '  File "/home/user/train.py", line 31, in <module>',
            "    y = batch['labels']",
            "        ~~~~~^^^^^^^^^^",
            "KeyError: 'labels'",
        ):
            yield f"[rank{rank}]: {line}\n"
    else:
        yield (
            f"[rank{rank}]:[E926 10:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
            " collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,"
            " Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n"
        )
