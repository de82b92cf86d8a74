"""Boundaries of the operations behind the commands: memory parts, saved tables, and anonymized recordings."""

import dataclasses
import stat
import time
from pathlib import Path

import pytest

from gpumon.core.model import Device
from gpumon.core.problems import CommandError
from gpumon.core.timeline import Timeline
from gpumon.operations import csv_table as save_module
from gpumon.operations.csv_table import CsvRow, Table, TimeRange, history_table, save
from gpumon.operations.record import Anonymizer
from gpumon.operations.waterfall import PartKind, Waterfall, waterfall
from tests.builders import device, frame, process
from tests.operations.test_waterfall import DRIVER, GIB, MIB, TOTAL, gpu, probe, statistics

POWER = "power_watts"
TABLE = Table((POWER,), (CsvRow(1.0, 0, "GPU-1", (612.5,)),))


def size(memory: Waterfall, kind: PartKind) -> int:
    return sum(part.bytes for part in memory.parts if part.kind is kind)


def with_free(original: Device, free: int | None) -> Device:
    readings = {name: value for name, value in original.readings.items() if name != "memory_free_bytes"}
    return dataclasses.replace(original, readings=readings if free is None else {**readings, "memory_free_bytes": free})


# Memory


def test_free_memory_is_what_the_driver_reports() -> None:
    memory = waterfall(with_free(gpu(process(4000, memory_bytes=41 * GIB)), 80 * GIB), {})
    assert (size(memory, PartKind.FREE), size(memory, PartKind.UNATTRIBUTED)) == (80 * GIB, 18 * GIB)


def test_unreported_free_memory_is_the_difference_of_the_other_values() -> None:
    memory = waterfall(with_free(gpu(process(4000, memory_bytes=41 * GIB)), None), {})
    assert (size(memory, PartKind.FREE), size(memory, PartKind.UNATTRIBUTED)) == (89 * GIB, 9 * GIB)


def test_an_allocator_can_reserve_all_remaining_memory() -> None:
    listed = gpu(process(4000, memory_bytes=41 * GIB))
    memory = waterfall(listed, probe(4000, statistics(reserved_bytes=TOTAL - DRIVER)))
    assert size(memory, PartKind.UNPROBED) == 0
    assert size(memory, PartKind.FREE) == 0


@pytest.mark.parametrize(("excess", "count"), [(256 * MIB, 0), (256 * MIB + 1, 1)])
def test_a_difference_between_driver_and_allocator_gets_a_note_above_256_mebibytes(excess: int, count: int) -> None:
    listed = gpu(process(4000, memory_bytes=40 * GIB - excess), used=40 * GIB)
    assert len(waterfall(listed, probe(4000, statistics())).notes) == count


def test_cached_memory_without_active_bytes_is_one_part() -> None:
    memory = waterfall(gpu(process(4000, memory_bytes=41 * GIB)), probe(4000, statistics(active_bytes=None)))
    assert size(memory, PartKind.CACHED) == 10 * GIB
    assert size(memory, PartKind.FRAGMENTED) == 0


# Saved tables


def test_the_first_file_name_has_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *_: "20260501-143000")
    assert save(TABLE, "gpumon-gpu0").name == "gpumon-gpu0-20260501-143000.csv"


def test_a_new_folder_of_results_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(save_module, "results_file", lambda: tmp_path / "state" / "results.jsonl")
    assert stat.S_IMODE(save(TABLE, "gpumon-gpu0").parent.stat().st_mode) == 0o700


def test_without_any_folder_the_error_has_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "cwd", no_home)
    monkeypatch.setattr(save_module, "results_file", no_home)
    with pytest.raises(CommandError, match="Could not determine home directory"):
        save(TABLE, "gpumon-gpu0")


def test_a_table_has_the_digits_of_a_32_bit_float_and_no_rows_before_the_first_sample() -> None:
    timeline = Timeline()
    timeline.add(100, {POWER: 612.3})
    newest = frame(monotonic_seconds=100.0, time_seconds=2000.0)
    table = history_table(timeline, (POWER,), device(0), newest, TimeRange(90, 100, 1.0))
    assert [(row.time_seconds, *row.values) for row in table.rows] == [(2000.0, 612.3, 612.3, 612.3)]
    assert history_table(timeline, (POWER,), device(0), newest, TimeRange(80, 99, 1.0)).rows == ()


# Recordings


@pytest.mark.parametrize(
    ("user", "word", "is_hidden"), [("amy", "--famyx", True), ("al", "--value", False), ("al", "--al-x", True)]
)
def test_a_name_inside_a_word_is_hidden_unless_it_is_very_short(user: str, word: str, is_hidden: bool) -> None:
    original = frame(devices=(device(processes=(process(user=user, command=f"python train.py {word}"),)),))
    (shown,) = Anonymizer().apply(original).devices[0].processes or ()
    assert (word not in (shown.command or "")) is is_hidden
