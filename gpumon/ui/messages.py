"""Messages that go up to the app: bells of the session, and what the user wants done."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpumon.core.model import Device, Process
    from gpumon.health.alerts import Alert
    from gpumon.operations.device_selection import RunTarget
    from gpumon.operations.gpu_processes import Owner
    from gpumon.operations.workload import WorkloadRun
    from gpumon.probe.messages import Probe, RequestKind
    from gpumon.workload_runs.catalogue import WorkloadInfo
    from gpumon.workload_runs.interpreter import Interpreter
    from gpumon.workload_runs.parameters import Value

_request_numbers = count(1)


class AppMessage(Message):
    """Goes up to the app, which hands it to the part that answers it."""


class BellMessage(AppMessage):
    """An inbox has received something. One of each kind waits at most: its handler drains the entire inbox."""


class FramesArrived(BellMessage):
    """A frame has arrived."""


class RunsChanged(BellMessage):
    """A workload has sent an event, or a search for workloads or interpreters has ended."""


class ProbesChanged(BellMessage):
    """A probe has connected, sent a message, or gone."""


class ViewStateRequested(BellMessage):
    """A screen needs a `ViewState`: it has come to the top, has another size, or shows something else."""


class WorkloadsRefreshRequested(AppMessage):
    """Search for workloads, an interpreter and saved results."""


class StartRequest(NamedTuple):
    """A workload to start.

    Attributes:
        workload: The workload.
        targets: The devices; each gets a separate run.
        parameters: Every parameter's value.
        python: The interpreter.
    """

    workload: WorkloadInfo
    targets: Sequence[RunTarget]
    parameters: Mapping[str, Value]
    python: Interpreter


@dataclass
class StartRequested(AppMessage):
    """Start a workload."""

    request: StartRequest


@dataclass
class StopRequested(AppMessage):
    """Stop a run."""

    run: WorkloadRun


@dataclass
class RestartRequested(AppMessage):
    """Run the same workload again with the same parameters."""

    run: WorkloadRun


class ProbeRequested(AppMessage):
    """Send a request to a probe; the answer appears in `ProbesState.requests` under the number.

    Args:
        probe: The probe as the screen shows it.
        kind: The request.
        options: Arguments of the request.
    """

    def __init__(self, probe: Probe, kind: RequestKind, **options: Any) -> None:  # noqa: ANN401 - as the probe's protocol has it
        super().__init__()
        self.number = next(_request_numbers)
        self.probe = probe
        self.kind = kind
        self.options = options


@dataclass
class AcknowledgeRequested(AppMessage):
    """Leave an alert out of the header while it stands, or take that back."""

    alert: Alert


@dataclass
class SignalRequested(AppMessage):
    """Ask the user which signal to send to processes, as the screen shows them."""

    processes: Sequence[Process]


class FleetRefreshRequested(AppMessage):
    """Query Prometheus now."""


@dataclass
class FleetHostRequested(AppMessage):
    """Show a host of the fleet over time, or one of its GPUs."""

    host: str
    device_key: str | None = None


@dataclass
class HostsAdded(AppMessage):
    """Read hosts, named as for ssh, from now on, instead of what the fleet was."""

    hosts: tuple[str, ...]


@dataclass
class EmptyCacheRequested(AppMessage):
    """Ask the user whether a process, with the statistics of its allocator for a GPU, is to empty its cache."""

    owner: Owner
    device: Device
