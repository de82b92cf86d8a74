"""What the exporter keeps while processes come and go."""

import time
from dataclasses import replace

import pytest

from gpumon.core.heap import release_unused
from gpumon.present.prometheus import metric_families
from gpumon.probe.client import ProbeWatcher
from gpumon.session.host_monitor import HostMonitor
from tests.builders import device, frame, process
from tests.ui.fakes import FakeStream

PROCESSES, PER_FRAME = 10_000, 50


@pytest.mark.long
def test_processes_that_have_ended_leave_no_series_and_no_entry() -> None:
    stream = FakeStream("host")
    monitor = HostMonitor(stream, probes=ProbeWatcher(()))
    monitor.start()
    try:
        counts = []
        for number, first in enumerate(range(100_000, 100_000 + PROCESSES, PER_FRAME)):
            shown = tuple(process(first + offset) for offset in range(PER_FRAME))
            newest = replace(frame(devices=(device(processes=shown),)), monotonic_seconds=100.0 + number)
            stream.put(newest)
            deadline = time.monotonic() + 20
            while (seen := monitor.state().frame) is None or seen.monotonic_seconds != newest.monotonic_seconds:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            counts.append(sum(len(family.samples) for family in metric_families(monitor.state())))
        release_unused()
        assert len(set(counts)) == 1, "a page has as many series as at the start"
        assert len(monitor.state().origins) <= 4 * PER_FRAME
    finally:
        monitor.close()
