"""Checks of environment variables that change what CUDA, NCCL and PyTorch do."""

from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.core.text import safe_text
from gpumon.diagnosis.checks import Finding, fail, ok, skip, warn
from gpumon.diagnosis.doctor import allocator
from gpumon.diagnosis.doctor.facts import Environment
from gpumon.diagnosis.doctor.rule import Rule
from gpumon.diagnosis.doctor.wording import counted, sentences

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_MOST_CONNECTIONS: Final = 32
_SHOWN: Final = 60


class _Remark(NamedTuple):
    """What is said of a variable that has a certain value.

    Attributes:
        name: The variable.
        holds: Whether it has that value.
        says: What it does.
        fix: What to do.
    """

    name: str
    holds: Callable[[str], bool]
    says: str
    fix: str = ""


def _is_on(value: str) -> bool:
    return value.strip() not in {"", "0"}


def _is_off(value: str) -> bool:
    return value.strip() == "0"


def _is_connections(value: str) -> bool:
    return value.isdecimal() and 1 <= int(value) <= _MOST_CONNECTIONS


_CUDA: Final = (
    _Remark("CUDA_LAUNCH_BLOCKING", _is_on, "makes every kernel launch wait: right for a traceback, slow otherwise"),
    _Remark("CUDA_CACHE_DISABLE", _is_on, "compiles kernels anew at each start"),
    _Remark("CUDA_FORCE_PTX_JIT", _is_on, "compiles every kernel at the start, and takes minutes for it"),
    _Remark("CUDA_INJECTION64_PATH", _is_on, "puts a profiler into every CUDA program"),
    _Remark("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", _is_on, "writes a core file after a GPU fault"),
    _Remark(
        "CUDA_DEVICE_ORDER",
        lambda value: value not in {"PCI_BUS_ID", "FASTEST_FIRST"},
        "is ignored: it takes PCI_BUS_ID or FASTEST_FIRST",
        "Spell it so.",
    ),
    _Remark(
        "CUDA_MODULE_LOADING",
        lambda value: value not in {"LAZY", "EAGER", "DEFAULT"},
        "is ignored: it takes LAZY or EAGER",
        "Spell it so.",
    ),
    _Remark(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        lambda value: not _is_connections(value),
        f"is ignored: it takes 1 to {_MOST_CONNECTIONS}",
        "Give it such a number.",
    ),
    _Remark("NVIDIA_TF32_OVERRIDE", _is_off, "forbids TF32 to every library: fp32 matrix products get slow"),
    _Remark("PYTORCH_NO_CUDA_MEMORY_CACHING", _is_on, "allocates from the driver each time, which is very slow"),
    _Remark("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", _is_on, "allows TF32 whatever the program says: fp32 gets less exact"),
    _Remark(
        "NVIDIA_VISIBLE_DEVICES",
        lambda value: value == "none",  # with CDI void stands there, and all is well
        "tells the container toolkit to give the container no GPU",
        "Start the container with --gpus all.",
    ),
    _Remark(
        "NVIDIA_DRIVER_CAPABILITIES",
        lambda value: value not in {"", "all"} and "compute" not in value.split(","),
        "leaves CUDA out of the container: compute is missing in it",
        "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
    ),
)
_NCCL: Final = (
    _Remark("NCCL_P2P_DISABLE", _is_on, "sends all between GPUs through the host"),
    _Remark("NCCL_SHM_DISABLE", _is_on, "sends what goes through the host over the network"),
    _Remark("NCCL_IB_DISABLE", _is_on, "does without InfiniBand and RoCE"),
    _Remark("NCCL_NVLS_ENABLE", _is_off, "does without NVLink SHARP"),
    _Remark("NCCL_CUMEM_ENABLE", _is_off, "does without shareable memory of cuMem"),
    _Remark("NCCL_DEBUG", lambda value: value.upper() in {"INFO", "TRACE"}, "prints a lot; TRACE is slow"),
    _Remark(
        "NCCL_DEBUG",
        lambda value: value.upper() not in {"", "VERSION", "WARN", "INFO", "ABORT", "TRACE"},
        "is ignored: it takes VERSION, WARN, INFO or TRACE",
        "Spell it so.",
    ),
    _Remark("NCCL_BLOCKING_WAIT", _is_on, "has another name now", "Call it TORCH_NCCL_BLOCKING_WAIT."),
    _Remark("NCCL_ASYNC_ERROR_HANDLING", _is_on, "has another name now", "Call it TORCH_NCCL_ASYNC_ERROR_HANDLING."),
)
_UNSET: Final = "Unset it if it is not meant."


def visible_devices(environment: Environment, frame: Frame | Problem) -> Finding:
    """CUDA_VISIBLE_DEVICES shows the GPUs that it names."""
    value = environment.get(_VISIBLE)
    if value is None:
        return ok("not set: programs see every GPU")
    shown = safe_text(value, _SHOWN)
    if value.strip() in {"", "-1", "NoDevFiles"}:
        return fail(f"It is {shown!r}, which hides every GPU from CUDA.", f"unset {_VISIBLE}, or name GPUs in it.")
    if isinstance(frame, Problem) or not frame.devices:
        return skip(f"It is {shown!r}; there is no GPU to compare it with.")
    entries = [entry for entry in value.split(",") if entry.strip()]
    visible = sum(device.cuda_index is not None for device in frame.devices)
    if visible == len(entries):
        return ok(f"{shown}: {visible} of {counted(len(frame.gpus), 'GPU')}")
    reasons = [device.problems["cuda_index"] for device in frame.devices if "cuda_index" in device.problems]
    if value.lstrip().startswith("MIG-") or (reasons and all("MIG" in reason.reason for reason in reasons)):
        return skip(f"It is {shown!r}: with MIG, CUDA counts instances.")
    return fail(
        f"It is {shown!r}: {_entries(len(entries))} and {counted(visible, 'GPU')} to be seen. CUDA ends the "
        "list at the first entry that names none, and a GPU that is named twice hides all.",
        f"Name GPUs by index 0 to {len(frame.gpus) - 1}, or by UUID (nvidia-smi -L), each once.",
    )


def cuda(environment: Environment) -> Finding:
    """Variables of CUDA and PyTorch that make programs slow, or are misspelled."""
    return _remarks(environment, _CUDA, "none that slows programs down")


def nccl(environment: Environment) -> Finding:
    """Variables of NCCL that make it slow, or name what is not there."""
    wanted = environment.get("NCCL_SOCKET_IFNAME")
    if wanted and environment.interfaces and not _some_interface(wanted, environment.interfaces):
        return fail(
            f"NCCL_SOCKET_IFNAME is {safe_text(wanted, _SHOWN)!r}, and no network interface is called so.",
            f"Name one of: {', '.join(environment.interfaces)}.",
        )
    return _remarks(environment, _NCCL, "none that slows NCCL down")


def allocator_settings(environment: Environment) -> Finding:
    """The configuration of PyTorch's allocator is one."""
    given = {name: environment.variables[name] for name in allocator.VARIABLES if environment.get(name)}
    found = [f"{name}: {fault}" for name, value in given.items() for fault in allocator.faults(value)]
    if found:
        return fail(sentences(found), "Pairs are key:value with commas between; torch stops at the first wrong one.")
    if len(given) == len(allocator.VARIABLES) and len(set(given.values())) > 1:
        return warn("Both are set, and differ: PYTORCH_ALLOC_CONF counts.", "Unset PYTORCH_CUDA_ALLOC_CONF.")
    told = ", ".join(f"{name}={safe_text(value, _SHOWN)}" for name, value in given.items())
    return ok(told or "not set: torch's own defaults")


def threads(environment: Environment) -> Finding:
    """The number of threads that libraries start on the host makes sense."""
    told = []
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        value = environment.get(name)
        if value is None:
            continue
        first = value.split(",", maxsplit=1)[0].strip()
        if not first.isdecimal() or int(first) == 0:
            return warn(
                f"{name} is {safe_text(value, _SHOWN)!r}, which is no number.", "Give it a number, or unset it."
            )
        if int(first) > environment.cpu_count:
            return warn(
                f"{name} is {first}, and the machine has {counted(environment.cpu_count, 'CPU')}: threads get in each "
                "other's way.",
                f"Set it to {environment.cpu_count} or less, and with several processes to their share.",
            )
        told.append(f"{name}={first}")
    return ok(", ".join(told) or "not set: libraries take every CPU")


def libraries(environment: Environment) -> Finding:
    """The loader is not told to take other CUDA libraries than those of the wheels."""
    preload = environment.get("LD_PRELOAD")
    if preload:
        return warn(f"LD_PRELOAD puts {safe_text(preload, _SHOWN)} into every program.", "Unset it if it is not meant.")
    folders = [each for each in (environment.get("LD_LIBRARY_PATH") or "").split(":") if each]
    named = [each for each in folders if any(part in each.lower() for part in ("cuda", "cudnn", "nccl"))]
    if named:
        return warn(
            f"LD_LIBRARY_PATH names {', '.join(safe_text(each, _SHOWN) for each in named)}: libraries there win over "
            "those that came with torch.",
            "unset LD_LIBRARY_PATH for PyTorch, unless an extension needs it.",
        )
    return ok("LD_LIBRARY_PATH names no CUDA libraries" if folders else "LD_LIBRARY_PATH is not set")


def _remarks(environment: Environment, remarks: tuple[_Remark, ...], well: str) -> Finding:
    given = environment.variables
    found = [each for each in remarks if each.name in given and each.holds(given[each.name])]
    if not found:
        return ok(well)
    told = [f"{each.name}={safe_text(given[each.name], _SHOWN)} {each.says}." for each in found]
    return warn(sentences(told), sentences(each.fix or _UNSET for each in found))


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _some_interface(wanted: str, interfaces: tuple[str, ...]) -> bool:
    """Whether NCCL's list leaves an interface: prefixes, ``=`` for whole names, ``^`` for all but these."""
    is_exclusion, text = wanted.startswith("^"), wanted.removeprefix("^")
    is_exact, names = text.startswith("="), text.removeprefix("=").split(",")

    def fits(interface: str) -> bool:
        return any(interface == name if is_exact else interface.startswith(name) for name in names if name)

    return any(fits(interface) != is_exclusion for interface in interfaces)


ENVIRONMENT_RULES: Final = (
    Rule("environment.visible_devices", visible_devices, (Environment, Frame), may_lack=(Frame,)),
    Rule("environment.cuda", cuda, (Environment,)),
    Rule("environment.nccl", nccl, (Environment,)),
    Rule("environment.allocator", allocator_settings, (Environment,)),
    Rule("environment.threads", threads, (Environment,)),
    Rule("environment.libraries", libraries, (Environment,)),
)
