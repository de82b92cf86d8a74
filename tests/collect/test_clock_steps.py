"""The time of day jumps by an hour, as when a user sets the clock: measurements continue unaffected."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import GPUMON
from tests.nvml_mock import NvmlMock, compiler
from tests.processes import tree

HOUR = 3600
INTERVAL = 0.2
SHIM = Path(__file__).with_name("clock_steps.c").read_text()


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that moves the time of day by as many seconds as a file says."""
    cc = compiler()
    if cc is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("clock")
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SHIM)
    subprocess.run([cc, "-shared", "-fPIC", "-O1", "-w", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture
def recording(nvml_mock: NvmlMock, shim: Path, tmp_path: Path) -> Iterator[Callable[[float], bytes]]:
    """Takes lines from a recorder whose time of day is moved."""
    step = tmp_path / "step"
    environment = {**nvml_mock.environment(gpus=1), "LD_PRELOAD": str(shim), "CLOCK_STEP": str(step)}
    with subprocess.Popen((GPUMON, "record", "-", "--interval", str(INTERVAL)), env=environment, stdout=-1) as process:
        output = process.stdout
        assert output is not None

        def line_after(seconds: float) -> bytes:
            step.write_text(f"{seconds:.0f}")
            return output.readline()

        yield line_after
        assert len(tree(process.pid)) > 1, "its collector was never mistaken for a collector of another gpumon"
        process.terminate()


def test_pace_and_ages_do_not_follow_the_time_of_day(recording: Callable[[float], bytes]) -> None:
    for _ in range(3):
        recording(0)
    began = time.monotonic()
    documents = [json.loads(recording(step)) for step in [HOUR] * 10]
    assert time.monotonic() - began > 0.5 * len(documents) * INTERVAL, "frames do not rush to catch up"
    assert all(device["age_seconds"] < 60 for document in documents for device in document["devices"])
    assert all("driver" not in document["problems"] for document in documents)
