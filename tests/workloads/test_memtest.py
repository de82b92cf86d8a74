"""The memtest workload, on the CPU."""

from pathlib import Path

import pytest

from tests.workloads.conftest import RunWorkload, needs_torch, probe_of

pytestmark = needs_torch

PROBE = (
    probe_of("memtest")
    + """
class Broken(memtest.MemoryTest):
    BODY
memtest.MemoryTest = Broken
"""
)
STUCK_BIT = """
    def invert(self, index):
        super().invert(index)
        if index == 0:
            self._blocks[0][1234] |= 1 << 5
            self._blocks[0][99] &= ~(1 << 62)
"""
SKIPPED_WRITE = """
    def write(self, index, fill, number):
        if fill is not memtest.random_words:
            super().write(index, fill, number)
"""
SWAPPED_ADDRESSES = """
    def write(self, index, fill, number):
        super().write(index, fill, number)
        if fill is memtest.address:
            words = self._blocks[index][7:9]
            words.copy_(words.flip(0))
"""


def probe(tmp_path: Path, body: str) -> Path:
    """A copy of the workload whose test has another method."""
    file = tmp_path / "probe.py"
    file.write_text(PROBE.replace("    BODY", body))
    return file


def test_all_patterns_are_kept(run_workload: RunWorkload) -> None:
    ran = run_workload("memtest", size_mebibytes=4, duration=0.1)
    assert ran.exit_code == 0
    assert ran.result["verdict"] == "ok"
    assert "5 patterns and their inverses" in ran.result["why"]
    assert ran.metric("memory_tested")["value"] == 4 / 1024
    rounds = ran.metric("rounds")["value"]
    assert rounds >= 1
    assert round(ran.metric("compared")["value"] * 1e9) >= rounds * 10 * (4 << 20)
    assert ran.metric("wrong_words")["value"] == 0
    assert ran.of("progress")[-1]["done"] <= 1


def test_a_flipped_bit_is_found_at_its_address(run_workload: RunWorkload) -> None:
    ran = run_workload("memtest", size_mebibytes=3, duration=0.1, inject_error=True)
    assert ran.exit_code == 1
    assert ran.result["verdict"] == "fail"
    offset = (3 << 20) // 2
    assert f"the first at offset {offset:#x}, bit 37 (pattern zeros: 0x0000000000000000 was" in ran.result["why"]
    assert "0x0000002000000000 was read" in ran.result["why"]
    assert "on purpose" in ran.result["why"]


def test_stuck_bits_are_found_in_the_inverse(run_workload: RunWorkload, tmp_path: Path) -> None:
    ran = run_workload(probe(tmp_path, STUCK_BIT), size_mebibytes=1, duration=0.1)
    assert ran.result["verdict"] == "fail"
    assert f"the first at offset {99 * 8:#x}, bit 62 (pattern inverse of zeros: 0xffffffffffffffff" in ran.result["why"]
    assert "0xbfffffffffffffff was read" in ran.result["why"]
    assert ran.metric("wrong_words")["value"] >= 2


@pytest.mark.parametrize(("body", "pattern"), [(SKIPPED_WRITE, "random"), (SWAPPED_ADDRESSES, "address")])
def test_what_only_one_pattern_can_show_is_found(
    run_workload: RunWorkload, tmp_path: Path, body: str, pattern: str
) -> None:
    ran = run_workload(probe(tmp_path, body), size_mebibytes=1, duration=0.1)
    assert ran.result["verdict"] == "fail"
    assert f"(pattern {pattern}:" in ran.result["why"]


def test_every_bit_of_a_word_walks(run_workload: RunWorkload, tmp_path: Path) -> None:
    """A walking bit that stands still is not a walking bit: each word has one bit, and 64 words have all."""
    body = """
    def write(self, index, fill, number):
        super().write(index, fill, number)
        if fill is memtest.walking_bit:
            words = self._blocks[index][:130].tolist()
            masks = [word % (1 << 64) for word in words]
            assert all(bin(mask).count("1") == 1 for mask in masks), masks
            assert sum(set(masks[:64])) == (1 << 64) - 1
            assert masks[0] == 1 << number % 64
            assert masks[64:128] == masks[:64]
"""
    assert run_workload(probe(tmp_path, body), size_mebibytes=1, duration=0.3).result["verdict"] == "ok"


@pytest.mark.gpu
def test_stuck_bits_are_found_on_a_gpu(run_workload: RunWorkload, tmp_path: Path) -> None:
    ran = run_workload(probe(tmp_path, STUCK_BIT), "cuda:0", size_mebibytes=1024, duration=1)
    assert ran.result["verdict"] == "fail"
    assert f"the first at offset {99 * 8:#x}, bit 62 (pattern inverse of zeros" in ran.result["why"]
