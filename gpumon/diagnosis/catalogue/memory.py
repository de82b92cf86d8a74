"""Errors of memory: out of memory, impossible sizes, pinned memory, and memory shared between processes."""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import SIZE, cuda_error, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Memory"

SMALLER_STEP: Final = Fix(
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
                r"Error: CUDA out of memory(?!\w|:| occurred when|\. Tried to allocate [\d.]{1,12}"
                r" (?:[KMGTP]i?B|bytes)|\. Allocation was"
                r" preemptively)",
            ),
            Pattern(
                "OutOfMemoryError",
                r"^torch\.(?:cuda\.)?OutOfMemoryError(?:$|: ?$|: C(?!UDA out of memory\."
                r" Alloc))",
            ),
        ),
        causes=(
            "One step needs too much memory: batch, sequence length, activations, optimizer state or key-value cache.",
            "Other processes hold part of the GPU: the memory that is neither free nor held by this process.",
            "The free memory is fragmented: more memory is reserved but unallocated than was requested.",
            "Tensors accumulate: a loss kept with its graph, outputs in a list, a traceback that holds its frames.",
            "A memory limit is set for the process; the message then contains an allowed size.",
        ),
        fixes=(
            SMALLER_STEP,
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
            Fix(
                "For inference, load the weights in 4 bits or partly on the CPU, or use smaller inputs.",
                """\
model = AutoModelForCausalLM.from_pretrained(
    name, device_map="auto", quantization_config=BitsAndBytesConfig(load_in_4bit=True)
)""",
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
            SMALLER_STEP,
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
            literal("Workspace can't be allocated, no enough memory"),
            Pattern("out of memory", r"(?<!set an error\? )" + cuda_error("out of memory").regex),
            Pattern("cudaMalloc failed: out of memory", r"(?<!device \d: )cudaMalloc failed: out of memory"),
            Pattern("Cuda error: 2[", r"Cuda error: 2\[(?P<call>\w{1,40})"),
            name("cudaErrorMemoryAllocation"),
            Pattern("CUDA_ERROR_OUT_OF_MEMORY", r"(?<!cuInit results in )(?<!cuInit: )\bCUDA_ERROR_OUT_OF_MEMORY\b"),
            Pattern("uda failure ", r"\bCuda failure (?:\d{1,4} )?'out of memory'"),
            Pattern(
                "Failed to allocate memory for requested buffer of size",
                r"Failed to allocate memory for requested buffer of size (?P<requested>\d{1,20})",
            ),
        ),
        causes=(
            "The GPU is so full that a context of some hundred MB does not fit: usually other processes fill it.",
            "PyTorch's own cache fills the GPU, and a library requests memory directly from the driver.",
            "A process that crashed, or that runs in a container you cannot see, still holds memory.",
            "Pinned host memory was requested, and the host has none left or the limit on locked memory is reached.",
        ),
        fixes=(
            Fix(
                "In ComfyUI, use fewer frames or a lower resolution, or keep less of the models on the GPU.",
                "python main.py --lowvram",
                first_for=("ComfyUI",),
            ),
            fixes.LIST_PROCESSES,
            Fix("Choose a GPU with free memory.", "CUDA_VISIBLE_DEVICES=1 python train.py"),
            Fix("List processes that use the GPU but that nvidia-smi does not show.", "sudo fuser -v /dev/nvidia*"),
            replace(fixes.MEMORY_FOR_LIBRARIES, first_for=("Cuda failure",)),
            Fix(
                "In Ollama and llama.cpp, put fewer layers on the GPU, or use a shorter context.",
                "llama-server -m MODEL.gguf -ngl 20 -c 4096",
                first_for=("llama.cpp",),
            ),
            Fix(
                "In LMDeploy, give less of the free memory to the cache.",
                "lmdeploy serve api_server MODEL --cache-max-entry-count 0.4",
                first_for=("turbomind",),
            ),
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
        id="size-overflow",
        section=SECTION,
        title="Size of a tensor overflows",
        summary="A shape was requested whose number of elements exceeds 64 bits, so that it was computed incorrectly.",
        context=ContextState.ALIVE,
        patterns=(
            literal("numel: integer multiplication overflow"),
            Pattern(
                "Storage size calculation overflowed",
                r"Storage size calculation overflowed with sizes=(?P<shape>\[[^\]\n]{0,80}\])",
            ),
        ),
        causes=(
            "An extension, such as a rasterizer, counted in memory that it never wrote, or does not fit the GPU.",
            "A length is negative, or was read from a damaged file.",
        ),
        fixes=(
            Fix("Print the shape before the tensor is created.", "print(shape)"),
            Fix(
                "If an extension, such as a rasterizer, asks for the memory: check the values that it is given.",
                "import torch\n\nassert all(torch.isfinite(tensor).all() for tensor in inputs)",
            ),
            Fix(
                "Build the extension again for this GPU and this PyTorch.",
                "pip install --force-reinstall --no-build-isolation --no-deps ./EXTENSION",
            ),
        ),
        empty_cache="No effect: no GPU has that much memory.",
        sources=("https://github.com/graphdeco-inria/gaussian-splatting/issues/1256",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="pin-memory",
        section=SECTION,
        title="Memory could not be pinned",
        summary="The DataLoader could not copy a batch to pinned host memory.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("in _pin_memory_loop", r"pin_memory\.py\", line \d{1,5}, in _pin_memory_loop"),
            literal("pin_memory=True requires a CUDA or other accelerator backend"),
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
                first_for=("accelerator device",),
            ),
            Fix("Look for an earlier error in the log: the first one is the cause."),
            Fix("Show the limits on locked memory and on memory.", "ulimit -l; free -h; cat /sys/fs/cgroup/memory.max"),
            Fix(
                "Read the exception of the thread above; without one, a process was ended: load in the main"
                " process to see why.",
                "loader = DataLoader(dataset, num_workers=0, pin_memory=False)",
                first_for=("exited unexpectedly",),
            ),
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
                r" (?:is killed by signal: (?P<signal>(?!Killed)\w{1,20}(?: \w{1,20})?)"
                r"|(?P<ending>exited unexpectedly))",
            ),
            literal("dataloader's workers are out of shared memory"),
            Pattern("synchronize.py", r"multiprocessing[\\/]synchronize\.py\", line \d{1,6}, in __init__"),
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
                "Give the container more shared memory, or let it use that of the host with --ipc=host.",
                "docker run --shm-size=16g --gpus all IMAGE",
            ),
            Fix(
                "Show the size and the usage of /dev/shm on that host: if it is not full, try another host.",
                "df -h /dev/shm",
                first_for=("cluster",),
            ),
            Fix(
                "The process has reached its number of memory maps, one per shared tensor: raise it.",
                "sudo sysctl -w vm.max_map_count=1048576",
                first_for=("Cannot allocate memory (12)",),
                hidden_otherwise=True,
            ),
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
