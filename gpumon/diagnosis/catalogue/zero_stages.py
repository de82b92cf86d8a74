"""Errors of DeepSpeed's ZeRO: the order, the types and the gradients of parameters that are divided among ranks."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "DeepSpeed"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="zero3-order",
        section=SECTION,
        title="ZeRO-3: modules run in another order than recorded",
        summary="DeepSpeed records the order in which modules run, to fetch their parameters in time, and it changed.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "parameters in the parameter fetch queue to be",
                r"expected the next (?P<parameters>\d{1,6}) parameters in the parameter fetch queue to be",
            ),
            Pattern("__step_id_module_fetched_for[", r"__step_id_module_fetched_for\[[\w.]{1,60}\]\.popleft\(\)"),
            Pattern("tracing error at step", r"tracing error at step (?P<step>\d{1,12}):"),
            literal("assert len(set(t.device for t in tensors)) == 1"),
            literal("assert not param.ds_active_sub_modules"),
            literal("Cannot free a ZeRO-3 parameter while it is still active in submodules"),
            literal("assert param.ds_id not in self.params_in_ipg_bucket"),
            Pattern(
                "backward pass is invalid for module in evaluation mode",
                r"backward pass is invalid for module in evaluation mode",
            ),
            Pattern(
                "param.ds_status == ZeroParamStatus.", r"assert (?:not )?param\.ds_status == ZeroParamStatus\.\w{4,20}"
            ),
        ),
        causes=(
            "The control flow depends on the data, as in a mixture of experts, so that other modules run.",
            "The model is used in another way in between, such as for generation or evaluation.",
            "Parameters are on different devices because offload or device_map moved some.",
        ),
        fixes=(
            Fix(
                "Declare modules whose parts do not always run as one unit.",
                "deepspeed.utils.set_z3_leaf_modules(model, [ExpertLayer])",
            ),
            Fix("Use ZeRO-2, if the model fits.", 'config["zero_optimization"]["stage"] = 2'),
            Fix("Switch the model to training mode before the step.", "model.train()", first_for=("evaluation mode",)),
            Fix(
                "Give every rank the same number of batches: drop the last, incomplete one.",
                "loader = DataLoader(dataset, batch_size=4, drop_last=True)",
                first_for=("ds_active_sub_modules", "still active in submodules"),
            ),
            Fix("Upgrade DeepSpeed.", "pip install --upgrade deepspeed"),
            Fix(
                "Let all parameters be on one device when DeepSpeed starts: load the model on the CPU, without"
                " device_map.",
                "model = AutoModelForCausalLM.from_pretrained(name, device_map=None)",
                first_for=("t.device for t in tensors",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/deepspeedai/DeepSpeed/issues/3599",
            "https://github.com/deepspeedai/DeepSpeed/issues/3771",
        ),
        said_by="DeepSpeed 0.9-0.17",
    ),
    KnownError(
        id="zero3-dtypes",
        section=SECTION,
        title="ZeRO-3: parameters of several types",
        summary="ZeRO-3 moves all parameters into one buffer, and some have another type than the others.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("assert len(set(t.dtype for t in tensors)) == 1"),),
        causes=(
            "The model is quantized, so that its weights are uint8 or int8 and the rest is not.",
            "An adapter, the embeddings or a value head is float32, and the model bfloat16.",
        ),
        fixes=(
            Fix("Convert all parameters to one type before the engine is created.", "model = model.to(torch.bfloat16)"),
            Fix("With a quantized model, use ZeRO-2.", 'config["zero_optimization"]["stage"] = 2'),
            Fix(
                "Show which parameters differ.",
                "from collections import Counter\n\nprint(Counter(p.dtype for p in model.parameters()))",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/hiyouga/LlamaFactory/issues/3634",),
        said_by="DeepSpeed 0.9-0.19",
    ),
    KnownError(
        id="deepspeed-hook",
        section=SECTION,
        title="DeepSpeed: parameter has no gradient function",
        summary=(
            "An older DeepSpeed attaches its hook to a parameter's gradient function, and there is none, because"
            " gradients are disabled at that moment."
        ),
        context=ContextState.ALIVE,
        patterns=(literal("'NoneType' object has no attribute 'next_functions'"),),
        causes=(
            "The parameter is used first inside torch.no_grad() or in a recomputed forward pass.",
            "DeepSpeed is older than 0.15, or PyTorch older than 2.1.",
        ),
        fixes=(
            Fix(
                "Upgrade both: newer versions attach the hook in another way.", "pip install --upgrade deepspeed torch"
            ),
            Fix(
                "Create the engine outside torch.no_grad().",
                "with torch.enable_grad():\n    engine, *_ = deepspeed.initialize(model=model)",
            ),
            Fix(
                "With gradient checkpointing, use the variant that is not reentrant.",
                'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/utils/torch.py",),
        said_by="DeepSpeed 0.3-0.15",
    ),
)
