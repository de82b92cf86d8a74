"""Whether CUDA can run on this host, which decides the device of a run without ``--device``."""

from pathlib import Path

import pytest

from gpumon.operations import runs
from gpumon.operations.runs import no_gpu_reason
from tests.builders import device


def test_without_a_driver_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "_DRIVER_FILES", (tmp_path / "version",))
    monkeypatch.setattr(runs, "_PCI_DEVICES", tmp_path)
    assert no_gpu_reason(tuple) == "This host has no NVIDIA GPU."
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "vendor").write_text("0x10de\n")
    (tmp_path / "0000:01:00.0" / "class").write_text("0x030200\n")
    assert no_gpu_reason(tuple) == "This host has an NVIDIA GPU, but its driver is not loaded."
    assert not no_gpu_reason(lambda: (device(0),))
    (tmp_path / "version").touch()
    assert not no_gpu_reason(lambda: pytest.fail("the driver is there"))
