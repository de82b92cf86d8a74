"""Identifies the process: PID, command line, Python version, ranks and the settings of PyTorch's allocator."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MAX_TEXT_LENGTH = 256
_MAX_ARGUMENTS = 32
_MAX_DIGITS = 10
_SETTINGS = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
)
_RANKS = {
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"),
}


def process_facts() -> dict[str, Any]:
    """The fields of the message ``hello``, except its schema."""
    arguments = getattr(sys, "orig_argv", None) or [sys.executable, *getattr(sys, "argv", [])]
    return {
        "pid": os.getpid(),
        "argv": [str(argument)[:MAX_TEXT_LENGTH] for argument in arguments[:_MAX_ARGUMENTS]],
        "python_version": ".".join(map(str, sys.version_info[:3])),
        "settings": {name: os.environ[name][:MAX_TEXT_LENGTH] for name in _SETTINGS if name in os.environ},
        **{field: _first_number(variables) for field, variables in _RANKS.items()},
    }


def _first_number(variables: Iterable[str]) -> int | None:
    for name in variables:
        text = os.environ.get(name, "")
        if text.isdecimal() and len(text) < _MAX_DIGITS:
            return int(text)
    return None
