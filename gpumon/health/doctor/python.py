"""Checks of a Python: its torch, whether CUDA initializes in it, and whether kernels compute correctly."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.core.text_table import table
from gpumon.core.units import counted
from gpumon.health.checks import Check, CheckResult, fail, ok, skip, warn
from gpumon.health.doctor.check import Facts, gpus_of, guarded, joined
from gpumon.health.doctor.compatibility import (
    WHEELS,
    architectures,
    cuda_of,
    devices,
    fits_driver,
    loaded_twice,
    no_cuda,
    not_reached,
    package_conflicts,
)
from gpumon.health.doctor.facts import Python, Pythons

Judge = Callable[[Python, Frame | Problem], CheckResult]

PYTHON_FOUND: Final = "python.found"

_NAME_ONE: Final = "Activate your training environment, or name its interpreter with --python."
_NAME_FOREIGN: Final = "Run gpumon as the owner, or name the interpreter with --python to run it as root."
_REINSTALL: Final = "Install torch in a new environment."
_SEE_XIDS: Final = "Check for an Xid: dmesg | grep -i xid."
_FIXES: Final = [
    (text, fix.format(wheels=WHEELS))
    for text, fix in (row.split(" | ") for row in table("gpumon.health.doctor", "torch_errors"))
]


def python_checks(facts: Facts) -> Iterator[Check]:
    """The checks of every Python that has torch; `Pythons` and `Frame` must be among the facts."""
    pythons, frame = facts[Pythons], facts[Frame]
    if isinstance(pythons, Problem):
        yield fail(pythons.reason, _NAME_ONE).named(PYTHON_FOUND)
        return
    assert isinstance(pythons, Pythons)
    assert isinstance(frame, (Frame, Problem))
    yield python_found(pythons).named(PYTHON_FOUND)
    for number, python in enumerate((python for python in pythons.asked if python.has_torch), 1):
        for name, judge in PYTHON_JUDGES:
            yield guarded(partial(judge, python, frame)).named(f"python{number}.{name}")


def python_found(pythons: Pythons) -> CheckResult:
    """There is a Python with torch."""
    names = {python.path: f"{python.path} ({python.found_in})" for python in pythons.asked}
    with_torch = [python for python in pythons.asked if python.has_torch]
    refusals = [(python, python.refusal) for python in pythons.asked if python.refusal is not None]
    refused = [f"{names[python.path]} was not run. {problem.reason}" for python, problem in refusals]
    if with_torch:
        listed = "; ".join(f"{number}: {names[python.path]}" for number, python in enumerate(with_torch, 1))
        return warn(f"{listed}. {joined(refused)}", _NAME_FOREIGN) if refused else ok(listed)
    failed = [
        f"{python.path} cannot be examined: {python.steps.ended_by}."
        for python in pythons.asked
        if python.steps.ended_by
    ]
    if pythons.was_named:
        missing = f"torch is not installed in {'; '.join(names)}."
        return fail(joined(failed) or missing, "Install torch there, or name another interpreter.")
    searched = f"No Python with torch was found. Examined: {'; '.join(names.values()) or 'none'}."
    return warn(joined((searched, *refused, *failed)), _NAME_FOREIGN if refused else _NAME_ONE)


def imported(python: Python, _: Frame | Problem) -> CheckResult:
    """Torch can be imported."""
    error = python.steps.error("import")
    if error:
        return fail(f"import torch failed: {error}", _fix_of(error, _REINSTALL))
    step = python.steps.get("import")
    if step is None:
        return not_reached(python)
    version = python.steps.value("python", "version")
    return ok(f"torch {step.answer.get('version')} on Python {version}, imported in {step.seconds:.1f} s")


def built_with_cuda(python: Python, frame: Frame | Problem) -> CheckResult:
    """This torch was built with CUDA."""
    if python.steps.get("import") is None or python.steps.error("import"):
        return not_reached(python)
    version = cuda_of(python)
    if version is not None:
        return ok(f"CUDA {version}")
    if python.steps.value("import", "hip"):
        return fail("This torch was built for ROCm (AMD GPUs).", f"Install a torch for CUDA: {WHEELS}.")
    if isinstance(gpus_of(frame), Problem):
        return skip("This torch was built for the CPU only, and no GPU responds.")
    return fail("This torch was built for the CPU only.", f"Replace it with a torch for CUDA: {WHEELS}.")


def available(python: Python, frame: Frame | Problem) -> CheckResult:
    """torch.cuda.is_available() is True."""
    if cuda_of(python) is None:
        return no_cuda(python)
    error = python.steps.error("available")
    if error:
        return fail(f"torch.cuda.is_available() failed: {error}", _fix_of(error))
    if python.steps.get("available") is None:
        return not_reached(python)
    if _has_cuda(python):
        return ok(counted(int(python.steps.value("available", "count")), "GPU"))
    reason = python.steps.error("start") or joined(python.steps.value("available", "warnings") or ())
    fix = frame.remedy if isinstance(frame, Problem) else ""
    return fail(f"torch.cuda.is_available() is False: {reason or 'torch gives no reason'}", fix or _fix_of(reason))


def kernels(python: Python, _: Frame | Problem) -> CheckResult:
    """A first kernel computes the correct result on each GPU."""
    if not _has_cuda(python):
        return no_cuda(python)
    ordinals = range(len(python.steps.value("devices", "devices") or ()))
    errors = {ordinal: python.steps.error(f"kernel {ordinal}") for ordinal in ordinals}
    failed = next((ordinal for ordinal in ordinals if errors[ordinal]), None)
    if failed is not None:
        return fail(f"The first kernel failed on cuda:{failed}: {errors[failed]}", _fix_of(errors[failed]))
    done = [ordinal for ordinal in ordinals if python.steps.get(f"kernel {ordinal}") is not None]
    wrong = [ordinal for ordinal in done if not python.steps.value(f"kernel {ordinal}", "is_right")]
    if wrong:
        return fail(f"Wrong results on {', '.join(f'cuda:{ordinal}' for ordinal in wrong)}.", _SEE_XIDS)
    excluded = len(ordinals) - len(done)
    rest = f"; {counted(excluded, 'GPU')} not tested" if excluded else ""
    if not done:
        return skip("No GPU was tested: none has enough free memory, or the test was not allowed.")
    return ok(f"correct on {counted(len(done), 'GPU')}{rest}")


def cublas(python: Python, _: Frame | Problem) -> CheckResult:
    """CuBLAS computes a correct matrix product."""
    return _fault_of(python, "cublas") or ok("matrix product correct")


def cudnn(python: Python, _: Frame | Problem) -> CheckResult:
    """CuDNN computes a correct convolution."""
    fault = _fault_of(python, "cudnn")
    if fault is not None:
        return fault
    if not python.steps.value("cudnn", "is_there"):
        return warn("This torch has no cuDNN: convolutions are slow.", _REINSTALL)
    return ok(f"cuDNN {python.steps.value('cudnn', 'version')}, convolution correct")


def nccl(python: Python, _: Frame | Problem) -> CheckResult:
    """NCCL is available for training on several GPUs."""
    if not _has_cuda(python):
        return no_cuda(python)
    error = python.steps.error("nccl")
    if error:
        return fail(f"NCCL cannot be loaded: {error}", _REINSTALL)
    if python.steps.get("nccl") is None:
        return not_reached(python)
    if not python.steps.value("nccl", "is_there"):
        return warn(
            "This torch was built without NCCL.", f"To train on several GPUs, install a torch with it: {WHEELS}."
        )
    return ok(f"NCCL {python.steps.value('nccl', 'version')}")


def packages(python: Python, _: Frame | Problem) -> CheckResult:
    """The packages around torch have the versions that it was built with."""
    installed = python.steps.value("packages", "installed")
    if installed is None:
        return not_reached(python)
    faults = list(package_conflicts(installed, python.steps.value("packages", "pins") or (), cuda_of(python)))
    faults += loaded_twice(python.steps.value("libraries", "paths") or ())
    return warn(joined(faults), _REINSTALL) if faults else ok(f"{counted(len(installed), 'package')}, no conflicts")


def settings(python: Python, _: Frame | Problem) -> CheckResult:
    """This torch accepts the allocator's configuration."""
    errors: dict[str, Any] = python.steps.value("allocator", "said") or {}
    rejected = [f"{name}: {error}." for name, error in errors.items() if error]
    if rejected:
        return fail(f"torch rejects {joined(rejected)}", "See the check environment.allocator.")
    return ok("accepted") if errors else skip("The allocator is not configured.")


def _has_cuda(python: Python) -> bool:
    return python.steps.value("available", "available") is True


def _fault_of(python: Python, step: str) -> CheckResult | None:
    """What is wrong with a step that computes, or None."""
    if not _has_cuda(python):
        return no_cuda(python)
    error = python.steps.error(step)
    if error:
        return fail(f"The test failed: {error}", _fix_of(error))
    if python.steps.get(step) is None:
        return not_reached(python) if python.steps.ended_by else skip("No GPU was tested.")
    return None if python.steps.value(step, "is_right") else fail("The result is wrong.", _SEE_XIDS)


def _fix_of(error: str, default: str = _SEE_XIDS) -> str:
    return next((fix for text, fix in _FIXES if text in error), default)


PYTHON_JUDGES: Final[tuple[tuple[str, Judge], ...]] = (
    ("torch", imported),
    ("cuda", built_with_cuda),
    ("driver", fits_driver),
    ("architectures", architectures),
    ("available", available),
    ("devices", devices),
    ("kernel", kernels),
    ("cublas", cublas),
    ("cudnn", cudnn),
    ("nccl", nccl),
    ("packages", packages),
    ("allocator", settings),
)
