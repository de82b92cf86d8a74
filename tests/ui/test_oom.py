"""The explanation of why a process ran out of memory."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.errors.explanation import Explanation
from gpumon.ui.screens import oom
from gpumon.ui.screens.memory import MemoryScreen
from gpumon.ui.screens.oom import OomScreen
from tests import builders
from tests.insight import oom_documents
from tests.ui.fakes import screen_lines, screen_text, until
from tests.ui.probing import GIB, MIB, gpu, moment
from tests.ui.training import Training

NOW = 1_800_000_000
"""Unix time of the first frame."""


async def notices_of(training: Training, pilot: Pilot[Any], count: int) -> None:
    """Waits until that many files were read, and lets a second pass."""
    await until(pilot, lambda: len(training.app.session.probes.ooms.notices) == count)
    training.seconds += 1
    training.stream.put(moment(training.seconds, gpu(32 * GIB), builders.device(1)))
    await pilot.pause()


def write_oom(folder: Path, *, number: int = 1, age: int = 10, uuid: str | None = None) -> str:
    """The file about GPU 0, or about the device with a UUID."""
    device = {"ordinal": 0, "uuid": uuid or builders.device(0).uuid, "name": "NVIDIA H200"}
    document = oom_documents.document([oom_documents.used(GIB)], GIB, device=device)
    return str(oom_documents.write(folder, document, f"oom-{NOW - age}-4000-{number}.json.gz"))


async def test_the_message_stands_on_its_gpu_until_it_is_acknowledged(training: Training, tmp_path: Path) -> None:
    first, second = write_oom(tmp_path), write_oom(tmp_path, number=2, age=5)
    async with training.app.run_test(size=(120, 40)) as pilot:
        screen = await training.open(pilot, oom_files=(first,))
        await notices_of(training, pilot, 1)
        assert "PID 4000 ran out of memory" in screen_text(training.app)
        assert "6 Alerts ●1" in screen_lines(training.app)[0]
        screen.select_device(1)
        await pilot.pause()
        assert "Memory of GPU 1" in screen_text(training.app)
        assert "ran out of memory" not in screen_text(training.app)
        await pilot.press("e", "a")
        await pilot.pause()
        assert training.app.screen_stack[-1] is screen, "nothing to explain on this GPU"
        screen.select_device(-1)
        await pilot.pause()
        await pilot.press("a")
        await pilot.pause()
        assert "ran out of memory" not in screen_text(training.app)
        assert "Alerts ●" not in screen_lines(training.app)[0]
        training.go(30, oom_files=(first, second))
        await notices_of(training, pilot, 2)
        assert "PID 4000 ran out of memory again on GPU 0 (e: explain" in screen_text(training.app), (
            "another one is another alert"
        )
        await pilot.press("e")
        await pilot.pause()
        assert isinstance(training.app.screen, OomScreen)


async def test_it_is_an_alert_with_its_file_and_an_event_of_its_gpu(training: Training, tmp_path: Path) -> None:
    path = write_oom(tmp_path)
    async with training.app.run_test(size=(160, 40)) as pilot:
        await training.open(pilot, oom_files=(path,))
        await notices_of(training, pilot, 1)
        await pilot.press("6")
        await pilot.pause()
        text = " ".join(screen_text(training.app).split())
        assert "! warning 0" in text
        assert "PID 4000 ran out of memory on GPU 0." in text
        assert "gpumon explain --oom" in text
        assert Path(path).name in text
        histories = [training.app.session.store.of_device(builders.device(index).key) for index in (0, 1)]
        assert [[event.text for event in history.events] for history in histories if history is not None] == [
            ["out of memory PID 4000"],
            [],
        ]
        await pilot.press("e")
        await pilot.pause()
        assert isinstance(training.app.screen, OomScreen)


async def test_a_file_that_was_left_is_explained(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_evidence(explanation: Explanation) -> Explanation:
        return replace(
            explanation,
            matches=tuple(replace(match, evidence={"held by": "PID 77 now"}) for match in explanation.matches),
        )

    monkeypatch.setattr(oom, "DRIVER_FILES", tmp_path)
    monkeypatch.setattr(oom, "with_evidence", with_evidence)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    document = oom_documents.document([oom_documents.pieces(40, 512 * MIB)], 2 * GIB)
    path = oom_documents.write(tmp_path, document, f"oom-{NOW - 1000}-4000-1.json.gz")
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot, oom_files=(str(path), "/tmp/not-one"))
        await notices_of(training, pilot, 1)
        assert "! 07:43:20 PID 4000 ran out of memory on GPU 0 (e: explain, a: acknowledge)" in screen_text(
            training.app
        )
        await pilot.press("e")
        screen = training.app.screen
        assert isinstance(screen, OomScreen)
        for _ in range(40):
            await pilot.pause(0.05)
            if "PID 77 now" in str(screen.outcome):
                break
        await pilot.pause()
        assert "Why memory ran out" in screen_text(training.app)
        await pilot.press("end")
        await pilot.pause()
        assert isinstance(screen.outcome, Explanation)
        assert screen.outcome.matches[0].evidence == {"held by": "PID 77 now"}
        await pilot.press("escape")
        assert isinstance(training.app.screen, MemoryScreen)
