"""Folders and watchers for tests of probes."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.probe import client
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Answer, Probe, ProbeMessage

Watch = Callable[..., "Watched"]


class Watched:
    """A watcher and what has come from it."""

    def __init__(self, watcher: ProbeWatcher) -> None:
        self.watcher = watcher
        self.news: list[ProbeMessage] = []

    def until(self, is_so: Callable[[], Any], patience: float = 10.0) -> None:
        deadline = time.monotonic() + patience
        while not is_so():
            assert time.monotonic() < deadline, (self.news[-3:], self.watcher.problems)
            self.watcher.inbox.arrived.wait(0.02)
            self.news += self.watcher.inbox.drain()
        self.news += self.watcher.inbox.drain()

    def reading(self) -> Probe:
        """The first probe that has a reading."""
        self.until(lambda: any(probe.reading for probe in self.watcher.probes.values()))
        return next(probe for probe in self.watcher.probes.values() if probe.reading)

    def answer(self, number: int) -> Answer:
        result: list[Answer] = []

        def has_come() -> bool:
            result[:] = [new for new in self.news if isinstance(new, Answer) and new.id == number]
            return bool(result)

        self.until(has_come)
        assert len(result) == 1
        return result[0]

    def problem(self) -> str:
        self.until(lambda: self.watcher.problems)
        return str(self.watcher.problems[0])


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    return short_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "probes"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Starts watchers that look more often than usual."""
    monkeypatch.setattr(client, "SCAN_SECONDS", 0.05)
    started: list[ProbeWatcher] = []

    def start(*folders: Path, pace: float = 1.0) -> Watched:
        watcher = ProbeWatcher(folders or (folder,), pace)
        started.append(watcher)
        watcher.start()
        return Watched(watcher)

    yield start
    for watcher in started:
        watcher.close()
        assert not watcher._thread.is_alive()
