"""Errors on purpose: a program with a mistake fails in a separate process, and the same program runs with the fix."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from typing import TYPE_CHECKING

from _kit import HIGHER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, choice, integer
from _kit.memory import budget_of
from _kit.mistake import Mistake
from _kit.mistakes import MISTAKES
from _kit.snippet import FILE_NAME, FinishedProgram, run_code

if TYPE_CHECKING:
    from _kit.context import Context

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_EXPECTED_SECONDS = 10.0
"""Duration of one process: start of Python, import of torch, CUDA context."""
_ON_CPU = tuple(mistake.name for mistake in MISTAKES.values() if mistake.on_cpu)
_DESTROY_CONTEXT = tuple(mistake.name for mistake in MISTAKES.values() if mistake.kills)


def visible_gpu(ordinal: int, visible: str | None) -> str:
    """Returns the value of CUDA_VISIBLE_DEVICES for a process that sees one GPU only.

    Args:
        ordinal: CUDA index of the GPU in this process.
        visible: CUDA_VISIBLE_DEVICES of this process, or None.
    """
    return str(ordinal) if visible is None else visible.split(",")[ordinal].strip()


def shown(code: str, environment: dict[str, str]) -> str:
    """Returns a program with the command that runs it, as text."""
    settings = "".join(f"{name}={value} " for name, value in environment.items())
    lines = [f"$ {settings}python {FILE_NAME}", *code.splitlines()]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def verdict_of(context: Context, mistake: Mistake, wrong: FinishedProgram, fixed: FinishedProgram) -> Verdict:
    """Returns the verdict: the mistake must raise its expected error, and the fixed program must print its answer."""
    kind, text = wrong.error
    first = text.partition("\n")[0]
    if not wrong.exit_code:
        behavior = "did not end in time" if wrong.exit_code is None else "ran without an error"
        return context.fail(f"The program with the mistake {behavior} with this version of torch.")
    if not is_expected(mistake, wrong):
        return context.fail(f"The program with the mistake failed with a different error: {kind}: {first}")
    if fixed.exit_code != 0:
        kind, text = fixed.error
        return context.fail(f"The fixed program fails: {kind}: {text.partition(chr(10))[0]}")
    if fixed.answer != mistake.answer:
        return context.fail(f"The fixed program prints {fixed.answer!r} instead of {mistake.answer!r}.")
    return context.ok(f"{kind} occurred as expected. {mistake.fix} The fixed program prints {fixed.answer}.")


def is_expected(mistake: Mistake, wrong: FinishedProgram) -> bool:
    """Returns whether the program failed with the expected error."""
    return bool(wrong.exit_code) and re.search(mistake.wording, wrong.error[1]) is not None


def _require(context: Context, mistake: Mistake) -> None:
    """Checks that the mistake can be made on this device.

    Raises:
        UnsupportedError: The device or a required module is missing.
    """
    if not context.on_gpu and not mistake.on_cpu:
        raise UnsupportedError(
            f"The error {mistake.name} occurs only on a GPU. Choose a GPU, or one of {', '.join(_ON_CPU)}."
        )
    for module in mistake.modules:
        if importlib.util.find_spec(module) is None:
            raise UnsupportedError(f"{mistake.name} needs the module {module}, which this interpreter cannot import.")
    if context.on_gpu:
        budget_of(mistake.memory_bytes, context.free_memory()[0], mistake.memory_bytes)


def _uses(context: Context) -> Uses:
    mistake = MISTAKES[context.parameters.error]
    _require(context, mistake)
    memory = mistake.memory_bytes if context.on_gpu else 0
    return Uses(memory, 2 * _EXPECTED_SECONDS, asks=mistake.kills)


def _environment(context: Context, mistake: Mistake) -> dict[str, str]:
    """Returns environment variables for both processes, which see only the chosen GPU, or none on the CPU."""
    visible = visible_gpu(context.chip.ordinal, os.environ.get(_VISIBLE)) if context.chip is not None else ""
    return {_VISIBLE: visible, **mistake.environment}


def _try(context: Context, code: str, environment: dict[str, str]) -> FinishedProgram:
    """Runs a program and copies its output to the log."""
    program = run_code(code, {**os.environ, **environment}, context.parameters.limit_seconds, lambda: context.cancelled)
    sys.stdout.write(program.stdout)
    sys.stderr.write(program.stderr)
    return program


def _run(context: Context) -> Verdict:
    mistake = MISTAKES[context.parameters.error]
    device, environment = context.device.type, _environment(context, mistake)
    code = mistake.wrong_code(device)
    settings = {**mistake.environment, **mistake.wrong_environment}
    context.step(f"{mistake.what} In a separate process:\n{shown(code, settings)}")
    wrong = _try(context, code, {**environment, **mistake.wrong_environment})
    context.progress(1, 2)
    if context.cancelled:
        return context.warn("")
    if wrong.exit_code:
        context.error_text(*wrong.error)
    code = mistake.fixed_code(device)
    settings = {**mistake.environment, **{name: environment[name] for name in mistake.wrong_environment}}
    context.step(f"{mistake.fix} Again, with the fix:\n{shown(code, settings)}")
    fixed = _try(context, code, environment)
    context.progress(2, 2)
    context.checked += 1
    context.result("until_the_error", wrong.seconds, repetitions=1)
    context.result("fixed", fixed.seconds, repetitions=1)
    context.result("expected_errors", int(is_expected(mistake, wrong)), repetitions=1)
    context.result("right_results", int(fixed.exit_code == 0 and fixed.answer == mistake.answer), repetitions=1)
    return verdict_of(context, mistake, wrong, fixed)


WORKLOAD = Workload(
    name="errors",
    purpose="Makes a common mistake on purpose, explains the error, and runs the same program with the fix.",
    needs="A GPU with 512 MiB of free memory; some errors also occur on the CPU.",
    uses=_uses,
    run=_run,
    main_metric="expected_errors",
    metrics=(
        DeclaredMetric("until_the_error", "s"),
        DeclaredMetric("fixed", "s"),
        DeclaredMetric("*", "of 1", HIGHER, format="count"),
    ),
    parameters=(
        choice(
            "error",
            "oom",
            tuple(MISTAKES),
            f"The mistake to make. {', '.join(_DESTROY_CONTEXT)} destroys the CUDA context of a child process and "
            f"needs confirmation. On the CPU: {', '.join(_ON_CPU)}.",
            default_cpu="shape",
        ),
        integer("limit_seconds", 120, 5, 600, "Time limit for each of the two processes.", unit="s"),
    ),
)
