"""One run of a workload and its GPU, used by the screen and by ``gpumon run``.

The job brings the workload's events, frames bring the state of its GPU. The two are matched by UUID, since CUDA and
NVML number GPUs differently.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Frame, same_uuid
from gpumon.core.problems import Problem
from gpumon.core.text import safe_text
from gpumon.core.workload_metrics import Measurement, WorkloadMetric
from gpumon.insight.workload_verdict import DeviceSample, judge, sample_of
from gpumon.operations.device_selection import CPU, VISIBLE, RunTarget
from gpumon.operations.gpu_processes import OtherProcess, other_processes_on
from gpumon.workload_runs.catalogue import RunRequest
from gpumon.workload_runs.protocol import RunEvent, RunEventKind, VerdictKind
from gpumon.workload_runs.results import SavingResult
from gpumon.workload_runs.state import RunResult, RunState
from gpumon.workload_runs.supervised_run import RunEnded, SupervisedRun

_MAX_SAMPLES: Final = 7200
_MAX_PEER_SAMPLES: Final = 1200


class MetricChange(NamedTuple):
    """A metric of a result, compared with the last result of the same workload, device and parameters.

    Attributes:
        metric: The metric.
        before: Its value in the last result.
        after: Its value now.
        case: What it was measured for; empty if the workload has one case.
    """

    metric: WorkloadMetric
    before: float
    after: float
    case: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Name and case, as `Measurement.key`."""
        return self.metric.name, self.case

    @property
    def share(self) -> float | None:
        """Relative change, or None if the last value was 0."""
        return None if not self.before else self.after / self.before - 1

    def document(self) -> dict[str, Any]:
        """The change as JSON."""
        return {
            "name": self.metric.name,
            "before": self.before,
            "after": self.after,
            "case": self.case,
            "share": self.share,
            "is_better": self.metric.is_better(self.before, self.after),
        }


class WorkloadRun:
    """One workload on one device, from its start to its saved result.

    Without a target, the device is that of the request.
    """

    def __init__(self, request: RunRequest, target: RunTarget | None = None, key: str = "") -> None:
        self.key = key
        self.request = request
        self.target = target or RunTarget(request.device, request.device, request.device, request.environment)
        self.child = SupervisedRun(request)
        self.state = RunState(request)
        self.device: Device | None = None
        self.samples: deque[DeviceSample] = deque(maxlen=_MAX_SAMPLES)
        self.peer_samples: dict[str, deque[DeviceSample]] = {}
        """Samples of every GPU by `Device.label`, if the workload uses several."""
        self.changes: tuple[MetricChange, ...] = ()
        self.interval_seconds = 1.0
        """Interval of the frames, in seconds."""
        self.problem: Problem | None = None
        """Why the result could not be saved."""
        self.started_seconds = time.time()
        self.interval_seconds = 1.0
        """Interval of the frames, at which the GPU is sampled."""
        self.ended_seconds: float | None = None
        """Unix time at which the end of the process was seen."""
        self.is_stopping = False
        """Whether the run was asked to stop."""
        self._before: Frame | None = None
        self._driver_version: str | None = None
        self._saving: SavingResult | None = None

    @property
    def ended(self) -> bool:
        """Whether the process has ended, all of its events were read, and its result was saved if it could be."""
        return self.state.end is not None and self._saving is None

    def start(self) -> None:
        """Start the process; it sends its plan and then waits for `allow`."""
        self.child.start()

    def drain(self) -> list[RunEvent]:
        """Apply all events that have arrived; returns them, with the result completed by the GPU's samples."""
        events = []
        for arrival in self.child.inbox.drain():
            self.state.apply(arrival)
            if isinstance(arrival, RunEnded):
                self.ended_seconds = time.time()
                events += self._finish()
            elif arrival.kind not in (RunEventKind.RESULT, RunEventKind.BYE):
                events.append(arrival)
        if self._saving is not None and self._saving.is_over:
            events += self._result_events(self._saving)
            self._saving = None
        return events

    def observe(self, frame: Frame) -> None:
        """Record a sample of the run's GPU while the workload works, and the processes that were there before."""
        if self._before is None and self.state.plan is None:
            self._before = frame
        device = self._find(frame)
        if device is None:
            return
        self.device = device
        self._driver_version = frame.driver_version
        self.interval_seconds = frame.interval_seconds
        if self.state.began_seconds is None or self.ended:
            return
        for peer in frame.gpus if self._uses_peers else ():
            if frame.is_fresh(peer):
                samples = self.peer_samples.setdefault(peer.label, deque(maxlen=_MAX_PEER_SAMPLES))
                samples.append(sample_of(peer, frame.time_seconds))
        if frame.is_fresh(device):
            if len(self.samples) >= _MAX_SAMPLES:  # keep the entire run, the first sample included, less closely
                self.samples = deque(list(self.samples)[::2], _MAX_SAMPLES)
            self.samples.append(sample_of(device, frame.time_seconds))

    def other_processes(self, frame: Frame, own_pids: Iterable[int | None] = ()) -> list[OtherProcess]:
        """Other processes on the GPUs that the run is about to use."""
        device = self._find(frame)
        devices: Sequence[Device] = () if device is None else (device,)
        if self._uses_peers:
            visible = self.request.environment.get(VISIBLE)
            devices = [peer for peer in frame.devices if visible is None or (peer.uuid or "-") in visible]
        return list(other_processes_on(devices, self._before, {self.child.pid, *own_pids}))

    def allow(self) -> None:
        """Let the workload start its work."""
        self.state.record_start(time.time())
        self.child.allow()

    def cancel(self) -> None:
        """Ask the workload to stop."""
        self.is_stopping = True
        self.child.cancel()

    def record(self) -> dict[str, Any]:
        """The result in the form in which it is saved."""
        state = self.state
        plan: Mapping[str, Any] = state.plan or {}
        chip = plan.get("chip")
        result = state.result
        return {
            "time_seconds": round(self.started_seconds, 3),
            "host": safe_text(socket.gethostname(), 64),
            "driver": self._driver_version,
            "workload": self.request.workload.name,
            "device": self.request.device,
            "uuid": state.uuid,
            "device_name": chip.get("name") if isinstance(chip, dict) else None,
            "torch": plan.get("torch"),
            "cuda": plan.get("cuda"),
            "parameters": dict(self.request.parameters),
            "verdict": None if result is None else result.verdict.value,
            "why": None if result is None else result.why,
            "figures": [] if result is None else [item.document() for item in result.measurements],
        }

    @property
    def _uses_peers(self) -> bool:
        """Whether the workload also uses the other GPUs of this host."""
        uses = {} if self.state.plan is None else self.state.plan["uses"]
        return uses.get("peers") is True

    def _find(self, frame: Frame) -> Device | None:
        instance_name = _visible_instance(self.request.environment)
        for device in frame.devices:
            if instance_name and device.instance is not None and instance_name in device.instance.names(device.uuid):
                return device
        uuid, bus_id = self.state.uuid, _bus_id(self.state.plan)
        for device in frame.devices:
            if same_uuid(uuid, device.uuid):
                return device
            if uuid is None and bus_id is not None and _same_bus_id(bus_id, device.pci_bus_id):
                return device
        return None

    def _finish(self) -> list[RunEvent]:
        """Judge the result and start to save it; returns the last event of a run that has no result."""
        state = self.state
        if state.result is None:
            return [RunEvent(RunEventKind.BYE, time.time(), {})]
        state.result = self._judged(state.result)
        is_kept = state.result.verdict is not VerdictKind.CANCELLED and bool(state.result.measurements)
        self._saving = SavingResult(self.record(), is_kept=is_kept, ring=self.child.inbox.ring)
        self._saving.start()
        return []

    def _result_events(self, saved: SavingResult) -> list[RunEvent]:
        """Compare the result with the previous one; returns it as events."""
        result = self.state.result
        assert result is not None
        before = () if saved.previous is None else measurements_of(saved.previous)
        self.changes = metric_changes(before, result.measurements)
        self.problem = saved.problem
        fields = {
            "workload": self.request.workload.name,
            "device": self.request.device,
            "verdict": result.verdict.value,
            "why": result.why,
            "figures": [item.document() for item in result.measurements],
        }
        return [RunEvent(RunEventKind.RESULT, time.time(), fields), RunEvent(RunEventKind.BYE, time.time(), {})]

    def _judged(self, result: RunResult) -> RunResult:
        """The result with the limits, throttle reasons and metrics that NVML reported."""
        judgement = judge(result.measurements, list(self.samples))
        verdict = result.verdict
        if (judgement.is_slowed_by_fault or judgement.is_memory_suspect) and verdict is VerdictKind.OK:
            verdict = VerdictKind.WARN
        if judgement.is_memory_bad and verdict is not VerdictKind.CANCELLED:
            verdict = VerdictKind.FAIL
        sentences = list(judgement.sentences)
        if self.device is not None and self.device.state is not DeviceState.OK:
            sentences.append(f"The GPU is {self.device.state.value} now.")
            verdict = VerdictKind.FAIL if verdict is not VerdictKind.CANCELLED else verdict
        return RunResult(verdict, " ".join([result.why, *sentences]), judgement.metrics)


class StartQuestion(NamedTuple):
    """What the user must confirm before a run may start its work.

    Attributes:
        run: The run that waits.
        others: Other processes on its GPUs; empty if only the workload itself asks for confirmation.
    """

    run: WorkloadRun
    others: tuple[OtherProcess, ...]


def start_question(run: WorkloadRun, runs: Iterable[WorkloadRun], frame: Frame | None) -> StartQuestion | None:
    """What the user must confirm before a run may start; None if it may start without a question."""
    others: list[OtherProcess] = []
    if frame is not None and run.target.key != CPU.key:
        others = run.other_processes(frame, (own.child.pid for own in runs))
    return StartQuestion(run, tuple(others)) if others or run.state.confirmation_reason else None


def busy_reason(runs: Iterable[WorkloadRun], target: RunTarget) -> str:
    """Why no workload can be started on a target now, in a sentence; empty if one can."""
    for run in runs:
        if run.target.key == target.key and not run.ended:
            return f"{target.label} is busy with {run.request.workload.name}: a device runs one workload at a time."
    return ""


def measurements_of(record: Mapping[str, Any]) -> tuple[Measurement, ...]:
    """The measurements of a saved result, without invalid ones: the user may have edited the file."""
    parsed = (Measurement.of(figure) for figure in record["figures"])
    return tuple(measurement for measurement in parsed if measurement is not None)


def metric_changes(before: Iterable[Measurement], after: Iterable[Measurement]) -> tuple[MetricChange, ...]:
    """The changes between two results of measurements with the same name and case."""
    known = {item.key: item.value for item in before}
    return tuple(
        MetricChange(item.metric, float(known[item.key]), float(item.value), item.case)
        for item in after
        if item.key in known
    )


def _visible_instance(environment: Mapping[str, str]) -> str:
    """The MIG instance that CUDA shows the workload, in lower case; empty if CUDA shows GPUs."""
    visible = {**os.environ, **environment}.get(VISIBLE, "")
    first = visible.split(",", maxsplit=1)[0].strip()
    return first.lower() if first.startswith("MIG-") else ""


def _bus_id(plan: Mapping[str, Any] | None) -> str | None:
    chip = None if plan is None else plan.get("chip")
    bus_id = chip.get("pci_bus_id") if isinstance(chip, dict) else None
    return bus_id if isinstance(bus_id, str) else None


def _same_bus_id(one: str, other: str | None) -> bool:
    """Whether two PCI bus IDs are equal: NVML writes the domain with eight digits, CUDA with four."""
    if other is None:
        return False
    try:
        first, second = ([int(part, 16) for part in text.replace(".", ":").split(":")] for text in (one, other))
    except ValueError:  # the workload reports one of them, and it may be any text
        return False
    return first == second
