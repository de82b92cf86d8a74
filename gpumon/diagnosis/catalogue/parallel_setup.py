"""Errors of setting up parallel training: FSDP's requirements, Accelerate, meshes of GPUs, batches."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Parallel setup"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="fsdp-device",
        section=SECTION,
        title="FSDP: parameters are on the wrong device",
        summary="FSDP got a module whose parameters are on another device than its settings require.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "when `sync_module_states=True`",
                r"CPU parameters or buffers when `sync_module_states=True`, which requires them to be on GPU",
            ),
            literal("requires tensor to be on GPU. Consider moving module to GPU first"),
            literal("To support a module with both CPU and GPU params, please pass in device_id"),
            Pattern(
                "FSDP-managed module unexpectedly has parameters",
                r"An FSDP-managed module unexpectedly has parameters on (?P<device>[\w:]{1,12})",
            ),
            Pattern(
                "offloading enabled has parameters on",
                r"An FSDP-managed module with parameter CPU offloading enabled has parameters on (?P<device>[\w:]{1,1"
                r"2})",
            ),
            Pattern(
                "FSDP parameters should be materialized ",
                r"FSDP parameters should be materialized (?:from meta device before training|on CPU when enabling"
                r" CPU offloading)",
            ),
            Pattern(
                "FSDP only supports single device modules",
                r"FSDP only supports single device modules but got params on (?P<devices>[^\n]{1,80})",
            ),
            literal("FSDP does not support modules with different device types"),
            Pattern(
                "Inconsistent compute device and",
                r"Inconsistent compute device and `device_id` on rank (?P<rank>\d{1,6})",
            ),
            Pattern(
                "Expects the parameter to already be moved to",
                r"Expects the parameter to already be moved to device (?P<device>[\w:]{1,12})",
            ),
            Pattern(
                "Must flatten tensors on the same device",
                r"Must flatten tensors on the same device but got both (?P<device>[\w:]{1,12}) and (?P<other_devi"
                r"ce>[\w:]{1,12})",
            ),
            Pattern(
                "Expects tensor to be on the compute device",
                r"Expects tensor to be on the compute device (?P<device>[\w:]{1,12})",
            ),
        ),
        causes=(
            "The model was wrapped before it was moved to the GPU of this rank, and no device_id was given.",
            "The model was created on the meta device, and its weights were not loaded before training.",
            "The model was moved to the GPU although offload to the CPU is on, or was loaded with device_map.",
        ),
        fixes=(
            Fix("With FSDP1, name the GPU of this rank.", "model = FSDP(model, device_id=torch.cuda.current_device())"),
            Fix(
                "With FSDP2 and a model on the meta device, allocate it after sharding, then load the weights.",
                "model.to_empty(device='cuda')\nmodel.init_weights()",
                first_for=("meta device",),
            ),
            Fix(
                "With offload to the CPU, keep the model on the CPU; load it without device_map.",
                "model = model.cpu()",
                first_for=("offload",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/huggingface/transformers/issues/25100",
            "https://docs.pytorch.org/docs/stable/fsdp.html",
        ),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="fsdp-structure",
        section=SECTION,
        title="FSDP: the model cannot be sharded like this",
        summary="A parameter or the nesting of modules does not suit FSDP.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "support scalar parameters. Change",
                r"(?:FSDP|fully_shard) doesn't support scalar parameters\. Change (?P<name>[\w.]{1,200})",
            ),
            Pattern(
                "FSDP does not support uneven sharding",
                r"FSDP does not support uneven sharding on dim (?P<dimension>\d{1,3})",
            ),
            literal("FSDP does not support non-contiguous parameters"),
            Pattern(
                "requires modules to not already have FSDP",
                r"FSDP auto wrapping requires modules to not already have FSDP applied but found (?P<name>[\w.]{1,200"
                r"})",
            ),
            Pattern(
                "Could not find the transformer layer class",
                r"Could not find the transformer layer class (?:(?P<layer>\w{1,80}) in|to wrap in) the model",
            ),
            literal("`clip_grad_norm_()` should only be called on the root FSDP instance"),
            Pattern(
                "is shared with a parameter already",
                r"Parameter '(?P<name>[\w.]{1,200})' is shared with a parameter already managed by another FSDP group",
            ),
            Pattern("Some parameters are not in the module tree", r"Some parameters are not in the module tree of"),
            literal("FSDP does not support deepcopy"),
            Pattern(
                "does not support containers that do not", r"does not support containers that do not implement forward"
            ),
            Pattern("requires the DP and model parallel", r"FSDP requires the DP and model parallel TP/EP mesh to "),
            Pattern("FSDP2 mapping failed", r"FSDP2 mapping failed \(missing: (?P<name>[^)\n]{1,160})\)"),
            literal("Parameters missing after FSDP2 wrapping"),
            Pattern("requires even sharding", r"Shard\(\d{1,2}\) requires even sharding"),
        ),
        causes=(
            "The class of layers to wrap is not spelled as in the model.",
            "A parameter is a single number, is shared between modules, or is not contiguous.",
            "A part was wrapped twice.",
        ),
        fixes=(
            Fix(
                "Print the classes of the modules, to choose the layer to wrap.",
                "print({type(module).__name__ for module in model.modules()})",
            ),
            Fix(
                "Make a single number a tensor with one element.",
                "self.scale = torch.nn.Parameter(torch.ones(1))",
                first_for=("scalar",),
            ),
            Fix(
                "Wrap shared parameters, such as tied embeddings, in one unit.",
                "fully_shard([model.embed_tokens, model.lm_head])",
                first_for=("FSDP2",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",),
        said_by="torch 2.0-2.13, accelerate 0.25-1.12",
    ),
    KnownError(
        id="optimizer-device",
        section=SECTION,
        title="Optimizer's state is on another device than the parameters",
        summary="The optimizer updates parameters and state together, and they differ in device or type.",
        context=ContextState.ALIVE,
        patterns=(literal("Tensors of the same index must be on the same device and the same dtype except `step`"),),
        causes=(
            "The state was loaded to the CPU, or before the model was moved to the GPU.",
            "The optimizer was created before the model was wrapped, moved or converted.",
        ),
        fixes=(
            Fix("Move and wrap the model first, then create the optimizer, then load its state."),
            Fix(
                "Or move the state.",
                """\
for state in optimizer.state.values():
    for name, value in state.items():
        if torch.is_tensor(value):
            state[name] = value.to("cuda")""",
            ),
            Fix(
                "Or update each parameter by itself.",
                "optimizer = torch.optim.AdamW(model.parameters(), foreach=False)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/transformers/issues/34730",),
        said_by="torch 2.1-2.13",
    ),
    KnownError(
        id="device-mesh",
        section=SECTION,
        title="Mesh of GPUs does not fit the number of processes",
        summary="The degrees of parallelism, multiplied, are not the number of processes that were started.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Mesh should not be bigger than default",
                r"Mesh should not be bigger than default world size (?P<processes>\d{1,6}), but found (?P<mesh>\d{1,6"
                r"}) ranks",
            ),
            Pattern(
                "must be divisible by ",
                r"[Ww]orld[ _]size \(?(?P<processes>\d{1,6})\)? must be divisible by (?P<degree>[^\n]{1,80})",
            ),
            Pattern(
                "is not divisible by ",
                r"world size \((?P<processes>\d{1,6})\) is not divisible by (?P<degree>(?:tensor|pipeline|context"
                r"|total|expert)[^\n]{1,80})",
            ),
            Pattern(
                " is not equal to ",
                r"[Ww]orld[ _]size \(?(?P<processes>\d{1,6})\)? is not equal to (?P<degree>(?:tensor|pipeline|data"
                r"|context|expert|dp|tp|pp)[^\n]{1,80})",
            ),
            Pattern("Invalid mesh_dim_names ", r"Invalid mesh_dim_names (?P<degree>[^\n]{1,80}?) specified"),
            Pattern(
                "it should be a factor of",
                r"reshard_after_forward as an int, it should be a factor of (?P<processes>\d{1,6})",
            ),
            literal("does not match num_processes"),
            Pattern(
                "The parallel mesh requires ",
                r"The parallel mesh requires (?P<mesh>\d{1,6}) processes, but world_size is (?P<processes>\d{1,6})",
            ),
            Pattern("Invalid parallel dims", r"Invalid parallel dims: (?P<degree>[^\n]{1,120})"),
        ),
        causes=("Fewer processes were started than the configuration needs, or a degree is wrong.",),
        fixes=(
            Fix(
                "Start as many processes as the product of the degrees.",
                "torchrun --nnodes 2 --nproc-per-node 8 train.py",
            ),
            Fix("Or lower a degree, such as that of tensor parallelism, to a divisor of the number of processes."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 2.0-2.13, Megatron-LM, torchtitan, vLLM 0.6-0.8, verl 0.2-0.10",
    ),
    KnownError(
        id="batch-divisible",
        section=SECTION,
        title="Batch cannot be divided among the GPUs",
        summary="The size of the batch is not a multiple of the number of processes, micro-batches or generations.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "only support equal chunk",
                r"only support equal chunk\. Got size of DataProto (?P<batch>\d{1,9}) and chunk (?P<parts>\d{1,6})",
            ),
            Pattern(
                "must be evenly divisible by the number of generations",
                r"batch size \((?P<batch>[\d x*]{1,24})\) must be evenly divisible by the number of generations p"
                r"er prompt \((?P<parts>\d{1,5})\)",
            ),
            Pattern(
                "minimal possible batch size",
                r"real_train_batch_size \((?P<batch>\d{1,9})\) must be divisible by minimal possible batch size \((?P"
                r"<parts>\d{1,6})\)",
            ),
            Pattern(
                "is not divisible by micro batch size",
                r"global batch size \((?P<batch>\d{1,9})\) is not divisible by micro batch size \((?P<micro>\d{1,9})"
                r"\) times data parallel size \((?P<parts>\d{1,6})\)",
            ),
            Pattern("AssertionError: ", r"AssertionError: (?P<batch>\d{1,9}) % (?P<parts>\d{1,6}) != 0$"),
            Pattern(
                "needs to be a round multiple of",
                r"batch size \((?P<batch>\d{1,9})\) needs to be a round multiple of the number",
            ),
            Pattern(
                "must divide world size",
                r"tensor_parallel_size \((?P<batch>\d{1,6})\) must divide world size \((?P<parts>\d{1,6})\) evenly",
            ),
        ),
        causes=("The batch was chosen for another number of GPUs.",),
        fixes=(
            Fix("Choose a batch that is a multiple of the number of parts in the message."),
            Fix("Or start fewer processes.", "torchrun --nproc-per-node 4 train.py"),
            Fix(
                "In TRL, make the batch of all processes a multiple of the generations per prompt, of which GRPO"
                " needs at least 2.",
                "arguments = GRPOConfig(per_device_train_batch_size=8, num_generations=8)",
                first_for=("generations per prompt",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/verl-project/verl/issues/606",),
        said_by="verl 0.2-0.6, TRL 0.14-0.25, Megatron-LM",
    ),
)
