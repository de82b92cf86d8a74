"""Probes in the processes of a training run: which have one, the question before they are loaded, and loading them."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.ranks import RankEvidence
from gpumon.core.units import counted
from gpumon.insight.hangs import line_of
from gpumon.operations.targets import find_target, with_all_ranks
from gpumon.probe.attach import Attachability, Attached, AttachState, attach, attachability
from gpumon.probe.attach.target import Target
from gpumon.stacks.classify import collective_function
from gpumon.stacks.outside import OutsideError, read_threads

TIMEOUT_SECONDS: Final = 10.0
_MAX_AT_ONCE: Final = 64


class ProbePlan(NamedTuple):
    """What has to be done so that processes have a probe.

    Attributes:
        name: Short name of what they run.
        present: The processes that have one.
        possible: The processes that can be attached to.
        refusals: Why the others cannot, by PID.
        is_own: Whether all of `possible` belong to the user of gpumon.
    """

    name: str
    present: tuple[int, ...]
    possible: tuple[int, ...]
    refusals: Mapping[int, Problem]
    is_own: bool

    @property
    def question(self) -> str:
        """What to ask before the probe is loaded."""
        what = counted(len(self.possible), "process")
        verb = "They stop" if len(self.possible) > 1 else "It stops"
        return f"Load the probe into {what} of {self.name}? {verb} for about 1 ms."

    @property
    def refusal(self) -> Problem | None:
        """Why none of the processes has a probe, and none can get one; None otherwise."""
        return None if self.present or self.possible else next(iter(self.refusals.values()), None)


def plan_probes(name: str, pids: Sequence[int]) -> ProbePlan:
    """Find out what has to be done; the processes are not touched."""
    states: dict[int, Attachability] = {pid: attachability(pid) for pid in pids}
    possible = [pid for pid, state in states.items() if state.state is AttachState.CAN_ATTACH]
    targets = [state.target for pid, state in states.items() if pid in possible]
    return ProbePlan(
        name,
        tuple(pid for pid, state in states.items() if state.state is AttachState.PROBE),
        tuple(possible),
        {pid: state.problem for pid, state in states.items() if state.problem is not None},
        all(target is not None and not target.is_foreign for target in targets),
    )


def plan_for(pid: int) -> ProbePlan:
    """What has to be done so that the training run to which a process belongs has probes.

    Raises:
        CommandError: It is gpumon itself, or has started several jobs.
    """
    if pid == os.getpid():
        raise CommandError.usage(ProblemCode.INVALID_VALUE, f"PID {pid} is gpumon itself.")
    target = with_all_ranks(find_target(str(pid)))
    return plan_probes(target.name, target.pids)


def load_probes(
    pids: Sequence[int], on_wait: Callable[[Target], None] | None = None, timeout_seconds: float = TIMEOUT_SECONDS
) -> Mapping[int, Attached | CommandError]:
    """Load the probe into processes, all at the same time; returns the result or the error of each.

    ``on_wait`` is called, perhaps from a thread, with a process that has not run the request after 3 s.
    """

    def load(pid: int) -> Attached | CommandError:
        try:
            return attach(pid, timeout_seconds, on_wait)
        except CommandError as error:
            return error

    if len(pids) == 1:  # in the thread of the caller, which ctrl+c interrupts
        return {pids[0]: load(pids[0])}
    with ThreadPoolExecutor(min(len(pids), _MAX_AT_ONCE)) as pool:
        return dict(zip(pids, pool.map(load, pids), strict=True))


def waiting_text(target: Target) -> str:
    """That a process has accepted the probe and does not run it, and where its main thread is."""
    place = _main_thread_text(target.pid)
    return f"{target} has accepted the probe, and has run no Python code since: {place} Ctrl-C withdraws the request."


def _main_thread_text(pid: int) -> str:
    """Where the main thread of a process is, as far as it can be read from outside."""
    try:
        frames = next((thread.frames for thread in read_threads(pid) if thread.is_main), ())
    except OutsideError as error:
        return f"its main thread is in C code. {error.problem.reason}"
    line = line_of(RankEvidence(0, stack=frames))
    call = collective_function(frames)
    return f"its main thread is at {line or 'an unknown line'}{f' in {call}' if call else ''}."
