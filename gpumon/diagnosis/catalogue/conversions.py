"""Errors of tensors as numbers: conversions of a single value, overlapping memory, results that must be repeatable."""

from typing import Final

from gpumon.diagnosis.catalogue.operators import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

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
                "For cuBLAS, set the workspace before the program starts.",
                "CUBLAS_WORKSPACE_CONFIG=:4096:8 python train.py",
            ),
            Fix("For other operators, only warn.", "torch.use_deterministic_algorithms(True, warn_only=True)"),
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
)
