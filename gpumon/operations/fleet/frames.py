"""Frames of hosts as a snapshot of a fleet."""

import time
from array import array
from collections.abc import Mapping, Sequence
from math import nan
from typing import Final, NamedTuple

from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem
from gpumon.fleet.exporters import SHOWN_METRICS
from gpumon.fleet.model import AGE, BUSIEST, FleetGpu, FleetSnapshot
from gpumon.fleet.snapshot import missing_metrics

SSH: Final = "ssh"
"""What reports GPUs of other hosts."""
THIS_HOST: Final = "this host"
_METRICS: Final = (*SHOWN_METRICS, "temperature_celsius")


class HostFrame(NamedTuple):
    """The newest frame of a host.

    Attributes:
        host: Name of the host.
        frame: The frame.
        age_seconds: Time since it arrived.
    """

    host: str
    frame: Frame
    age_seconds: float = 0.0


def frames_snapshot(frames: Sequence[HostFrame], problems: Mapping[str, Problem], source: str = SSH) -> FleetSnapshot:
    """The GPUs of some frames; how busy they were before is missing.

    A host that has a problem and no GPU is silent.
    """
    rows = [(host, device) for host in sorted(frames, key=lambda host: host.host) for device in host.frame.devices]
    gpus = tuple(_gpu(host.host, device, source) for host, device in rows)
    values = {metric_id: array("d", [_reading(device, metric_id) for _, device in rows]) for metric_id in _METRICS}
    values[AGE] = array("d", [host.age_seconds + (device.age_seconds or 0.0) for host, device in rows])
    values[BUSIEST] = array("d", [nan] * len(rows))
    silent = tuple(sorted(problems.keys() - {host.host for host, _ in rows}))
    return FleetSnapshot(
        time.time(),
        gpus,
        values,
        silent,
        exporters={source: len(gpus)} if gpus else {},
        missing={source: missing_metrics(source, gpus, values)} if gpus else {},
        host_problems=dict(problems),
    )


def _gpu(host: str, device: Device, source: str) -> FleetGpu:
    processes = device.processes or ()
    largest = max(processes, key=lambda process: process.memory_bytes or 0, default=None)
    user = "" if largest is None else largest.user or ""
    return FleetGpu(host, device.label, device.uuid or "", device.name or "", source, user)


def _reading(device: Device, metric_id: str) -> float:
    value = None if device.is_stale(metric_id) else device.get(metric_id)
    return nan if value is None else value
