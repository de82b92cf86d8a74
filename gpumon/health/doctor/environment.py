"""Checks of environment variables that change what CUDA, NCCL, and PyTorch do."""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from math import nan
from typing import Final, NamedTuple

from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.core.text import safe_text
from gpumon.core.text_table import table
from gpumon.core.units import counted
from gpumon.health.checks import CheckResult, fail, ok, skip, warn
from gpumon.health.doctor.check import DoctorCheck, joined
from gpumon.health.doctor.facts import Environment

_ALLOCATOR_VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The first has precedence if both are set."""
_PAIR: Final = re.compile(r"([^:,\[\]]*):(\[[^\]]*\]|[^,]*)(?:,|$)")
_OPTION: Final = re.compile(r"[\w>]+:(\w+)", re.ASCII)


def _is_power_of_two(value: str) -> bool:
    parts = [value]
    is_list = value.startswith("[")
    if is_list:
        matches = [_OPTION.fullmatch(part) for part in value[1:-1].split(",")]
        parts = [match[1] if match else "" for match in matches]
    min_bits = 0 if is_list else 1  # in a list, 0 leaves sizes unchanged
    return all(part.isdecimal() and min_bits <= int(part).bit_count() <= 1 for part in parts)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


_VALID: Final[dict[str, Callable[[str], bool]]] = {
    "boolean": lambda value: value in {"True", "False"},
    "whole": str.isdecimal,
    "split": lambda value: value.isdecimal() and int(value) >= 20,
    "inner_share": lambda value: 0 < _number(value) < 1,
    "share": lambda value: 0 <= _number(value) <= 1,
    "backend": lambda value: value in {"native", "cudaMallocAsync"},
    "power_of_two": _is_power_of_two,
    "handle": lambda value: value in {"posix_fd", "fabric"},
}
"""What a value of each kind in `allocator.txt` is."""


def allocator_faults(configuration: str) -> Iterator[str]:
    """What is wrong with a configuration of PyTorch's allocator, parsed as torch does, one sentence per fault."""
    rows = [row.split(" | ") for row in table("gpumon.health.doctor", "allocator")]
    keys = {key: (kind, must_be) for kind, must_be, names in rows for key in names.split()}
    text = "".join(configuration.split())  # torch ignores all white space, too
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            yield f"{safe_text(text[position:], 40)!r} is not a key:value pair."
            return
        position = pair.end()
        key, value = pair[1], pair[2]
        if key not in keys:
            similar = get_close_matches(key, keys, n=1)
            yield f"There is no key {safe_text(key, 40)!r}{f'; did you mean {similar[0]}?' if similar else '.'}"
        elif not _VALID[keys[key][0]](value):
            yield f"{key}:{safe_text(value, 40)}: {keys[key][1]}."


_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
MAX_VALUE: Final = 60
"""Characters of a value that are shown."""


class _Remark(NamedTuple):
    """What to report about a variable with a certain value, a row of `environment.txt`.

    Attributes:
        name: The variable.
        values: The values, after "not" those about which there is nothing to report.
        effect: What the variable does then: a clause that follows ``NAME=value``.
        fix: What to do.
    """

    name: str
    values: str
    effect: str
    fix: str = ""

    def matches(self, value: str) -> bool:
        """Whether the value is such a one."""
        is_listed = re.fullmatch(self.values.removeprefix("not "), value) is not None
        return is_listed is not self.values.startswith("not ")


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
    return _remarks(environment, "none that slows programs down", is_nccl=False)


def nccl(environment: Environment) -> CheckResult:
    """No variable of NCCL slows it down or names a missing interface."""
    wanted = environment.get("NCCL_SOCKET_IFNAME")
    if wanted and environment.interfaces and not _matches_interface(wanted, environment.interfaces):
        return fail(
            f"NCCL_SOCKET_IFNAME is {safe_text(wanted, MAX_VALUE)!r}, but no network interface has such a name.",
            f"Name one of: {', '.join(environment.interfaces)}.",
        )
    return _remarks(environment, "none that slows NCCL down", is_nccl=True)


def allocator_settings(environment: Environment) -> CheckResult:
    """The configuration of PyTorch's allocator is valid."""
    given = {name: environment.variables[name] for name in _ALLOCATOR_VARIABLES if environment.get(name)}
    faults = [f"{name}: {fault}" for name, value in given.items() for fault in allocator_faults(value)]
    if faults:
        return fail(joined(faults), "Write key:value pairs separated by commas; torch stops at the first invalid one.")
    if len(given) == len(_ALLOCATOR_VARIABLES) and len(set(given.values())) > 1:
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


def _remarks(environment: Environment, ok_text: str, *, is_nccl: bool) -> CheckResult:
    given = environment.variables
    rows = table("gpumon.health.doctor", "environment")
    remarks = (_Remark(*row.split(" | ")) for row in rows if row.startswith("NCCL_") is is_nccl)
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
