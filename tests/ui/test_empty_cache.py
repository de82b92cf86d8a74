"""Emptying a process's PyTorch cache."""

import re
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.core.allocator import EmptyCacheResult
from gpumon.core.model import DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.probe.messages import RequestKind
from gpumon.ui.screens.empty_cache import EmptyCacheDialog, Phase
from gpumon.ui.screens.memory import MemoryScreen
from tests import builders
from tests.ui.fakes import screen_text
from tests.ui.probing import GIB, PID, gpu, moment, probe, silent, statistics
from tests.ui.training import Training


async def opened_dialog(training: Training, pilot: Pilot[Any]) -> EmptyCacheDialog:
    await training.open(pilot)
    await pilot.press("E")
    await pilot.pause()
    assert isinstance(training.app.screen, EmptyCacheDialog)
    return training.app.screen


async def test_the_dialog_says_what_comes_back_and_cancels_by_default(training: Training) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        await opened_dialog(training, pilot)
        text = " ".join(screen_text(training.app).split())
        assert "Have PID 4000 rank 0 call torch.cuda.empty_cache()?" in text
        assert re.search(r"[\d.]+ (GiB|MiB) released: cached", text)
        for words in ("held by live tensors", "segments that are partly in use", "CUDA context", "CUDA graph"):
            assert words in text
        await pilot.press("enter")
        assert isinstance(training.app.screen, MemoryScreen)
        await pilot.press("E", "escape", "E", "escape")
        assert isinstance(training.app.screen, MemoryScreen)
        assert training.watcher.asked == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("keys", [["tab", "enter"], ["down", "enter"]])
async def test_it_shows_what_came_back_by_both_accounts(training: Training, keys: list[str]) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        dialog = await opened_dialog(training, pilot)
        await pilot.press(*keys)
        await pilot.pause()
        assert training.watcher.asked == [(PID, RequestKind.EMPTY_CACHE, {})]
        assert "empty_cache() requested" in screen_text(training.app)
        await pilot.press("down", "up")
        assert len(training.watcher.asked) == 1, "it is asked once"
        before = statistics(reserved_bytes=31 * GIB, allocated_bytes=20 * GIB)
        after = statistics(reserved_bytes=27 * GIB, allocated_bytes=20 * GIB, active_bytes=20 * GIB)
        training.watcher.answer(EmptyCacheResult((before,), (after,), 0.14))
        await pilot.pause()
        assert "4.00 GiB released in 140 ms" in " ".join(screen_text(training.app).split())
        assert dialog.phase is Phase.ANSWERED
        training.stream.put(moment(training.seconds + 1, gpu(28 * GIB), builders.device(1)))
        await pilot.pause()
        text = " ".join(screen_text(training.app).split())
        assert "The driver agrees: memory in use fell by 4.00 GiB." in text
        assert "20.0 GiB stays: live tensors hold it" in text
        await pilot.press("enter")
        assert isinstance(training.app.screen, MemoryScreen)


async def test_one_that_has_gone_and_one_that_fails(training: Training) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        await training.open(pilot)
        await pilot.press("E", "tab", "enter")
        training.watcher.answer(problem=Problem(ProblemCode.UNKNOWN, "RuntimeError: captured"))
        await pilot.pause()
        assert "The cache was not emptied. RuntimeError: captured" in screen_text(training.app)
        await pilot.press("escape", "E")
        training.watcher.inbox.put(silent(probe(PID, statistics())))
        training.app.session.probes.drain()
        await pilot.press("tab", "enter")
        await pilot.pause()
        assert "PID 4000 has exited" in screen_text(training.app)
        assert len(training.watcher.asked) == 1


async def test_figures_from_before_the_answer_do_not_tell_what_came_back(training: Training) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        dialog = await opened_dialog(training, pilot)
        await pilot.press("tab", "enter")
        training.watcher.answer(EmptyCacheResult((statistics(),), (statistics(reserved_bytes=50 * GIB),), 0.1))
        await pilot.pause()
        later = training.seconds + 1
        for old in (
            {"state": DeviceState.UNRESPONSIVE, "age_seconds": 9.0},
            {"age_seconds": 1.2},
            {"problems": {"memory_used_bytes": Problem(ProblemCode.STALE, "Of 1 s ago.")}},
        ):
            training.stream.put(moment(later, gpu(32 * GIB, **old), builders.device(1)))
            await pilot.pause()
            assert dialog.phase is Phase.ANSWERED
            assert "The driver " not in screen_text(training.app)
        training.stream.put(moment(later, gpu(22 * GIB), builders.device(1)))
        await pilot.pause()
        assert "The driver agrees" in screen_text(training.app)


@pytest.mark.long
async def test_a_process_that_does_not_answer_may_do_it_yet(training: Training) -> None:
    async with training.app.run_test(size=(100, 30)) as pilot:
        await opened_dialog(training, pilot)
        await pilot.press("tab", "enter")
        training.watcher.answer(problem=Problem(ProblemCode.UNRESPONSIVE, "It has not answered."))
        await pilot.pause()
        assert "No result yet. It has not answered." in screen_text(training.app)
