"""The names for pip of packages, by the modules that programs import, and packages of shared libraries.

A command installs no package that only a log names.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.entry import Code, Values
from gpumon.errors.signs import sign


@cache
def _packages() -> Mapping[str, str]:
    """The package of each module."""
    rows = map(str.split, table("gpumon.errors", "packages"))
    return {names[0]: names[-1] if len(names) > 1 else names[0].replace("_", "-") for names in rows}


@cache
def _commands() -> Mapping[str, str]:
    """How to install a package for which pip with its name is not enough."""
    rows = (row.partition(" ") for row in table("gpumon.errors", "package_commands"))
    return {name: command for name, _, command in rows}


def package_of(module: str) -> str:
    """The name for pip of the package with a module, or an empty text if it is not one of those known here."""
    parts, known = module.split("."), _packages()
    same = parts[0].replace("-", "_")
    return next((known[key] for key in (".".join(parts[:2]), parts[0], same, same.lower()) if key in known), "")


_BUILD: Final = "python -m pip install --no-build-isolation "


def install(values: Values, _: str) -> Mapping[str, str]:
    """The command that installs the package of a missing module, as `install`; `interpreter` if that is torch."""
    name = str(values.get("module", "")).split(",")[0].split(".")[0].strip()
    if name == "torch":
        return {"interpreter": "other"}
    package = package_of(name)
    return {"install": Code(_commands().get(package, f"python -m pip install {package}"))} if package else {}


def extension(values: Values, _: str) -> Mapping[str, str]:
    """The package of an extension, as `package`; flash-attn if the message names none."""
    library, folder = str(values.get("library", "")), str(values.get("package", ""))
    known = next((part.replace("_", "-") for part in sign("extension").texts if part in f"{folder}/{library}"), "")
    if not known:
        return {"package": Code("PACKAGE" if library or folder else "flash-attn")}
    source = _commands().get(known, "").removeprefix(_BUILD)
    return {"package": Code(known if not source or " " in source else source)}


def build(values: Values, _: str) -> Mapping[str, str]:
    """The package that is built, as `package`."""
    package = package_of(str(values.get("extension", "")))
    return {"package": package} if package else {}
