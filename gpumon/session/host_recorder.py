"""The recorder: frames of this host, merged frames and events go to a ring, all the time and at a low cost."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final

from gpumon.core.frames import decode
from gpumon.core.json_fields import Json
from gpumon.core.json_text import json_bytes
from gpumon.core.model import Frame
from gpumon.core.problems import CommandError
from gpumon.core.record_codec import to_json
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Alert, AlertHistory, Thresholds
from gpumon.operations.recorder.events import EventKind
from gpumon.operations.recorder.merging import FrameMerger
from gpumon.operations.recorder.process_end import UNKNOWN, EndWatch, oom_kills
from gpumon.operations.recorder.process_log import LoggedProcess, ProcessLog
from gpumon.session.background import run_in_background
from gpumon.session.host_reports import HostReports
from gpumon.session.process_registry import ProcessRegistry
from gpumon.streams.live import LineStream
from gpumon.streams.ring import EVENTS, TIERS, RingWriter

_BATCH_SECONDS: Final = 5.0
"""Lines are handled several at a time: code and data that left the caches of the CPU cost most of a line."""
SYNC_SECONDS: Final = 60.0
"""A loss of power costs at most this much."""
_RUNNING_SECONDS: Final = 600.0
"""Time between two lists of the processes that run, from which a later recorder continues."""
_MAX_CLOCK_STEP_SECONDS: Final = 2.0
_OOM_KILL_SECONDS: Final = 30.0
"""A process whose end becomes known this long after the kernel has killed one may be that process."""
_JOBS_CPU_SHARE: Final = 0.001
"""What looking for training jobs may take of a core."""


class HostRecorder:
    """Records this host.

    Args:
        stream: The collector; not started.
        writer: The ring.
        report: Called with what hinders the recording, in a sentence, and when it goes on.
        thresholds: From when on an alert is an event.
    """

    def __init__(
        self,
        stream: LineStream,
        writer: RingWriter,
        report: Callable[[str], None],
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> None:
        self._stream = stream
        self._writer = writer
        self._report = report
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._reports = HostReports(_JOBS_CPU_SHARE)
        self._processes = ProcessRegistry(partial(run_in_background, deliver=self._calls.put), lambda: None)
        self._processes.set_shown(is_shown=True)
        self._alerts = AlertHistory(thresholds)
        self._ends = EndWatch()
        self._log = ProcessLog(self._how)
        self._mergers = [FrameMerger(tier) for tier, _ in TIERS[1:]]
        self._recorded_reports = b""
        self._lines: list[bytes] = []
        self._lines_seconds = 0.0
        self._clock_offset: float | None = None
        self._document: Json = {}
        self._oom_kills = oom_kills()
        self._oom_kill_at = -inf
        self._synced_at = self._listed_at = time.monotonic()
        self._problem: str | None = None

    def run(self, stop: Event, left_running: list[LoggedProcess]) -> None:
        """Record until ``stop`` is set.

        Args:
            stop: Ends the recording.
            left_running: Processes that ran when an earlier recorder ended.
        """
        self._log.resume(left_running)
        self._stream.start()
        try:
            while not stop.wait(_BATCH_SECONDS):
                for line in self._stream.lines.drain():
                    self._add(line)
                self._write_lines()
                if self._document and time.monotonic() - self._synced_at >= SYNC_SECONDS:
                    self._sync()
                problem = self._stream.problem
                if problem is not None and not self._stream.lines.arrived.is_set():
                    self._tell(str(problem) if self._problem is None else self._problem)
        finally:
            self._write_lines()
            for process in self._log.running.values():
                self._write_events([(EventKind.RUNNING, to_json(process))])
            for number in range(len(self._mergers)):
                self._add_merged(number, self._mergers[number].flush())
            self._reports.close()
            self._stream.close()
            self._writer.close()

    def _add(self, line: bytes) -> None:
        """Record a line of the collector."""
        document = self._document = json.loads(line)
        offset = document["time_seconds"] - document["monotonic_seconds"]
        if self._clock_offset is not None and abs(offset - self._clock_offset) > _MAX_CLOCK_STEP_SECONDS:
            self._write_lines()
            self._writer.start_era()
        self._clock_offset = offset
        self._lines_seconds = self._lines_seconds or document["time_seconds"]
        self._lines.append(self._with_reports(line))
        events: list[tuple[EventKind, Json]] = [(EventKind.XID, event) for event in document["events"]]
        for process in self._log.observe(document):
            if not process.how:
                self._ends.watch(process.pid)
            events.append((EventKind.END if process.how else EventKind.BEGIN, to_json(process)))
        self._write_events(events)
        self._add_merged(0, self._mergers[0].add(document))

    def _write_lines(self) -> None:
        """Write the lines of the finest tier at once: compressing each alone would cost as much as all."""
        lines, seconds, self._lines, self._lines_seconds = self._lines, self._lines_seconds, [], 0.0
        if lines:
            self._write(1, seconds, b"".join(lines))

    def _add_merged(self, number: int, merged: Json | None) -> None:
        """Record a merged frame, and merge it further."""
        if merged is None:
            return
        line = json_bytes(merged)
        if number == 0:
            self._observe(decode(line))
        self._write(TIERS[number + 1][0], merged["time_seconds"], self._with_reports(line))
        if number + 1 < len(self._mergers):
            self._add_merged(number + 1, self._mergers[number + 1].add(merged))

    def _observe(self, frame: Frame) -> None:
        """Do what is too expensive to do every second: alerts, what started processes, probes and jobs."""
        self._stream.request_on_demand([device.key for device in frame.devices])
        try:
            while True:
                self._calls.get_nowait()()
        except Empty:
            pass
        self._processes.observe(frame)
        reports = self._reports.read(frame)
        self._recorded_reports = b',"reports":' + json_bytes(reports).rstrip() if reports else b""
        self._name_jobs(reports)
        self._alerts.check(frame, self._reports.findings(frame))
        events: list[tuple[EventKind, Json]] = [
            (EventKind.ALERT, {**_alert_json(change.alert), "has_begun": change.has_begun})
            for change in self._alerts.changes
        ]
        kills = oom_kills()
        if kills > self._oom_kills:
            events.append((EventKind.OOM_KILL, {"count": kills - self._oom_kills}))
            self._oom_kill_at = time.monotonic()
        self._oom_kills = kills
        now = time.monotonic()
        if now - self._listed_at >= _RUNNING_SECONDS:
            self._listed_at = now
            events += [(EventKind.RUNNING, to_json(process)) for process in self._log.running.values()]
        self._write_events(events)

    def _name_jobs(self, reports: Json) -> None:
        """Add to the processes that run what started them."""
        ranks = {rank.get("pid"): (job, rank) for job in reports.get("jobs", ()) for rank in job.get("ranks", ())}
        for pid, process in self._log.running.items():
            origin = self._processes.state.origins.get((pid, process.start_ticks))
            named = process
            if origin is not None and (origin.job or origin.pod):
                job = f"{origin.scheduler} {origin.job}" if origin.job else f"pod {origin.pod}"
                named = replace(named, job=job, rank=origin.rank)
            if pid in ranks:
                training_job, rank = ranks[pid]
                named = replace(named, training_job=training_job["id"], rank=rank.get("rank"))
            self._log.running[pid] = named

    def _how(self, process: LoggedProcess, gone_seconds: float) -> str | None:
        """How a process ended, with the reason where memory ran out."""
        how = self._ends.how(process.pid, process.start_ticks, gone_seconds)
        has_killed = oom_kills() > self._oom_kills or time.monotonic() - self._oom_kill_at < _OOM_KILL_SECONDS
        if how == "SIGKILL" and has_killed:
            return f"{how}, host out of memory"
        if how not in {None, "exit 0", UNKNOWN} and self._reports.has_run_out(process.pid):
            return f"{how}, GPU out of memory"
        return how

    def _write_events(self, events: list[tuple[EventKind, Json]]) -> None:
        times = {name: self._document.get(name, 0.0) for name in ("time_seconds", "monotonic_seconds")}
        for kind, event in events:
            line = json_bytes({**event, **times, "schema": 1, "kind": kind.value})
            self._write(EVENTS, times["time_seconds"], line)

    def _with_reports(self, line: bytes) -> bytes:
        """The line of a frame with the newest reports."""
        return line.rstrip()[:-1] + self._recorded_reports + b"}\n"

    def _write(self, tier: int, seconds: float, lines: bytes) -> None:
        """Write lines from a moment on; while the disk is full, only the next sync tries again."""
        if self._problem is not None:
            return
        try:
            self._writer.write(tier, seconds, lines)
        except CommandError as error:
            self._tell(str(error))

    def _sync(self) -> None:
        self._synced_at = time.monotonic()
        try:
            self._writer.sync(self._document["time_seconds"])
        except CommandError as error:
            self._tell(str(error))
        else:
            self._tell(None)

    def _tell(self, problem: str | None) -> None:
        """Report a problem once, and that it is over."""
        if problem != self._problem:
            self._report(problem or "The recording goes on.")
        self._problem = problem


def _alert_json(alert: Alert) -> Json:
    """What an event keeps of an alert."""
    return {"id": alert.id, "severity": alert.severity.value, "title": alert.title, "device_key": alert.device_key}
