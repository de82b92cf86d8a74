"""The types in a message."""

from collections.abc import Mapping
from typing import Final

from gpumon.errors.entry import Values
from gpumon.errors.signs import sign

_PLAIN_TYPE: Final = sign("plain type")
"""Types that only contain values. Others are not named in code to copy: a checkpoint may name what runs a command."""


def plain_type(values: Values, _: str) -> Mapping[str, str]:
    """The type in a checkpoint and its module, as `plain_type` and `type_module`, if it only contains values."""
    name = str(values.get("type", ""))
    return {"plain_type": name, "type_module": name.rpartition(".")[0]} if _PLAIN_TYPE.pattern.fullmatch(name) else {}


def half(values: Values, _: str) -> Mapping[str, str]:
    """The type of 16 bits in a message, as `half`, if it is float16 alone."""
    types = {str(values.get(name, "")).removeprefix("c10::") for name in ("type", "other_type")}
    return {"half": "float16"} if "Half" in types and "BFloat16" not in types else {}
