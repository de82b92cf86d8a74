"""Errors of the caching allocator's settings, and of what its settings change."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.memory import SECTION, SMALLER_STEP
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="oom-async-backend",
        section=SECTION,
        title="Out of memory with cudaMallocAsync",
        summary=(
            "The cudaMallocAsync pool, which PyTorch is configured to use, could not provide the requested memory."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "would exceed allowed memory",
                r"Allocation on device (?P<gpu>\d{1,4})\b.{0,20}would exceed allowed memory",
            ),
            Pattern(
                "OutOfMemoryError: Allocation on device",
                r"OutOfMemoryError: Allocation on device\b(?!.{0,25}would exceed allowed)",
            ),
            literal("This error means you ran out of memory on your GPU"),
        ),
        causes=(
            "One step needs more memory than is free.",
            "A memory limit is set for the process: the last size in the message is then below the device limit.",
            "Other processes hold part of the GPU.",
        ),
        fixes=(
            SMALLER_STEP,
            fixes.LIST_PROCESSES,
            Fix(
                "Use PyTorch's native allocator, whose error message contains more detail.",
                "PYTORCH_CUDA_ALLOC_CONF=backend:native python train.py",
            ),
            Fix(
                "ComfyUI sets this pool itself: switch it off there.",
                "python main.py --disable-cuda-malloc",
                first_for=("ComfyUI",),
            ),
        ),
        empty_cache="Returns the unused part of the cudaMallocAsync pool to the driver; it frees no tensor in use.",
        sources=(
            sources.CUDA_NOTES,
            "https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDAMallocAsyncAllocator.cpp",
        ),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="expandable-map-oom",
        section=SECTION,
        title="Expandable segment could not grow",
        summary="A segment had unused address space, but the driver had no physical memory to map there.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "failed with OOM on device",
                r"memory (?:mapping|allocation) failed with OOM on device (?P<gpu>\d{1,4})?",
            ),
        ),
        causes=(
            "The GPU is full; the allocator then frees its cache, retries, and may raise `CUDA out of memory`.",
            "Another process took the memory at the same time.",
        ),
        fixes=(fixes.LIST_PROCESSES, SMALLER_STEP),
        empty_cache="Little effect: the allocator does the same before it gives up.",
        see_more=(fixes.MEMORY_SUMMARY,),
        sources=(sources.CUDA_NOTES, sources.CACHING_ALLOCATOR),
        said_by="torch 2.13",
    ),
    KnownError(
        id="alloc-conf",
        section=SECTION,
        title="Invalid allocator settings",
        summary="PyTorch could not parse or cannot use what PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF says.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "allocator config",
                r"Unrecognized key '(?P<key>[^'\n]{0,80})' in (?:Accelerator|CUDA) allocator config",
            ),
            Pattern(
                "Unrecognized CachingAllocator option",
                r"Unrecognized CachingAllocator option(?:: (?P<key>[\w.-]{1,80}))?",
            ),
            Pattern(
                "in ConfigTokenizer",
                r"(?:at index \d{1,4} in ConfigTokenizer but got|Index out of bounds in ConfigTokenizer)",
            ),
            literal("max_split_size_mb too small"),
            Pattern(
                "cudaMallocAsync does not yet support ",
                r"cudaMallocAsync does not yet support (?P<call>\w{1,40})",
            ),
            literal("expandable_segments not supported on this platform"),
            Pattern("old is invalid, set it in", r"garbage_collect_thres?h?old is invalid, set it in"),
            literal("per_process_memory_fraction is invalid"),
            literal("Unknown allocator backend, options are"),
            Pattern("AllocatorConfig.", r"INTERNAL ASSERT FAILED at \"?[^\"\n]{0,200}AllocatorConfig\.(?:h|cpp)"),
        ),
        causes=(
            "A key is misspelled, or is newer than the installed PyTorch.",
            "A setting is not available: expandable_segments on Windows, some functions with cudaMallocAsync.",
            "true or false is written in lower case.",
            "A key and its value are separated by an equals sign instead of a colon, or a key has no value.",
            "A value is out of range: max_split_size_mb must be at least 20, fractions must be between 0 and 1.",
        ),
        fixes=(
            Fix(
                "Write key:value pairs separated by commas, and True or False with a capital letter.",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128 python train.py",
            ),
            Fix(
                "Show the settings; if both variables are set, newer versions of PyTorch use PYTORCH_ALLOC_CONF.",
                "env | grep ALLOC_CONF",
            ),
            Fix("Remove the settings.", "unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CUDA_NOTES, "https://github.com/pytorch/pytorch/blob/main/c10/core/AllocatorConfig.h"),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="expandable-ipc",
        section=SECTION,
        title="Expandable segments cannot be shared",
        summary="The program passed a CUDA tensor to another process, but its memory is an expandable segment.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Tensors allocated with expandable_segments:True cannot be shared between processes"),
            Pattern("expandable_segments allocation: IPC", r"expandable_segments allocation: IPC handles are disabled"),
            Pattern("expandable_segments: FABRIC", r"expandable_segments: FABRIC handle"),
            Pattern("syscall needed to use IPC", r"pidfd_(?:open|getfd) syscall needed to use IPC for CUDA tensors"),
            literal("pidfd_getfd: Operation not permitted"),
        ),
        causes=(
            "A queue or a pipe of torch.multiprocessing transfers CUDA tensors while expandable segments are enabled.",
            "The Linux kernel is older than 5.6, or the container blocks the system calls that share such memory.",
        ),
        fixes=(
            Fix(
                "Disable expandable segments for the processes that share tensors.",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False python train.py",
            ),
            Fix("Pass CPU tensors, and move them to the GPU in the receiving process.", "queue.put(tensor.cpu())"),
            Fix(
                "In a container, permit the exchange of file descriptors between processes.",
                "docker run --gpus all --ipc=host --cap-add SYS_PTRACE image",
            ),
        ),
        empty_cache="No effect: the type of the memory is the problem, not how much of it is in use.",
        sources=(sources.CUDA_NOTES, sources.MULTIPROCESSING_NOTES),
        said_by="torch 2.6-2.13",
    ),
    KnownError(
        id="expandable-split",
        section=SECTION,
        title="Expandable segments with settings that split or free memory",
        summary="PyTorch tried to free an expandable segment whole, because of another setting; this fails a check.",
        context=ContextState.UNKNOWN,
        patterns=(literal("!block->expandable_segment_ INTERNAL ASSERT FAILED"),),
        causes=(
            "The option max_split_size_mb or garbage_collection_threshold is set with expandable_segments:True.",
            "PyTorch is older than 2.5, which ignores those options for expandable segments.",
        ),
        fixes=(
            Fix(
                "Set expandable_segments alone; it replaces the other options.",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
            ),
            Fix("Upgrade PyTorch to 2.5 or newer.", "pip install --upgrade torch"),
        ),
        empty_cache="No effect: the check also fails while PyTorch frees its cache.",
        sources=("https://github.com/pytorch/pytorch/pull/134338", "https://github.com/pytorch/pytorch/pull/120022"),
        said_by="torch 2.1-2.4",
    ),
    KnownError(
        id="memory-saver",
        section=SECTION,
        title="torch_memory_saver failed",
        summary="torch_memory_saver, which gives the GPU's memory back between phases, got an error or is not loaded.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "] CUresult error",
                r"\[torch_memory_saver\.cpp\] CUresult error:? {1,3}(?:result=)?(?P<code>\d{1,3})\b",
            ),
            literal("TorchMemorySaver observes invalid LD_PRELOAD"),
        ),
        causes=(
            "Code 2: the GPU has no memory for what is to be resumed, because another process took it meanwhile.",
            "Code 1: memory was paused or resumed twice, or while a CUDA graph or a collective still used it.",
            "LD_PRELOAD: the program's processes were started without the library.",
        ),
        fixes=(
            Fix(
                "Leave more memory for what is resumed, and free the trainer's cache before it.",
                "torch.cuda.empty_cache()",
                first_for=("CUresult",),
            ),
            fixes.LIST_PROCESSES,
            Fix(
                "Start the processes with the library.",
                "with torch_memory_saver.configure_subprocess():\n    process.start()",
                first_for=("LD_PRELOAD",),
            ),
        ),
        empty_cache="Helps if PyTorch's unused cache fills the GPU: the saver maps memory outside of that cache.",
        sources=(
            "https://github.com/fzyzcjy/torch_memory_saver/issues/4",
            "https://github.com/fzyzcjy/torch_memory_saver/issues/33",
        ),
        said_by="torch_memory_saver 0.0.2-0.0.9",
    ),
)
