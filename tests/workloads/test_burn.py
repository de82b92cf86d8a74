"""The burn workload, on the CPU."""

from pathlib import Path

import pytest

from tests.workloads.conftest import RunWorkload, needs_torch, probe_of

pytestmark = needs_torch

SMALL = {"size": 128, "size_mebibytes": 2, "duration": 0.6, "phase_seconds": 0.2}
PROBE = probe_of("burn")
WRONG_PRODUCTS = """
from _kit import products
original = products.multiplier
def multiplier(context, left, right):
    right_one, calls = original(context, left, right), []
    def wrong(out):
        right_one(out)
        calls.append(1)
        if len(calls) % 2 == 0:
            out[7, 9] += 1
    return wrong
products.multiplier = multiplier
"""
NO_MEMORY_TEST = """
class Broken(burn.Burn):
    def test_memory(self):
        self.tally.memory_steps += 1
burn.Burn = Broken
"""


def test_both_loads_run_and_are_checked(run_workload: RunWorkload) -> None:
    ran = run_workload("burn", **SMALL | {"size_mebibytes": 1, "duration": 1.0, "phase_seconds": 0.5})
    assert ran.exit_code == 0
    assert ran.result["verdict"] in {"ok", "warn"}, "a busy host may not get to every pattern"
    assert "no wrong result" in ran.result["why"]
    assert ran.metric("results_checked")["value"] >= 1
    assert (ran.metric("memory_rounds")["value"] >= 1) == (ran.result["verdict"] == "ok")
    assert ran.metric("memory_compared")["value"] * 1e9 >= 1 << 20
    assert ran.metric("wrong_words")["value"] == ran.metric("wrong_elements")["value"] == 0
    steps = [event["text"] for event in ran.of("step")]
    assert "Matrix products at full load." in steps
    assert "Memory test: patterns and their inverses." in steps


def test_a_flipped_bit_is_found_at_its_address(run_workload: RunWorkload) -> None:
    ran = run_workload("burn", **SMALL, inject_error=True)
    assert ran.exit_code == 1
    assert ran.result["verdict"] == "fail"
    assert f"the first at offset {(2 << 20) // 2:#x}, bit 11 (pattern zeros" in ran.result["why"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("body", "verdict", "why"),
    [
        (WRONG_PRODUCTS, "fail", "elements of products are wrong, the first in row 7, column 9."),
        (NO_MEMORY_TEST, "fail", "No product, or no memory, was compared"),
    ],
)
def test_wrong_or_skipped_work_is_not_ok(
    run_workload: RunWorkload, tmp_path: Path, body: str, verdict: str, why: str
) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE + body)
    ran = run_workload(probe, **SMALL)
    assert ran.result["verdict"] == verdict
    assert why in ran.result["why"]
