"""Errors of backward passes: losses that are no numbers, recomputation, and custom functions."""

from typing import Final

from gpumon.diagnosis.catalogue.training import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_AUTOGRAD: Final = "https://docs.pytorch.org/docs/stable/autograd.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="loss-not-scalar",
        section=SECTION,
        title="Loss is not a single number",
        summary="The backward pass was started from a tensor with several elements.",
        context=ContextState.ALIVE,
        patterns=(literal("grad can be implicitly created only for scalar outputs"),),
        causes=(
            "DataParallel returns one loss per GPU.",
            "The loss function has reduction='none', or the model returns logits instead of a loss.",
        ),
        fixes=(
            Fix("Reduce the loss to one number.", "loss.mean().backward()"),
            Fix("Print its shape.", "print(loss.shape)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_AUTOGRAD,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="checkpoint-recompute",
        section=SECTION,
        title="Activation checkpointing: the second pass differs",
        summary="The forward pass that is repeated during the backward pass computed other tensors than the first one.",
        context=ContextState.ALIVE,
        patterns=(
            literal("have different metadata than during the forward pass"),
            Pattern("recomputed metadata: {", r"recomputed metadata: \{'shape': (?P<shape>torch\.Size\(\[0\]\))?"),
            literal("A different number of tensors was saved during the original forward and recomputation"),
            Pattern(
                "encountered during backward but not found in storage",
                r"(?P<operator>[\w.:]{1,80}) (?:invocation index \d{1,6} )?encountered during backward but not found in"
                r" storage",
            ),
            literal("Tensor cached during selective activation checkpoint has been mutated"),
            Pattern("is incompatible with .grad()", r"torch\.utils\.checkpoint is incompatible with \.grad\(\)"),
            Pattern(
                "trying to save more tensors during recomputation", r"trying to save more tensors during recomputation"
            ),
        ),
        causes=(
            "The forward pass depends on something that changed: a cache, a counter, random numbers, autocast.",
            "DeepSpeed ZeRO-3 has released the parameters again: the recomputed shape is [0].",
        ),
        fixes=(
            Fix("Disable the cache of the model while it trains.", "model.config.use_cache = False"),
            Fix(
                "With DeepSpeed ZeRO-3 (recomputed shape [0]), use the other implementation of checkpointing.",
                'arguments = TrainingArguments(gradient_checkpointing_kwargs={"use_reentrant": True})',
                first_for=("torch.Size([0])", "DeepSpeed"),
            ),
            Fix(
                "If .grad() or inputs of .backward() are used, checkpoint without reentrance.",
                "from torch.utils.checkpoint import checkpoint\n\nhidden = checkpoint(block, hidden,"
                " use_reentrant=False)",
                first_for=("use_reentrant=True",),
            ),
            Fix(
                "Show which operation differs.",
                "from torch.utils.checkpoint import set_checkpoint_debug_enabled\n\n"
                "with set_checkpoint_debug_enabled(True):\n    train_step()",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/checkpoint.html",),
        said_by="torch 2.6-2.13",
    ),
    KnownError(
        id="autograd-function",
        section=SECTION,
        title="Custom function returns a wrong number of gradients",
        summary="A custom function must return one gradient for each argument of its forward method.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "returned an incorrect number of gradients",
                r"function (?P<function>\w{1,100}) returned an incorrect number of gradients"
                r" \(expected (?P<expected>\d{1,4}), got (?P<got>\d{1,4})\)",
            ),
        ),
        causes=(
            "Two packages do not fit together: one passes an argument that the other does not know.",
            "In your own function, an argument was added to forward and not to backward.",
        ),
        fixes=(
            Fix(
                "Install the versions that belong together, such as those of flash-attn and the package above it.",
                "pip list | grep -i -E 'attn|attention'",
            ),
            Fix("In a backward method that you wrote, return None for each argument without a gradient."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/feifeibear/long-context-attention/issues/149",),
        said_by="torch 1.13-2.13, xFormers 0.0.22-0.0.33, torchvision 0.14-0.24",
    ),
    KnownError(
        id="gradient-shape",
        section=SECTION,
        title="Gradient of another shape than its input",
        summary="A backward pass returned a gradient whose shape does not fit the tensor that it belongs to.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Mismatch in shape: grad_output[",
                r"Mismatch in shape: grad_output\[\d{1,3}\] has a shape of torch\.Size\((?P<got>\[[\d, ]{0,60}\])\)",
            ),
            Pattern(
                "returned an invalid gradient at index",
                r"Function (?P<function>[\w:]{1,80}) returned an invalid gradient at index (?P<index>\d{1,3})"
                r" - got (?P<got>\[[\d, ]{0,60}\]) but expected shape compatible with (?P<expected>\[[\d, ]{0,60}\])",
            ),
        ),
        causes=(
            "The tensor was changed in place, or resized, between the forward and the backward pass.",
            "The backward method of a custom function returns the gradients in another order or shape.",
            "A mask selects another number of elements than the tensor that is written into it has.",
        ),
        fixes=(
            Fix("Print the shapes where the tensor is written.", "print(mask.sum().item(), values.shape)"),
            Fix("Copy the tensor before it is changed in place.", "hidden = hidden.clone()"),
            Fix(
                "Let PyTorch show the forward call.",
                "import torch\n\nwith torch.autograd.detect_anomaly():\n    loss.backward()",
            ),
            Fix(
                "The tensor has no elements, as when pruning removed every point: print their number after each"
                " step, and prune less.",
                "print(means.shape[0])",
                first_for=("got [0,",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/notes/extending.html",),
        said_by="torch 1.13-2.13",
    ),
)
