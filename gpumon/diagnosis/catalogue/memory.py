"""Errors of memory: out of memory, allocator settings, pinned memory, and memory shared between processes."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, SIZE, cuda_error, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Memory"

_SMALLER_STEP: Final = Fix(
    "Reduce the memory of each step: use a smaller batch and accumulate gradients over several steps.",
    """\
loss = loss_function(model(batch), target) / accumulation_steps
loss.backward()
if (step + 1) % accumulation_steps == 0:
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)""",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="oom",
        section=SECTION,
        title="CUDA out of memory",
        summary="PyTorch's allocator could not get the requested memory, even after it freed its cache.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("OutOfMemoryError ", r"^OutOfMemoryError {10,80}Traceback \(most recent call last\)$"),
            Pattern(
                "CUDA out of memory. Tried to allocate",
                rf"CUDA out of memory\. Tried to allocate {SIZE}(?:\.? \(?GPU (?P<gpu>\d{{1,4}}))?",
            ),
            Pattern(
                "Error: CUDA out of memory",
                r"Error: CUDA out of memory(?!\w|:| occurred when|\. Tried to allocate [\d.]|\. Allocation was"
                r" preemptively)",
            ),
            Pattern("OutOfMemoryError", r"^torch\.(?:cuda\.)?OutOfMemoryError$"),
        ),
        causes=(
            "One step needs too much memory: batch, sequence length, activations, optimizer state or key-value cache.",
            "Other processes hold part of the GPU: the memory that is neither free nor held by this process.",
            "The free memory is fragmented: more memory is reserved but unallocated than was requested.",
            "Tensors accumulate: a loss kept with its graph, outputs in a list, a traceback that holds its frames.",
            "A memory limit is set for the process; the message then contains an allowed size.",
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
                "Recompute activations in the backward pass instead of storing them.",
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
            fixes.LIST_PROCESSES,
            Fix(
                (
                    "If much memory is reserved but unallocated, enable expandable segments before the process starts; "
                    "every version of PyTorch accepts this name, newer ones also PYTORCH_ALLOC_CONF."
                ),
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
            ),
            Fix(
                "Retry with a smaller batch after the except block: inside it, the traceback keeps the tensors alive.",
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
            "Frees nothing more here: the allocator emptied its cache and retried before it raised this error. In "
            "other cases the call returns completely unused segments to the driver for other processes and "
            "libraries; it neither frees a tensor in use nor defragments memory."
        ),
        see_more=(fixes.MEMORY_SNAPSHOT, fixes.MEMORY_SUMMARY),
        sources=(
            sources.CUDA_NOTES,
            sources.MEMORY_NOTES,
            sources.CACHING_ALLOCATOR,
            sources.OOM_RECOVERY,
            sources.ALLOC_CONF_NAMES,
        ),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="oom-preempted",
        section=SECTION,
        title="Allocation above the process's memory limit",
        summary="PyTorch rejected an allocation because of its settings, without calling the driver.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit"),
            Pattern(
                "Preemptively rejecting allocation: requested",
                r"Preemptively rejecting allocation: requested (?P<requested>\d{1,20})",
            ),
        ),
        causes=(
            "per_process_memory_fraction is set with throw_on_cudamalloc_oom:True, and the process reached the limit.",
        ),
        fixes=(
            Fix(
                "Raise the limit, or remove throw_on_cudamalloc_oom.",
                "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.9 python train.py",
            ),
            _SMALLER_STEP,
        ),
        empty_cache=(
            "Helps if much of the memory that counts towards the limit is unused cache: call it before the phase "
            "that needs most."
        ),
        see_more=(fixes.MEMORY_SUMMARY,),
        sources=(sources.CUDA_NOTES, "https://github.com/pytorch/pytorch/pull/179473"),
        said_by="torch 2.13",
    ),
    KnownError(
        id="oom-raw",
        section=SECTION,
        title="Out of memory outside PyTorch's allocator",
        summary=(
            "The CUDA driver had no memory left for a context, a kernel's code, a library's handle or pinned memory."
        ),
        context=ContextState.ALIVE,
        patterns=(
            cuda_error("out of memory"),
            literal("cudaMalloc failed: out of memory"),
            name("cudaErrorMemoryAllocation"),
            name("CUDA_ERROR_OUT_OF_MEMORY"),
        ),
        causes=(
            "The GPU is so full that a context of some hundred MB does not fit: usually other processes fill it.",
            "PyTorch's own cache fills the GPU, and a library requests memory directly from the driver.",
            "A process that crashed, or that runs in a container you cannot see, still holds memory.",
            "Pinned host memory was requested, and the host has none left or the limit on locked memory is reached.",
        ),
        fixes=(
            fixes.LIST_PROCESSES,
            Fix("Choose a GPU with free memory.", "CUDA_VISIBLE_DEVICES=1 python train.py"),
            Fix("List processes that use the GPU but that nvidia-smi does not show.", "sudo fuser -v /dev/nvidia*"),
            fixes.MEMORY_FOR_LIBRARIES,
        ),
        empty_cache=(
            "Helps if a large part of the cache is unused: the process returns that memory to the driver, from "
            "which libraries and other processes can take it. It has no effect on memory that other processes "
            "hold."
        ),
        see_more=(fixes.MEMORY_SUMMARY,),
        sources=(sources.CUDA_ERRORS, sources.MEMORY_NOTES),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="oom-1eb",
        section=SECTION,
        title="Impossible size",
        summary="A tensor of more than an exabyte was requested, so a shape was computed incorrectly.",
        context=ContextState.ALIVE,
        patterns=(literal("Tried to allocate more than 1EB memory"),),
        causes=(
            "A size overflowed or became negative in a computation.",
            "A length or a count is invalid: read from a damaged file, or never set.",
        ),
        fixes=(Fix("Print the shape before the tensor is created.", "print(shape, math.prod(shape))"),),
        empty_cache="No effect: no GPU has that much memory.",
        sources=(sources.CACHING_ALLOCATOR,),
    ),
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
            _SMALLER_STEP,
            fixes.LIST_PROCESSES,
            Fix(
                "Use PyTorch's native allocator, whose error message contains more detail.",
                "PYTORCH_CUDA_ALLOC_CONF=backend:native python train.py",
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
        fixes=(fixes.LIST_PROCESSES, _SMALLER_STEP),
        empty_cache="Little effect: the allocator does the same before it gives up.",
        see_more=(fixes.MEMORY_SUMMARY,),
        sources=(sources.CUDA_NOTES, sources.CACHING_ALLOCATOR),
        said_by="torch 2.13",
    ),
    KnownError(
        id="alloc-conf",
        section=SECTION,
        title="Invalid allocator settings",
        summary="PyTorch could not parse PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF.",
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
            Pattern("old is invalid, set it in", r"garbage_collect_thres?h?old is invalid, set it in"),
            literal("per_process_memory_fraction is invalid"),
            literal("Unknown allocator backend, options are"),
        ),
        causes=(
            "A key is misspelled, or is newer than the installed PyTorch.",
            "true or false is written in lower case.",
            "A key and its value are separated by an equals sign instead of a colon.",
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
        ),
        empty_cache="No effect: the type of the memory is the problem, not how much of it is in use.",
        sources=(sources.CUDA_NOTES, sources.MULTIPROCESSING_NOTES),
        said_by="torch 2.6-2.13",
    ),
    KnownError(
        id="pin-memory",
        section=SECTION,
        title="Memory could not be pinned",
        summary="The DataLoader could not copy a batch to pinned host memory.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("in _pin_memory_loop", r"pin_memory\.py\", line \d{1,5}, in _pin_memory_loop"),
            Pattern("nly dense CPU tensors can be pinned", r"[Oo]nly dense CPU tensors can be pinned"),
            literal("Cannot access accelerator device when none is available"),
            Pattern(
                "Registering memory failed with cudaError",
                r"Registering memory failed with cudaError: (?P<code>\d{1,4})",
            ),
            literal("Pin memory thread exited unexpectedly"),
            Pattern(
                "in pin memory thread for device", r"Caught (?P<exception>\w{1,60}) in pin memory thread for device"
            ),
        ),
        causes=(
            "The dataset or the collate function already returns CUDA tensors.",
            "The process has no GPU or no driver.",
            "An earlier error killed the CUDA context, and every later call reports that error again.",
            "The host's memory, the limit on locked memory, or the container's memory limit is exhausted.",
        ),
        fixes=(
            Fix(
                "Return CPU tensors from the dataset, and move each batch in the training loop.",
                "batch = batch.to(device, non_blocking=True)",
            ),
            Fix(
                "Pin memory only if a GPU is available.",
                "loader = DataLoader(dataset, pin_memory=torch.cuda.is_available())",
            ),
            Fix("Look for an earlier error in the log: the first one is the cause."),
            Fix("Show the limits on locked memory and on memory.", "ulimit -l; free -h; cat /sys/fs/cgroup/memory.max"),
        ),
        empty_cache=(
            "No effect: it frees GPU memory, and pinned memory is host memory; newer versions of PyTorch empty "
            "that cache with torch.accelerator.empty_host_cache()."
        ),
        sources=(sources.DATA_LOADING, sources.CUDA_NOTES),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="shm",
        section=SECTION,
        title="DataLoader worker died",
        summary="A DataLoader worker process died, usually because shared memory ran out.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "DataLoader worker (pid",
                r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]{1,200})\)"
                r" (?:is killed by signal: (?P<signal>(?!Killed)\w{1,20}(?: \w{1,20})?)|exited unexpectedly)",
            ),
            literal("dataloader's workers are out of shared memory"),
            literal("Unexpected bus error encountered in worker"),
            Pattern("unable to write to file </torch_", r"unable to write to file </torch_(?P<file>\w{1,80})"),
            Pattern("unable to mmap ", r"unable to mmap (?P<bytes>\d{1,19}) bytes from file </torch_"),
            Pattern(
                "unable to allocate shared memory(shm) for file </torch_",
                r"unable to allocate shared memory\(shm\) for file </torch_(?P<file>\w{1,80})",
            ),
        ),
        causes=(
            "Bus error: /dev/shm is full; a container has 64 MB of it by default.",
            "Segmentation fault: a library that the dataset uses crashed.",
            "No signal: the dataset called exit, or the host's memory ran out.",
        ),
        fixes=(
            Fix(
                "Give the container more shared memory, or the host's shared memory.",
                "docker run --shm-size=16g --gpus all IMAGE",
            ),
            Fix("Show the size and the usage of /dev/shm.", "df -h /dev/shm"),
            Fix(
                "Use fewer workers with a smaller prefetch factor.",
                "loader = DataLoader(dataset, num_workers=2, prefetch_factor=2)",
            ),
            Fix(
                "Share tensors through files instead.",
                'import torch.multiprocessing\n\ntorch.multiprocessing.set_sharing_strategy("file_system")',
            ),
            Fix("Check whether the kernel killed the process.", "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'"),
        ),
        empty_cache="No effect: host memory ran out, not GPU memory.",
        see_more=(
            Fix(
                "Load in the training process itself, so that the dataset's own error becomes visible.",
                "loader = DataLoader(dataset, num_workers=0)",
            ),
        ),
        sources=(sources.DATA_LOADING, sources.MULTIPROCESSING_NOTES),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="ipc-producer",
        section=SECTION,
        title="Sender of a shared tensor exited",
        summary="A process that had sent CUDA tensors exited while another process still used them.",
        context=ContextState.ALIVE,
        patterns=(literal("Producer process has been terminated before all shared CUDA tensors released"),),
        causes=(
            "The sender exits immediately after it puts its last tensor into the queue.",
            "The sender crashed; its own error is then the cause.",
        ),
        fixes=(
            Fix("Send CPU tensors.", "queue.put(tensor.cpu())"),
            Fix(
                "Keep the sender running until the receiver is done.",
                "queue.put(tensor)\nreceiver_done.wait()",
            ),
        ),
        empty_cache=(
            "Does not free memory that another process still uses; after that process releases it, "
            "torch.cuda.ipc_collect() does."
        ),
        sources=(sources.MULTIPROCESSING_NOTES,),
        said_by="torch 1.13-2.13",
    ),
)
