"""Errors of FSDP1 while the state of the model or of the optimizer is collected or loaded."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Sharded state"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="fsdp-optimizer-state",
        section=SECTION,
        title="FSDP: state of the optimizer cannot be collected",
        summary="FSDP joins the states of all ranks per parameter, and those of this optimizer do not fit each other.",
        context=ContextState.ALIVE,
        patterns=(
            literal("assert dtype == info.dtype"),
            literal("Expected dtype == info.dtype"),
            Pattern("Expected empty_ranks to be empty", r"Expected empty_ranks to be empty or equal to"),
            Pattern(
                "comprising a single flat parameter must",
                r"unflattened parameters comprising a single flat parameter must",
            ),
            Pattern("Differing optimizer state ", r"Differing optimizer state (?:types|names) for"),
            Pattern(
                "The FSDPParamInfo has the param keys",
                r"(?:\S{1,200} is not in the \w{1,12} state\. )?The FSDPParamInfo has the param keys",
            ),
            literal("Tensor optimizer state does not have same shape as its parameter"),
            Pattern(
                "has different values for ", r"Rank (?P<rank>\d{1,6}) has different values for (?P<name>\w{1,40}): "
            ),
            literal("Manually calculated _sharded_numel_padded is incorrect"),
            literal("The size of local shard times the world size should equal to the gathered tensor size"),
            Pattern(
                "This should happen when use_orig_params=True",
                r"(?:is empty\. )?This should happen when"
                r" use_orig_params=True",
            ),
            literal("Not all FSDP modules have the same _use_orig_params value"),
        ),
        causes=(
            "The optimizer keeps states of another shape or type, such as 8-bit or factored ones.",
            "Some ranks have no state for a parameter, as when it got no gradient there.",
            "Parameters are frozen, or were replaced after the optimizer was created.",
        ),
        fixes=(
            Fix(
                "Use an optimizer whose states are like its parameters.",
                "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)",
            ),
            Fix(
                "The parameters that the message names got no gradient, as an image encoder in training without images:"
                " freeze them, or give the batches what they need.",
                "for parameter in model.visual.parameters():\n    parameter.requires_grad = False",
                first_for=("is empty. This should happen",),
                hidden_otherwise=True,
            ),
            Fix("Keep the original parameters.", "model = FullyShardedDataParallel(model, use_orig_params=True)"),
            Fix(
                "Or move to FSDP2, in which each rank saves its own part.",
                """\
from torch.distributed.checkpoint.state_dict import get_state_dict

model_state, optimizer_state = get_state_dict(model, optimizer)""",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/fsdp.html", "https://github.com/NVlabs/COAT/issues/17"),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="fsdp-state-dict",
        section=SECTION,
        title="FSDP: state of the model cannot be collected or loaded like this",
        summary="The kind of state that is asked for does not suit how the model is wrapped, or not all parts of it.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "is in the state_dict but the state_dict only",
                r"FSDP assumes (?P<name>[\w.]{1,200}) is in the state_dict but the state_dict only",
            ),
            Pattern(
                "when parameters are flatten",
                r"can only be (?:used|called) when parameters are flatten(?:ed)? and sharded",
            ),
            Pattern("state_dict_config of type", r"Expected (?:optim_)?state_dict_config of type"),
            Pattern(
                "All FSDP modules ",
                r"All FSDP modules (?:must|should) have the same (?:type of )?\w{0,6}_?state[_ ]dict",
            ),
            literal("Found state_dict_type LOCAL_STATE_DICT. DeviceMesh is not compatible"),
        ),
        causes=(
            "The sharding strategy is NO_SHARD, or there is one GPU only, so that there are no parts.",
            "A hook or a wrapper, such as of an adapter or of activation checkpointing, renames the parameters.",
            "Parts of the model were wrapped with other settings.",
        ),
        fixes=(
            Fix(
                "Ask for the whole state, on the CPU.",
                """\
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

options = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(model, options=options)""",
            ),
            Fix("With Accelerate, let it choose.", "state = accelerator.get_state_dict(model)"),
            Fix("Set the kind of state once, on the outermost module."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",),
        said_by="torch 1.12-2.13",
    ),
    KnownError(
        id="fsdp-unexpected-state",
        section=SECTION,
        title="FSDP: parameters are in another state than expected",
        summary="FSDP checks that parameters are sharded or gathered, and where they are; here one of them was not.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Expects the handle training to be IDLE",
                r"Expects the handle training to be IDLE but got (?P<state>[\w.]{1,60})",
            ),
            Pattern(
                " state but got ", r"Expects `BACKWARD_PRE` or `BACKWARD_POST` state but got (?P<state>[\w.]{1,60})"
            ),
            Pattern("Expects to be in `", r"Expects to be in `BACKWARD_PRE` or `IDLE`"),
            Pattern("Expects storage to be ", r"Expects storage to be (?:allocated|freed but got storage)"),
            Pattern("Expects `_mp_shard` to exist", r"Expects `_mp_shard` to exist"),
            literal("Expects `.grad` to be the unsharded gradient"),
            Pattern(
                "Expects tensor to be on ",
                r"Expects tensor to be on CPU but got (?P<device>[\w:]{1,12})",
            ),
            literal("Expects the `FlatParameter` to be on CPU when parameter CPU"),
            Pattern(
                "Expects the l",
                r"Expects the (?:local|low precision) shard to be on (?P<expected>\w[\w:]{0,11}) but got",
            ),
            Pattern(" mismatch when accumulating gradients", r"(?:Device|Shape) mismatch when accumulating gradients:"),
        ),
        causes=(
            "The model was moved with .to() or .cpu(), or its parameters were replaced, after it was wrapped.",
            "An exception in a step was caught, and the model was used again.",
            "The state is saved, or a part of the model is called, within a forward or backward pass.",
        ),
        fixes=(
            Fix(
                "Let FSDP move the model.",
                "model = FullyShardedDataParallel(model, device_id=torch.cuda.current_device())",
            ),
            Fix("Save between two steps, on all ranks, from the outermost module.", "state = model.state_dict()"),
            Fix("After an exception in a step, end the program, and resume from the last checkpoint."),
            Fix(
                "Use FSDP2, which has fewer states.",
                "from torch.distributed.fsdp import fully_shard\n\nfully_shard(model)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/docs/stable/fsdp.html",
            "https://github.com/Lightning-AI/lit-llama/issues/434",
        ),
        said_by="torch 1.12-2.13",
    ),
)
