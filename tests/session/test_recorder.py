"""A recording that is started and stopped while the screen is open."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from gpumon.session.background import ResultT
from gpumon.session.recorder import Recorder
from gpumon.streams.recording import RecordingReader
from tests.frames import machine


def test_frames_are_recorded_between_two_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    threads: list[Thread] = []

    def in_background(work: Callable[[], ResultT], then: Callable[[ResultT], None]) -> None:
        threads.append(Thread(target=lambda: then(work())))
        threads[-1].start()

    recorder = Recorder(in_background)
    said: list[str] = []
    recorder.report = said.append
    recorder.observe(machine(1))
    recorder.toggle()
    assert recorder.is_recording
    for _ in range(3):
        recorder.observe(machine(1))
    recorder.toggle()
    threads[0].join(10)
    (file,) = tmp_path.iterdir()
    assert said[-1] == f"Recorded 3 frames: gpumon replay {file.name}"
    reader = RecordingReader(file)
    assert len(list(reader)) == 3
    reader.close()
