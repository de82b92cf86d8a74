"""Fixes that contain the numbers of a message: the architecture of a GPU."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.diagnosis.known import Fix

_LEADING_NUMBER: Final = re.compile(r"\d+")
_OLDEST_OF_CUDA_12: Final = 50
_OLDEST_OF_CUDA_13: Final = 75
"""Architectures for which these toolkits still compile."""


def supported_architecture(values: Mapping[str, int | str], fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a compiler that does not know an architecture, which may be too new or too old for it."""
    number = _LEADING_NUMBER.search(str(values.get("capability", "")))
    if number is None or int(number[0]) >= _OLDEST_OF_CUDA_13:
        return tuple(fixes)
    if int(number[0]) >= _OLDEST_OF_CUDA_12:
        text = "CUDA 13 no longer compiles for this architecture: remove it, or build with CUDA 12 if the GPU has it."
    else:
        text = (
            "CUDA 12 no longer compiles for this architecture: remove it from the flags in setup.py or CMakeLists.txt."
        )
    return Fix(text, "grep -rn -e gencode -e compute_ setup.py CMakeLists.txt"), *fixes
