"""What every test of the screen stands on."""

import pytest

from gpumon.ui.app import GpumonApp
from tests.ui.probing import FakeWatcher
from tests.ui.training import Training


@pytest.fixture(autouse=True)
def watcher(monkeypatch: pytest.MonkeyPatch) -> FakeWatcher:
    """Replaces the watcher that connects to the probes of this host: it has the messages that a test puts in."""
    fake = FakeWatcher()
    monkeypatch.setattr(GpumonApp, "open_watcher", lambda _: fake)
    return fake


@pytest.fixture
def training(watcher: FakeWatcher) -> Training:
    return Training(watcher)
