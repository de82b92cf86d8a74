"""Checks of environment variables that change what CUDA, NCCL, and PyTorch do."""

from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.core.text import safe_text
from gpumon.core.units import counted
from gpumon.health.checks import CheckResult, fail, ok, skip, warn
from gpumon.health.doctor import allocator
from gpumon.health.doctor.check import DoctorCheck, joined
from gpumon.health.doctor.facts import Environment

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_MAX_CONNECTIONS: Final = 32
MAX_VALUE: Final = 60
"""Characters of a value that are shown."""


class _Remark(NamedTuple):
    """What to report about a variable with a certain value.

    Attributes:
        name: The variable.
        matches: Whether the value is such a one.
        effect: What the variable does then: a clause that follows ``NAME=value``.
        fix: What to do.
    """

    name: str
    matches: Callable[[str], bool]
    effect: str
    fix: str = ""


def _is_on(value: str) -> bool:
    return value.strip() not in {"", "0"}


def _is_off(value: str) -> bool:
    return value.strip() == "0"


def _is_connections(value: str) -> bool:
    return value.isdecimal() and 1 <= int(value) <= _MAX_CONNECTIONS


_VALID_VALUE: Final = "Set a valid value."
_CUDA: Final = (
    _Remark("CUDA_LAUNCH_BLOCKING", _is_on, "makes every kernel launch synchronous: good for tracebacks, but slow"),
    _Remark("CUDA_CACHE_DISABLE", _is_on, "disables the kernel cache: kernels are compiled again at each start"),
    _Remark("CUDA_FORCE_PTX_JIT", _is_on, "compiles every kernel from PTX at start, which takes minutes"),
    _Remark("CUDA_INJECTION64_PATH", _is_on, "loads a profiler into every CUDA program"),
    _Remark("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", _is_on, "writes a core dump after a GPU exception"),
    _Remark(
        "CUDA_DEVICE_ORDER",
        lambda value: value not in {"PCI_BUS_ID", "FASTEST_FIRST"},
        "is ignored: valid values are PCI_BUS_ID and FASTEST_FIRST",
        _VALID_VALUE,
    ),
    _Remark(
        "CUDA_MODULE_LOADING",
        lambda value: value not in {"LAZY", "EAGER", "DEFAULT"},
        "is ignored: valid values are LAZY and EAGER",
        _VALID_VALUE,
    ),
    _Remark(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        lambda value: not _is_connections(value),
        f"is ignored: valid values are 1 to {_MAX_CONNECTIONS}",
        _VALID_VALUE,
    ),
    _Remark("NVIDIA_TF32_OVERRIDE", _is_off, "disables TF32 in all libraries: FP32 matrix products are slow"),
    _Remark("PYTORCH_NO_CUDA_MEMORY_CACHING", _is_on, "disables PyTorch's caching allocator, which is very slow"),
    _Remark(
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        _is_on,
        "enables TF32 whatever the program sets: FP32 results are less precise",
    ),
    _Remark(
        "NVIDIA_VISIBLE_DEVICES",
        lambda value: value == "none",  # with CDI the value is "void", which is fine
        "makes the NVIDIA Container Toolkit give the container no GPU",
        "Start the container with --gpus all.",
    ),
    _Remark(
        "NVIDIA_DRIVER_CAPABILITIES",
        lambda value: value not in {"", "all"} and "compute" not in value.split(","),
        "leaves CUDA out of the container: it lacks compute",
        "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
    ),
)
_NCCL: Final = (
    _Remark("NCCL_P2P_DISABLE", _is_on, "makes NCCL send data between GPUs through the host"),
    _Remark("NCCL_SHM_DISABLE", _is_on, "makes NCCL use the network in place of shared memory"),
    _Remark("NCCL_IB_DISABLE", _is_on, "disables InfiniBand and RoCE"),
    _Remark("NCCL_NVLS_ENABLE", _is_off, "disables NVLink SHARP"),
    _Remark("NCCL_CUMEM_ENABLE", _is_off, "disables memory allocation with cuMem"),
    _Remark("NCCL_DEBUG", lambda value: value.upper() in {"INFO", "TRACE"}, "prints a lot; TRACE is slow"),
    _Remark(
        "NCCL_DEBUG",
        lambda value: value.upper() not in {"", "VERSION", "WARN", "INFO", "ABORT", "TRACE"},
        "is ignored: valid values are VERSION, WARN, INFO and TRACE",
        _VALID_VALUE,
    ),
    _Remark("NCCL_BLOCKING_WAIT", _is_on, "has been renamed", "Use TORCH_NCCL_BLOCKING_WAIT."),
    _Remark("NCCL_ASYNC_ERROR_HANDLING", _is_on, "has been renamed", "Use TORCH_NCCL_ASYNC_ERROR_HANDLING."),
)
_UNSET: Final = "Unset the variable unless you need it."


def visible_devices(environment: Environment, frame: Frame | Problem) -> CheckResult:
    """CUDA_VISIBLE_DEVICES shows every GPU that it names."""
    value = environment.get(_VISIBLE)
    if value is None:
        return ok("not set: programs see every GPU")
    shown = safe_text(value, MAX_VALUE)
    if value.strip() in {"", "-1", "NoDevFiles"}:
        return fail(f"The value {shown!r} hides every GPU from CUDA.", f"unset {_VISIBLE}, or name GPUs in it.")
    if isinstance(frame, Problem) or not frame.devices:
        return skip(f"The value is {shown!r}, and there is no GPU to compare it with.")
    entries = [entry for entry in value.split(",") if entry.strip()]
    visible = sum(device.cuda_index is not None for device in frame.devices)
    if visible == len(entries):
        return ok(f"{shown}: {visible} of {counted(len(frame.gpus), 'GPU')}")
    reasons = [device.problems["cuda_index"] for device in frame.devices if "cuda_index" in device.problems]
    if value.lstrip().startswith("MIG-") or (reasons and all("MIG" in reason.reason for reason in reasons)):
        return skip(f"The value is {shown!r}. With MIG, CUDA counts instances.")
    return fail(
        f"The value {shown!r} has {'1 entry' if len(entries) == 1 else f'{len(entries)} entries'}, but CUDA shows "
        f"{counted(visible, 'GPU')}. CUDA ignores the list from the first invalid entry on, and shows no GPU if an "
        "entry is repeated.",
        f"Name GPUs by index 0 to {len(frame.gpus) - 1}, or by UUID (nvidia-smi -L), each once.",
    )


def cuda(environment: Environment) -> CheckResult:
    """No variable of CUDA or PyTorch slows programs down or is misspelled."""
    return _remarks(environment, _CUDA, "none that slows programs down")


def nccl(environment: Environment) -> CheckResult:
    """No variable of NCCL slows it down or names a missing interface."""
    wanted = environment.get("NCCL_SOCKET_IFNAME")
    if wanted and environment.interfaces and not _matches_interface(wanted, environment.interfaces):
        return fail(
            f"NCCL_SOCKET_IFNAME is {safe_text(wanted, MAX_VALUE)!r}, but no network interface has such a name.",
            f"Name one of: {', '.join(environment.interfaces)}.",
        )
    return _remarks(environment, _NCCL, "none that slows NCCL down")


def allocator_settings(environment: Environment) -> CheckResult:
    """The configuration of PyTorch's allocator is valid."""
    given = {name: environment.variables[name] for name in allocator.VARIABLES if environment.get(name)}
    faults = [f"{name}: {fault}" for name, value in given.items() for fault in allocator.faults(value)]
    if faults:
        return fail(joined(faults), "Write key:value pairs separated by commas; torch stops at the first invalid one.")
    if len(given) == len(allocator.VARIABLES) and len(set(given.values())) > 1:
        return warn(
            "Both variables are set to different values: PYTORCH_ALLOC_CONF has precedence.",
            "Unset PYTORCH_CUDA_ALLOC_CONF.",
        )
    listed = ", ".join(f"{name}={safe_text(value, MAX_VALUE)}" for name, value in given.items())
    return ok(listed or "not set: torch's defaults")


def threads(environment: Environment) -> CheckResult:
    """The number of CPU threads of the libraries makes sense."""
    listed = []
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        value = environment.get(name)
        if value is None:
            continue
        first = value.split(",", maxsplit=1)[0].strip()
        if not first.isdecimal() or int(first) == 0:
            return warn(
                f"{name} is {safe_text(value, MAX_VALUE)!r}, which is not a valid number.",
                "Set a number, or unset the variable.",
            )
        if int(first) > environment.cpu_count:
            return warn(
                f"{name} is {first}, but this host has {counted(environment.cpu_count, 'CPU')}: the threads compete "
                "for them.",
                f"Set at most {environment.cpu_count}, divided by the number of processes on this host.",
            )
        listed.append(f"{name}={first}")
    return ok(", ".join(listed) or "not set: libraries use every CPU")


def libraries(environment: Environment) -> CheckResult:
    """The loader finds the CUDA libraries of the wheels first."""
    preload = environment.get("LD_PRELOAD")
    if preload:
        return warn(f"LD_PRELOAD loads {safe_text(preload, MAX_VALUE)} into every program.", _UNSET)
    folders = [folder for folder in (environment.get("LD_LIBRARY_PATH") or "").split(":") if folder]
    named = [folder for folder in folders if any(part in folder.lower() for part in ("cuda", "cudnn", "nccl"))]
    if named:
        return warn(
            f"LD_LIBRARY_PATH names {', '.join(safe_text(folder, MAX_VALUE) for folder in named)}: libraries there "
            "have precedence over those that torch was installed with.",
            "unset LD_LIBRARY_PATH for PyTorch, unless an extension needs it.",
        )
    return ok("LD_LIBRARY_PATH names no CUDA libraries" if folders else "LD_LIBRARY_PATH is not set")


def _remarks(environment: Environment, remarks: tuple[_Remark, ...], ok_text: str) -> CheckResult:
    given = environment.variables
    matches = [remark for remark in remarks if remark.name in given and remark.matches(given[remark.name])]
    if not matches:
        return ok(ok_text)
    effects = [f"{match.name}={safe_text(given[match.name], MAX_VALUE)} {match.effect}." for match in matches]
    return warn(joined(effects), joined(match.fix or _UNSET for match in matches))


def _matches_interface(wanted: str, interfaces: tuple[str, ...]) -> bool:
    """Whether NCCL's list selects an interface: prefixes, ``=`` for exact names, ``^`` for all but these."""
    is_exclusion, text = wanted.startswith("^"), wanted.removeprefix("^")
    is_exact, names = text.startswith("="), text.removeprefix("=").split(",")

    def is_named(interface: str) -> bool:
        return any(interface == name if is_exact else interface.startswith(name) for name in names if name)

    return any(is_named(interface) != is_exclusion for interface in interfaces)


ENVIRONMENT_CHECKS: Final = (
    DoctorCheck("environment.visible_devices", visible_devices, (Environment, Frame), may_lack=(Frame,)),
    DoctorCheck("environment.cuda", cuda, (Environment,)),
    DoctorCheck("environment.nccl", nccl, (Environment,)),
    DoctorCheck("environment.allocator", allocator_settings, (Environment,)),
    DoctorCheck("environment.threads", threads, (Environment,)),
    DoctorCheck("environment.libraries", libraries, (Environment,)),
)
