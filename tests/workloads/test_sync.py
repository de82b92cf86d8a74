"""The sync workload, on the CPU."""

from pathlib import Path

from tests.workloads.conftest import RunWorkload, needs_torch, probe_of

pytestmark = needs_torch

_WRONG = (
    probe_of("sync")
    + """
class Broken(sync._Timings):
    def __init__(self, context, work, repetitions):
        super().__init__(context, work, repetitions)
        found = work()
        if found.dim() == 2:
            found[3, 4] += 1
sync._Timings = Broken
"""
)


def test_a_plain_timing_is_right_on_the_cpu(run_workload: RunWorkload) -> None:
    ran = run_workload("sync", max_size=256, repetitions=3)
    observed = [event["event"] for event in ran.events]
    assert observed[0] == "hello"
    assert observed[-2:] == ["result", "bye"]
    assert observed.index("plan") < observed.index("step") < observed.index("timing")
    assert ran.exit_code == 0
    assert ran.result["verdict"] == "ok"
    assert "256 x 256" in ran.result["why"]
    assert "On the CPU a call returns when its work is finished" in ran.result["why"]
    assert all(figure["unit"] and figure["repetitions"] >= 1 for figure in ran.result["figures"])
    assert len(ran.of("timing")) == 4
    assert all(0 < item["host_seconds"] <= item["device_seconds"] for item in ran.of("timing"))
    names = {figure["name"] for figure in ran.result["figures"]}
    assert not [name for name in names if name.startswith(("naive_error", "events", "returned"))], "nothing is queued"
    assert ran.result["figures"][0]["name"] == "launch_overhead", "the main metric is the first one"
    assert ran.metric("launch_overhead")["repetitions"] == 7000
    assert not [figure for figure in ran.result["figures"] if "graph" in figure["name"]]


def test_a_wrong_product_is_found(run_workload: RunWorkload, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(_WRONG)
    ran = run_workload(probe, max_size=64, repetitions=1)
    assert ran.exit_code == 1
    assert ran.result["why"] == "Wrong results: the product of 16 x 16, the product of 64 x 64."


def test_a_busy_host_is_named(run_workload: RunWorkload, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(probe_of("sync") + "os.getloadavg = lambda: (1e3, 0, 0)\n")
    ran = run_workload(probe, max_size=64, repetitions=1)
    assert ran.result["verdict"] == "ok"
    assert "The load average was 1000.0 on" in ran.result["why"]
