"""What a message names, in the form that code needs."""

import math
from collections.abc import Mapping
from typing import Final

from gpumon.errors.entry import Values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.signs import sign

_BUS: Final = lazy_pattern(r"[\da-fA-F]{4,8}:[\da-fA-F]{2}:[\da-fA-F]{2}")


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
    is_plain = sign("plain type").pattern.fullmatch(name) is not None
    return {"plain_type": name, "type_module": name.rpartition(".")[0]} if is_plain else {}
