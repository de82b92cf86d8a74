"""What several tests of snapshots share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that exists once code of a hostile pickle was executed."""
    return tmp_path_factory.mktemp("canary") / "canary"
