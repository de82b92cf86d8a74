"""Errors of distributed training: launchers, process groups, DDP, and collectives that differ between ranks.

The wordings of process groups, DDP and Gloo are reproduced with PyTorch 2.13; the others are from reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Distributed training"

_DDP: Final = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
_TORCHRUN: Final = Fix(
    "Start the program with torchrun, which sets these variables.",
    "torchrun --standalone --nproc-per-node=gpu train.py",
)
_DETAIL: Final = Fix(
    "Let every rank check its collectives and name the parameters.",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node=gpu train.py",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="rank-not-set",
        section=SECTION,
        title="Process group without a launcher",
        summary="The program reads its rank from the environment, and was started with python instead of torchrun.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("torch.distributed process group is initialized, but local_rank == -1"),
            literal("LOCAL_RANK is not in the environment"),
            literal("Tried to launch on distributed with multinode, but `MASTER_ADDR` env was not set"),
            Pattern(
                "expected, but not set",
                r"rendezvous: environment variable (?P<variable>[A-Z_]{1,40}) expected, but not set",
            ),
            Pattern("KeyError: 'LOCAL_RANK'", r"KeyError: '(?P<variable>LOCAL_RANK)'"),
            literal("KeyError: 'WORLD_SIZE'"),
            Pattern("DCP needs MASTER_", r"DCP needs MASTER_(?P<variable>ADDR|PORT)"),
        ),
        causes=(
            "The program was started with python, or from a notebook.",
            "In a Slurm job, srun sets SLURM_PROCID, and nothing translates it into RANK.",
        ),
        fixes=(
            _TORCHRUN,
            Fix("Or use the launcher of accelerate.", "accelerate launch --num_processes 2 train.py"),
            Fix(
                "For a single process, set the variables.",
                "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 python train.py",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCHRUN, sources.TORCH_DISTRIBUTED),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="port-in-use",
        section=SECTION,
        title="Port of the launcher is in use",
        summary="Another job, or an earlier one that still runs, uses the port over which the ranks find each other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "but another process is utilizing it",
                r"Tried to launch distributed communication on port `(?P<port>\d{1,5})`, but another process is"
                r" utilizing it",
            ),
            Pattern(
                "server socket has failed to bind to",
                r"server socket has failed to bind to \S{1,60}?:?(?P<port>\d{2,5}) \(errno: \d{1,3} - Address already"
                r" in use\)",
            ),
            Pattern(
                "server socket has failed to listen on any local",
                r"server socket has failed to listen on any local network address\.(?: port: (?P<port>\d{1,5}))?",
            ),
            Pattern("RuntimeError: Address already in use", r"RuntimeError: Address already in use"),
            Pattern("name: EADDRINUSE", r"(?:port: (?P<port>\d{1,5})[^\n]{0,60}?)?name: EADDRINUSE"),
        ),
        causes=(
            "Two jobs on this host use the default port 29500.",
            "A process of an earlier run is still alive.",
        ),
        fixes=(
            Fix("On one host, let torchrun choose a free port.", "torchrun --standalone --nproc-per-node=gpu train.py"),
            Fix("Or let Accelerate choose one.", "accelerate launch --main_process_port 0 train.py"),
            Fix("Or find the process that uses the port, and end it.", "ss -ltnp | grep 29500"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py",),
        said_by="torch 1.13-2.13, accelerate 0.25-1.12",
    ),
    KnownError(
        id="no-process-group",
        section=SECTION,
        title="No process group",
        summary="A function of torch.distributed was called before init_process_group, or after its destruction.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Default process group has not been initialized"),
            literal("trying to initialize the default process group twice"),
        ),
        causes=(
            "A module that needs several processes, such as SyncBatchNorm, is used in a single process.",
            "The group is created in another process, or in a branch that is not executed.",
            "Twice: a library such as accelerate, Lightning or DeepSpeed creates the group as well.",
        ),
        fixes=(
            Fix(
                "Create the group first, once per process.",
                'if not torch.distributed.is_initialized():\n    torch.distributed.init_process_group("nccl")',
            ),
            Fix(
                "Call collectives only where a group exists.",
                "rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0",
            ),
            _TORCHRUN,
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="backend-device",
        section=SECTION,
        title="Process group cannot send tensors of this device",
        summary=(
            "The backend of the process group does not support the device of the tensor: NCCL sends only GPU tensors."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "No backend type associated with device type",
                r"No backend type associated with device type (?P<device>\w{1,20})",
            ),
            literal("Tensors must be CUDA and dense"),
        ),
        causes=(
            "A tensor on the CPU, such as a metric, a buffer or a barrier's tensor, is sent over NCCL.",
            "FSDP with CPU offload clips or gathers parameters that are on the CPU.",
        ),
        fixes=(
            Fix("Move the tensor to the GPU of this rank before the collective.", "value = value.cuda()"),
            Fix(
                "Or create the group with a backend for each device type.",
                'torch.distributed.init_process_group("cpu:gloo,cuda:nccl")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="backend-missing",
        section=SECTION,
        title="PyTorch without this backend",
        summary="The installed PyTorch was built without the requested backend of torch.distributed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Distributed package doesn't have ",
                r"Distributed package doesn't have (?P<backend>NCCL|MPI|UCC|Gloo) ?built in",
            ),
            Pattern(
                "Distributed package doesn't have ",
                r"Distributed package doesn't have (?P<backend>NCCL|MPI|UCC|Gloo) module",
            ),
            Pattern(
                "use_libuv was requested but PyTorch was buil",
                r"use_libuv was requested but PyTorch was buil[dt] without libuv support",
            ),
        ),
        causes=(
            "Windows and macOS builds have no NCCL; neither do CPU-only builds.",
            "Windows builds before PyTorch 2.7 have no libuv.",
        ),
        fixes=(
            Fix("On Windows, use gloo, or train on one GPU.", 'torch.distributed.init_process_group("gloo")'),
            Fix(
                "On Linux, install a build with CUDA.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("Run in WSL 2, where NCCL works.", "wsl --install"),
            Fix(
                "Without libuv, use the older server of the store.",
                "USE_LIBUV=0 torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="ddp-unused",
        section=SECTION,
        title="DDP: parameters without gradient",
        summary="DDP waits for the gradient of every parameter, and some were not used in computing the loss.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Expected to have finished reduction in the prior iteration before starting a new one"),
            Pattern(
                "which did not receive grad for rank",
                r"Parameter(?:s| indices) which did not receive grad for rank (?P<rank>\d{1,6}):"
                r" (?P<parameters>[^\n]{1,200})",
            ),
            literal("this is not compatible with static_graph set to True"),
        ),
        causes=(
            "A branch of forward skips a layer, or a layer exists and is never called.",
            "The model returns an output that the loss does not use.",
            "A parameter that no step trains still has requires_grad=True.",
        ),
        fixes=(
            Fix(
                "Let DDP find the unused parameters in every step.",
                "model = DistributedDataParallel(model, find_unused_parameters=True)",
            ),
            Fix(
                "Find their names; then freeze or remove them.",
                "TORCH_DISTRIBUTED_DEBUG=INFO torchrun --nproc-per-node=gpu train.py",
            ),
            Fix(
                "With transformers or TRL, set the argument of the trainer.",
                "arguments = TrainingArguments(ddp_find_unused_parameters=True)",
            ),
            Fix(
                "With Lightning, choose the strategy.", 'trainer = Trainer(strategy="ddp_find_unused_parameters_true")'
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DDP,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="ddp-ready-twice",
        section=SECTION,
        title="DDP: parameter marked ready twice",
        summary=(
            "A parameter got its gradient twice in one step, because of reentrant checkpointing or several backward"
            " passes."
        ),
        context=ContextState.ALIVE,
        patterns=(
            literal("Expected to mark a variable ready only once"),
            Pattern(
                "has been marked as ready twice",
                r"Parameter at index (?P<index>\d{1,6}) (?:with name (?P<name>[\w.]{1,200}) )?has been marked as"
                r" ready twice",
            ),
        ),
        causes=(
            "Gradient checkpointing with use_reentrant=True together with find_unused_parameters or shared weights.",
            "One forward is followed by several backward passes.",
        ),
        fixes=(
            Fix(
                "Use checkpointing without reentrance.",
                "arguments = TrainingArguments(gradient_checkpointing=True,"
                ' gradient_checkpointing_kwargs={"use_reentrant": False})',
            ),
            Fix(
                "Do not search for unused parameters.",
                "model = DistributedDataParallel(model, find_unused_parameters=False)",
            ),
            Fix("If the graph never changes, say so.", "model = DistributedDataParallel(model, static_graph=True)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DDP, "https://docs.pytorch.org/docs/stable/checkpoint.html"),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="ddp-models-differ",
        section=SECTION,
        title="DDP: ranks have different models",
        summary="DDP compares the parameters of all ranks when it starts, and their number or shapes differ.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "appears not to match ",
                r"params\[(?P<index>\d{1,6})\] in this process with (?:sizes|strides) \[(?P<shape>[\d, ]{0,80})\]"
                r" appears"
                r" not to match (?:sizes|strides) of the same param in process 0",
            ),
            Pattern(
                "DDP expects same model across all ranks",
                r"DDP expects same model across all ranks, but Rank (?P<rank>\d{1,6}) has (?P<parameters>\d{1,9})"
                r" params",
            ),
        ),
        causes=(
            "The model depends on data, a vocabulary or a seed that each rank reads for itself.",
            "Layers are added or frozen on rank 0 only.",
            "The ranks run different versions of the code, or read different configurations.",
        ),
        fixes=(
            Fix(
                "Print the model's parameters on every rank, and compare.",
                "print(rank, [(name, tuple(value.shape)) for name, value in model.named_parameters()])",
            ),
            Fix("Compute sizes such as the vocabulary once, and load the same file on all ranks."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DDP,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="ddp-no-gradients",
        section=SECTION,
        title="DDP: nothing to train",
        summary="Every parameter of the model is frozen, so DDP has nothing to do.",
        context=ContextState.ALIVE,
        patterns=(literal("DistributedDataParallel is not needed when a module doesn't have any parameter"),),
        causes=("The model is only used for evaluation, or was frozen before its adapters were added.",),
        fixes=(
            Fix("Wrap only models that are trained; use frozen ones directly.", "teacher = teacher.to(device).eval()"),
            Fix("Check what is trained.", "print(sum(p.numel() for p in model.parameters() if p.requires_grad))"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DDP,),
    ),
    KnownError(
        id="collective-mismatch",
        section=SECTION,
        title="Ranks call different collectives",
        summary="The ranks called different collectives, or the same one with tensors of different shapes or types.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Detected mismatch between collectives on ranks",
                r"Detected mismatch between collectives on ranks\. Rank (?P<rank>\d{1,6}) is running collective:"
                r" CollectiveFingerPrint\(SequenceNumber=(?P<sequence>\d{1,12}), OpType=(?P<operation>\w{1,40})",
            ),
            Pattern(
                "invalid tensor size at index",
                r"ProcessGroup\w{1,20}::\w{1,30}: invalid tensor size at index (?P<index>\d{1,6})",
            ),
            literal("All tensor operands to scatter/gather must have the same"),
            Pattern(
                "is all-gathering parameters for",
                r"rank (?P<rank>\d{1,6}) is all-gathering parameters for [^\n]{1,200}? while rank",
            ),
        ),
        causes=(
            "A branch that only some ranks take contains a collective: logging, evaluating or saving on rank 0.",
            "The last batch is smaller, or the ranks have a different number of batches.",
        ),
        fixes=(
            Fix("Call collectives on every rank; only print or write on rank 0."),
            Fix(
                "Give every rank the same number of batches of the same size.",
                "loader = DataLoader(dataset, sampler=DistributedSampler(dataset), batch_size=32, drop_last=True)",
            ),
            Fix(
                "Gather tensors of different lengths as objects, or pad them.",
                "torch.distributed.all_gather_object(parts, value)",
            ),
            _DETAIL,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="gloo-peer",
        section=SECTION,
        title="Gloo: another rank is gone or late",
        summary="Gloo lost the connection to another rank, or waited for it until the timeout.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "monitoredBarrier",
                r"[Rr]ank (?P<rank>\d{1,6}) (?:successfully reached monitoredBarrier, but received errors|failed to p"
                r"ass monitoredBarrier)",
            ),
            Pattern(
                "Connection closed by peer",
                r"gloo/transport/tcp/\w{1,30}\.cc:\d{1,5}\] Connection closed by peer \[(?P<address>[^\n]{1,60}?)\]",
            ),
            Pattern(
                "Connection reset by peer",
                r"gloo/transport/tcp/\w{1,30}\.cc:\d{1,5}\] [^\n]{0,60}Connection reset by peer",
            ),
            Pattern(
                "Timed out waiting ",
                r"gloo/transport/tcp/\w{1,30}\.cc:\d{1,5}\] Timed out waiting (?P<waited>\d{1,12})ms for"
                r" (?P<operation>\w{1,10}) operation to complete",
            ),
            Pattern("Gloo connectFullMesh failed", r"Gloo connectFullMesh failed with (?P<reason>[^\n]{1,120})"),
            literal("Detected at least one rank that was not able to complete the barrier"),
        ),
        causes=(
            "The other rank raised an exception or was killed; its log has the cause.",
            "It waits in another collective, or still reads data.",
            "Connecting fails: Gloo chose an interface over which the hosts cannot reach each other.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix("Select the network interface.", "GLOO_SOCKET_IFNAME=eth0 torchrun --nproc-per-node=gpu train.py"),
            _DETAIL,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13, vLLM 0.6-0.10, jaxlib 0.4",
        is_echo=True,
    ),
    KnownError(
        id="spawn-exited",
        section=SECTION,
        title="A spawned process ended",
        summary="A process of torch.multiprocessing.spawn or of a pool ended; its own message stands above.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "terminated with ",
                r"process (?P<process>\d{1,6}) terminated with (?:signal (?P<signal>SIG\w{1,10})|exit code"
                r" (?P<exitcode>\d{1,3}))",
            ),
            Pattern(
                "terminated with the following error",
                r"-- Process (?P<process>\d{1,6}) terminated with the following error",
            ),
            literal("BrokenProcessPool: A process in the process pool was terminated abruptly"),
            literal("The actor died unexpectedly before finishing this task"),
            literal("The actor is dead because its worker process has died"),
            literal("Forcefully terminating all other processes to avoid zombies"),
            literal("A worker died or was killed while executing a task by an unexpected system error"),
        ),
        causes=(
            "The process raised an exception, which is printed above.",
            "With SIGKILL, host memory ran out; with SIGSEGV, native code crashed.",
        ),
        fixes=(
            Fix("Read the traceback of that process above this message."),
            Fix(
                "For SIGKILL, check whether the kernel killed the process.",
                "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'",
            ),
            Fix("For SIGSEGV, print the Python stack.", "PYTHONFAULTHANDLER=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.MULTIPROCESSING_NOTES,),
        said_by="torch 1.13-2.13, Lightning 2.1-2.6, Ray 2.9-2.52",
        is_echo=True,
    ),
    KnownError(
        id="old-gpu-p2p",
        section=SECTION,
        title="GPU without direct transfers",
        summary="Accelerate refuses to start: cards of the RTX 4000 series cannot use direct transfers or InfiniBand.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("doesn't support faster communication broadband via P2P or IB"),),
        causes=("The program was started with python or torchrun, which do not disable these transports.",),
        fixes=(
            Fix(
                "Disable the transports.", "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1 torchrun --nproc-per-node=gpu train.py"
            ),
            Fix("Or start with accelerate, which does so by itself.", "accelerate launch train.py"),
            Fix("Or use a single GPU.", "CUDA_VISIBLE_DEVICES=0 python train.py"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py",),
        said_by="accelerate 0.25-1.12",
    ),
)
