"""The kinds of events in a trace, and the classes of kernels, calls and operators by their names."""

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final

from gpumon.core.step_classes import COMMUNICATION, MEMORY, OTHER_COMPUTE, SIMT, TENSOR
from gpumon.core.text_table import table
from gpumon.stacks.tables import is_program


class Kind(IntEnum):
    """What an event records, from its category."""

    OPERATOR = 1
    ANNOTATION = 2
    RUNTIME = 3
    """A call of the CUDA runtime or driver."""
    PYTHON = 4
    KERNEL = 5
    COPY = 6
    MEMSET = 7
    GPU_ANNOTATION = 8
    CUDA_SYNC = 9
    OVERHEAD = 10


KINDS: Final = {name: Kind[kind] for name, kind in map(str.split, table("gpumon.traces", "kinds"))}


_COMMUNICATION: Final = re.compile(
    r"nccl|nvshmem|cross_device_reduce|all_?reduce_|allreduce|all_?gather_|reduce_?scatter_|multimem_|symm_mem",
    re.IGNORECASE,
)
_TENSOR: Final = re.compile(
    r"tensorop|tensor\d+x\d+x\d+|\d{4,6}gemm|h884|imma|hmma|wgmma|nvjet|flash_|flash::|fmha|mha_"
    r"|flashattn|flash_attn|native_sdpa|triton_tem_|triton_mm|_matmul_kernel|deep_gemm|gmma|cutlass3x|mma_sync|xmma_.*(bf16|f16|tf32|e4m3|e5m2|i8)",
    re.IGNORECASE,
)
_SIMT: Final = re.compile(
    r"sgemm|simt|ffma|hgemm|convolve_sgemm|winograd|conv.*_engine<float|scudnn|conv2d_c1_k1|xmma_(gemm|fprop|dgrad|wgrad).*f32f32"
    r"|gemmSN|magma_s|implicit_convolve|cudnn.*(dgrad|wgrad|fprop).*float|conv_depthwise|cgemm",
    re.IGNORECASE,
)
_MEMORY: Final = re.compile(
    r"elementwise|reduce|softmax|norm|bn_(fw|bw)|rowwise|gammabeta|dropout|catarray|index|gather|scatter|embedding"
    r"|grad_weight|segment|multi_tensor|foreach|fill|copy|transpose|permute|cast|loss|cross_entropy|triton_(poi|red|per)_"
    r"|pool|upsample|devicescan|scan_|gelu|silu|relu|sigmoid|gemv|splitk|where|arange|tril|triu|nchwtonhwc|nhwctonchw"
    r"|rotary|adam|sort|radix",
    re.IGNORECASE,
)
_MAX_CACHED_NAMES: Final = 65_536


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def kernel_class(name: str) -> str:
    """The class of a kernel by its name."""
    if _COMMUNICATION.search(name):
        return COMMUNICATION
    if _TENSOR.search(name):
        return TENSOR
    if _SIMT.search(name):
        return SIMT
    return MEMORY if _MEMORY.search(name) else OTHER_COMPUTE


_BLOCKING_CALLS: Final = re.compile(
    r"(cuda|cu|hip)(Device|Stream|Ctx|Event)Synchronize|(cuda|hip)Memcpy(2D|3D)?|(cuda|hip)(Free|FreeHost)"
)
_ALLOCATIONS: Final = re.compile(r"(cuda|hip)(Malloc|MallocHost|HostAlloc)|cuMem(Create|Map)")
_DATA: Final = re.compile(r"^enumerate\(DataLoader\)#|^enumerate\(DataPipe\)#")
_LAUNCH: Final = re.compile(r"launch|memcpy|memset", re.IGNORECASE)
_GC: Final = re.compile(r"^(python gc|gc|garbage collection)\b|gc\.collect", re.IGNORECASE)
_FRAME: Final = re.compile(r"^(.+)\(\d+\): ")


def is_blocking_call(name: str) -> bool:
    """Whether a call of the CUDA runtime returns only when the GPU has finished."""
    return _BLOCKING_CALLS.fullmatch(name) is not None


def is_blocking_operator(name: str) -> bool:
    """Whether an operator reads a value from the GPU."""
    return name in {"aten::item", "aten::_local_scalar_dense"}


def is_data_wait(name: str) -> bool:
    """Whether an annotation is the wait for the next batch."""
    return _DATA.search(name) is not None


COPYING: Final = frozenset(("aten::to", "aten::_to_copy", "aten::copy_"))
"""Operators that may copy between the host and the GPU."""


def is_copy_call(name: str) -> bool:
    """Whether a call of the CUDA runtime copies, and blocks while it does if the memory of the host is pageable."""
    return "Memcpy" in name


def is_launch(name: str) -> bool:
    """Whether a call of the CUDA runtime gives work to the GPU."""
    return _LAUNCH.search(name) is not None


def is_freeing(name: str) -> bool:
    """Whether a call of the CUDA runtime gives memory back, which waits for the GPU."""
    return "Free" in name and _BLOCKING_CALLS.fullmatch(name) is not None


def is_allocation(name: str) -> bool:
    """Whether a call of the CUDA runtime allocates memory, which the allocator of PyTorch should do rarely."""
    return _ALLOCATIONS.fullmatch(name) is not None


def is_gc(name: str) -> bool:
    """Whether an event is Python's garbage collection."""
    return _GC.search(name) is not None


def is_user_line(name: str) -> bool:
    """Whether a Python function is a line of the user's own code, as ``train.py(23): step``."""
    frame = _FRAME.match(name)
    return frame is not None and is_program(frame[1])


def user_line_of(stack: str) -> str:
    """The innermost line of the user's own code in the stack of an operator; empty without one."""
    return next((frame.strip() for frame in stack.split(";") if is_user_line(frame.strip())), "")
