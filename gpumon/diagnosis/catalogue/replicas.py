"""Errors of wrappers and groups: DataParallel, the arguments of DistributedDataParallel, ranks, and groups."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.distributed_training import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="wrapped-attribute",
        section=SECTION,
        title="Attribute of a wrapped model",
        summary="The wrapper does not pass on the attributes of the model that it contains.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "' object has no attribute '",
                r"'(?P<wrapper>DataParallel|DistributedDataParallel|FullyShardedDataParallel|DeepSpeedEngine"
                r"|OptimizedModule)' object has no attribute '(?P<attribute>\w{1,60})'",
            ),
        ),
        causes=("The program calls generate, config, fc or another attribute on the wrapper instead of the model.",),
        fixes=(
            Fix("Use the contained model.", "inner = model.module"),
            Fix("With Accelerate, unwrap it.", "inner = accelerator.unwrap_model(model)"),
            Fix("A model of torch.compile keeps the original in _orig_mod.", "inner = model._orig_mod"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",),
        said_by="torch 1.13-2.13, DeepSpeed 0.10-0.18",
    ),
    KnownError(
        id="not-wrapped",
        section=SECTION,
        title="Model is not wrapped",
        summary="The program takes .module of a model, which only a wrapper such as DistributedDataParallel has.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "' object has no attribute 'module'", r"'(?P<model>[A-Z]\w{1,80})' object has no attribute 'module'"
            ),
        ),
        causes=(
            "The program runs in a single process or without the wrapper, as in an evaluation.",
            "The wrapper is of another kind, and does not keep the model under this name.",
        ),
        fixes=(
            Fix("Take the model in both cases.", 'inner = getattr(model, "module", model)'),
            Fix("With Accelerate, use its function.", "inner = accelerator.unwrap_model(model)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="replica-failed",
        section=SECTION,
        title="DataParallel: a replica failed",
        summary="One of the copies of the model failed; the error below the line names the cause.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "in replica ",
                r"Caught (?P<exception>\w{1,60}) in replica (?P<replica>\d{1,3}) on device (?P<gpu>\d{1,3})",
            ),
        ),
        causes=(
            "The model creates tensors on cuda:0 in forward, or keeps tensors outside of parameters and buffers.",
            "The last batch is smaller than the number of GPUs, so that a replica gets no input.",
            "The same error as on one GPU: memory, shapes, labels.",
        ),
        fixes=(
            Fix("Run on one GPU, to read the plain error.", "CUDA_VISIBLE_DEVICES=0 python train.py"),
            Fix("Create tensors on the device of the input.", "positions = torch.arange(length, device=hidden.device)"),
            Fix(
                "Use one process per GPU: DataParallel is slower and no longer developed.",
                "torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
    KnownError(
        id="ddp-devices",
        section=SECTION,
        title="DDP: devices do not fit the model",
        summary="The arguments of DistributedDataParallel name other devices than those on which the model is.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "device_ids and output_device arguments only work with",
                r"DistributedDataParallel device_ids and output_device arguments only work with",
            ),
            Pattern(
                "input module must be on the same type of devices",
                r"DistributedDataParallel's input module must be on the same type of devices, but input module"
                r" parameters (?:are )?locate[d]? (?:in|on) (?P<devices>[^\n]{1,60})",
            ),
            Pattern(
                "device_ids can only be None or contain", r"device_ids can only be None or contain a single element"
            ),
        ),
        causes=(
            "The model was not moved to the GPU of the rank before it was wrapped, or is spread with device_map.",
            "A part of the model stayed on the CPU.",
        ),
        fixes=(
            Fix(
                "Move the whole model to the GPU of this rank, then wrap it.",
                'rank = int(os.environ["LOCAL_RANK"])\ntorch.cuda.set_device(rank)\n'
                "model = DistributedDataParallel(model.to(rank), device_ids=[rank])",
            ),
            Fix(
                "Load the model without device_map if torchrun starts the program.",
                "model = AutoModelForCausalLM.from_pretrained(name)",
                first_for=("index=0), device",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="group-ranks",
        section=SECTION,
        title="Process groups or their sizes do not fit the ranks",
        summary="A group was used that does not exist or does not contain this rank, or sizes do not divide the ranks.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "rank should be in the interval",
                r"Invalid rank (?P<rank>-?\d{1,6}), rank should be in the interval \[0, (?P<last>-?\d{1,6})\]",
            ),
            Pattern(
                "is not registered, please create group with torch.distributed.new_group",
                r"is not registered, please create group with torch\.distributed\.new_group",
            ),
            Pattern(
                "parallel group is ",
                r"(?P<group>(?:tensor|pipeline|data|context|expert|model|sequence)(?: model| and data)?)"
                r" parallel group is (?:not initialized|already initialized)",
            ),
            literal("data parallel group with context parallel combined is not initialized"),
            Pattern(
                "is not divisible by ",
                r"world_size \((?P<processes>\d{1,6})\) is not divisible by (?P<degree>[^\n]{1,80})",
            ),
            Pattern("is not part of group", r"(?:Global r|R|r)ank (?P<rank>\d{1,6}) is not part of group"),
            Pattern(
                "is not part of the parent group", r"Global rank (?P<rank>\d{1,6}) is not part of the parent group"
            ),
        ),
        causes=(
            "More processes were started than the sizes of the groups multiply to, or fewer.",
            "RANK counts from 0: RANK equals WORLD_SIZE on the last node.",
            "A group was created on some ranks only: all ranks must call new_group, in the same order.",
            "Megatron: initialize_model_parallel was not called, or twice.",
        ),
        fixes=(
            Fix(
                "Print the ranks of all processes.",
                'python -c \'import os; print(os.environ.get("RANK"), os.environ.get("WORLD_SIZE"))\'',
            ),
            Fix("Let torchrun set them.", "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint HOST:29500 train.py"),
            Fix(
                "Start as many processes as the product of the parallel sizes, or a multiple.",
                "torchrun --nproc-per-node 8 train.py",
                first_for=("divisible",),
            ),
            Fix(
                "Create Megatron's groups in every process, once, before the model.",
                """\
from megatron.core import parallel_state

parallel_state.initialize_model_parallel(tensor_model_parallel_size=1)""",
                first_for=(
                    "group is not initialized",
                    "already initialized",
                    "combined is not initialized",
                ),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13, Megatron-LM 0.5-0.14, vLLM 0.4-0.19",
    ),
    KnownError(
        id="store-ipv6",
        section=SECTION,
        title="No IPv6 on this host",
        summary="PyTorch tries IPv6 first and then IPv4, so that this warning alone is harmless.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Address family not supported by protocol",
                r"socket cannot be initialized (?:on|to connect to) \[[^\]\n]{1,80}\]:(?P<port>\d{1,5}) \(errno:"
                r" 97 - Address"
                r" family not supported by protocol",
            ),
        ),
        causes=("IPv6 is disabled in the kernel or in the container.",),
        fixes=(Fix("Ignore it if the training starts; otherwise, the next message is the cause."),),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
        is_warning=True,
    ),
)
