"""Reports of runs, from frames and samples that are made here, and the comparison of two runs."""

import errno
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from gpumon.core.frames import encode
from gpumon.core.problems import CommandError
from gpumon.core.record_codec import to_json
from gpumon.operations.recorder.process_log import GpuTime, LoggedProcess
from gpumon.operations.run_report.document import compare_reports, parse_condition, report_document
from gpumon.operations.run_report.journal import FRAMES, JOURNAL, JournalWriter, load_report, read_ring
from gpumon.operations.run_report.run_data import RunData
from gpumon.operations.run_report.statistics import difference
from gpumon.operations.run_report.watched import follow_run, watch_run
from gpumon.present.report.write import report_html, report_markdown, write_report
from gpumon.streams.recording import RecordingWriter
from gpumon.streams.ring import EVENTS, RingWriter
from tests import builders
from tests.frames import HOSTILE, hostile

SECONDS = 300


def frames(*, counter_period: int | None) -> Iterator[Any]:
    """A GPU with a wave of power around 400 W and a cap in the second half.

    Its counter is read once per period, for the first time five seconds before the first frame.
    """
    joules = counter = 5e6
    for second in range(-5, SECONDS):
        watts = 400.0 + 100.0 * math.sin(second / 7)
        joules += watts
        readings = {"power_watts": watts, "utilization_gpu_percent": 90.0, "temperature_celsius": 60.0}
        reasons = ("sw_power_cap",) if second > SECONDS / 2 else ()
        if counter_period is not None:
            counter = counter if (second + 5) % counter_period else joules
            readings["energy_joules"] = counter
        device = builders.device(0, throttle_reasons=reasons, readings=readings)
        if second >= 0:
            yield builders.frame(devices=(device,), time_seconds=1e9 + second, monotonic_seconds=1000.0 + second)


def samples(step: float = 0.5, slow_from: int = SECONDS) -> Iterator[dict[str, Any]]:
    """A rank, whose steps take half as long again from a moment on."""
    yield {"kind": "start", "time": 1e9, "monotonic": 1000.0, "command": ["python", "train.py"], "environment": {}}
    done, last = 0, 1000.0
    for second in range(1, SECONDS):
        duration = step * (1.5 if second >= slow_from else 1.0)
        while last + duration <= 1000.0 + second:
            last, done = last + duration, done + 1
        yield {
            "kind": "rank", "pid": 77, "rank": 0, "time": 1e9 + second, "monotonic": 1000.0 + second,
            "steps_count": done, "last_step_monotonic": last, "data_seconds": step / 5, "allocated_bytes": 2 << 30,
            "reserved_bytes": 3 << 30, "torch_version": "2.11.0",
        }  # fmt: skip


def document(*, counter_period: int | None = 1, **changes: int) -> dict[str, Any]:
    data = RunData()
    for sample in samples(**changes):
        data.add_sample(sample)
    for frame in frames(counter_period=counter_period):
        data.add_frame(frame)
    end = {"kind": "end", "time": 1e9 + SECONDS, "monotonic": 1000.0 + SECONDS, "status": -9, "explanation": None}
    data.add_sample(end)
    return report_document(data)


@pytest.mark.parametrize("counter_period", [1, 10, 37, None])
def test_energy_is_within_its_bound(counter_period: int | None) -> None:
    report = document(counter_period=counter_period)
    true_kwh = sum(400.0 + 100.0 * math.sin(second / 7) for second in range(SECONDS)) / 3.6e6
    totals = report["totals"]
    assert abs(totals["energy_kwh"] - true_kwh) <= totals["energy_error_kwh"]
    assert totals["energy_error_kwh"] < (0.10 if counter_period is None else 0.02) * true_kwh
    assert report["gpus"][0]["energy_source"] == ("power" if counter_period is None else "counter")


def test_the_verdict_names_what_was_slow_and_how_it_ended() -> None:
    report = document(slow_from=150)
    verdict = " ".join(report["verdict"])
    assert "Steps became" in verdict
    assert "slower" in verdict
    assert "Throttled (sw power cap): GPU 0, up to 50% of the time." in verdict
    assert "Ended by SIGKILL after step" in verdict
    assert report["ranks"][0]["data_share"] == pytest.approx(0.2 / 1.2, abs=0.05)
    assert not document()["drift"]["is_shown"]


def test_the_page_loads_nothing_and_nothing_in_it_is_markup(tmp_path: Path) -> None:
    data = RunData()
    data.add_sample(
        {"kind": "start", "time": 1e9, "monotonic": 1.0, "command": [HOSTILE, "<script>"], "environment": {}}
    )
    data.add_frame(hostile())
    for report in (document(), report_document(data)):
        page = report_html(report)
        assert len(page) < 1 << 20
        assert "<script" not in page
        assert "http://" not in page
        assert "src=" not in page
        assert "<script" not in report_markdown(report).replace("\\<script", "")
    write_report(document(), tmp_path)
    assert load_report(tmp_path / "report.json")["totals"] == document()["totals"]


def test_a_run_that_was_cut_off_is_reported_with_what_there_is(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / JOURNAL)
    for sample in samples():
        journal.write(sample)
    journal.close()
    writer = RecordingWriter(tmp_path / FRAMES)
    for frame in frames(counter_period=1):
        writer.write(frame)
    writer.close()
    for name in (JOURNAL, FRAMES):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) - 40])
    report = load_report(tmp_path)
    assert report["ranks"][0]["steps_count"] > 500
    assert report["gpus"]
    assert "1 damaged line" in report["problems"][0]
    assert report["verdict"][-1].startswith("Its end is not in the record")
    with pytest.raises(FileExistsError):
        JournalWriter(tmp_path / JOURNAL)


def test_a_report_of_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"schema":2,"kind":"gpumon_report"}')
    with pytest.raises(CommandError, match="schema 2"):
        load_report(tmp_path / "report.json")
    (tmp_path / "report.json").write_text('{"schema":1,"kind":"gpumon_report"}')
    with pytest.raises(CommandError, match="is damaged: it lacks"):
        load_report(tmp_path / "report.json")


def test_watch_reports_a_command_that_fails_and_passes_its_output_and_status_on(tmp_path: Path) -> None:
    code = "echo out; echo 'RuntimeError: boom' >&2; exit 3"
    command = [sys.executable, "-m", "gpumon", "watch", "--report", str(tmp_path / "run"), "--"]

    def watch(*argv: str) -> "subprocess.CompletedProcess[str]":
        folder = Path(__file__).parents[2]
        return subprocess.run([*command, *argv], capture_output=True, text=True, check=False, cwd=folder)

    watched = watch("sh", "-c", code)
    assert (watched.returncode, watched.stdout) == (3, "out\n")
    assert "RuntimeError: boom" in watched.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["exit_status"], report["has_ended"]) == (3, True)
    assert "boom" in (tmp_path / "run" / "output.log").read_text()
    again = watch("true")
    assert again.returncode == 2
    assert "already has a run" in again.stderr


def test_a_process_that_runs_already_is_reported_until_it_or_gpumon_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = ["sh", "-c", "echo 'RuntimeError: boom' >&2; read line; exit 3"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=file)
    while not Path(f"/proc/{child.pid}/cmdline").read_bytes():  # the child may run before the kernel has its words
        time.sleep(0.01)
    stop = Event()
    stop.set()
    assert not follow_run(tmp_path / "first", [child.pid], stop, write_report)
    report = load_report(tmp_path / "first")
    assert report["command"][0] == "sh"
    assert report["verdict"][-1].startswith("Its end is not in the record")
    Timer(0.5, child.stdin.close).start()  # type: ignore[union-attr]
    assert follow_run(tmp_path / "second", [child.pid], Event(), write_report)
    assert child.wait() == 3
    report = json.loads((tmp_path / "second" / "report.json").read_text())
    assert report["exit_status"] == 3
    assert "boom" in report["explanation"]["headline"]
    with pytest.raises(CommandError, match="There is no process"):
        follow_run(tmp_path / "third", [child.pid], stop, write_report)


def test_a_full_disk_changes_no_exit_status_and_is_said(tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    status, failure = watch_run(tmp_path / "first", "/bin/sh", ["sh", "-c", "exit 3"], {}, full)
    assert status == 3
    assert "could not be written" in str(failure)
    stop = Event()
    stop.set()
    with pytest.raises(CommandError, match="no space left on device"):
        follow_run(tmp_path / "second", [os.getpid()], stop, full)


def test_a_time_of_the_recorder_is_reported_across_a_boot_with_what_ended(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path, 7, 1e9, 0)
    for number, frame in enumerate(frames(counter_period=1)):
        if number == SECONDS // 2:
            writer.start_era()
        if number % 10 == 0:
            monotonic = number + 1000.0 if number < SECONDS // 2 else number - 145.0
            line = encode(replace(frame, monotonic_seconds=monotonic, interval_seconds=10.0))
            writer.write(10, frame.time_seconds, line.encode() + b"\n")
    died = LoggedProcess(77, 1, "ann", "python train.py", 1e9, 1e9 + 200, (GpuTime("", "0"),), how="SIGKILL")
    event = {**to_json(died), "kind": "end", "time_seconds": 1e9 + 200, "monotonic_seconds": 1200.0}
    writer.write(EVENTS, 1e9, json.dumps(event).encode() + b"\n")
    writer.close()
    report = report_document(read_ring(tmp_path, 1e9 + 95, 1e9 + 255))
    assert report["seconds"] == pytest.approx(150.0)  # the frames from 100 to 250
    assert report["gpus"][0]["measured_seconds"] == pytest.approx(150.0)
    assert report["events"][-1] == {"seconds": 100.0, "subject": "GPU 0", "text": "train of ann (PID 77): SIGKILL"}
    assert "SIGKILL" in report_markdown(report)
    with pytest.raises(CommandError, match="no frame of that time"):
        read_ring(tmp_path, 1.0, 2.0)


def run_of_steps(generator: random.Random, factor: float = 1.0, count: int = 300) -> list[tuple[float, float]]:
    """Step times with a drift, slow waves, noise, and outliers."""
    drift, level, points = generator.gauss(0.0, 0.01), 0.0, []
    for number in range(count):
        level = 0.9 * level + generator.gauss(0.0, 0.004)
        value = 0.1 * factor * (1.0 + drift * number / count + level) * math.exp(generator.gauss(0.0, 0.02))
        points.append((value * (8.0 if generator.random() < 0.01 else 1.0), 10.0))
    return points


def shown(pairs: int, factor: float) -> int:
    """How many of some pairs of runs are called different."""
    generator = random.Random(7)
    changes = (difference(run_of_steps(generator), run_of_steps(generator, factor)) for _ in range(pairs))
    return sum(item is not None and not item.low <= 0.0 <= item.high for item in changes)


@pytest.mark.long
def test_equal_runs_are_seldom_called_different_and_others_are() -> None:
    assert shown(15, 1.0) <= 2
    assert shown(15, 1.03) >= 10


@pytest.mark.long
def test_two_hundred_pairs() -> None:
    assert shown(200, 1.0) <= 10  # 5 %
    assert shown(200, 1.03) >= 160  # the power at 3 %


def test_a_condition_is_shown_refuted_or_undecided() -> None:
    comparisons = compare_reports(document(), document(slow_from=0), 0.95)
    states = [parse_condition(text).state(comparisons) for text in ("step_time > +5%", "step_time > +90%")]
    assert states == [True, False]
    few = document() | {"steps": None}
    assert parse_condition("step_time > +5%").state(compare_reports(few, few, 0.95)) is None
    with pytest.raises(CommandError, match="not a condition"):
        parse_condition("speed > 5")
