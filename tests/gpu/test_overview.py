"""On a real GPU: the overview while a training job, copies, or nothing runs, compared with nvidia-smi."""

import re
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest

from tests.gpu.test_live import gpumon, load, smi

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

FIELDS: Final = ("utilization.gpu", "memory.used", "memory.total", "temperature.gpu", "power.draw", "clocks.sm")
ROW: Final = re.compile(
    r"▸ *0 .*?(?P<util>\d+)% .*?(?P<used>[\d.]+)/(?P<total>\d+) ?G(?:iB)? +!?(?P<temp>\d+)°"
    r".*?(?P<power>\d+) ?W +(?P<clock>\d+)"
)
GIBIBYTE: Final = 1024.0
"""nvidia-smi prints MiB."""
SETTLE_SECONDS: Final = 10.0
"""Activity counters need two samples after the GPU was selected."""


def row_of(screen: str) -> dict[str, float]:
    """The values in the row of GPU 0."""
    match = ROW.search(screen)
    assert match is not None, screen
    return {name: float(value) for name, value in match.groupdict().items()}


@pytest.mark.parametrize("role", [None, "training", "copies", "matmul"])
def test_the_overview_agrees_with_nvidia_smi(role: str | None, tmp_path: Path) -> None:
    if role is not None:
        pytest.importorskip("torch")
    with gpumon("--theme", "dark", rows=50, cols=160) as terminal, nullcontext() if role is None else load(role) as pid:
        terminal.wait_for(r"▸ *0 .*\d ?W", 20)
        time.sleep(SETTLE_SECONDS)
        before = smi("gpu", *FIELDS)[0]
        screen = terminal.screen()
        after = smi("gpu", *FIELDS)[0]
        terminal.send("q")
        assert terminal.wait_exit() == 0
    print(screen)
    mine = row_of(screen)
    theirs = {name: sorted((float(before[name]), float(after[name]))) for name in FIELDS}
    print(role, mine, theirs)

    def assert_near(name: str, field: str, tolerance: float, scale: float = 1.0) -> None:
        low, high = theirs[field]
        assert low / scale - tolerance <= mine[name] <= high / scale + tolerance, (name, mine, theirs)

    assert_near("used", "memory.used", 0.6, GIBIBYTE)
    assert_near("total", "memory.total", 1.0, GIBIBYTE)
    if role != "training":  # its pauses change these values from one second to the next
        assert_near("temp", "temperature.gpu", 3)
        assert_near("util", "utilization.gpu", 8)
        assert_near("power", "power.draw", 40)
        assert_near("clock", "clocks.sm", 120)
    if role is None:
        assert re.search(r"▸ *0 .*\bfree\b", screen)
        assert "No process uses" in screen
    else:
        assert str(pid) in screen, "the process of the selected GPU"
        assert re.search(r" tensor +[━╸─]+ +\d+ ?%", screen), "activity next to the chart"
    if role == "copies":
        assert "no SM work" in screen
    if role == "matmul":
        assert "power cap" in screen
