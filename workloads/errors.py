"""Errors on purpose: a mistake is made in a process of its own, its error is shown, and the same code, mended, runs."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from typing import TYPE_CHECKING

from _kit import NotHereError, Uses, Verdict, Workload, choice, integer
from _kit.memory import budget_of
from _kit.mistake import Mistake
from _kit.mistakes import MISTAKES
from _kit.snippet import FILE_NAME, Ran, run_code

if TYPE_CHECKING:
    from _kit.context import Context

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_EXPECTED_SECONDS = 10.0
"""Of one process: Python, torch, a CUDA context."""
_ON_CPU = tuple(each.name for each in MISTAKES.values() if each.on_cpu)
_DEADLY = tuple(each.name for each in MISTAKES.values() if each.kills)


def visible_gpu(ordinal: int, visible: str | None) -> str:
    """What CUDA_VISIBLE_DEVICES must be for a process that is to see one GPU alone.

    Args:
        ordinal: The GPU as this process numbers it.
        visible: What CUDA_VISIBLE_DEVICES is for this process, or None.
    """
    return str(ordinal) if visible is None else visible.split(",")[ordinal].strip()


def shown(code: str, environment: dict[str, str]) -> str:
    """A file with the command that runs it, to be read."""
    settings = "".join(f"{name}={value} " for name, value in environment.items())
    lines = [f"$ {settings}python {FILE_NAME}", *code.splitlines()]
    return "\n".join(f"    {each}".rstrip() for each in lines)


def verdict_of(context: Context, mistake: Mistake, wrong: Ran, mended: Ran) -> Verdict:
    """The verdict: the mistake must fail with its own error, and the mended code must print what is right."""
    kind, text = wrong.error
    first = text.partition("\n")[0]
    if not wrong.exit_code:
        said = "did not end in time" if wrong.exit_code is None else "ran without an error"
        return context.fail(f"The code with the mistake {said}: this torch takes it otherwise.")
    if not is_expected(mistake, wrong):
        return context.fail(f"The code with the mistake failed with another error: {kind}: {first}")
    if mended.exit_code != 0:
        kind, text = mended.error
        return context.fail(f"The mended code does not run: {kind}: {text.partition(chr(10))[0]}")
    if mended.answer != mistake.answer:
        return context.fail(f"The mended code prints {mended.answer!r} instead of {mistake.answer!r}.")
    return context.ok(f"{kind} came as expected. {mistake.mending} Mended so, the same code prints {mended.answer}.")


def is_expected(mistake: Mistake, wrong: Ran) -> bool:
    """Whether it failed with the mistake's own error."""
    return bool(wrong.exit_code) and re.search(mistake.wording, wrong.error[1]) is not None


def _require(context: Context, mistake: Mistake) -> None:
    """Looks whether it can be shown here.

    Raises:
        NotHereError: It cannot.
    """
    if not context.on_gpu and not mistake.on_cpu:
        raise NotHereError(
            f"{mistake.name} cannot be shown on the CPU: it is an error of a GPU. Choose a GPU, or one of "
            f"{', '.join(_ON_CPU)}."
        )
    for module in mistake.modules:
        if importlib.util.find_spec(module) is None:
            raise NotHereError(f"{mistake.name} needs {module}, which this interpreter does not have.")
    if context.on_gpu:
        budget_of(mistake.memory_bytes, context.free_memory()[0], mistake.memory_bytes)


def _uses(context: Context) -> Uses:
    mistake = MISTAKES[context.parameters.error]
    _require(context, mistake)
    memory = mistake.memory_bytes if context.on_gpu else 0
    return Uses(memory, 2 * _EXPECTED_SECONDS, asks=mistake.kills)


def _environment(context: Context, mistake: Mistake) -> dict[str, str]:
    """Variables of both processes that differ from this one's: they see the chosen GPU alone, or none on the CPU."""
    visible = visible_gpu(context.chip.ordinal, os.environ.get(_VISIBLE)) if context.chip is not None else ""
    return {_VISIBLE: visible, **mistake.environment}


def _try(context: Context, code: str, environment: dict[str, str]) -> Ran:
    """Runs a file; what it printed goes to the log as well."""
    ran = run_code(
        code, {**os.environ, **environment}, context.parameters.limit_seconds, unwanted=lambda: context.cancelled
    )
    sys.stdout.write(ran.printed)
    sys.stderr.write(ran.complained)
    return ran


def _run(context: Context) -> Verdict:
    mistake = MISTAKES[context.parameters.error]
    device, environment = context.device.type, _environment(context, mistake)
    code = mistake.wrong_code(device)
    said = {**mistake.environment, **mistake.wrong_environment}
    context.step(f"{mistake.what} In a process of its own:\n{shown(code, said)}")
    wrong = _try(context, code, {**environment, **mistake.wrong_environment})
    context.progress(1, 2)
    if context.cancelled:
        return context.warn("")
    if wrong.exit_code:
        context.tell_error(*wrong.error)
    code = mistake.mended_code(device)
    said = {**mistake.environment, **{name: environment[name] for name in mistake.wrong_environment}}
    context.step(f"{mistake.mending} Once more:\n{shown(code, said)}")
    mended = _try(context, code, environment)
    context.progress(2, 2)
    context.checked += 1
    context.figure("until_the_error", wrong.seconds, "s", 1)
    context.figure("mended", mended.seconds, "s", 1)
    context.figure("expected_errors", int(is_expected(mistake, wrong)), "of 1", 1)
    context.figure("right_results", int(mended.exit_code == 0 and mended.answer == mistake.answer), "of 1", 1)
    return verdict_of(context, mistake, wrong, mended)


WORKLOAD = Workload(
    name="errors",
    purpose="Errors on purpose: one happens in a child, it is explained, and the same code, mended, runs.",
    needs="A GPU and half a GiB of free memory; some errors can be shown on the CPU as well.",
    uses=_uses,
    run=_run,
    parameters=(
        choice(
            "error",
            "oom",
            tuple(MISTAKES),
            f"Which mistake is made. {', '.join(_DEADLY)} kills the CUDA context of the child that meets it, and asks "
            f"first. On the CPU: {', '.join(_ON_CPU)}.",
            default_cpu="shape",
        ),
        integer("limit_seconds", 120, 5, 600, "How long each of the two processes may take.", unit="s"),
    ),
)
