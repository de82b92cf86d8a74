"""Which version or wheel of a package, driver, toolkit or compiler fits, from what a message names."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.entry import Code, Values
from gpumon.errors.facts.packages import package_of
from gpumon.errors.lazy_pattern import lazy_pattern

Facts = Mapping[str, str]


def _rows(kind: str) -> Mapping[str, str]:
    """The rows of a kind of `versions.txt`: the first word of each, and the rest."""
    rows = (row.split(" ", 2) for row in table("gpumon.errors", "versions"))
    return {row[1]: " ".join(row[2:]) for row in rows if row[0] == kind}


_ARGUMENTS: Final = _rows("arguments")
_SYNONYMS: Final = _rows("synonym")
_REQUIREMENT: Final = lazy_pattern(r"(?P<name>[\w-]{1,60}?)(?P<limits>(?:[<>=!]=?[\d.]{1,20},?){1,4})")
_TURING: Final = 7.5
_NEWEST_INDEX: Final = "cu130"
_VOLTA_INDEX: Final = "cu126"
"""The wheels for CUDA 12.6 are the last ones with kernels for Maxwell, Pascal and Volta."""
_LEADING_NUMBERS: Final = lazy_pattern(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_BUILD: Final = lazy_pattern(r"\+(cu\d{2,3}|rocm[\d.]{1,6}|cpu)\b")
_PYTHONS: Final = (((1, 8, 0), "3.8"), ((1, 13, 0), "3.9"), ((2, 0, 0), "3.10"))
"""Versions of PyTorch, and the Python for those before them; later ones run with the one below."""
_PYTHON: Final = "3.11"


def missing_name(values: Values, _: str) -> Facts:
    """Which version has the module and name that the installed one lacks, as `advice`; both together, as `place`.

    With it, what to install, as `package`.
    """
    module, name, caller = (str(values.get(key, "")) for key in ("module", "name", "raised_by"))
    place = f"{module}:{name}"
    required = _required(str(values.get("required", "")), module)
    forms = (rest for form, rest in _rows("advice").items() if lazy_pattern(form).fullmatch(f"{place}:{caller}"))
    advice, _, package = f"required {required}".partition(" ") if required else next(forms, "").partition(" ")
    package = package or package_of(module)
    advice = advice or ("compare" if package else "other" if name else "")
    return {"advice": advice, "place": place, **({"package": Code(package)} if package else {})}


def _required(required: str, module: str) -> str:
    """The version that the message itself asks for."""
    requirement = _REQUIREMENT.fullmatch(required) or _REQUIREMENT.fullmatch(f"{module}>={required}")
    package = package_of(requirement["name"]) if requirement is not None else ""
    return f'"{package}{requirement["limits"]}"' if requirement is not None and package else ""


def torch_part(values: Values, _: str) -> Facts:
    """What a part is that PyTorch lacks, as `part`: in `torch`, in `torch.cuda`, `removed`, or else nothing."""
    kinds = ("removed", "torch", "torch.cuda") if not values.get("module") else ("removed",)
    rows = ((kind, row) for kind in kinds for row in _rows(kind).items())
    part = next((kind for kind, row in rows if values.get("attribute") in " ".join(row).split()), "")
    return {"part": part} if part else {}


def argument(values: Values, _: str) -> Facts:
    """The name in PyTorch of an argument that a function does not take, as `right`; its arguments, as `arguments`."""
    function, name = (str(values.get(key, "")) for key in ("function", "argument"))
    names, synonym = _ARGUMENTS.get(function, "").split(), _SYNONYMS.get(name, "")
    similar = [synonym] if synonym and (synonym in names or not names) else get_close_matches(name, names, n=1)
    facts = {"right": "".join(similar), "arguments": ", ".join(names)}
    return {key: value for key, value in facts.items() if value}


def driver(values: Values, _: str) -> Facts:
    """The CUDA version that a driver supports, as `cuda`: builds for CUDA 12 run with every 12.x."""
    digits = str(values.get("found", ""))
    return {"cuda": f"{int(digits) // 1000}.{int(digits) % 1000 // 10}"} if digits.isdigit() else {}


def wheel_index(capability: str) -> str | None:
    """The index of PyTorch's wheels that have kernels for a GPU, by its compute capability; None if it is no number."""
    digits = capability.rstrip("abcdefghijklmnopqrstuvwxyz")  # 8.6, or the digits of sm_86, sm_120 or sm_90a
    try:
        number = float(digits) if "." in digits else int(digits) / 10
    except ValueError:
        return None
    return _NEWEST_INDEX if number >= _TURING else _VOLTA_INDEX


def fitting(values: Values, _: str) -> Mapping[str, str]:
    """The index of PyTorch's wheels for the GPU of the message, as `wheels`."""
    index = wheel_index(str(values.get("capability", "")))
    return {} if index is None else {"wheels": index}


def listed(values: Values, _: str) -> Mapping[str, str]:
    """Why pip does not find a version, as `listed`, from the oldest one that it lists.

    With it, what has the version: `python`, or `build` and `requirement`; the `requested` and the `first` or `newest`
    listed one.
    """
    names = ("package", "version", "oldest", "newest")
    package, version, oldest, newest = (str(values.get(name, "")).lstrip("=<>!~") for name in names)
    requested, first, last, build = _numbers(version), _numbers(oldest), _numbers(newest), _BUILD.search(version)
    if build is not None and package.startswith("torch") and _BUILD.search(oldest) is None:
        return {"listed": "other index", "build": build[1], "requirement": f"{package}=={version}"}
    if requested is not None and last is not None and requested > last:
        return {"listed": "too new", "python": _PYTHON, "requested": version, "newest": newest}
    is_old = requested is not None and first is not None and requested < first
    if not is_old and oldest != "none":
        return {}
    of_torch = requested if package == "torch" else None
    python = next((python for before, python in _PYTHONS if of_torch is not None and of_torch < before), _PYTHON)
    return {"listed": "too old" if is_old else "none", "python": python, "requested": version, "first": oldest}


def _numbers(version: str) -> tuple[int, ...] | None:
    match = _LEADING_NUMBERS.match(version)
    return None if match is None else tuple(int(part or 0) for part in match.groups())
