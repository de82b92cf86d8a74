"""The names for pip of packages, by the modules that programs import, and packages of shared libraries.

A command installs no package that only a log names.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from gpumon.core.text_table import table
from gpumon.errors.entry import Code, Values
from gpumon.errors.signs import sign


class _Packages(NamedTuple):
    """The table of packages.

    Attributes:
        by_module: The package of each module.
        sources: What pip installs for a package that is not on PyPI under its name alone.
        built: Packages that are built with the installed PyTorch, which an isolated environment lacks.
        commands: How to install a package for which one run of pip with its name is not enough.
    """

    by_module: Mapping[str, str]
    sources: Mapping[str, str]
    built: frozenset[str]
    commands: Mapping[str, str]


@cache
def _packages() -> _Packages:
    lines = table("gpumon.errors", "packages")
    rows = [line.split(maxsplit=3) for line in lines if line.startswith("package ")]
    modules = [line.split() for line in lines if not line.startswith("package ")]
    return _Packages(
        {names[0]: names[-1] if len(names) > 1 else names[0].replace("_", "-") for names in modules},
        {row[1]: row[3].removeprefix("from ") for row in rows if row[2] != "run" and len(row) > 3},
        frozenset(row[1] for row in rows if row[2] == "built"),
        {row[1]: row[3] for row in rows if row[2] == "run"},
    )


def package_of(module: str) -> str:
    """The name for pip of the package with a module, or an empty text if it is not one of those known here."""
    parts, known = module.split("."), _packages().by_module
    same = parts[0].replace("-", "_")
    return next((known[key] for key in (".".join(parts[:2]), parts[0], same, same.lower()) if key in known), "")


def requirement_of(package: str) -> str:
    """What pip installs for a package: its name, or the place of its source."""
    return _packages().sources.get(package, package)


def install_command(module: str) -> str:
    """The command that installs the package with a module, or an empty text if the package is not known here."""
    package = package_of(module)
    isolated = "--no-build-isolation " if package in _packages().built else ""
    command = f"python -m pip install {isolated}{requirement_of(package)}"
    return _packages().commands.get(package, command) if package else ""


_OF_EXTENSIONS: Final = {part: part.replace("_", "-") for part in sign("extension").texts} | {
    "selective_scan": "mamba-ssm"
}
"""Packages by a part of the path of their extensions. A command installs no package that only a log names."""


def install(values: Values, _: str) -> Mapping[str, str]:
    """The command that installs the package of a missing module, as `install`; `interpreter` if that is torch."""
    name = str(values.get("module", "")).split(",")[0].split(".")[0].strip()
    if name == "torch":
        return {"interpreter": "other"}
    command = install_command(name)
    return {"install": Code(command)} if command else {}


def extension(values: Values, _: str) -> Mapping[str, str]:
    """The package of an extension, as `package`; flash-attn if the message names none."""
    library, folder = str(values.get("library", "")), str(values.get("package", ""))
    known = next((name for part, name in _OF_EXTENSIONS.items() if part in f"{folder}/{library}"), "")
    package = requirement_of(known) if known else "PACKAGE" if library or folder else "flash-attn"
    return {"package": Code(package)}


def build(values: Values, _: str) -> Mapping[str, str]:
    """The package that is built, as `package`."""
    package = package_of(str(values.get("extension", "")))
    return {"package": package} if package else {}
