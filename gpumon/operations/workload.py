"""A workload beside its GPU: both front ends start, watch and judge it here.

The job tells what the workload says, frames tell what its GPU does; the two are matched by UUID, since CUDA and NVML
number GPUs differently.
"""

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from sys import float_info
from typing import Any, Final, NamedTuple

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem
from gpumon.diagnosis.verdict import DeviceSample, judge, sample_of
from gpumon.jobs.job import Job, JobEnded
from gpumon.jobs.protocol import EventKind, JobEvent, VerdictKind
from gpumon.jobs.request import JobRequest
from gpumon.jobs.results import last_like, save
from gpumon.jobs.state import JobResult, JobState
from gpumon.operations.neighbours import Neighbour, neighbours_on

_KEPT_SAMPLES: Final = 7200


class Change(NamedTuple):
    """A figure beside the last one like it.

    Attributes:
        name: The figure.
        before: Its last value.
        after: Its value now.
    """

    name: str
    before: float
    after: float

    @property
    def share(self) -> float | None:
        """Relative change, or None from nothing."""
        return None if not self.before else self.after / self.before - 1


class WorkloadRun:
    """One workload on one device, from its start to its kept result.

    Args:
        request: What to run.
    """

    def __init__(self, request: JobRequest) -> None:
        self.request = request
        self.job = Job(request)
        self.state = JobState(request)
        self.device: Device | None = None
        self.samples: deque[DeviceSample] = deque(maxlen=_KEPT_SAMPLES)
        self.changes: tuple[Change, ...] = ()
        self.problem: Problem | None = None
        """Why the result could not be kept."""
        self.started_seconds = time.time()
        self._before: Frame | None = None

    @property
    def ended(self) -> bool:
        """Whether all is said and the process is gone."""
        return self.state.end is not None

    def start(self) -> None:
        """Starts it; it tells its plan and waits for leave."""
        self.job.start()

    def take(self) -> list[JobEvent]:
        """Takes in what has arrived; returns the events, the result completed with what its GPU's figures say."""
        events = []
        for arrival in self.job.inbox.drain():
            self.state.apply(arrival)
            if isinstance(arrival, JobEnded):
                events += self._finish()
            elif arrival.kind not in (EventKind.RESULT, EventKind.BYE):
                events.append(arrival)
        return events

    def watch(self, frame: Frame) -> None:
        """Notes what its GPU does while it works, and who was there before."""
        if self._before is None and self.state.plan is None:
            self._before = frame
        device = self._find(frame)
        if device is None:
            return
        self.device = device
        if self.state.began_seconds is not None and not self.ended and frame.is_fresh(device):
            self.samples.append(sample_of(device, frame.time_seconds))

    def neighbours(self, frame: Frame) -> list[Neighbour]:
        """Others that work on the GPUs that it is about to use."""
        used = self._find(frame)
        uses = {} if self.state.plan is None else self.state.plan["uses"]
        devices = frame.devices if uses.get("peers") is True else () if used is None else (used,)
        return list(neighbours_on(devices, self._before, self.job.pid))

    def allow(self) -> None:
        """Gives it leave to begin."""
        self.state.begin(time.time())
        self.job.allow()

    def cancel(self) -> None:
        """Asks it to stop."""
        self.job.cancel()

    def record(self) -> dict[str, Any]:
        """The result as it is kept."""
        state = self.state
        plan: Mapping[str, Any] = state.plan or {}
        chip = plan.get("chip")
        result = state.result
        return {
            "time_seconds": round(self.started_seconds, 3),
            "workload": self.request.workload.name,
            "device": self.request.device,
            "uuid": state.uuid,
            "device_name": chip.get("name") if isinstance(chip, dict) else None,
            "torch": plan.get("torch"),
            "cuda": plan.get("cuda"),
            "parameters": dict(self.request.parameters),
            "verdict": None if result is None else result.verdict.value,
            "why": None if result is None else result.why,
            "figures": [] if result is None else [dict(figure) for figure in result.figures],
        }

    def _find(self, frame: Frame) -> Device | None:
        named = _named_instance(self.request.environment)
        for device in frame.devices:
            if named and device.instance is not None and named in device.instance.names(device.uuid):
                return device
        uuid, bus = self.state.uuid, _bus_id(self.state.plan)
        for device in frame.devices:
            if uuid is not None and _same_uuid(uuid, device.uuid):
                return device
            if uuid is None and bus is not None and _same_bus(bus, device.pci_bus_id):
                return device
        return None

    def _finish(self) -> list[JobEvent]:
        """Judges and keeps the result; returns it as events."""
        state = self.state
        if state.result is not None:
            state.result = self._judged(state.result)
            record = self.record()
            before = last_like(record)
            self.changes = _changes(before, state.result.figures)
            if state.result.verdict is not VerdictKind.CANCELLED and state.result.figures:
                self.problem = save(record)
            fields = {
                "workload": self.request.workload.name,
                "device": self.request.device,
                "verdict": state.result.verdict.value,
                "why": state.result.why,
                "figures": list(state.result.figures),
            }
            told = [JobEvent(EventKind.RESULT, time.time(), fields)]
        else:
            told = []
        return [*told, JobEvent(EventKind.BYE, time.time(), {})]

    def _judged(self, result: JobResult) -> JobResult:
        """The result with the limits, reasons and figures that NVML knows."""
        judgement = judge(result.figures, list(self.samples))
        verdict = result.verdict
        if judgement.is_slowed_by_fault and verdict is VerdictKind.OK:
            verdict = VerdictKind.WARN
        sentences = list(judgement.sentences)
        if self.device is not None and self.device.state is not DeviceState.OK:
            sentences.append(f"The GPU is {self.device.state.value} now.")
            verdict = VerdictKind.FAIL if verdict is not VerdictKind.CANCELLED else verdict
        return JobResult(verdict, " ".join([result.why, *sentences]), judgement.figures)


def _changes(before: Mapping[str, Any] | None, figures: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    if before is None:
        return ()
    known = {each["name"]: each["value"] for each in before["figures"] if _is_figure(each)}
    return tuple(
        Change(figure["name"], float(known[figure["name"]]), float(figure["value"]))
        for figure in figures
        if figure["name"] in known
    )


def _is_figure(kept: object) -> bool:
    """Whether a kept figure can be compared with: the file is the user's, and may hold anything."""
    if not isinstance(kept, dict) or not isinstance(kept.get("name"), str):
        return False
    value = kept.get("value")
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= float_info.max


def _named_instance(environment: Mapping[str, str]) -> str:
    """The instance of a split GPU (MIG) that is all that CUDA shows the workload, or nothing if it shows GPUs."""
    visible = {**os.environ, **environment}.get("CUDA_VISIBLE_DEVICES", "")
    first = visible.split(",", maxsplit=1)[0].strip()
    return first.lower() if first.startswith("MIG-") else ""


def _same_uuid(one: str, other: str | None) -> bool:
    """Whether two UUIDs are one: torch does not tell whether that of an instance (MIG) or of a GPU is meant."""
    return other is not None and one.partition("-")[2].lower() == other.partition("-")[2].lower()


def _bus_id(plan: Mapping[str, Any] | None) -> str | None:
    chip = None if plan is None else plan.get("chip")
    bus = chip.get("pci_bus_id") if isinstance(chip, dict) else None
    return bus if isinstance(bus, str) else None


def _same_bus(one: str, other: str | None) -> bool:
    """Whether two PCI bus ids are one: NVML writes the domain with eight digits, CUDA with four."""
    if other is None:
        return False
    try:
        first, second = ([int(part, 16) for part in each.replace(".", ":").split(":")] for each in (one, other))
    except ValueError:  # one of them comes from outside and is none
        return False
    return first == second
