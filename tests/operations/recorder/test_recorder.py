"""What the recorder makes of frames: merged frames, ends of processes, and the jobs that ended."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

from gpumon.core.frames import decode, to_document
from gpumon.core.json_text import json_bytes
from gpumon.core.record_codec import to_json
from gpumon.operations.recorder.events import EventKind, ended_jobs, ended_processes
from gpumon.operations.recorder.merging import FrameMerger
from gpumon.operations.recorder.process_end import EndWatch
from gpumon.operations.recorder.process_log import LoggedProcess, ProcessLog
from gpumon.streams.ring import EVENTS, RingWriter
from tests.builders import device, frame, process


def at(second: float, watts: float = 300.0, pids: tuple[int, ...] = (7,)) -> dict[str, object]:
    gpu = device(
        0, readings={"power_watts": watts, "sm_activity_percent": 50.0}, processes=tuple(process(pid) for pid in pids)
    )
    return to_document(frame(time_seconds=1e9 + second, monotonic_seconds=second, devices=(gpu,)))


def test_a_merged_frame_has_the_mean_the_lowest_and_the_highest_value() -> None:
    merger = FrameMerger(10)
    assert all(merger.add(at(second, 100.0 if second == 103 else 700.0)) is None for second in range(100, 110))
    merged = merger.add(at(110))
    assert merged is not None
    seen = decode(json.dumps(merged))
    assert (seen.monotonic_seconds, seen.interval_seconds) == (100.0, 10.0)
    assert seen.devices[0].readings["power_watts"] == 640.0
    assert seen.devices[0].ranges == {"power_watts": (100.0, 700.0)}
    assert seen.devices[0].peak("power_watts") == 700.0


def test_the_kernel_reports_how_a_process_ended() -> None:
    watch = EndWatch()
    child = subprocess.Popen(["sh", "-c", "read line; exit 3"], stdin=subprocess.PIPE)
    watch.watch(child.pid)
    assert watch.how(child.pid, 0, 0.0) is None
    child.communicate(b"\n")
    release = tuple(int(number) for number in os.uname().release.split(".")[:2])
    assert watch.how(child.pid, 0, 60.0) == ("exit 3" if release >= (6, 15) else "ended")


def test_processes_of_a_scheduler_job_are_one_job_and_count_a_gpu_once(tmp_path: Path) -> None:
    log = ProcessLog(lambda _, __: "exit 1")
    assert [one.pid for one in log.observe(at(0, pids=(7, 8)))] == [7, 8]
    for second in (60, 120):
        assert not list(log.observe(at(second, pids=(7, 8))))
    ended = [replace(one, job="slurm 4711.0") for one in log.observe(at(180, pids=()))]
    writer = RingWriter(tmp_path, 7, 1e9, 0)
    for one in ended:
        times = {"time_seconds": 1e9, "monotonic_seconds": 1.0, "kind": EventKind.END.value}
        writer.write(EVENTS, 1e9, json_bytes({**to_json(one), **times}))
    writer.write(EVENTS, 1e9, b'{"kind":"end","pid":"x"}\n')
    writer.close()
    (job,) = ended_jobs(ended_processes(tmp_path, 0.0, []))
    assert (job.user, job.job, job.program, job.processes, job.how) == ("ada", "slurm 4711", "train", 2, "exit 1")
    assert job.gpu_hours == 120 / 3600
    assert job.sm_percent == 50.0
    assert job.utilization_percent is not None
    assert round(job.utilization_percent) == 87


def test_a_process_that_ran_when_the_host_restarted_has_ended(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path, 7, 1e9, 0)
    event = {**to_json(LoggedProcess(7, 1, end_seconds=1e9)), "time_seconds": 1e9, "monotonic_seconds": 1.0}
    writer.write(EVENTS, 1e9, json_bytes({**event, "kind": "running"}))
    writer.close()
    assert [one.how for one in ended_processes(tmp_path, 0.0, [])] == ["host restarted"]


def test_a_gpu_that_does_not_respond_ends_no_process() -> None:
    log = ProcessLog(lambda _, __: "ended")
    list(log.observe(at(0)))
    silent = decode(json.dumps({**at(1), "reasons": []}))
    silent = replace(silent, devices=(replace(silent.devices[0], processes=None),))
    assert not list(log.observe(to_document(silent)))
    assert [one.how for one in log.observe(at(2, pids=()))] == ["ended"]
