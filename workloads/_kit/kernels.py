"""Custom CUDA kernels: compiled at run time with NVRTC, and their occupancy as the driver reports it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from _kit.events import UnsupportedError

if TYPE_CHECKING:
    from _kit.context import Context

_REGISTERS_ATTRIBUTE = 4
"""CU_FUNC_ATTRIBUTE_NUM_REGS in cuda.h."""


class Resources(NamedTuple):
    """What the driver reports about a kernel; None where it does not.

    Attributes:
        blocks_per_sm: Blocks of the chosen size that fit on a multiprocessor at the same time.
        registers: Registers per thread.
    """

    blocks_per_sm: Optional[int]
    registers: Optional[int]


def compiled(context: Context, source: str, names: Sequence[str]) -> dict[str, Any]:
    """Compiles kernels; returns them by name.

    Args:
        context: The run.
        source: CUDA C, in which each kernel is ``extern "C"``.
        names: Names of the kernels.

    Raises:
        UnsupportedError: This torch or its environment cannot compile kernels at run time.
    """
    torch = context.torch
    compiler = getattr(torch.cuda, "_compile_kernel", None)
    if compiler is None:
        raise UnsupportedError(
            f"torch {torch.__version__} cannot compile a CUDA kernel at run time (torch.cuda._compile_kernel exists "
            "since torch 2.9). Choose an interpreter with a newer torch with --python."
        )
    # torch requires a value before it searches for headers; these kernels include none.
    os.environ.setdefault("CUDA_HOME", "/nonexistent")
    try:
        return {name: compiler(source, name) for name in names}
    except (ImportError, OSError, AttributeError) as error:
        raise UnsupportedError(
            f"torch cannot compile a CUDA kernel: {error}. This needs NVRTC (the package nvidia-cuda-nvrtc) "
            "and setuptools."
        ) from error
    except RuntimeError as error:
        raise UnsupportedError(f"NVRTC could not compile the kernel: {str(error)[:600]}") from error


def resources_of(kernel: Any, threads: int, shared_bytes: int = 0) -> Resources:
    """Returns what the driver reports about a compiled kernel.

    Args:
        kernel: A kernel of `compiled`.
        threads: Threads per block.
        shared_bytes: Dynamic shared memory per block in bytes.
    """
    handle, blocks, registers = getattr(kernel, "func", None), ctypes.c_int(), ctypes.c_int()
    if handle is None:
        return Resources(None, None)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        query = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        code = query(ctypes.byref(blocks), handle, threads, ctypes.c_size_t(shared_bytes))
        driver.cuFuncGetAttribute(ctypes.byref(registers), _REGISTERS_ATTRIBUTE, handle)
    except (OSError, AttributeError, ctypes.ArgumentError):
        return Resources(None, None)
    return Resources(None if code else blocks.value, registers.value or None)
