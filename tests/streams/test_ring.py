"""The ring of the recorder: what a reader sees of its tiers and eras, and what is removed."""

from datetime import datetime
from pathlib import Path

import pytest

from gpumon.core.frames import encode
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.streams import ring
from gpumon.streams.replay import open_moment
from gpumon.streams.ring import EVENTS, RingReader, RingWriter, ring_files
from tests.builders import frame

START = 1_700_000_000.0
BOOT = START - 5000.0


def write(writer: RingWriter, tier: int, seconds: float) -> None:
    moment = frame(time_seconds=START + seconds, monotonic_seconds=START + seconds - BOOT, interval_seconds=float(tier))
    writer.write(tier, moment.time_seconds, encode(moment).encode() + b"\n")


def seen(reader: RingReader, window: tuple[float, float, float] | None = None) -> list[tuple[float, float]]:
    """Position and interval of the frames."""
    records = reader if window is None else reader.window(*window, lambda: False)
    return [(record.seconds, record.frame.interval_seconds) for record in records]


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring of 300 s whose frames of 1 s cover the last 100 s, and those of 10 s the last 200 s."""
    monkeypatch.setattr(ring, "FILE_FRAMES", 10)
    writer = RingWriter(tmp_path, 7, 1e9, 0)
    for second in range(300):
        if second >= 200:
            write(writer, 1, second)
        if second >= 100 and second % 10 == 0:
            write(writer, 10, second)
        if second % 60 == 0:
            write(writer, 60, second)
    writer.close()
    return tmp_path


def test_every_moment_comes_from_the_finest_tier_that_has_it(full: Path) -> None:
    reader = RingReader(full)
    whole = [(0.0, 60.0), (60.0, 60.0), *((float(at), 10.0) for at in range(100, 200, 10))]
    whole += [(float(at), 1.0) for at in range(200, 300)]
    assert seen(reader) == whole
    reader.scan(lambda: False)
    assert reader.duration_seconds == 299.0
    assert seen(reader, (150.0, 215.0, 0.0))[:6] == [(float(at), 10.0) for at in range(150, 200, 10)] + [(200.0, 1.0)]
    assert reader.read().seconds == 216.0  # type: ignore[union-attr]
    assert seen(reader, (250.0, 290.0, 10.0)) == [(float(at), 10.0) for at in range(250, 300, 10)]
    assert seen(reader, (95.0, 95.0, 0.0)) == [(60.0, 60.0)]
    assert reader.seconds_at(START + 123.0) == 123.0
    reader.close()


def test_a_moment_opens_paused_at_its_frame(full: Path) -> None:
    stream = open_moment(full, datetime.fromtimestamp(START + 123).isoformat())  # noqa: DTZ006 - as a person writes it
    try:
        assert (stream.position.seconds, stream.position.paused) == (123.0, True)
    finally:
        stream.reader.close()
    for text, reason in (("25:99", "no moment"), ("2001-01-01", "begins later")):
        with pytest.raises(CommandError, match=reason):
            open_moment(full, text)


def test_a_clock_that_jumps_back_begins_an_era_and_positions_still_rise(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path, 7, 1e9, 0)
    write(writer, 1, 3600)
    write(writer, 1, 3601)
    writer.start_era()
    write(writer, 1, 0)
    writer.close()
    later = RingWriter(tmp_path, 7, 1e9, 0)
    write(later, 1, 7200)
    later.close()
    positions = [position for position, _ in seen(RingReader(tmp_path))]
    assert len(positions) == 4
    assert positions == sorted(positions)
    assert [file.era for file in ring_files(tmp_path)] == [1, 2, 3]


def test_a_torn_file_costs_only_its_end(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path, 7, 1e9, 0)
    for second in range(60):
        write(writer, 1, second)
    writer.start_era()
    write(writer, 1, 100)
    writer.close()
    torn = ring_files(tmp_path)[0].path
    torn.write_bytes(torn.read_bytes()[:-100] + bytes(100))
    (tmp_path / "000003-01s-1800000000.jsonl.gz").touch()
    reader = RingReader(tmp_path)
    assert len(seen(reader)) >= 50
    assert reader.problem is not None
    assert reader.problem.code is ProblemCode.DAMAGED


def test_the_oldest_files_are_removed_by_age_and_by_size_but_not_by_a_wrong_clock(full: Path) -> None:
    names = {file.path.name for file in ring_files(full)}
    RingWriter(full, 7, 1e9, 0).sync(START + 10 * 365 * 86400.0)
    assert {file.path.name for file in ring_files(full)} == names, "the clock was wrong, and the frames are few"
    size = sum(file.path.stat().st_size for file in ring_files(full))
    RingWriter(full, 7, size / 2, 0).sync(START + 300)
    left = ring_files(full)
    assert sum(file.path.stat().st_size for file in left) <= size / 2
    assert left[-1].path.name in names
    RingWriter(full, 20 / 86400, 1e9, 0).sync(START + 3600)
    assert len([file for file in ring_files(full) if file.tier == 1]) <= 3


def test_a_disk_without_space_is_a_sentence(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path, 7, 1e9, 1e18)
    with pytest.raises(CommandError, match="free"):
        writer.sync(START)
    with pytest.raises(CommandError, match="free"):
        writer.write(EVENTS, START, b"{}\n")
    assert not any(tmp_path.iterdir())
    with pytest.raises(CommandError, match="There is no recording"):
        RingReader(tmp_path)
    with pytest.raises(CommandError, match="gpumon recorder"):
        RingReader(tmp_path / "none")
