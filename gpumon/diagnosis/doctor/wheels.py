"""Whether the packages around torch fit together."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.text import safe_text

Installed = Sequence[Sequence[str]]
"""Name and version of each package."""
Pins = Sequence[Sequence[str]]
"""A package, what it needs, and the version of that which it was built with."""

_FOR_CUDA: Final = re.compile(r"nvidia-.*-cu(\d\d)", re.ASCII)
_BUILT_FOR: Final = re.compile(r"\+(cu\d+|cpu|rocm[\d.]*)$", re.ASCII)
_FAMILY: Final = ("torch", "torchvision", "torchaudio")
_MOST_TOLD: Final = 3


def mixed(installed: Installed, pins: Pins, cuda: str | None) -> Iterator[str]:
    """What does not fit, a sentence each.

    Args:
        installed: What is installed.
        pins: Which versions packages need.
        cuda: The CUDA that torch was built with, such as ``12.8``.
    """
    versions: dict[str, set[str]] = defaultdict(set)
    for name, version in installed:
        versions[_canonical(name)].add(version)
    for name in _FAMILY:
        if len(versions[name]) > 1:
            yield f"{name} is installed twice: {', '.join(sorted(versions[name]))}."
    yield from _wrong_pins(versions, pins)
    builds = {name: build[1] for name in _FAMILY for each in versions[name] if (build := _BUILT_FOR.search(each))}
    if len(set(builds.values())) > 1:
        told = ", ".join(f"{name} for {build}" for name, build in builds.items())
        yield f"They are built for different things: {told}."
    majors = {found[1] for name in versions if versions[name] and (found := _FOR_CUDA.fullmatch(name))}
    own = "" if cuda is None else cuda.partition(".")[0]
    foreign = sorted(majors - {own})
    if own and foreign:
        yield f"NVIDIA's packages for CUDA {', '.join(foreign)} are installed beside a torch for CUDA {own}."


def loaded_twice(paths: Sequence[str]) -> Iterator[str]:
    """Libraries of CUDA that a process has loaded from two places, a sentence each."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        folder, _, file = safe_text(path).rpartition("/")
        places[file.partition(".so")[0]].add(f"{folder}/{file}")
    for library, found in places.items():
        if len(found) > 1:
            yield f"{library} is loaded twice: {', '.join(sorted(found))}."


def _wrong_pins(versions: dict[str, set[str]], pins: Pins) -> Iterator[str]:
    wrong = []
    for package, needed, version in pins:
        there = versions.get(_canonical(needed)) or set()
        if there and not any(_fits(version, each) for each in there):
            wrong.append(f"{package} needs {needed}=={version} and finds =={', =='.join(sorted(there))}")
        elif not there:
            wrong.append(f"{package} needs {needed}=={version}, which is not installed")
    if wrong:
        rest = len(wrong) - _MOST_TOLD
        yield f"{'; '.join(wrong[:_MOST_TOLD])}{f'; and {rest} more' if rest > 0 else ''}."


def _fits(wanted: str, there: str) -> bool:
    """Whether a version is the one that is wanted; ``12.*`` takes many, and what stands behind ``+`` need not agree."""
    if wanted.endswith(".*"):
        return f"{there}.".startswith(wanted[:-1])
    return there == wanted or there.partition("+")[0] == wanted


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
