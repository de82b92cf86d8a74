"""Fixes of a version that pip does not find, from the versions that its message lists: which Python or index has it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpumon.errors.entry import Fix, Values

_LEADING_NUMBERS: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_BUILD: Final = re.compile(r"\+(cu\d{2,3}|rocm[\d.]{1,6}|cpu)\b")
_PYTHONS: Final = (((1, 8, 0), "3.8"), ((1, 13, 0), "3.9"))
"""Versions of PyTorch, and the Python for those before them; later ones run with the one below."""
_PYTHON: Final = "3.11"
_FIRST_FOR_PYTHON_3_11: Final = (2, 0, 0)
"""The first version with builds for Python 3.11 on all systems."""
_LAST_FOR_INTEL_MAC: Final = (2, 2, 2)
_NO_VERSION: Final = "none"


def available_version(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a version that pip does not find, first the one that the listed versions suggest."""
    texts = (str(values.get(name, "")).lstrip("=<>!~") for name in ("package", "version", "oldest", "newest"))
    is_name = values.get("package") == "pytorch"
    first = Fix("The name of the package is torch.", "pip install torch") if is_name else _first_fix(*texts)
    return tuple(fixes) if first is None else (first, *fixes)


def _first_fix(package: str, version: str, oldest: str, newest: str) -> Fix | None:
    requested, first = _numbers(version), _numbers(oldest)
    last = _numbers(newest) or requested  # a list that is too long to match has no newest version
    python = _python_for(requested) if package == "torch" else _PYTHON
    if package == "torch" and first == _FIRST_FOR_PYTHON_3_11:
        python = "3.10" if python == _PYTHON else python
    other = Fix("", f"conda create -n fresh python={python}")
    build = _BUILD.search(version)
    if build is not None and package.startswith("torch") and _BUILD.search(oldest) is None:
        is_old = first is not None and requested is not None and requested < first
        return Fix(
            f"Builds such as +{build[1]} are only in PyTorch's own index"
            + (f"; and this Python is too new for {version}: use {python}." if is_old else "."),
            f"pip install {package}=={version} --index-url https://download.pytorch.org/whl/{build[1]}",
        )
    if oldest == _NO_VERSION:
        text = f"The index has no build for this Python or this system, or cannot be reached: use Python {python}."
        return replace(other, text=text)
    if requested is None or first is None or last is None or first <= requested <= last:
        return None
    if requested < first:
        text = f"This Python is too new for {version}: use Python {python}, or a version that pip lists, from {oldest}."
        return replace(other, text=text)
    if package == "torch" and last == _LAST_FOR_INTEL_MAC:
        text = "On a Mac with an Intel CPU, use 2.2.2, the last version for it; elsewhere, use a newer Python."
        return Fix(text, 'pip install "torch==2.2.2" "numpy<2"')
    text = f"This Python or this index ends with version {newest}: use a newer Python, and the current index."
    return Fix(text, "conda create -n fresh python=3.12")


def _numbers(version: str) -> tuple[int, ...] | None:
    match = _LEADING_NUMBERS.match(version)
    return None if match is None else tuple(int(part or 0) for part in match.groups())


def _python_for(version: tuple[int, ...] | None) -> str:
    return next((python for before, python in _PYTHONS if version is not None and version < before), _PYTHON)
