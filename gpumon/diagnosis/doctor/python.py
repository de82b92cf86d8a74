"""Checks of a Python: its torch, whether that starts CUDA, and whether it computes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.diagnosis.checks import Check, Finding, fail, ok, skip, warn
from gpumon.diagnosis.doctor.facts import Python, Pythons
from gpumon.diagnosis.doctor.fit import WHEELS, architectures, cuda_of, fits_driver, no_cuda, not_reached
from gpumon.diagnosis.doctor.order import devices
from gpumon.diagnosis.doctor.rule import Facts, gpus_of, judged
from gpumon.diagnosis.doctor.wheels import loaded_twice, mixed
from gpumon.diagnosis.doctor.wording import counted, sentences

Judge = Callable[[Python, Frame | Problem], Finding]

FOUND: Final = "python.found"

_NAME_ONE: Final = "Activate your training environment, or name its interpreter with --python."
_REINSTALL: Final = "Install torch anew in a fresh environment."
_LOOK_DEEPER: Final = "dmesg | grep -i xid tells whether the GPU failed."
_FIXES: Final = {
    "no answer within": "Try again, for a slow disk or a busy machine takes long; if it stays so, look at dmesg.",
    "no kernel image": f"Install a torch that was built for this GPU: {WHEELS}.",
    "out of memory": "See who holds the memory with gpumon, or take another GPU with CUDA_VISIBLE_DEVICES.",
    "busy or unavailable": "Look at the compute mode: nvidia-smi -q -d COMPUTE.",
    "is too old": f"Update the driver, or install a torch for an older CUDA: {WHEELS}.",
    "Error 802": "Start the fabric manager: sudo systemctl enable --now nvidia-fabricmanager.",
    "Error 803": "Reboot, or load the nvidia kernel modules anew: libraries and driver differ.",
    "No CUDA GPUs": "Look at CUDA_VISIBLE_DEVICES and nvidia-smi -L; in a container, start it with --gpus all.",
    "no CUDA-capable device": "Look at CUDA_VISIBLE_DEVICES and nvidia-smi -L.",
    "no NVIDIA driver": "Install the driver; in a container, start it with --gpus all.",
}
"""What to do about an error in which these words stand."""


def python_checks(facts: Facts) -> Iterator[Check]:
    """The checks of every Python that has torch; `Pythons` and `Frame` must be among the facts."""
    pythons, frame = facts[Pythons], facts[Frame]
    if isinstance(pythons, Problem):
        yield fail(pythons.reason, _NAME_ONE).named(FOUND)
        return
    assert isinstance(pythons, Pythons)
    assert isinstance(frame, (Frame, Problem))
    yield found(pythons).named(FOUND)
    for number, python in enumerate((each for each in pythons.asked if each.has_torch), 1):
        for name, judge in PYTHON_JUDGES:
            yield judged(partial(judge, python, frame)).named(f"python{number}.{name}")


def found(pythons: Pythons) -> Finding:
    """There is a Python with torch."""
    named = {each.path: f"{each.path} ({each.found_in})" for each in pythons.asked}
    with_torch = [each for each in pythons.asked if each.has_torch]
    if with_torch:
        return ok("; ".join(f"{number}: {named[each.path]}" for number, each in enumerate(with_torch, 1)))
    ended = [f"{each.path} cannot be asked: {each.steps.ended_by}." for each in pythons.asked if each.steps.ended_by]
    if pythons.was_named:
        nothing = f"{'; '.join(named)} has no torch."
        return fail(sentences(ended) or nothing, "Install torch there, or name another one.")
    looked = f"No Python with torch was found. Looked at: {'; '.join(named.values()) or 'none'}."
    return warn(sentences((looked, *ended)), _NAME_ONE)


def imported(python: Python, _: Frame | Problem) -> Finding:
    """The import of torch works."""
    error = python.steps.error("import")
    if error:
        return fail(f"import torch failed: {error}", _fix_of(error, _REINSTALL))
    step = python.steps.get("import")
    if step is None:
        return not_reached(python)
    version = python.steps.value("python", "version")
    return ok(f"torch {step.answer.get('version')} on Python {version}, imported in {step.seconds:.1f} s")


def built_with_cuda(python: Python, frame: Frame | Problem) -> Finding:
    """This torch was built for CUDA."""
    if python.steps.get("import") is None or python.steps.error("import"):
        return not_reached(python)
    version = cuda_of(python)
    if version is not None:
        return ok(f"CUDA {version}")
    if python.steps.value("import", "hip"):
        return fail("This torch was built for ROCm, that is, for AMD's GPUs.", f"Install one for CUDA: {WHEELS}.")
    if isinstance(gpus_of(frame), Problem):
        return skip("This torch was built for the CPU alone, and there is no GPU that answers.")
    return fail("This torch was built for the CPU alone.", f"Install one for CUDA in its place: {WHEELS}.")


def available(python: Python, frame: Frame | Problem) -> Finding:
    """The torch says that CUDA is available."""
    if cuda_of(python) is None:
        return no_cuda(python)
    error = python.steps.error("available")
    if error:
        return fail(f"torch.cuda.is_available() failed: {error}", _fix_of(error))
    if python.steps.get("available") is None:
        return not_reached(python)
    if _starts(python):
        return ok(counted(int(python.steps.value("available", "count")), "GPU"))
    said = python.steps.error("start") or sentences(python.steps.value("available", "warnings") or ())
    fix = frame.remedy if isinstance(frame, Problem) else ""
    return fail(f"torch.cuda.is_available() says no: {said or 'it gives no reason'}", fix or _fix_of(said))


def kernels(python: Python, _: Frame | Problem) -> Finding:
    """A first kernel computes what it should, on each GPU."""
    if not _starts(python):
        return no_cuda(python)
    places = range(len(python.steps.value("devices", "devices") or ()))
    errors = {place: python.steps.error(f"kernel {place}") for place in places}
    failed = next((place for place in places if errors[place]), None)
    if failed is not None:
        return fail(f"The first kernel failed on cuda:{failed}: {errors[failed]}", _fix_of(errors[failed]))
    done = [place for place in places if python.steps.get(f"kernel {place}") is not None]
    wrong = [place for place in done if not python.steps.value(f"kernel {place}", "is_right")]
    if wrong:
        return fail(f"Wrong results on {', '.join(f'cuda:{place}' for place in wrong)}.", _LOOK_DEEPER)
    left_out = len(places) - len(done)
    rest = f"; {counted(left_out, 'GPU')} left out" if left_out else ""
    if not done:
        return skip("No GPU was tried: none has memory free for it, or none was to be touched.")
    return ok(f"right on {counted(len(done), 'GPU')}{rest}")


def cublas(python: Python, _: Frame | Problem) -> Finding:
    """A matrix product, by cuBLAS."""
    return _computes(python, "cublas") or ok("a matrix product is right")


def cudnn(python: Python, _: Frame | Problem) -> Finding:
    """A convolution, by cuDNN."""
    unwell = _computes(python, "cudnn")
    if unwell is not None:
        return unwell
    if not python.steps.value("cudnn", "is_there"):
        return warn("This torch runs without cuDNN: convolutions are slow.", _REINSTALL)
    return ok(f"cuDNN {python.steps.value('cudnn', 'version')}, a convolution is right")


def nccl(python: Python, _: Frame | Problem) -> Finding:
    """NCCL is there, for training on several GPUs."""
    if not _starts(python):
        return no_cuda(python)
    error = python.steps.error("nccl")
    if error:
        return fail(f"NCCL cannot be loaded: {error}", _REINSTALL)
    if python.steps.get("nccl") is None:
        return not_reached(python)
    if not python.steps.value("nccl", "is_there"):
        return warn("This torch was built without NCCL.", f"Install one that has it, for several GPUs: {WHEELS}.")
    return ok(f"NCCL {python.steps.value('nccl', 'version')}")


def packages(python: Python, _: Frame | Problem) -> Finding:
    """The packages around torch are those that it was built with."""
    installed = python.steps.value("packages", "installed")
    if installed is None:
        return not_reached(python)
    faults = list(mixed(installed, python.steps.value("packages", "pins") or (), cuda_of(python)))
    faults += loaded_twice(python.steps.value("libraries", "paths") or ())
    return warn(sentences(faults), _REINSTALL) if faults else ok(f"{counted(len(installed), 'package')}, no mix")


def settings(python: Python, _: Frame | Problem) -> Finding:
    """This torch accepts the allocator's configuration."""
    said: dict[str, Any] = python.steps.value("allocator", "said") or {}
    refused = [f"{name}: {fault}." for name, fault in said.items() if fault]
    if refused:
        return fail(f"torch refuses {sentences(refused)}", "The check environment.allocator tells more.")
    return ok("accepted") if said else skip("No configuration of the allocator is set.")


def _starts(python: Python) -> bool:
    return python.steps.value("available", "available") is True


def _computes(python: Python, step: str) -> Finding | None:
    """What speaks against a step that computes, or None."""
    if not _starts(python):
        return no_cuda(python)
    error = python.steps.error(step)
    if error:
        return fail(f"It failed: {error}", _fix_of(error))
    if python.steps.get(step) is None:
        return not_reached(python) if python.steps.ended_by else skip("No GPU was tried.")
    return None if python.steps.value(step, "is_right") else fail("The result is wrong.", _LOOK_DEEPER)


def _fix_of(error: str, otherwise: str = _LOOK_DEEPER) -> str:
    return next((fix for words, fix in _FIXES.items() if words in error), otherwise)


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
