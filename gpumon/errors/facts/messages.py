"""What a message names, in the form that code needs."""

import math
from collections.abc import Mapping
from typing import Final

from gpumon.errors.entry import Values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.signs import sign

_BUS: Final = lazy_pattern(r"[\da-fA-F]{4,8}:[\da-fA-F]{2}:[\da-fA-F]{2}")
_PLAIN_TYPE: Final = sign("plain type")
"""Types that only contain values. Others are not named in code to copy: a checkpoint may name what runs a command."""


def address(values: Values) -> Mapping[str, str]:
    """The PCI address of the GPU of a message, as `pci` in the form that nvidia-smi takes."""
    bus = str(values.get("bus", ""))
    return {"pci": f"{bus}.0"} if _BUS.fullmatch(bus) else {}


def free_share(values: Values, _: str) -> Mapping[str, str]:
    """The share of a GPU that is free, as `share`, rounded down."""
    try:
        return {"share": f"{math.floor(100 * float(values['free']) / float(values['total'])) / 100:.2f}"}
    except (KeyError, ValueError, ZeroDivisionError):
        return {}


def plain_type(values: Values, _: str) -> Mapping[str, str]:
    """The type in a checkpoint and its module, as `plain_type` and `type_module`, if it only contains values."""
    name = str(values.get("type", ""))
    return {"plain_type": name, "type_module": name.rpartition(".")[0]} if _PLAIN_TYPE.pattern.fullmatch(name) else {}
