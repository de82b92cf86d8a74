"""Errors of sharded state: distributed checkpoints, DTensor, DeepSpeed's offload and configuration."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Sharded state"

_DCP: Final = "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="dcp-incomplete",
        section=SECTION,
        title="Distributed checkpoint is incomplete",
        summary="The folder has no metadata, so that it is no checkpoint, or one whose saving was interrupted.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("assert metadata is not None"),
            literal("AssertionError: metadata is None; "),
            Pattern("No such file or directory: '", r"No such file or directory: '(?P<file>[^'\n]{0,200}/\.metadata)'"),
        ),
        causes=(
            "The job ended while it saved: the metadata is written last, by rank 0, after all ranks.",
            "The path is that of the parent folder, or not the same on every host.",
            "The folder has a checkpoint of another kind, such as one file per rank.",
        ),
        fixes=(
            Fix(
                "Look at what the folder contains: `.metadata` and one or more `.distcp` per rank.", "ls -la CHECKPOINT"
            ),
            Fix("Load the previous checkpoint."),
            Fix(
                "Save to a file system that all hosts share, and wait for an asynchronous save before the program"
                " ends.",
                "future.result()",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DCP, "https://github.com/bghira/SimpleTuner/issues/1880"),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="dcp-keys",
        section=SECTION,
        title="Distributed checkpoint lacks a part of the state",
        summary="The program loads a key that the checkpoint does not have, or with another shape.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Missing optimizer state for parameter",
                r"Missing optimizer state for parameter '(?P<name>[\w.]{1,200})' in checkpoint",
            ),
            literal("Key(s) present in other ranks but not this one"),
            Pattern(
                "issing key in checkpoint state_dict",
                r"Missing key in checkpoint state_dict: (?P<name>[\w./-]{0,199}\w)",
            ),
            Pattern(
                "Size mismatch between saved",
                r"Size mismatch between saved (?P<shape>[^\n]{1,80}?) and current: (?P<other_shape>[^\n]{1,80}?) for"
                r" (?P<name>[\w.]{1,200})",
            ),
        ),
        causes=(
            "The optimizer, the scheduler or the model was saved under other names, or not at all.",
            "The model differs: another version, number of layers, or wrapping such as compile or FSDP.",
        ),
        fixes=(
            Fix(
                "Print the keys that the checkpoint has.",
                """\
from torch.distributed.checkpoint import FileSystemReader

print(*FileSystemReader("CHECKPOINT").read_metadata().state_dict_metadata, sep="\\n")""",
            ),
            Fix(
                "Get the state with the functions that remove the names of wrappers and the flat shapes of FSDP, both"
                " when you save and when you load.",
                "state = torch.distributed.checkpoint.state_dict.get_model_state_dict(model)",
                first_for=("Size mismatch between saved",),
            ),
            Fix(
                "The key is a state of TransformerEngine, such as the scales of FP8, which a model in 16 bits does"
                " not need: load without strictness; in NeMo, ckpt_load_strictness of the strategy.",
                "torchrun pretrain_gpt.py --dist-ckpt-strictness log_all",
                first_for=("_extra_state",),
                hidden_otherwise=True,
            ),
            Fix(
                "Or load what is there.",
                "planner = torch.distributed.checkpoint.DefaultLoadPlanner(allow_partial_load=True)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DCP, "https://github.com/JinjieNi/dlms-are-super-data-learners/issues/4"),
        said_by="torch 2.1-2.13",
    ),
    KnownError(
        id="dcp-state",
        section=SECTION,
        title="Distributed checkpoint: the state is not consistent",
        summary="The saved state and that of the ranks do not fit: parts do not add up, shapes differ, or it is empty.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Failed to validate global plan"),
            Pattern("invalid fill tensor-volume", r"key:(?P<name>[\w./-]{1,200}) invalid fill tensor-volume"),
            Pattern(
                "mismatch sizes",
                r"req MetadataIndex\([^\n]{1,200}\) mismatch sizes,? (?:(?P<expected>torch\.Size\(\[[\d, ]{0,60}\]\))"
                r" vs (?P<saved>torch\.Size\(\[[\d, ]{0,60}\]\)?))?",
            ),
            Pattern("Could not find FQN: ", r"Could not find FQN: '(?P<name>[^'\n]{1,200})'"),
            literal("The option indicates that model state_dict is required to save"),
            Pattern("An unexpected key, ", r"An unexpected key, (?P<name>[^\n,]{1,200}), exists\. FQN is"),
            literal("All the parameters in the same parameter group should have the same saved param_group value"),
            literal("There are param groups that have zero parameters"),
            Pattern(
                "at save time was ",
                r"(?:Local|Global) (?:rank|world size) at save time was (?P<ranks>\d{1,6}), but at load time was",
            ),
            Pattern("Checkpoint already exists and", r"Checkpoint already exists and self\.overwrite=False"),
            literal("Cannot detect which StorageReader or StorageWriter to use"),
        ),
        causes=(
            "The state has DTensors that were changed by hand, or whose sizes are not a multiple of the ranks.",
            "Another number of ranks loads what was saved per rank.",
            "The parts of a model with several kinds of parallelism, such as experts, were saved by the wrong ranks.",
        ),
        fixes=(
            Fix(
                "Load with the strategy, the wrapping, such as use_orig_params, and the versions with which the"
                " checkpoint was saved.",
                first_for=("mismatch sizes",),
            ),
            Fix(
                "Or join the parts into one file, and load it without shards; for Lightning, use"
                " lightning.pytorch.utilities.consolidate_checkpoint.",
                "python -m torch.distributed.checkpoint.format_utils dcp_to_torch CHECKPOINT model.pt",
                first_for=("mismatch sizes",),
            ),
            Fix(
                "In own code, get model and optimizer with the functions for their state, on all ranks.",
                """\
from torch.distributed.checkpoint.state_dict import get_state_dict

model_state, optimizer_state = get_state_dict(model, optimizer)""",
            ),
            Fix(
                "Save to a new folder, and load with the number of ranks that saved.",
                first_for=("already exists", "world size at save"),
            ),
            Fix("Upgrade PyTorch and the trainer.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DCP, "https://github.com/axolotl-ai-cloud/axolotl/issues/2548"),
        said_by="torch 2.1-2.13",
    ),
    KnownError(
        id="dcp-staging",
        section=SECTION,
        title="Asynchronous checkpoint failed",
        summary="The state could not be copied to memory, or the process that writes it in the background ended.",
        context=ContextState.ALIVE,
        patterns=(
            literal("A CPU backend must be enabled for async save"),
            Pattern(
                "Checkpoint background process is dead",
                r"Checkpoint background process is dead(?:\. Exit code: (?P<exit_code>-?\d{1,5}))?",
            ),
            Pattern("_deepcopy_dispatch[", r"self\._deepcopy_dispatch\[\w{1,30}\]\(x, memo\)"),
            Pattern(
                "waiting for response from checkpointer process",
                r"Timed out after \d{1,6}s while waiting for response from checkpointer process",
            ),
        ),
        causes=(
            "The state contains a class, a function or another object that is no tensor, number, text or container.",
            "The process group has only NCCL, and the copies in memory need a backend for the CPU.",
            "Exit code -9: the copies did not fit into the host's memory.",
        ),
        fixes=(
            Fix("Create the group with both backends.", 'torch.distributed.init_process_group("cpu:gloo,cuda:nccl")'),
            Fix("In torchtitan, save without pinned memory.", "bash run_train.sh --checkpoint.async_mode async"),
            Fix("Keep only tensors and plain values in the state that is saved."),
            Fix(
                "If the exit code is -9, check whether the host's memory ran out.",
                "free -h; sudo dmesg -T | grep -i -E 'out of memory|oom-kill'",
                first_for=("Exit code: -9",),
            ),
            Fix("Upgrade PyTorch.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/torchtitan/issues/3476",),
        said_by="torch 2.9-2.13",
    ),
    KnownError(
        id="dtensor-operator",
        section=SECTION,
        title="Operator does not support these sharded tensors",
        summary="DTensor has no rule for this operator, or its inputs are spread over different meshes of GPUs.",
        context=ContextState.ALIVE,
        patterns=(
            literal("DTensor does not support cross-mesh operation"),
            Pattern(
                "does not have a sharding strategy registered",
                r"Operator (?P<operator>[\w.:]{1,80}) does not have a sharding strategy registered",
            ),
            Pattern(
                "Sharding propagation failed ", r"Sharding propagation failed (?:for|on op) (?P<operator>[^\n]{1,80})"
            ),
            Pattern(
                "found no DeviceMesh from dtensor args",
                r"found no DeviceMesh from dtensor args for (?P<operator>[\w.:]{1,80})",
            ),
            literal("not supported for ShardedTensor!"),
        ),
        causes=(
            "Part of the model is parallel in two dimensions and part in one, such as layers outside the plan.",
            "This version of PyTorch has no rule for the operator.",
            "A collective such as broadcast got a DTensor, as with sync_module_states of FSDP1 on a parallel model.",
        ),
        fixes=(
            Fix("Include every layer in the plan of tensor parallelism; replicate those that are not split."),
            Fix(
                "Update each group of parameters by itself.",
                "optimizer = torch.optim.AdamW(model.parameters(), foreach=False)",
            ),
            Fix("Gather the tensor before the operator.", "tensor = tensor.full_tensor()"),
            Fix(
                "Give a collective the part of this rank.",
                "torch.distributed.broadcast(tensor.to_local(), src=0)",
                first_for=("args for c10d.",),
            ),
            Fix("Upgrade PyTorch, which adds rules with each version.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/pytorch/pytorch/issues/134212",
            "https://docs.pytorch.org/docs/stable/distributed.tensor.html",
        ),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="wrapper-storage",
        section=SECTION,
        title="Tensor without memory",
        summary="A tensor that only wraps others, such as a sharded or quantized one, was used as an ordinary one.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Attempted to access the data pointer on an invalid python storage"),
            literal("Cannot access data pointer of Tensor (e.g. FakeTensor, FunctionalTensor)"),
            literal("Cannot access data pointer of Storage that is invalid"),
        ),
        causes=(
            "Parameters of FSDP2, tensor parallelism or torchao were passed to save_pretrained or copy.deepcopy.",
            "Code that torch.compile or export traces reads the address of a tensor.",
        ),
        fixes=(
            Fix(
                "Gather the full state first, on all ranks.",
                "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n\n"
                "options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
                "state = get_model_state_dict(model, options=options)",
            ),
            Fix("With torchao, save with pickle.", 'model.save_pretrained("out", safe_serialization=False)'),
            Fix(
                "Upgrade the libraries, which learn to handle such tensors.",
                "pip install --upgrade transformers accelerate safetensors",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/transformers/pull/34194",),
        said_by="torch 2.1-2.13",
    ),
    KnownError(
        id="deepspeed-aio",
        section=SECTION,
        title="DeepSpeed: reading or writing the offloaded state failed",
        summary="An asynchronous transfer between memory and disk failed or returned less than was asked for.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("_num_pending_ops", r"Assertion `(?P<check>[^`'\n]{0,20}_num_pending_ops[^`'\n]{0,20})' failed"),
            literal("Assertion `n_completes >= min_completes' failed"),
        ),
        causes=(
            "The disk is full, or its file system does not support direct access, as network and overlay file systems.",
            "The folder for the offload is shared by processes that should have one each.",
            "The version of DeepSpeed or libaio has an error.",
        ),
        fixes=(
            Fix(
                "Put the offload on a local NVMe disk with free space.",
                'config["zero_optimization"]["offload_param"]["nvme_path"] = "/local_nvme"',
            ),
            Fix("Check the space and the kind of the file system.", "df -hT /local_nvme"),
            Fix("Or offload to memory.", 'config["zero_optimization"]["offload_param"]["device"] = "cpu"'),
            Fix(
                "Upgrade DeepSpeed, and show whether it can use libaio.", "pip install --upgrade deepspeed && ds_report"
            ),
        ),
        empty_cache="No effect: the state is on the disk and in host memory.",
        sources=(
            "https://github.com/deepspeedai/DeepSpeed/issues/7703",
            "https://github.com/deepspeedai/DeepSpeed/issues/4888",
        ),
        said_by="DeepSpeed 0.5-0.18",
    ),
    KnownError(
        id="collective-contiguous",
        section=SECTION,
        title="Collective got a tensor that it cannot send",
        summary="The tensor is not contiguous, is of a type unknown to NCCL, or its size does not fit the group.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("ensors must be contiguous", r"Error: (?:[Ii]nput )?[Tt]ensors must be contiguous"),
            Pattern(
                "is not supported for NCCL process group",
                r"data type is not supported for NCCL process group: (?P<type>\w{1,30})",
            ),
            literal("Unconvertible NCCL type"),
            literal("output tensor size must be equal to world_size times input tensor size"),
            literal("input tensor must be the same size as output size times world size"),
            literal("output tensor must have the same type as input tensor"),
        ),
        causes=(
            "The tensor is a slice or a transposed view.",
            "It has a type such as uint16, complex or an 8-bit float that this version cannot reduce.",
            "The sizes of the shards differ between ranks.",
        ),
        fixes=(
            Fix("Copy the tensor.", "torch.distributed.all_reduce(tensor.contiguous())"),
            Fix(
                "Convert it, or send it as bytes.",
                "torch.distributed.broadcast(tensor.view(torch.uint8), src=0)",
                first_for=("not supported for NCCL", "Unconvertible"),
            ),
            Fix(
                "Make the output as large as all inputs together, and pad the shards of all ranks to one size.",
                first_for=("tensor size must be equal",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="quantized-training",
        section=SECTION,
        title="Quantized weights cannot be trained",
        summary="Weights in 4 or 8 bits have no gradients; only adapters on top of them can be trained.",
        context=ContextState.ALIVE,
        patterns=(
            literal("You cannot perform fine-tuning on purely quantized models"),
            Pattern(
                "dtype can require gradients",
                r"[Oo]nly Tensors of floating point (?:and complex )?dtype can require gradients",
            ),
        ),
        causes=(
            "The model was loaded quantized, and no adapter was added.",
            "The program sets requires_grad for all parameters, or for a tensor of integers.",
        ),
        fixes=(
            Fix(
                "Add adapters.",
                "model = peft.prepare_model_for_kbit_training(model)\nmodel = peft.get_peft_model(model,"
                " peft.LoraConfig())",
            ),
            Fix("Or load the model without quantization.", 'model = Model.from_pretrained(NAME, dtype="bfloat16")'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.MEMORY_SUMMARY,),
        sources=("https://huggingface.co/docs/peft/main/en/developer_guides/quantization",),
        said_by="transformers 4.35-5.0, torch 1.13-2.13",
    ),
)
