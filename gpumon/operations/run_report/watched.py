"""Runs a command, or follows a process that runs already, and keeps the folder of the run complete meanwhile."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.procfs import find_stat, read_small
from gpumon.core.text import safe_text
from gpumon.distributed.environment import read_environment
from gpumon.operations.doctor.redaction import Redactor, is_secret_name, without_secrets
from gpumon.operations.hang_files.report import report_hang
from gpumon.operations.recorder.process_end import EndWatch
from gpumon.operations.run_report.document import report_document
from gpumon.operations.run_report.journal import FRAMES, JOURNAL, OUTPUT, JournalWriter, explain_output
from gpumon.operations.run_report.run_data import RunData
from gpumon.operations.why.document import why_document
from gpumon.operations.why.examination import examine
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Probe
from gpumon.streams.live import LiveStream
from gpumon.streams.recording import RecordingWriter

DUMPS: Final = "nccl_trace_rank_"
_TICK_SECONDS: Final = 1.0
_FINE_SECONDS: Final = 3600.0
_COARSE_SECONDS: Final = 10.0
"""After an hour, every tenth second is written: 8 GPUs take less than 20 MB a day."""
_REPORT_SECONDS: Final = 30.0
_REPORT_SHARE: Final = 0.01
"""A long run writes its report more rarely: once in a hundredth of its time."""
_ACCOUNT_SECONDS: Final = 600.0
_FIRST_ACCOUNT_SECONDS: Final = 60.0
_OBSERVED_SECONDS: Final = 6.0
"""An observation samples the main thread 20 times a second: 0.4 % of its time, for one hundredth of the run."""
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_MAX_PARENTS: Final = 64
_MAX_WORDS: Final = 200
_CHUNK_BYTES: Final = 1 << 16
_VARIABLES: Final = ("CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "OMP_", "GLOO_", "UCX_", "SLURM_JOB", "NVIDIA_", "MKL_")
_STATISTICS: Final = (
    *("allocated_bytes", "reserved_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "inactive_split_bytes"),
    *("ooms_count", "alloc_retries_count"),
)
_PROGRESS: Final = ("steps_count", "last_step_monotonic", "data_seconds", "collection_seconds")


Write = Callable[[Mapping[str, Any], Path], None]
"""Writes a report to a folder; raises OSError."""


def watch_run(
    folder: Path, program: str, command: Sequence[str], environment: Mapping[str, str], write: Write
) -> tuple[int, CommandError | None]:
    """Run a command until it ends, and report it.

    The folder is created, or empty. The report is written now and then, and at the end.

    Returns:
        The exit status of the command, or minus the signal that ended it; why there is no complete report.

    Raises:
        CommandError: The folder cannot be written or has a run, or the program cannot be run.
    """
    recorder = _recorder(folder, command, environment, write)
    with _output(folder / OUTPUT) as (target, errors):
        try:
            child = subprocess.Popen(command, executable=program, env=dict(environment), stdout=target, stderr=errors)
        except OSError as error:
            reason = f"{safe_text(program, 200)} cannot be run: {error.strerror}."
            raise CommandError.missing(ProblemCode.NOT_FOUND, reason) from None
        with _forwarded(child), recorder.running((child.pid,)):
            status = child.wait()
    return status, recorder.end(status)


def follow_run(folder: Path, pids: Sequence[int], stop: threading.Event, write: Write) -> bool:
    """Report processes that run already, until all have ended or ``stop`` is set.

    The exit status is that of the first one that did not end well, where the kernel reports it. What they print is read
    if it goes to a file.

    Returns:
        Whether they have ended.

    Raises:
        CommandError: The folder cannot be written or has a run, there is no such process, or no space for the report.
    """
    ends, running = EndWatch(), {pid: state for pid in pids if (state := find_stat(f"/proc/{pid}")) is not None}
    if not running:
        raise CommandError.missing(ProblemCode.NOT_FOUND, f"There is no process {pids[0]}.")
    proc = Path(f"/proc/{min(running)}")
    environment, _ = read_environment(proc)
    command = os.fsdecode(read_small(f"{proc}/cmdline")).rstrip("\0").split("\0")
    recorder = _recorder(folder, command, environment, write)
    with suppress(OSError):
        if (log := (proc / "fd/2").resolve()).is_file():
            (folder / OUTPUT).symlink_to(log)
    list(map(ends.watch, running))
    status: int | None = None
    with recorder.running(tuple(running)):
        while running and not stop.wait(_TICK_SECONDS):
            for pid, before in [*running.items()]:
                now = find_stat(f"/proc/{pid}")
                if now is None or now.start_ticks != before.start_ticks:
                    del running[pid]
                    status = status or ends.exit_status(pid)
                elif now.has_ended:
                    del running[pid]
                    status = status or os.waitstatus_to_exitcode(now.wait_status)
    ends.close()
    if (failure := recorder.end(status, has_ended=not running)) is not None:
        raise failure
    return not running


def _recorder(folder: Path, command: Sequence[str], environment: Mapping[str, str], write: Write) -> "_RunRecorder":
    """Create the folder and what keeps it.

    Raises:
        CommandError: The folder cannot be written or has a run.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _RunRecorder(folder, command, environment, write)
    except OSError as error:
        taken = isinstance(error, FileExistsError)
        why = "already has a run" if taken else f"cannot be written: {(error.strerror or str(error)).lower()}"
        reason = f"{safe_text(str(folder), 200)} {why}."
        raise CommandError.usage(ProblemCode.NOT_WRITTEN, reason, "Choose a new folder.") from None


@contextmanager
def _forwarded(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Pass the signals that arrive on; an interrupt of the terminal reaches the command by itself."""

    def forward(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _output(path: Path) -> Iterator[tuple[int | None, int | None]]:
    """Where the command writes: standard output and error, None for where gpumon writes.

    They go to a file, whose content is shown meanwhile, so that the command continues if gpumon is killed. Where
    standard error is a file already, it stays; standard output stays where it is not the same as standard error.
    """
    out, error = sys.stdout.fileno(), sys.stderr.fileno()
    if stat.S_ISREG(os.fstat(error).st_mode):
        path.symlink_to(Path(f"/proc/self/fd/{error}").resolve())
        yield None, None
        return
    has_ended = threading.Event()
    with path.open("xb", buffering=0) as target, path.open("rb", buffering=0) as source:
        thread = threading.Thread(target=_show, args=(source, error, has_ended), name="gpumon-output", daemon=True)
        thread.start()
        try:
            yield target.fileno() if os.path.sameopenfile(out, error) else None, target.fileno()
        finally:
            has_ended.set()
            thread.join()


def _show(source: Any, descriptor: int, has_ended: threading.Event) -> None:  # noqa: ANN401 - an unbuffered file
    """Copy what is written to a file to a terminal or a pipe."""
    while True:
        is_last = has_ended.is_set()
        while data := source.read(_CHUNK_BYTES):
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(descriptor, view) :]
            except OSError:
                return  # the terminal is gone; the file has everything
        if is_last:
            return
        has_ended.wait(0.1)


class _RunRecorder:
    """Collects frames of the host and readings of the probes, and writes the folder."""

    def __init__(self, folder: Path, command: Sequence[str], environment: Mapping[str, str], write: Write) -> None:
        self._folder = folder
        self._write = write
        self._journal = JournalWriter(folder / JOURNAL)
        self._frames: RecordingWriter | None = None
        self._data = RunData()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._stream = LiveStream(_TICK_SECONDS)
        self._probes = ProbeWatcher()
        self._latest: dict[int, Any] = {}
        self._started = self._kept_at = time.monotonic()
        self._written_at = -inf
        redactor = Redactor(homes={str(Path.home())})
        shown = {name: value for name, value in environment.items() if name.startswith(_VARIABLES)}
        safe = {name: redactor.variable(name, value) for name, value in shown.items() if not is_secret_name(name)}
        text = [safe_text(without_secrets(word), 200) for word in command][:_MAX_WORDS]
        self._add({"kind": "start", "schema": 1, "command": text, "environment": safe})

    @contextmanager
    def running(self, pids: Sequence[int]) -> Iterator[None]:
        """Record some processes and those that they start while the block runs."""
        self._stream.start()
        self._probes.start()
        threads = [threading.Thread(target=loop, args=(pids,), daemon=True) for loop in (self._record, self._account)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            threads[0].join()
            self._tick(pids)
            self._probes.close()
            self._stream.close()

    def end(self, status: int | None, *, has_ended: bool = True) -> CommandError | None:
        """Write the last line, and the report; returns why that failed. The status is None if it is unknown."""
        if has_ended:
            self._add_end(status)
        failure = self._write_report()
        self._journal.close()
        if self._frames is not None:
            self._frames.close()
        return failure

    def _add_end(self, status: int | None) -> None:
        explanation = explain_output(self._folder / OUTPUT) if status != 0 else None
        hang = None
        if dumps := sorted(self._folder.glob(f"{DUMPS}*")):
            with suppress(CommandError):
                hang = report_hang([*dumps, *([self._folder / OUTPUT] if status != 0 else [])]).verdict.summary
        self._add({"kind": "end", "status": status, "explanation": explanation, "hang": hang})

    def _record(self, pids: Sequence[int]) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            self._tick(pids)
            elapsed = time.monotonic() - self._started
            if time.monotonic() - self._written_at >= max(_REPORT_SECONDS, _REPORT_SHARE * elapsed):
                self._write_report()

    def _tick(self, pids: Sequence[int]) -> None:
        """Take what has arrived."""
        now = time.monotonic()
        is_kept = now - self._started < _FINE_SECONDS or now - self._kept_at >= _COARSE_SECONDS
        frames = [arrival for arrival in self._stream.inbox.drain() if isinstance(arrival, Frame)]
        for frame in frames:
            self._stream.request_on_demand([device.key for device in frame.devices])
            with self._lock:
                self._data.add_frame(frame)
        self._probes.inbox.drain()
        for probe in self._probes.probes.values():
            if _is_descendant(probe.pid, pids) and (sample := _sample(probe)) != self._latest.get(probe.pid):
                self._latest[probe.pid] = sample
                self._add(sample, is_kept=is_kept)
        if is_kept and frames and frames[-1].devices:
            self._kept_at = now
            self._keep(frames[-1])

    def _keep(self, frame: Frame) -> None:
        try:
            self._frames = self._frames or RecordingWriter(self._folder / FRAMES)
            self._frames.write(frame)
        except CommandError as error:
            self._note(f"Frames are missing: {error.problem.reason}")

    def _add(self, sample: Mapping[str, Any], *, is_kept: bool = True) -> None:
        """Take a line, and write it to the journal."""
        line = {"time": time.time(), "monotonic": time.monotonic(), **sample}
        with self._lock:
            self._data.add_sample(line)
        try:
            if is_kept:
                self._journal.write(line)
        except OSError as error:
            self._note(f"Lines of the journal are missing: {(error.strerror or str(error)).lower()}.")

    def _note(self, text: str) -> None:
        if text not in self._data.notes:
            self._data.notes.append(text)

    def _write_report(self) -> CommandError | None:
        self._written_at = time.monotonic()
        with self._lock:
            document = report_document(self._data)
        try:
            self._write(document, self._folder)
        except OSError as error:
            reason = f"The report could not be written to {self._folder}: {(error.strerror or str(error)).lower()}."
            self._note(reason)
            return CommandError.missing(
                ProblemCode.NOT_WRITTEN, reason, "Free some space, then run gpumon report on it."
            )
        return None

    def _account(self, pids: Sequence[int]) -> None:
        """Observe a rank from time to time, to account for the time of a step."""
        pause = _FIRST_ACCOUNT_SECONDS
        while not self._stop.wait(pause):
            pause = _ACCOUNT_SECONDS
            ranks = [probe for probe in self._probes.probes.values() if _is_descendant(probe.pid, pids)]
            trains = [probe for probe in ranks if probe.reading is not None and probe.reading.training is not None]
            if not trains:
                continue
            watcher = ProbeWatcher()
            watcher.start()
            try:
                rank = min(trains, key=lambda probe: probe.process.rank or 0)
                document = why_document(examine(rank.pid, watcher, _OBSERVED_SECONDS))
            except CommandError:
                continue
            finally:
                watcher.close()
            verdict = document["verdict"]
            shares = {share["name"]: share["share"] for share in document["account"]}
            account = {"step_seconds": document["step_seconds"], "shares": shares, "summary": verdict["summary"]}
            self._add({"kind": "account", **account, "causes": verdict["causes"][:3]})


def _is_descendant(pid: int, ancestors: Sequence[int]) -> bool:
    for _ in range(_MAX_PARENTS):
        if pid in ancestors:
            return True
        process = find_stat(f"/proc/{pid}")
        if process is None or process.parent <= 1:
            return False
        pid = process.parent
    return False


def _sample(probe: Probe) -> dict[str, Any]:
    """What the journal has of a reading; a rank uses one GPU, and of several, the one with the most memory."""
    reading, process = probe.reading, probe.process
    training = None if reading is None else reading.training
    devices = () if reading is None else reading.devices
    device = max(devices, key=lambda device: device.reserved_bytes, default=None)
    return {
        "kind": "rank",
        "pid": probe.pid,
        "rank": process.rank,
        "python_version": process.python_version,
        "torch_version": None if reading is None else reading.torch_version,
        "gpu_uuid": None if device is None else device.uuid,
        **{name: getattr(device, name, None) for name in _STATISTICS},
        **{name: getattr(training, name, None) for name in _PROGRESS},
    }
