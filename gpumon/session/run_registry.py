"""All runs of workloads of this gpumon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpumon.core.model import Frame
    from gpumon.core.store import Store
    from gpumon.operations.device_selection import RunTarget
    from gpumon.operations.workload import WorkloadRun
    from gpumon.workload_runs.catalogue import RunRequest, WorkloadInfo
    from gpumon.workload_runs.interpreter import Interpreter
    from gpumon.workload_runs.parameters import Value

_MAX_ENDED: Final = 50


class RunRegistry:
    """All runs, the newest first.

    Args:
        ring: Called from any thread when a run has new events.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self.runs: list[WorkloadRun] = []
        self.created_seconds = time.time()
        """Unix time; results that were saved before are those of earlier sessions."""
        self._ring = ring
        self._started_count = 0
        self._marks_drawn: WeakKeyDictionary[WorkloadRun, int] = WeakKeyDictionary()

    @property
    def running(self) -> list[WorkloadRun]:
        """Runs that have not ended."""
        return [run for run in self.runs if not run.ended]

    def start(
        self, workload: WorkloadInfo, target: RunTarget, parameters: Mapping[str, Value], python: Interpreter
    ) -> WorkloadRun:
        """Start a workload.

        Raises:
            ValueError: Another workload runs on that target; the text is a sentence.
        """
        from gpumon.workload_runs.catalogue import RunRequest  # late: the first values must not wait for it

        return self._start(RunRequest(workload, target.device, parameters, python.path, target.environment), target)

    def start_again(self, run: WorkloadRun) -> WorkloadRun:
        """Start the same workload again with the same parameters.

        Raises:
            ValueError: Another workload runs on that target; the text is a sentence.
        """
        return self._start(run.request, run.target)

    def drain(self) -> None:
        """Apply the events of all runs that have arrived."""
        for run in self.running:
            run.drain()

    def observe(self, frame: Frame, store: Store) -> None:
        """Record the state of the runs' GPUs, and mark start and end of each run on the history of its GPU."""
        for run in self.runs:
            has_begun = run.state.began_seconds is not None
            marks = has_begun + (has_begun and run.ended)
            drawn = self._marks_drawn.get(run, 0)
            if run.ended and drawn == marks:
                continue
            run.observe(frame)
            if run.device is not None:
                for _ in range(marks - drawn):
                    store.mark(run.device.key)
                self._marks_drawn[run] = marks

    def cancel_all(self) -> None:
        """Ask all runs to stop."""
        for run in self.running:
            run.cancel()

    def _start(self, request: RunRequest, target: RunTarget) -> WorkloadRun:
        from gpumon.operations.workload import WorkloadRun, busy_reason  # late, as above

        refusal = busy_reason(self.runs, target)
        if refusal:
            raise ValueError(refusal)
        self._started_count += 1
        run = WorkloadRun(request, target, key=str(self._started_count))
        self.runs.insert(0, run)
        for old in [run for run in self.runs if run.ended][_MAX_ENDED:]:
            self.runs.remove(old)
        run.child.inbox.on_arrival(self._ring)
        run.start()
        return run
