"""What several tests of snapshots share."""

from pathlib import Path

import pytest

from tests.snapshots.files import real_bytes


@pytest.fixture(scope="session")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that exists once code of a hostile pickle was executed."""
    return tmp_path_factory.mktemp("canary") / "canary"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    path = tmp_path / "real.pickle"
    path.write_bytes(real_bytes())
    return path
