"""Loads the probe into the processes of a training run from a screen, after a question."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.operations.attaching import ProbePlan, load_probes, plan_for
from gpumon.probe.attach import Attached
from gpumon.ui.screens.base import BaseScreen
from gpumon.ui.screens.confirm import LoadProbeDialog


def ask_for_probe(screen: BaseScreen[Any], pid: int, policy: str, then: Callable[[Problem | None], None]) -> None:
    """Load the probe into the job of a process if it has none and the user agrees.

    Args:
        screen: The screen in front.
        pid: One of the processes.
        policy: ``ask``; ``own`` asks for other users only; or ``never``.
        then: Receives why the process has no probe; None if it has one.
    """

    def decide(plan: ProbePlan | CommandError) -> None:
        if isinstance(plan, CommandError):
            then(plan.problem)
        elif not plan.possible:
            then(plan.refusal)
        elif policy == "never":
            then(Problem(ProblemCode.NOT_READ, "This gpumon loads no probes: it is read-only, or load_probe is never."))
        elif policy == "own" and plan.is_own:
            load(plan, True)
        else:
            screen.app.push_screen(LoadProbeDialog(plan.question), partial(load, plan))

    def load(plan: ProbePlan, agreed: bool | None) -> None:
        if not agreed:
            then(Problem(ProblemCode.NOT_READ, "The probe was not loaded."))
            return
        screen.in_background(partial(load_probes, plan.possible), finish)

    def finish(results: Mapping[int, Attached | CommandError]) -> None:
        failed = results.get(pid) or next(iter(results.values()))
        then(failed.problem if isinstance(failed, CommandError) else None)

    screen.attempt(partial(plan_for, pid), decide)
