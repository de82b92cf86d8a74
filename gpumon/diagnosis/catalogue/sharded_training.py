"""Errors of sharded training: FSDP and DTensor.

The wordings of FSDP are reproduced with PyTorch 2.13; the others are from reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Sharded training"

_FSDP: Final = "https://docs.pytorch.org/docs/stable/fsdp.html"
_FSDP2: Final = "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
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
            Pattern(" requires uniform ", r"FlatParameter`? requires uniform `?(?P<property>\w{1,20})"),
            Pattern("FSDP expects uniform reduce dtype", r"FSDP expects uniform reduce dtype but got"),
        ),
        causes=(
            "The model and an adapter (LoRA) differ in type, such as float16 and bfloat16; quantized layers are uint8.",
            "Some layers are frozen.",
        ),
        fixes=(
            Fix(
                "Use FSDP2, which shards each parameter by itself.",
                "from torch.distributed.fsdp import fully_shard\n\nfully_shard(model)",
            ),
            Fix(
                "For QLoRA, store the quantized weights in the adapter's type.",
                "config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",
                first_for=("torch.uint8", "integer dtype"),
            ),
            Fix(
                "Load model and adapter in one type; a model that is not quantized can be converted before it is"
                " wrapped.",
                "model = model.to(torch.bfloat16)",
                first_for=("uniform dtype", "parameter dtype"),
            ),
            Fix(
                "For frozen layers in FSDP1, keep the original parameters.",
                "model = FullyShardedDataParallel(model, use_orig_params=True)",
                first_for=("requires_grad",),
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
            Fix(
                "The library accelerate clips the gradients of sharded and other parameters together: upgrade it with"
                " transformers, or"
                " shard all parameters that are trained.",
                "pip install --upgrade accelerate transformers",
                first_for=("accelerate",),
                hidden_otherwise=True,
            ),
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
            literal("weight should have at least three dimensions"),
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
            Fix(
                "A module is skipped in some steps, as the vision part for texts without images: use ZeRO-2, or use the"
                " module in each step.",
                "deepspeed train.py --deepspeed zero2.json",
                first_for=("inflight params",),
                hidden_otherwise=True,
            ),
            Fix(
                "With ZeRO-3, give every model to DeepSpeed, also a teacher or a reference: one that it does not"
                " know gathers nothing.",
                "engine, *_ = deepspeed.initialize(model=teacher, config=config)",
                first_for=("'weight' must be 2-D",),
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
        id="fsdp-root",
        section=SECTION,
        title="FSDP: a part was used before the whole model",
        summary="FSDP treats the first module that is called as the root, and a part of the model was that module.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("FSDP instance's `_is_root`", r"FSDP instance's `_is_root` should not have been set"),
            Pattern(
                "state has already been lazily initialized", r"\w{1,20} state has already been lazily initialized for"
            ),
            literal("requires running forward through the root module first"),
            Pattern("requires a single root module but got", r"\w{1,20} requires a single root module but got"),
            literal("FSDP does not support changing the parameters between forward and backward"),
        ),
        causes=(
            "A checkpoint was saved or loaded, or a part was called, before the first forward pass of the model.",
            "Parameters were replaced, resized or moved after the model was wrapped.",
        ),
        fixes=(
            Fix("Call the wrapped model once before you use its parts or its state.", "model(**batch)"),
            Fix("Save and load through the outermost wrapped module only.", "state = model.state_dict()"),
            Fix(
                "With FSDP2, also apply fully_shard to the whole model, after its parts.",
                "for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/issues/113496",),
        said_by="torch 1.13-2.13",
    ),
)
