"""GPUs, ranks and shares of memory that a message names."""

import math
from collections.abc import Mapping
from typing import Final

from gpumon.errors.entry import Values
from gpumon.errors.lazy_pattern import lazy_pattern

_BUS: Final = lazy_pattern(r"[\da-fA-F]{4,8}:[\da-fA-F]{2}:[\da-fA-F]{2}")


def address(values: Values) -> Mapping[str, str]:
    """The PCI address of the GPU of a message, as `pci` in the form that nvidia-smi takes."""
    bus = str(values.get("bus", ""))
    return {"pci": f"{bus}.0"} if _BUS.fullmatch(bus) else {}


def ranks(values: Values, _: str) -> Mapping[str, int]:
    """How many ranks are between the two of a message, as `distance`."""
    numbers = [str(values.get(name, "")) for name in ("rank", "other_rank")]
    return {"distance": abs(int(numbers[0]) - int(numbers[1]))} if all(map(str.isdigit, numbers)) else {}


def free_share(values: Values, _: str) -> Mapping[str, str]:
    """The share of a GPU that is free, as `share`, rounded down."""
    try:
        share = math.floor(100 * float(values["free"]) / float(values["total"])) / 100
    except (KeyError, ValueError, ZeroDivisionError):
        return {}
    return {"share": f"{share:.2f}"}
