"""Which wheels have code for a GPU, and which Python or index has a version that pip does not find."""

from collections.abc import Mapping
from typing import Final

from gpumon.errors.entry import Values
from gpumon.errors.lazy_pattern import lazy_pattern

_TURING: Final = 7.5
_NEWEST_INDEX: Final = "cu130"
_VOLTA_INDEX: Final = "cu126"
"""The wheels for CUDA 12.6 are the last ones with kernels for Maxwell, Pascal and Volta."""
_LEADING_NUMBERS: Final = lazy_pattern(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_BUILD: Final = lazy_pattern(r"\+(cu\d{2,3}|rocm[\d.]{1,6}|cpu)\b")
_PYTHONS: Final = (((1, 8, 0), "3.8"), ((1, 13, 0), "3.9"), ((2, 0, 0), "3.10"))
"""Versions of PyTorch, and the Python for those before them; later ones run with the one below."""
_PYTHON: Final = "3.11"
_NO_VERSION: Final = "none"


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
    """Why pip does not find a version, as `listed`, from those that it lists.

    With it, what has the version: `python`, `build`, `requirement` and `other`; `requested`, `first` and `last` of the
    listed versions.
    """
    package, version, oldest, newest = (
        str(values.get(name, "")).lstrip("=<>!~") for name in ("package", "version", "oldest", "newest")
    )
    if package == "pytorch":
        return {"listed": "wrong name"}
    requested, first = _numbers(version), _numbers(oldest)
    last = _numbers(newest) or requested  # a list that is too long to match has no newest version
    python = _python_for(requested) if package == "torch" else _PYTHON
    build = _BUILD.search(version)
    if build is not None and package.startswith("torch") and _BUILD.search(oldest) is None:
        is_old = first is not None and requested is not None and requested < first
        other = f"; and this Python is too new for {version}: use {python}" if is_old else ""
        return {"listed": "other index", "build": build[1], "other": other, "requirement": f"{package}=={version}"}
    if oldest == _NO_VERSION:
        return {"listed": "none", "python": python}
    if requested is None or first is None or last is None or first <= requested <= last:
        return {}
    if requested < first:
        return {"listed": "too old", "python": python, "requested": version, "first": oldest}
    return {"listed": "too new", "last": newest}


def _numbers(version: str) -> tuple[int, ...] | None:
    match = _LEADING_NUMBERS.match(version)
    return None if match is None else tuple(int(part or 0) for part in match.groups())


def _python_for(version: tuple[int, ...] | None) -> str:
    return next((python for before, python in _PYTHONS if version is not None and version < before), _PYTHON)
