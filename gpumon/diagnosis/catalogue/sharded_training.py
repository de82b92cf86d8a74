"""Errors of sharded training: FSDP, DTensor and DeepSpeed ZeRO.

The wordings of FSDP are reproduced with PyTorch 2.13; those of DeepSpeed are from its sources of 2026 and reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Sharded training"

_FSDP: Final = "https://docs.pytorch.org/docs/stable/fsdp.html"
_FSDP2: Final = "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_DEEPSPEED: Final = "https://www.deepspeed.ai/docs/config-json/"
_DEEPSPEED_ZERO: Final = "https://deepspeed.readthedocs.io/en/latest/zero3.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="fsdp-uniform",
        section=SECTION,
        title="FSDP: parameters of different kinds in one unit",
        summary="FSDP joins the parameters of a unit into one tensor, and these differ in type or in requires_grad.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Must flatten tensors with uniform dtype",
                r"Must flatten tensors with uniform dtype but got torch\.(?P<type>\w{1,20}) and"
                r" torch\.(?P<other_type>\w{1,20})",
            ),
            Pattern(
                "Must flatten tensors with uniform `requires_grad`",
                r"Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",
            ),
            literal("Cannot flatten integer dtype tensors"),
            Pattern("FSDP expects uniform original parameter dtype", r"FSDP expects uniform original parameter dtype"),
            Pattern("FlatParameter requires uniform", r"FlatParameter requires uniform (?P<property>\w{1,20})"),
            Pattern("FSDP expects uniform reduce dtype", r"FSDP expects uniform reduce dtype but got"),
        ),
        causes=(
            "An adapter (LoRA) is float32 and the frozen model bfloat16, or quantized layers are uint8.",
            "Some layers are frozen.",
        ),
        fixes=(
            Fix(
                "Use FSDP2, which shards each parameter by itself.",
                "from torch.distributed.fsdp import fully_shard\n\nfully_shard(model)",
            ),
            Fix("Convert the model to one type before it is wrapped.", "model = model.to(torch.bfloat16)"),
            Fix(
                "For frozen layers in FSDP1, keep the original parameters.",
                "model = FullyShardedDataParallel(model, use_orig_params=True)",
            ),
            Fix(
                "For QLoRA, store the quantized weights in the adapter's type.",
                "config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_FSDP, _FSDP2),
        said_by="torch 2.6-2.13",
    ),
    KnownError(
        id="dtensor-mixed",
        section=SECTION,
        title="Sharded and ordinary tensors in one operation",
        summary=(
            "After FSDP2 or tensor parallelism, parameters are DTensors; an operation mixed one with a plain tensor."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "got mixed torch.Tensor and DTensor",
                r"(?P<operator>aten\.[\w.]{1,80}):? got mixed torch\.Tensor and DTensor",
            ),
        ),
        causes=(
            "Weights are used outside the forward of their module: generate(), a custom loss, tied embeddings.",
            "Only part of the model is sharded, and gradients are clipped or optimized together.",
            "A full state dict is loaded into a sharded model with load_state_dict.",
        ),
        fixes=(
            Fix(
                "Shard the root module as well, after its parts.",
                "for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)",
            ),
            Fix(
                "Load a full state dict with the function for it.",
                """\
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(model, state, options=options)""",
            ),
            Fix(
                "Let methods other than forward gather the parameters.",
                "from torch.distributed.fsdp import"
                ' register_fsdp_forward_method\n\nregister_fsdp_forward_method(model, "generate")',
            ),
            Fix("In an own computation, gather the tensor first.", "weight = layer.weight.full_tensor()"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_FSDP2, "https://docs.pytorch.org/docs/stable/distributed.tensor.html"),
        said_by="torch 2.6-2.13, transformers 5.0",
    ),
    KnownError(
        id="fsdp-not-gathered",
        section=SECTION,
        title="Parameter is sharded and not gathered",
        summary=(
            "FSDP or ZeRO-3 gathers a weight only while its module is called, and it was used outside of that call."
        ),
        context=ContextState.ALIVE,
        patterns=(
            literal("The tensor has a non-zero number of elements, but its data is not allocated yet"),
            Pattern("'weight' must be 2-D", r"Error: 'weight' must be 2-D"),
            Pattern(
                "'status': 'NOT_AVAILABLE'",
                r"'id': (?P<parameter>\d{1,9}), 'status': 'NOT_AVAILABLE'",
            ),
            Pattern("'status': 'INFLIGHT'", r"'id': (?P<parameter>\d{1,9}), 'status': 'INFLIGHT'"),
            Pattern("still have inflight params", r"RuntimeError: still have inflight params"),
            Pattern("has already been reduced.", r"The parameter \S{1,120} has already been reduced\."),
            Pattern(
                "are out of bounds for storage of size 0",
                r"setStorage: sizes [^\n]{1,200}? are out of bounds for storage of size 0",
            ),
            literal("Cannot writeback when the parameter shape changes"),
        ),
        causes=(
            "A weight is used directly, such as embedding.weight, instead of calling its module.",
            "The ranks run different layers, such as in a mixture of experts, or one rank only evaluates or saves.",
            "The inner module was called instead of the wrapped model, such as model.module.generate().",
        ),
        fixes=(
            Fix("Call the modules through the wrapped model, on all ranks, with the same control flow."),
            Fix(
                "With ZeRO-3, gather the weight where it is used directly.",
                "with deepspeed.zero.GatheredParameters([layer.weight]):\n    use(layer.weight)",
            ),
            Fix(
                "With FSDP, gather all weights for generation.",
                "with FullyShardedDataParallel.summon_full_params(model, writeback=False):\n   "
                " model.generate(**inputs)",
            ),
            Fix(
                "With a mixture of experts in ZeRO-3, declare its block as a leaf.",
                "deepspeed.utils.set_z3_leaf_modules(model, [MixtralSparseMoeBlock])",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_FSDP, _DEEPSPEED_ZERO),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="fsdp-no-accelerator",
        section=SECTION,
        title="FSDP without a GPU",
        summary="FSDP needs a GPU, and this process has none.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("FSDP needs a non-CPU accelerator device"),),
        causes=("The build of PyTorch has no CUDA, or the process sees no GPU.",),
        fixes=(
            Fix(
                "Check what PyTorch sees.",
                "python -c 'import torch; print(torch.version.cuda, torch.cuda.device_count())'",
            ),
            Fix(
                "To test on the CPU, use FSDP2 with a CPU mesh.",
                'mesh = init_device_mesh("cpu", (2,))\nfully_shard(model, mesh=mesh)',
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_FSDP,),
        said_by="torch 2.6-2.13",
    ),
    KnownError(
        id="deepspeed-op",
        section=SECTION,
        title="DeepSpeed cannot build an operator",
        summary=(
            "DeepSpeed compiles its optimizers at first use, and the compiler, the CUDA toolkit or ninja is missing."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Unable to JIT load the ",
                r"Unable to JIT load the (?P<operator>\w{1,60}) op due to (?P<reason>[^\n]{1,120})",
            ),
            literal("CUDA_HOME does not exist, unable to compile CUDA op(s)"),
            Pattern(
                ".so: cannot open shared object file",
                r"/(?P<operator>cpu_adam|fused_adam|cpu_adagrad|cpu_lion|async_io|utils|transformer_inference)/\w"
                r"{1,30}\.so:"
                r" cannot open shared object file",
            ),
            Pattern(
                "object has no attribute 'ds_opt_adam'", r"'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'"
            ),
        ),
        causes=(
            "CUDA_HOME is not set, or there is no nvcc: the wheels of PyTorch contain none.",
            "The toolkit's version differs from torch.version.cuda; an earlier message reports that.",
            (
                "Attribute ds_opt_adam: printed while the optimizer that could not be built is deleted; the cause"
                " stands above."
            ),
        ),
        fixes=(
            Fix("Show what DeepSpeed can build here, and what is missing.", "ds_report"),
            Fix(
                "Install ninja, a compiler, and the CUDA toolkit of torch.version.cuda.",
                "pip install ninja && conda install -c nvidia cuda-nvcc gxx_linux-64",
            ),
            Fix(
                "If the toolkit differs only in its minor version, skip the check.",
                "DS_SKIP_CUDA_CHECK=1 deepspeed train.py",
            ),
            Fix("Delete operators that were built for another PyTorch.", "rm -rf ~/.cache/torch_extensions"),
            Fix(
                "Or use PyTorch's optimizer instead of DeepSpeed's.", 'config = {"zero_force_ds_cpu_optimizer": False}'
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://www.deepspeed.ai/tutorials/advanced-install/",),
    ),
    KnownError(
        id="deepspeed-batch",
        section=SECTION,
        title="DeepSpeed: batch sizes do not fit together",
        summary=(
            "The total batch must be the micro batch per GPU times the accumulation steps times the number of GPUs."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "train_batch_size is not equal to",
                r"train_batch_size is not equal to micro_batch_per_gpu \* gradient_acc_step \* world_size"
                r"(?: (?P<total>\d{1,9}) != (?P<micro>\d{1,9}) \* (?P<steps>\d{1,9}) \* (?P<ranks>\d{1,9}))?",
            ),
        ),
        causes=("The number of GPUs changed, or only some of the values were changed in the configuration.",),
        fixes=(
            Fix(
                "Remove train_batch_size from the configuration: DeepSpeed then computes it.",
                'config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}',
            ),
            Fix(
                "With transformers, let the trainer fill in all values.",
                'config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",'
                ' "gradient_accumulation_steps": "auto"}',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DEEPSPEED,),
    ),
    KnownError(
        id="deepspeed-checkpoint-ranks",
        section=SECTION,
        title="DeepSpeed: checkpoint of another number of GPUs",
        summary="The optimizer's state was saved in as many parts as there were GPUs, and their number is now another.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "The checkpoint being loaded used a DP world size of",
                r"The checkpoint being loaded used a DP world size of (?P<saved>\d{1,6}) but the current world size is"
                r" (?P<current>\d{1,6})",
            ),
        ),
        causes=("The job continues on more or fewer GPUs.",),
        fixes=(
            Fix(
                "Convert the checkpoint to a universal one, and load that.",
                "python -m deepspeed.checkpoint.ds_to_universal --input_folder global_step100 --output_folder"
                " universal",
            ),
            Fix("Or use the same number of GPUs as before."),
            Fix("Or load only the weights.", "python zero_to_fp32.py . weights"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://www.deepspeed.ai/tutorials/universal-checkpointing/",),
    ),
    KnownError(
        id="deepspeed-no-checkpoint",
        section=SECTION,
        title="No complete checkpoint in the folder",
        summary="The folder from which DeepSpeed or the trainer should continue contains no checkpoint that it saved.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("assert len(self.ckpt_list) > 0"),
            Pattern("Can't find a valid checkpoint at", r"Can't find a valid checkpoint at (?P<path>[\w./-]{1,60})"),
            Pattern("is not a zero checkpoint", r"Error: [^\n]{1,200} is not a zero checkpoint"),
        ),
        causes=(
            "The folder contains only the weights, and the run asks for the state of the optimizer.",
            "The path is wrong by one level: it must contain the file latest or the folder global_step.",
            "The checkpoint was saved with another ZeRO stage, or its saving was interrupted.",
        ),
        fixes=(
            Fix("Look at what the folder contains.", "ls -R output/checkpoint-1000 | head -40"),
            Fix(
                "Start from the weights only, with a new optimizer.",
                'model = AutoModelForCausalLM.from_pretrained("output/checkpoint-1000")\ntrainer.train()',
            ),
            Fix("Resume from an older checkpoint that is complete."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepspeedai/DeepSpeed/issues/3377",),
        said_by="DeepSpeed 0.8-0.18",
    ),
    KnownError(
        id="deepspeed-twice",
        section=SECTION,
        title="DeepSpeed: initialized twice",
        summary="A second model was given to DeepSpeed with a setting that works only once in a process.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("ZeRO parameter intra parallel group is already initialized"),),
        causes=(
            "ZeRO++ with zero_hpz_partition_size, and two engines, such as a policy and its reference model.",
            "One process calls deepspeed.initialize for several models, or once per trial.",
        ),
        fixes=(
            Fix(
                "Remove the partition size of ZeRO++ from the configuration of the other models.",
                'reference_config["zero_optimization"].pop("zero_hpz_partition_size", None)',
            ),
            Fix("Start a new process for each run."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepspeedai/DeepSpeed/issues/4901",),
        said_by="DeepSpeed 0.10-0.18",
    ),
    KnownError(
        id="fsdp-root",
        section=SECTION,
        title="FSDP: a part was used before the whole model",
        summary="FSDP treats the first module that is called as the root, and a part of the model was that module.",
        context=ContextState.ALIVE,
        patterns=(Pattern("FSDP instance's `_is_root`", r"FSDP instance's `_is_root` should not have been set"),),
        causes=("A checkpoint was saved or loaded, or a part was called, before the first forward pass of the model.",),
        fixes=(
            Fix("Call the wrapped model once before you use its parts or its state.", "model(**batch)"),
            Fix("Save and load through the outermost wrapped module only.", "state = model.state_dict()"),
            Fix("Upgrade PyTorch, and use FSDP2, which has no such order.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/issues/113496",),
        said_by="torch 1.13-2.5",
    ),
    KnownError(
        id="deepspeed-optimizer",
        section=SECTION,
        title="DeepSpeed: optimizer does not fit the offload",
        summary="ZeRO-Offload computes the optimizer on the CPU, for which PyTorch's own optimizers are slow.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("You are using ZeRO-Offload with a client provided optimizer"),
            literal("You are using an untested ZeRO Optimizer"),
        ),
        causes=("The program creates the optimizer, and the configuration of DeepSpeed offloads its state.",),
        fixes=(
            Fix(
                "Let DeepSpeed create the optimizer.",
                'config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": 0.01}}',
            ),
            Fix(
                "Or create the one that is fast on the CPU.",
                "optimizer = deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), lr=1e-5)",
            ),
            Fix(
                "Or permit the other one in the configuration.",
                'config["zero_force_ds_cpu_optimizer"] = False\nconfig["zero_allow_untested_optimizer"] = True',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DEEPSPEED,),
        said_by="DeepSpeed 0.8-0.18",
    ),
)
