"""Errors of tensors as numbers: conversions of a single value, overlapping memory, results that must be repeatable."""

import re
from typing import Final

from gpumon.diagnosis.catalogue.operators import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern


def _moved(*kinds: str) -> tuple[str, ...]:
    """The parts of messages about values that are moved to a GPU."""
    return tuple(f"'{kind}' object has no attribute '{name}'" for kind in kinds for name in ("to", "cuda"))


ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="scalar-conversion",
        section=SECTION,
        title="Tensor is used as a number, or a number as a tensor",
        summary="Python needs one number where the tensor has several, or several where the tensor has no dimension.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "can be converted to Python scalar",
                r"only (?:one element tensors|length-1 arrays) can be converted to Python scalars",
            ),
            Pattern(
                "elements cannot be converted to Scalar",
                r"a Tensor with (?P<elements>\d{1,19}) elements cannot be converted to Scalar",
            ),
            literal("only integer tensors of a single element can be converted to an index"),
            literal("iteration over a 0-d tensor"),
            literal("len() of a 0-d tensor"),
            Pattern("invalid index of a 0-dim", r"invalid index of a 0-dim tensor"),
            Pattern(
                "Boolean value of Tensor with ",
                r"Boolean value of Tensor with (?:more than one value|no values) is ambiguous",
            ),
            literal("The truth value of an array with more than one element is ambiguous"),
        ),
        causes=(
            (
                "A tensor of several values, such as a loss without reduction, was converted with item(),"
                " float() or int()."
            ),
            "A list of tensors was passed to torch.tensor(), which takes numbers.",
            "The loss or the label is a single number, and the code indexes it or iterates over it.",
            "Python compares whole tensors in if, and, or, in and max().",
        ),
        fixes=(
            Fix("Print the shape.", "print(loss.shape)"),
            Fix("Reduce to one value first.", "value = loss.mean().item()"),
            Fix("Read a tensor without dimension as a number.", "value = loss.item()"),
            Fix("Say what a condition means.", "if (difference < 1e-6).all():\n    stop()"),
            Fix("Keep the dimension of a single label.", "labels = labels.reshape(-1)"),
            Fix("Join a list of tensors with stack.", "batch = torch.stack(values)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.item.html",),
        said_by="torch 1.13-2.13, NumPy 1.20-2.3",
    ),
    KnownError(
        id="number-overflow",
        section=SECTION,
        title="Number does not fit the type of the tensor",
        summary="A constant such as infinity or 256 is outside the range of the tensor's integer type.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "without overflow",
                r"value cannot be converted to type"
                r" (?P<type>(?:u?int\d{0,2}(?:_t)?|bool|long|short|float|double)) without overflow",
            ),
            Pattern(
                "out of bounds for uint8",
                r"Python integer (?P<value>-?\d{1,19}) out of bounds for (?P<type>uint8)",
            ),
        ),
        causes=(
            "A mask is filled with infinity or -1e9 while the tensor holds integers.",
            "A tokenizer decodes -100, which marks ignored labels and is no token.",
        ),
        fixes=(
            Fix("Convert the tensor before it is filled.", 'scores = scores.float().masked_fill(mask, float("-inf"))'),
            Fix(
                "Replace ignored labels before decoding.",
                "labels = labels.masked_fill(labels == -100, tokenizer.pad_token_id)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/type_info.html",),
        said_by="torch 1.13-2.13, NumPy 2.0-2.3",
    ),
    KnownError(
        id="memory-overlap",
        section=SECTION,
        title="Tensor is written in place, and its elements share memory",
        summary="The elements of an expanded tensor are one and the same in memory, so that none can be written alone.",
        context=ContextState.ALIVE,
        patterns=(
            literal("more than one element of the written-to tensor refers to a single memory location"),
            literal("some elements of the input tensor and the written-to tensor refer to a single memory location"),
        ),
        causes=(
            "The tensor comes from expand() or broadcast_to(), which repeat it without a copy.",
            "Source and target of a copy in place are parts of the same tensor that overlap.",
        ),
        fixes=(
            Fix("Copy the tensor first.", "mask = mask.expand(batch, -1).clone()"),
            Fix("Or write to a new tensor.", "values = values * scale"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="not-deterministic",
        section=SECTION,
        title="Operator cannot give repeatable results",
        summary="The program demands results that repeat exactly, and this operator or its setting does not"
        " provide them.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "this operation is not deterministic because",
                r"this operation is not deterministic because it uses CuBLAS",
            ),
            Pattern(
                "does not have a deterministic",
                r"(?P<operator>\w{1,80}) does not have a deterministic implementation, but you set",
            ),
        ),
        causes=(
            "cuBLAS repeats results only with a fixed workspace, which a variable sets before the program starts.",
            "The operator adds values from several threads in any order, as most backward passes of resizing do.",
        ),
        fixes=(
            Fix(
                "For operators other than those of cuBLAS, only warn.",
                "torch.use_deterministic_algorithms(True, warn_only=True)",
            ),
            Fix(
                "Or do not demand it, such as by deterministic=False in Ultralytics: seeds alone are enough for results"
                " that are close.",
                "torch.use_deterministic_algorithms(False)",
            ),
            Fix(
                "For cuBLAS, set the workspace before the program starts.",
                "CUBLAS_WORKSPACE_CONFIG=:4096:8 python train.py",
                first_for=("uses CuBLAS",),
            ),
            Fix(
                "For other operators, only warn.",
                "torch.use_deterministic_algorithms(True, warn_only=True)",
                first_for=("does not have a deterministic",),
            ),
            Fix(
                "Or do not demand it: seeds alone are enough for results that are close.",
                "torch.use_deterministic_algorithms(False)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/docs/stable/notes/randomness.html",
            "https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html",
        ),
        said_by="torch 1.8-2.13",
    ),
    KnownError(
        id="tensor-empty",
        section=SECTION,
        title="Tensor is empty",
        summary="An operator such as max or a pooling needs at least one element, and a dimension has the size 0.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "to have non-zero size",
                r"[Ee]xpected (?:reduction dim (?P<dimension>-?\d{1,3})|input|grad_output)"
                r" to have non-zero size",
            ),
            Pattern(
                "Expected reduction dim to be specified for",
                r"\w{1,20}\(\): Expected reduction dim to be specified for input\.numel\(\) == 0",
            ),
            Pattern(
                "is out of bounds for dimension",
                r"index (?P<index>-?\d{1,19}) is out of bounds for dimension (?P<dimension>\d{1,3}) with size 0\b",
            ),
            Pattern(
                "because the unspecified dimension size -1 can be any value",
                r"cannot reshape tensor of 0 elements into shape \[[\d, -]{0,80}\] because the unspecified"
                r" dimension size -1 can be any value",
            ),
            Pattern(
                "Length of all samples has to be greater than 0",
                r"Length of all samples has to be greater than 0(?:, but found an element in 'lengths' that is <= 0)?",
            ),
            Pattern(
                "operation does not have an identity",
                r"(?:tensor with no elements|this dimension is empty|an empty tensor)[^\n]{0,20}(?:because|and) the"
                r" operation does not have an identity",
            ),
            Pattern(
                "zero-size array to reduction operation",
                r"zero-size array to reduction operation (?P<operation>\w{1,20})",
            ),
        ),
        causes=(
            "Nothing was detected, selected or collected in this step: a mask or a filter left no element.",
            "A file is empty, a sequence has no tokens, or a crop lies outside of the image.",
            "The loader delivered no batch, so that the values of the epoch are an empty list.",
            "ZeRO-3 or FSDP has sharded the parameter, which was used without being gathered.",
        ),
        fixes=(
            Fix("Handle the step that has no elements.", "if scores.numel():\n    best = scores.max()"),
            Fix(
                "Find the sample: print the shapes before the call of the traceback.", "print(scores.shape, mask.sum())"
            ),
            Fix("Check that the data set and the loader have samples.", "print(len(dataset), len(loader))"),
            Fix(
                "With ZeRO-3, the parts of a parameter are on the GPUs until they are gathered.",
                "with deepspeed.zero.GatheredParameters([embedding.weight]):\n    use(embedding.weight)",
                first_for=("DeepSpeed",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.max.html",),
        said_by="torch 1.13-2.13, NumPy 1.20-2.4",
    ),
    KnownError(
        id="value-outside-distribution",
        section=SECTION,
        title="Value lies outside of the distribution",
        summary="The logarithm of a probability was asked for a value that this distribution cannot have.",
        context=ContextState.ALIVE,
        patterns=(
            literal("The value argument must be within the support"),
            Pattern(
                "to be within the support",
                r"Expected value argument \(Tensor of shape \([\d, ]{0,40}\)\) to be within the support \("
                r"(?P<support>[^\n]{1,80}?)\) of the distribution",
            ),
        ),
        causes=(
            "The value is NaN: the model has diverged, or an observation or a reward is not finite.",
            "The value has another range or type: 0 or 1 for Beta, too large a class, a float for Bernoulli.",
        ),
        fixes=(
            Fix(
                "Compare the values with what the distribution allows; for NaN, find the first step that has one.",
                "print(distribution.support, value.min(), value.max(), value.isnan().any())",
            ),
            Fix("Keep values away from the ends of the range.", "value = value.clamp(1e-6, 1 - 1e-6)"),
            Fix(
                "If such values are meant, leave out the check.",
                "distribution = torch.distributions.Normal(loc, scale, validate_args=False)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/distributions.html",),
        said_by="torch 1.6-2.13",
    ),
    KnownError(
        id="not-a-tensor",
        section=SECTION,
        title="Value is no tensor",
        summary="The program calls a method of tensors on a list, a tuple, a dict, an array, a number or a text.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                " has no attribute ",
                r"AttributeError: (?P<type>\w{2,60}(?:Tokenizer(?:Fast)?|Processor)) has no attribute"
                r" (?P<name>to|cuda|cpu|eval|train|parameters|half)\b",
            ),
            *(
                Pattern(
                    f"'{kind}' object has no attribute '",
                    rf"'(?P<type>{re.escape(kind)})' object has no attribute '(?P<name>to|cuda|cpu|detach|backward"
                    r"|unsqueeze|requires_grad|contiguous|clone|numel|size|dim|shape|view|squeeze)'",
                )
                for kind in ("tuple", "list", "dict", "str", "float", "numpy.ndarray")
            ),
        ),
        causes=(
            "A batch is a list or a dict of tensors: the loader collects what a sample consists of.",
            "The model returns a tuple or a dict, such as the output and a hidden state.",
            "An array, a list of numbers or a text was not converted; item() made a number of the loss.",
        ),
        fixes=(
            Fix("Print the type, where the value is made.", "print(type(batch))"),
            Fix(
                "Move the batch that the tokenizer returns, and the model, but not the tokenizer.",
                'batch = tokenizer(texts, padding=True, return_tensors="pt").to(device)',
                first_for=("Tokenizer",),
            ),
            Fix(
                "Move each part of the batch.",
                "images, labels = (part.to(device) for part in batch)",
                first_for=_moved("list", "tuple"),
            ),
            Fix(
                "Move each value of the dict.",
                "batch = {name: value.to(device) for name, value in batch.items()}",
                first_for=_moved("dict"),
            ),
            Fix("Convert an array.", "values = torch.from_numpy(values).to(device)", first_for=("ndarray'",)),
            Fix(
                "Call backward on the tensor of the loss, and item() only to print it.",
                "loss.backward()\nprint(loss.item())",
                first_for=("'float'",),
            ),
            Fix(
                "Number the classes: labels that are texts cannot become tensors.",
                "numbers = {name: index for index, name in enumerate(sorted(set(names)))}",
                first_for=_moved("str"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/data.html",),
        said_by="torch 1.13-2.13",
    ),
)
