"""Fixtures of the session's tests."""

import pytest

from tests.ui.probing import FakeWatcher


@pytest.fixture
def watcher() -> FakeWatcher:
    """A watcher without a thread, which has the messages that a test puts in."""
    return FakeWatcher()
