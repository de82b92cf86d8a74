"""The device of a run without ``--device``."""

from pathlib import Path

import pytest

from gpumon.operations import runs
from gpumon.operations.runs import default_device
from tests.builders import device


def test_the_default_device_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "_DRIVER_FILES", (tmp_path / "version",))
    assert default_device(tuple) == "cpu"
    assert default_device(lambda: (device(0),)) == "cuda:0"
    (tmp_path / "version").touch()
    assert default_device(lambda: pytest.fail("the driver is there")) == "cuda:0"
