"""Errors of distributed training: DDP, collectives that differ between ranks, and processes that end.

The wordings of DDP and Gloo are reproduced with PyTorch 2.13; the others are from reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Distributed training"

_DDP: Final = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
_DETAIL: Final = Fix(
    "Let every rank check its collectives and name the parameters.",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node=gpu train.py",
)

ERRORS: Final[tuple[KnownError, ...]] = (
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
                r" (?P<parameters>[^\n]{1,300})",
            ),
            literal("this is not compatible with static_graph set to True"),
            literal("It looks like your LightningModule has parameters that were not used in producing the loss"),
            literal("This assert indicates that your module has parameters that were not used in producing loss"),
            literal("ZERO DDP error: the synchronization of gradients doesn't exit properly"),
        ),
        causes=(
            "A branch of forward skips a layer, or a layer exists and is never called.",
            "The model returns an output that the loss does not use.",
            "A parameter that no step trains still has requires_grad=True.",
        ),
        fixes=(
            Fix(
                "The list begins with all of the first parameters: if it names every parameter, this rank ran no"
                " backward pass. Look in its log for a step that was skipped or an exception that was caught, and let"
                " all ranks skip the same steps; find_unused_parameters helps only if some parameters are missing in"
                " the list.",
                "print(sum(parameter.requires_grad for parameter in model.parameters()))",
                first_for=("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",),
                hidden_otherwise=True,
            ),
            Fix(
                "Let DDP find the unused parameters in every step.",
                "model = DistributedDataParallel(model, find_unused_parameters=True)",
            ),
            Fix(
                "If the parameters that are used change from step to step, the graph is not static.",
                "model = DistributedDataParallel(model, static_graph=False, find_unused_parameters=True)",
                first_for=("static_graph",),
            ),
            Fix(
                "The search for unused parameters is on: return all outputs that the loss uses from one call of"
                " the DDP model, and use all of them in the loss.",
                "loss = loss_function(*model(batch), target)\nloss.backward()",
                first_for=("`find_unused_parameters=True` is enabled",),
                hidden_otherwise=True,
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
                "With Lightning, choose the strategy.",
                'trainer = Trainer(strategy="ddp_find_unused_parameters_true")',
                first_for=("LightningModule",),
            ),
            Fix("With DeepSpeed, set the option.", 'config["zero_optimization"]["ignore_unused_parameters"] = True'),
            Fix(
                "With ColossalAI, freeze or remove what the loss does not use, or use a plugin other than Gemini.",
                "booster = Booster(plugin=LowLevelZeroPlugin(stage=2))",
                first_for=("ZERO DDP error",),
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
            literal("expect_autograd_hooks_ INTERNAL ASSERT FAILED"),
            Pattern(
                "has been marked as ready twice",
                r"Parameter at index (?P<index>\d{1,6}) (?:with name (?P<name>[\w.]{1,200}) )?has been marked as"
                r" ready twice",
            ),
        ),
        causes=(
            "Gradient checkpointing with use_reentrant=True together with find_unused_parameters or shared weights.",
            "One forward is followed by several backward passes.",
            "A backward pass follows no forward of the model that DDP wraps, as expect_autograd_hooks_ checks.",
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
            Fix(
                "Call the wrapped model, once before each backward.",
                "loss = criterion(ddp_model(images), labels)\nloss.backward()",
                first_for=("expect_autograd_hooks_",),
            ),
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
                r" CollectiveFingerPrint\(SequenceNumber=(?P<sequence>\d{1,12}),? ?OpType=(?P<operation>\w{1,40})",
            ),
            Pattern(
                "Detected mismatch between collectives on ranks",
                r"Detected mismatch between collectives on ranks\.(?! Rank \d{1,6} is running collective:"
                r" CollectiveFingerPrint\(Seq)",
            ),
            literal("Collectives differ in the following aspects"),
            literal("Cannot apply desired operation due to shape mismatches"),
            Pattern(
                "invalid tensor size at index",
                r"ProcessGroup\w{1,20}::\w{1,30}: invalid tensor size at index (?P<index>\d{1,6})",
            ),
            literal("All tensor operands to scatter/gather must have the same"),
            Pattern(
                "Trying to create tensor with negative dimension",
                r"Trying to create tensor with negative dimension (?P<size>-\d{10,19})",
            ),
            Pattern(
                "is all-gathering parameters for",
                r"rank (?P<rank>\d{1,6}) is all-gathering parameters for [^\n]{1,200}? while rank",
            ),
        ),
        causes=(
            "A branch that only some ranks take contains a collective: logging, evaluating or saving on rank 0.",
            "The last batch is smaller, or the ranks have a different number of batches.",
            "A huge negative dimension: the size of an object arrived from another collective, or on another device.",
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
            literal("Monitored Barrier encountered error running collective"),
            Pattern(
                "monitoredBarrier",
                r"[Rr]ank (?P<rank>\d{1,6}) (?:successfully reached monitoredBarrier, but received errors|failed to p"
                r"ass monitoredBarrier|timed out in monitoredBarrier after)",
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
            Pattern(
                " failed to pass monitoredBarrier", r"Ranks (?P<ranks>[\d, ]{1,80}) failed to pass monitoredBarrier"
            ),
        ),
        causes=(
            "The other rank raised an exception or was killed; its log has the cause.",
            "It waits in another collective, or still reads data.",
            "Connecting fails: Gloo chose an interface over which the hosts cannot reach each other.",
        ),
        fixes=(
            Fix(
                "While the program hangs, show what the rank that writes the checkpoint does; in its log, look for an"
                " error.",
                "py-spy dump --pid PID; df -h; free -h",
                first_for=("saved checkpoint",),
            ),
            Fix(
                "If it only writes slowly, allow more time, write to a faster disk, or save less, such as the adapter"
                " only.",
                """\
from datetime import timedelta

torch.distributed.init_process_group(timeout=timedelta(hours=2))""",
                first_for=("saved checkpoint",),
            ),
            fixes.FIRST_RANK,
            Fix(
                "If the ranks never connected, select the network interface.",
                "GLOO_SOCKET_IFNAME=eth0 torchrun --nproc-per-node=gpu train.py",
            ),
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
                r" (?P<exitcode>\d{1,3})(?!\d))",
            ),
            Pattern(
                "terminated with the following error",
                r"-- Process (?P<process>\d{1,6}) terminated with the following error",
            ),
            literal("BrokenProcessPool: A process in the process pool was terminated abruptly"),
            Pattern("RuntimeError: Rank[", r"RuntimeError: Rank\[(?P<process>\d{1,6})\] failed\."),
            literal("The Ray Train run failed. Please inspect the previous error messages"),
            literal("Forcefully terminating all other processes to avoid zombies"),
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
