"""What every test of the screen stands on."""

import pytest

from gpumon.ui.app import GpumonApp
from tests.ui.probing import FakeWatcher


@pytest.fixture(autouse=True)
def watcher(monkeypatch: pytest.MonkeyPatch) -> FakeWatcher:
    """In place of the one that finds the probes of this machine; it finds none, and tells what a test puts in."""
    fake = FakeWatcher()
    monkeypatch.setattr(GpumonApp, "open_watcher", lambda _: fake)
    return fake
