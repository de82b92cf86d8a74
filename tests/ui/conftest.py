"""What every test of the screen stands on."""

import pytest

from gpumon.session.frame_session import FrameSession
from gpumon.ui import app
from tests.ui.probing import FakeWatcher
from tests.ui.training import Training


@pytest.fixture(autouse=True)
def watcher(monkeypatch: pytest.MonkeyPatch) -> FakeWatcher:
    """Replaces the watcher that connects to the probes of this host: it has the messages that a test puts in."""
    fake = FakeWatcher()
    monkeypatch.setattr(app, "open_watcher", lambda: fake)
    return fake


@pytest.fixture
def training(watcher: FakeWatcher) -> Training:
    return Training(watcher)


@pytest.fixture(autouse=True)
def steady(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep "silent 3s" out of pictures, however slow the test is: fake streams send only what a test puts in."""
    if "snap_compare" in request.fixturenames:
        monkeypatch.setattr(FrameSession, "silence_seconds", 0.0)
