"""Errors of weights that DeepSpeed ZeRO-3 has divided over the GPUs, so that each process sees empty ones."""

from typing import Final

from gpumon.diagnosis.catalogue.checkpoints import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="zero3-empty-weights",
        section=SECTION,
        title="Weights are empty: ZeRO-3 has divided them",
        summary="ZeRO-3 keeps a part of each weight on each GPU and an empty one in the model, which was saved,"
        " loaded or"
        " computed with as such.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "size mismatch for ",
                r"size mismatch for (?P<name>[\w.]{1,200}): copying a param with shape (?:torch\.Size\()?\[0\]\)? from"
                r" checkpoint",
            ),
            Pattern(
                "the shape in current model is",
                r"from checkpoint, the shape in current model is (?:torch\.Size\()?\[0\]",
            ),
            Pattern(
                "Attempted to load weight (", r"Attempted to load weight \((?:torch\.Size\()?\[0\]\)?\) into parameter"
            ),
            Pattern("size mismatch, got input", r"size mismatch, got input [^\n]{1,60}, vec \(0\)"),
            Pattern("exceeds dimension size (0)", r"start \(0\) \+ length \(\d{2,19}\) exceeds dimension size \(0\)"),
        ),
        causes=(
            "In the checkpoint: save_pretrained() or torch.save() was called without gathering the weights.",
            "In the model: it was created under ZeRO-3, and its weights are loaded by code that does not know of it.",
        ),
        fixes=(
            Fix(
                "If the checkpoint has the empty ones, make the weights again from DeepSpeed's own checkpoint.",
                "python zero_to_fp32.py CHECKPOINT OUTPUT",
            ),
            Fix(
                "If the model has the empty ones, load it by from_pretrained(), after TrainingArguments were created.",
                'arguments = TrainingArguments(output_dir, deepspeed="zero3.json")\n'
                "model = AutoModelForCausalLM.from_pretrained(name)",
                first_for=("in current model is torch.Size([0])",),
            ),
            Fix(
                "Save complete weights next time: set stage3_gather_16bit_weights_on_model_save to true in"
                " zero_optimization.",
            ),
            Fix("Or use ZeRO-2 if the model fits, which does not divide the weights."),
            Fix(
                "To send weights to vLLM, gather them first, on all ranks.",
                "with deepspeed.zero.GatheredParameters(list(model.parameters())):\n    state = model.state_dict()",
                first_for=("Attempted to load weight",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/OpenRLHF/OpenRLHF/issues/839",
            "https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html",
        ),
        said_by="torch 1.13-2.9, DeepSpeed 0.9-0.18",
    ),
)
