"""The bandwidth workload, on the CPU."""

from pathlib import Path

import pytest

from tests.workloads.conftest import RunWorkload, needs_torch, probe_of

pytestmark = needs_torch

_WAYS = ["copy", "read", "write", "triad", "strided_read", "transposed_copy"]
_PROBE = (
    probe_of("bandwidth")
    + """
class Broken(bandwidth.AccessBuffers):
    def WAY(self):
        super().WAY()
        self.target[4321] += 1
        if self._total is not None:
            self._total += 1
bandwidth.AccessBuffers = Broken
"""
)


def test_every_way_is_measured_and_right(run_workload: RunWorkload) -> None:
    ran = run_workload("bandwidth", size_mebibytes=8, repetitions=2)
    observed = [event["event"] for event in ran.events]
    assert observed[0] == "hello"
    assert observed[-2:] == ["result", "bye"]
    assert observed.index("plan") < observed.index("step") < observed.index("progress")
    assert ran.exit_code == 0
    assert ran.result["verdict"] == "ok"
    assert "All 6 results are correct." in ran.result["why"]
    assert [figure["name"] for figure in ran.result["figures"]] == _WAYS
    assert all(figure["value"] > 0.01 and figure["unit"] == "GB/s" for figure in ran.result["figures"])
    assert all(figure["repetitions"] >= 5 and figure["limit"] is None for figure in ran.result["figures"])
    progress = ran.of("progress")[-1]
    assert progress["done"] == progress["total"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", _WAYS)
def test_memory_that_does_not_keep_what_it_got_fails(run_workload: RunWorkload, tmp_path: Path, way: str) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(_PROBE.replace("WAY", way))
    ran = run_workload(probe, size_mebibytes=1, repetitions=1)
    assert ran.exit_code == 1
    assert ran.result["verdict"] == "fail"
    assert ran.result["why"] == f"{way}: 1 elements are wrong."
