"""Errors of memory: the ways in which a GPU's memory runs out."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CUDA_ERRORS,
    CUDA_NOTES,
    MEMORY_NOTES,
    MEMORY_SNAPSHOT,
    MEMORY_SUMMARY,
    SIZE,
    WHO_HOLDS,
    cuda_error,
    literal,
    names,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Memory"
_ALLOCATOR: Final = "https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp"
_RECOVERY: Final = "https://github.com/pytorch/pytorch/issues/18853"
_OLD_NAME_WORKS: Final = "https://github.com/pytorch/pytorch/issues/183387"

_SMALLER_STEP: Final = Fix(
    "Make each step smaller: fewer samples at a time, with gradients accumulated over several steps.",
    """\
loss = loss_function(model(batch), target) / accumulation_steps
loss.backward()
if (step + 1) % accumulation_steps == 0:
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)""",
)

_OUT_OF_MEMORY: Final = KnownError(
    id="oom",
    section=_SECTION,
    title="CUDA out of memory",
    summary="PyTorch's allocator could not get the memory it was asked for, even after it had given back its cache.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "CUDA out of memory. Tried to allocate",
            rf"CUDA out of memory\. Tried to allocate {SIZE}(?:\.? \(?GPU (?P<gpu>\d{{1,4}}))?",
        ),
    ),
    causes=(
        "One step needs more than is free: batch, sequence length, activations, optimizer state or key-value cache.",
        "Other processes hold part of the GPU: their share is what neither is free nor belongs to this process.",
        "The free memory is in pieces: what is reserved but unallocated is more than what was asked for.",
        "Tensors pile up: a loss kept with its graph, outputs in a list, a traceback that holds its frames.",
        "A cap is set for the process: then the message names an allowed size.",
    ),
    fixes=(
        _SMALLER_STEP,
        Fix(
            "Compute in bfloat16, which halves most activations.",
            """\
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = loss_function(model(batch), target)""",
        ),
        Fix(
            "Compute activations anew in the backward pass rather than keep them.",
            """\
from torch.utils.checkpoint import checkpoint

hidden = checkpoint(block, hidden, use_reentrant=False)""",
        ),
        Fix(
            "Evaluate without a graph, and keep numbers instead of tensors.",
            """\
with torch.inference_mode():
    total += loss_function(model(batch), target).item()""",
        ),
        WHO_HOLDS,
        Fix(
            "Where much is reserved but unallocated, let segments grow; every version of PyTorch knows this name of the"
            " variable, which must be set before the process starts.",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
        ),
        Fix(
            "To try again smaller, do so after the except block: inside it the traceback still holds the tensors.",
            """\
too_big = False
try:
    run_step(batch)
except torch.cuda.OutOfMemoryError:
    too_big = True
if too_big:
    run_step(batch[: len(batch) // 2])""",
        ),
    ),
    empty_cache=(
        "Frees nothing more here: the allocator has emptied its cache and tried again before it raised this. Elsewhere"
        " it gives wholly unused segments to other processes and libraries; it neither frees a tensor in use nor joins"
        " pieces."
    ),
    see_more=(MEMORY_SNAPSHOT, MEMORY_SUMMARY),
    sources=(CUDA_NOTES, MEMORY_NOTES, _ALLOCATOR, _RECOVERY, _OLD_NAME_WORKS),
)

_PREEMPTED: Final = KnownError(
    id="oom-preempted",
    section=_SECTION,
    title="Allocation above the process's own cap",
    summary="PyTorch refused an allocation by its own settings, without asking the driver.",
    context=Context.ALIVE,
    patterns=(
        literal("Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit"),
        Pattern(
            "Preemptively rejecting allocation: requested",
            r"Preemptively rejecting allocation: requested (?P<requested>\d{1,20})",
        ),
    ),
    causes=("per_process_memory_fraction is set with throw_on_cudamalloc_oom:True, and the process has reached it.",),
    fixes=(
        Fix(
            "Raise the cap, or take throw_on_cudamalloc_oom out.",
            "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.9 python train.py",
        ),
        _SMALLER_STEP,
    ),
    empty_cache="Helps if much of what counts towards the cap is cache without tensors: call it before the big phase.",
    see_more=(MEMORY_SUMMARY,),
    sources=(CUDA_NOTES, "https://github.com/pytorch/pytorch/pull/179473"),
)

_RAW: Final = KnownError(
    id="oom-raw",
    section=_SECTION,
    title="Out of memory outside PyTorch's allocator",
    summary="CUDA itself had no memory left, for a context, a kernel's code, a library's handle or pinned memory.",
    context=Context.ALIVE,
    patterns=(cuda_error("out of memory"), *names("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")),
    causes=(
        "The GPU is so full that not even a context, some hundred MB, finds room: mostly other processes hold it.",
        "PyTorch's own cache fills the GPU, and a library that does not use this cache asks the driver.",
        "A process that has ended badly, or sits in a container you do not see, still holds memory.",
        "Pinned host memory was asked for, and the host has none left or a limit on locked memory is reached.",
    ),
    fixes=(
        WHO_HOLDS,
        Fix("Choose a GPU that is free.", "CUDA_VISIBLE_DEVICES=1 python train.py"),
        Fix("Look for processes that hold the GPU but are not listed.", "sudo fuser -v /dev/nvidia*"),
        Fix(
            "Leave memory to the libraries beside PyTorch.",
            "import torch\n\ntorch.cuda.set_per_process_memory_fraction(0.9)",
        ),
    ),
    empty_cache=(
        "Helps where a large cache lies unused: the process hands that memory to the driver, from which libraries"
        " and other processes take it. It does nothing about memory that other processes hold."
    ),
    see_more=(MEMORY_SUMMARY,),
    sources=(CUDA_ERRORS, MEMORY_NOTES),
)

_ABSURD: Final = KnownError(
    id="oom-1eb",
    section=_SECTION,
    title="Impossible size",
    summary="A tensor of more than an exabyte was asked for, so a shape was computed wrongly.",
    context=Context.ALIVE,
    patterns=(literal("Tried to allocate more than 1EB memory"),),
    causes=(
        "A size overflowed or became negative on the way.",
        "A length or a count is garbage: read from a damaged file, or never set.",
    ),
    fixes=(Fix("Print the shape before the tensor is made.", "print(shape, math.prod(shape))"),),
    empty_cache="Does nothing here: no GPU has that much, whatever is freed.",
    sources=(_ALLOCATOR,),
)

_ASYNC_BACKEND: Final = KnownError(
    id="oom-async-backend",
    section=_SECTION,
    title="Out of memory with cudaMallocAsync",
    summary="CUDA's own pool, which PyTorch was told to use, could not give the memory asked for.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "would exceed allowed memory", r"Allocation on device (?P<gpu>\d{1,4})\b.{0,20}would exceed allowed memory"
        ),
    ),
    causes=(
        "One step needs more than is free.",
        "A cap is set for the process: then the last figure of the message is below the device limit.",
        "Other processes hold part of the GPU.",
    ),
    fixes=(
        _SMALLER_STEP,
        WHO_HOLDS,
        Fix(
            "Go back to PyTorch's own allocator, whose figures say more.",
            "PYTORCH_CUDA_ALLOC_CONF=backend:native python train.py",
        ),
    ),
    empty_cache="Gives the unused part of CUDA's pool back to the driver; it frees no tensor that is in use.",
    sources=(CUDA_NOTES, "https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDAMallocAsyncAllocator.cpp"),
)

_MAPPING: Final = KnownError(
    id="expandable-map-oom",
    section=_SECTION,
    title="Expandable segment could not grow",
    summary="A segment had addresses left, but the driver had no physical memory to put behind them.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "failed with OOM on device",
            r"memory (?:mapping|allocation) failed with OOM on device (?P<gpu>\d{1,4})?",
        ),
    ),
    causes=(
        "The GPU is full; the allocator then gives back its cache, tries again, and may raise `CUDA out of memory`.",
        "Another process has taken the memory meanwhile.",
    ),
    fixes=(WHO_HOLDS, _SMALLER_STEP),
    empty_cache="Changes little: the allocator does the same by itself before it gives up.",
    see_more=(MEMORY_SUMMARY,),
    sources=(CUDA_NOTES, _ALLOCATOR),
)

ERRORS: Final = (_OUT_OF_MEMORY, _PREEMPTED, _RAW, _ABSURD, _ASYNC_BACKEND, _MAPPING)
