"""Errors of memory that is not simply full: the allocator's settings, pinned memory, memory between processes."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CUDA_NOTES,
    MULTIPROCESSING_NOTES,
    NO_CONTEXT_YET,
    literal,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Memory"
_DATA_LOADING: Final = "https://docs.pytorch.org/docs/stable/data.html"

_SETTINGS: Final = KnownError(
    id="alloc-conf",
    section=_SECTION,
    title="Allocator settings not understood",
    summary="PyTorch could not read PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF.",
    context=Context.NOT_APPLICABLE,
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
        "A key is misspelt, or newer than the installed PyTorch.",
        "true and false are written in lower case.",
        "Key and value are joined by an equals sign rather than a colon.",
        "A value is out of bounds: max_split_size_mb begins at 20, shares lie between 0 and 1.",
    ),
    fixes=(
        Fix(
            "Write pairs as key:value with commas between, and True or False with a capital.",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128 python train.py",
        ),
        Fix(
            "See what is set; where both are, PYTORCH_ALLOC_CONF wins in new versions.",
            "env | grep ALLOC_CONF",
        ),
        Fix("Do without.", "unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF"),
    ),
    empty_cache=NO_CONTEXT_YET,
    sources=(CUDA_NOTES, "https://github.com/pytorch/pytorch/blob/main/c10/core/AllocatorConfig.h"),
)

_EXPANDABLE_SHARING: Final = KnownError(
    id="expandable-ipc",
    section=_SECTION,
    title="Expandable segments cannot be shared",
    summary="A CUDA tensor was to be passed to another process, but its memory is an expandable segment.",
    context=Context.ALIVE,
    patterns=(
        literal("Tensors allocated with expandable_segments:True cannot be shared between processes"),
        Pattern("expandable_segments allocation: IPC", r"expandable_segments allocation: IPC handles are disabled"),
        Pattern("expandable_segments: FABRIC", r"expandable_segments: FABRIC handle"),
        Pattern("syscall needed to use IPC", r"pidfd_(?:open|getfd) syscall needed to use IPC for CUDA tensors"),
    ),
    causes=(
        "A queue or a pipe of torch.multiprocessing carries CUDA tensors while expandable segments are on.",
        "The kernel is older than 5.6, or the container forbids the system calls that pass such memory on.",
    ),
    fixes=(
        Fix(
            "Turn expandable segments off for the processes that share tensors.",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False python train.py",
        ),
        Fix("Pass CPU tensors, and move them to the GPU where they arrive.", "queue.put(tensor.cpu())"),
    ),
    empty_cache="Does nothing here: it is the kind of the memory that matters, not how much of it is used.",
    sources=(CUDA_NOTES, MULTIPROCESSING_NOTES),
)

_PINNED: Final = KnownError(
    id="pin-memory",
    section=_SECTION,
    title="Memory could not be pinned",
    summary="A batch was to be put into pinned host memory, and that failed.",
    context=Context.ALIVE,
    patterns=(
        Pattern("nly dense CPU tensors can be pinned", r"[Oo]nly dense CPU tensors can be pinned"),
        literal("Cannot access accelerator device when none is available"),
        Pattern(
            "Registering memory failed with cudaError", r"Registering memory failed with cudaError: (?P<code>\d{1,4})"
        ),
        literal("Pin memory thread exited unexpectedly"),
        Pattern("in pin memory thread for device", r"Caught (?P<exception>\w{1,60}) in pin memory thread for device"),
    ),
    causes=(
        "The dataset or the collate function returns CUDA tensors already.",
        "The process has no GPU or no driver.",
        "The context is dead from an error before, which every later call reports again.",
        "The host's memory, its limit on locked memory or the container's limit is used up.",
    ),
    fixes=(
        Fix(
            "Let the dataset give CPU tensors, and move each batch in the training loop.",
            "batch = batch.to(device, non_blocking=True)",
        ),
        Fix(
            "Pin only where there is a GPU.",
            "loader = DataLoader(dataset, pin_memory=torch.cuda.is_available())",
        ),
        Fix("Look for an error further up: the first one is the cause."),
        Fix("See the limits on locked memory and on memory.", "ulimit -l; free -h; cat /sys/fs/cgroup/memory.max"),
    ),
    empty_cache=(
        "Does nothing here: it frees memory of the GPU, and pinned memory is the host's; that cache is emptied by"
        " torch.accelerator.empty_host_cache() in new versions."
    ),
    sources=(_DATA_LOADING, CUDA_NOTES),
)

_WORKER_KILLED: Final = KnownError(
    id="shm",
    section=_SECTION,
    title="DataLoader worker died",
    summary="A worker process of the DataLoader was ended from outside, most often for want of shared memory.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        Pattern(
            "DataLoader worker (pid",
            r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]{1,200})\)"
            r" (?:is killed by signal: (?P<signal>\w{1,20}(?: \w{1,20})?)|exited unexpectedly)",
        ),
        literal("dataloader's workers are out of shared memory"),
    ),
    causes=(
        "Bus error: /dev/shm is full; a container gets 64 MB of it unless told otherwise.",
        "Killed: the host ran out of memory and the kernel chose this process.",
        "Segmentation fault: a library of the dataset crashed.",
    ),
    fixes=(
        Fix("Give the container more shared memory, or the host's.", "docker run --shm-size=16g --gpus all IMAGE"),
        Fix("See how much there is and how much is used.", "df -h /dev/shm"),
        Fix(
            "Use fewer workers that fetch less ahead.",
            "loader = DataLoader(dataset, num_workers=2, prefetch_factor=2)",
        ),
        Fix(
            "Share by files instead.",
            'import torch.multiprocessing\n\ntorch.multiprocessing.set_sharing_strategy("file_system")',
        ),
        Fix("See whether the kernel killed it.", "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'"),
    ),
    empty_cache="Does nothing here: it is the host's memory that ran out, not the GPU's.",
    see_more=(
        Fix(
            "Load in the training process itself, where the dataset's own error shows.",
            "loader = DataLoader(dataset, num_workers=0)",
        ),
    ),
    sources=(_DATA_LOADING, MULTIPROCESSING_NOTES),
)

_PRODUCER_GONE: Final = KnownError(
    id="ipc-producer",
    section=_SECTION,
    title="Sender of a shared tensor has ended",
    summary="A process that had sent CUDA tensors ended while another one still used them.",
    context=Context.ALIVE,
    patterns=(literal("Producer process has been terminated before all shared CUDA tensors released"),),
    causes=(
        "The sender ends as soon as it has put its last tensor into the queue.",
        "The sender crashed; then its own error is the cause.",
    ),
    fixes=(
        Fix("Send CPU tensors.", "queue.put(tensor.cpu())"),
        Fix(
            "Let the sender wait until the receiver is done.",
            "queue.put(tensor)\nreceiver_done.wait()",
        ),
    ),
    empty_cache="Does not free memory that another process still uses; once it let go, torch.cuda.ipc_collect() does.",
    sources=(MULTIPROCESSING_NOTES,),
)

ERRORS: Final = (_SETTINGS, _EXPANDABLE_SHARING, _PINNED, _WORKER_KILLED, _PRODUCER_GONE)
