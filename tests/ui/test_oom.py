"""The explanation of why a process ran out of memory."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.diagnosis.explanation import Explanation
from gpumon.ui.screens import oom
from gpumon.ui.screens.memory import MemoryScreen
from gpumon.ui.screens.oom import OomScreen
from tests.diagnosis import oom_documents
from tests.ui.fakes import screen_text
from tests.ui.probing import GIB, MIB, PID, probe, silent, statistics
from tests.ui.training import Training


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
    path = oom_documents.write(tmp_path, document, "oom-1795000000-4000-1.json.gz")
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot, oom_files=(str(path), "/tmp/not-one"))
        assert "! PID 4000 ran out of memory at 11:06:40 (o: explain)" in screen_text(training.app)
        await pilot.press("o")
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


async def test_a_process_that_died_of_it_is_told_although_its_probe_had_no_time(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "gpumon" / "oom"
    folder.mkdir(parents=True)
    now = int(time.time())
    for name in (f"oom-{now}-4000-1.json.gz", f"oom-{now - 900}-4000-1.json.gz", f"oom-{now}-4001-1.json.gz", "x"):
        (folder / name).touch()
    async with training.app.run_test(size=(120, 40)) as pilot:
        await training.open(pilot)
        training.watcher.inbox.put(silent(probe(PID, statistics())))
        for _ in range(40):
            await pilot.pause(0.05)
            if training.app.session.probes.ooms:
                break
        assert [Path(notice.path).name for notice in training.app.session.probes.ooms] == [f"oom-{now}-4000-1.json.gz"]
        await pilot.press("o")
        await pilot.pause(0.2)
        assert isinstance(training.app.screen, OomScreen)
