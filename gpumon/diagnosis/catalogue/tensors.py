"""Errors of operators that received a wrong index, a missing tensor, or a tensor that is too large."""

from typing import Final

from gpumon.diagnosis.catalogue.operators import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_INDEXING: Final = "https://docs.pytorch.org/docs/stable/tensors.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="index-invalid",
        section=SECTION,
        title="Index does not fit the tensor",
        summary="A tensor was indexed with a position, a mask or a type that does not fit it.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "is out of bounds for dim",
                r"index (?P<index>-?\d{1,19}) is out of bounds for dim(?:ension (?P<dimension>\d{1,3}))? with size"
                r" (?P<size>[1-9]\d{0,18})",
            ),
            Pattern(
                "Dimension out of range (expected to be ",
                r"Dimension out of range \(expected to be (?:in range of \[(?P<range>[\d, -]{1,30})\], but got"
                r" (?P<dimension>-?\d{1,6})|between )",
            ),
            Pattern(
                "too many indices for tensor of dimension", r"too many indices for tensor of dimension (?P<rank>\d)"
            ),
            Pattern(
                "does not match the shape of the indexed tensor",
                r"The shape of the mask (?P<mask>\[[\d, ]{0,60}\]) at index \d{1,3} does not match the shape of the"
                r" indexed tensor (?P<shape>\[[\d, ]{0,60}\])",
            ),
            literal("tensors used as indices must be long, "),
            Pattern(
                "(): Expected dtype ",
                r"\w{1,40}_?\(\): Expected dtype (?:int32/|int32 or )?int64 for index",
            ),
            Pattern(
                "must have the same number of dimensions as",
                r"Index tensor must have the same number of dimensions as (?P<tensor>\w{1,10}) tensor",
            ),
            Pattern(
                "to be smaller than ",
                r"Expected index \[[\d, ]{1,60}\] to be smaller than (?P<tensor>\w{1,10}) \[[\d,"
                r" ]{0,60}\]",
            ),
            Pattern(
                "exceeds dimension",
                r"start \((?P<index>-?\d{1,19})\) \+ length \(\d{1,19}\) exceeds dimension(?! size \(0\))",
            ),
            Pattern(
                "to be no larger than self",
                r"Expected index \[[\d, ]{1,60}\] to be no larger than self \[[\d, ]{0,60}\]",
            ),
            Pattern("Invalid index in scatterAdd", r"Invalid index in (?P<operation>scatterAdd)"),
            Pattern("Index dimension is out of bounds", r"invalid argument \d: Index dimension is out of bounds"),
        ),
        causes=(
            "An index is not less than the size: labels that start at 1, a vocabulary larger than the table.",
            "The tensor has fewer dimensions than expected: squeeze() or a last batch of one item removed one.",
            "A mask belongs to another tensor, or was made before padding or cutting.",
            "An index is of a floating type: it must be torch.long or torch.bool.",
        ),
        fixes=(
            Fix(
                "Print the shapes and the range of the index.",
                "print(values.shape, index.dtype, index.min(), index.max())",
            ),
            Fix("Convert the index.", "index = index.long()"),
            Fix("Remove only the dimension that is meant.", "logits = logits.squeeze(-1)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_INDEXING,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="tensor-missing",
        section=SECTION,
        title="Operator received no tensor",
        summary="An operator received None, or an object that is no tensor.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                " must be Tensor, not ",
                r"(?P<function>\w{1,60})\(\): argument '(?P<argument>\w{1,40})'(?: \(position \d{1,3}\))? must be"
                r" Tensor, not"
                r" (?P<type>[\w.]{1,60})",
            ),
            Pattern(
                ") must be tuple of Tensors, not ",
                r"(?P<function>\w{1,60})\(\): argument '(?P<argument>\w{1,40})' \(position \d{1,3}\) must be tuple of"
                r" Tensors, not (?P<type>[\w.]{1,60})",
            ),
            Pattern(
                "Expected a proper Tensor but got None",
                r"Expected a proper Tensor but got None \(or an undefined Tensor in C\+\+\)"
                r"(?: for argument #\d{1,3} '(?P<argument>\w{1,40})')?",
            ),
            Pattern(
                "expected Tensor as element",
                r"expected Tensor as element \d{1,6} in argument \d{1,3}, but got (?P<type>[\w.]{1,60})",
            ),
            Pattern("called with an undefined Tensor", r"\w{1,60}\(\.\.\.\) called with an undefined Tensor"),
            Pattern(
                "received an invalid combination of arguments",
                r"(?P<function>\w{1,60})(?:\(\))? received an invalid combination of arguments",
            ),
            Pattern(
                "(e.g., you passed an empty list of Tensors)",
                r"There were no tensor arguments to this function \(e\.g\., you passed an empty list of Tensors\)",
            ),
            literal("stack expects a non-empty TensorList"),
            Pattern("a non-empty list of ", r"expect(?:ed|s) a non-empty list of [Tt]ensors"),
        ),
        causes=(
            "A part of the model returned None: an optional output, a cache, or a branch without return.",
            "The batch has no such column, or holds lists or NumPy arrays that were not converted.",
            "The list of tensors is empty: nothing was detected or collected in this step.",
            "An argument is of another type than the function takes, such as a float as a size.",
            "The library expects another version of PyTorch or transformers, whose functions return something else.",
        ),
        fixes=(
            Fix(
                "Print the types of the arguments before the call in the last own frame.",
                "print(type(hidden), batch.keys())",
            ),
            Fix("Convert arrays and lists before the model.", "values = torch.as_tensor(values, device=device)"),
            Fix(
                "Handle the step in which the list is empty.",
                "merged = torch.cat(parts) if parts else torch.empty(0, device=device)",
                first_for=("non-empty", "no tensor arguments"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.as_tensor.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="tensor-too-large",
        section=SECTION,
        title="Tensor is too large for this operator",
        summary="A kernel counts elements with 32 bits, so that it does not support more than 2,147,483,647 of them.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "canUse32BitIndexMath",
                r"Expected \w{0,12}::?:?[\w:]{0,20}canUse32BitIndexMath\(|Expected canUse32BitIndexMath\(",
            ),
            Pattern("more than INT_MAX", r"(?P<function>\w{1,40}) is not supported for tensors with more than INT_MAX"),
            Pattern("input tensor is too large", r"(?P<function>\w{1,40})\(\) input tensor is too large"),
        ),
        causes=("The batch, the image, the video or the vocabulary times the tokens is above two billion elements.",),
        fixes=(
            Fix(
                "Make the tensor smaller: a smaller batch or tile.",
                "for part in batch.split(4):\n    outputs.append(model(part))",
            ),
            Fix(
                "Upgrade PyTorch: more kernels support large tensors in newer versions.", "pip install --upgrade torch"
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/CanUse32BitIndexMath.h",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="half-overflow",
        section=SECTION,
        title="Number is too large for half precision",
        summary="A constant such as a mask of -1e9 is outside the range of float16, which ends at 65504.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "without overflow", r"value cannot be converted to type (?P<type>(?:at|c10)::\w{1,16}) without overflow"
            ),
        ),
        causes=("A mask or a limit is written as a fixed number, and the model runs in float16.",),
        fixes=(
            Fix(
                "Use the smallest number of the type.",
                "scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)",
            ),
            Fix("Use bfloat16, which has the range of float32.", "model = model.to(torch.bfloat16)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/type_info.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="batch-types",
        section=SECTION,
        title="Data cannot become a tensor",
        summary="An item of the data set is of a type or form that PyTorch cannot convert to a tensor.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "default_collate: batch must contain",
                r"default_collate: batch must contain [^\n]{1,80}; found (?P<type>[^\n]{1,80})",
            ),
            literal("Batches of sparse tensors are not currently supported by the default collate_fn"),
            Pattern("can't convert np.ndarray of type", r"can't convert np\.ndarray of type (?P<type>[\w.]{1,40})"),
            Pattern(
                "in the given numpy array is negative",
                r"[Aa]t least one (?:of the strides|stride) in the given numpy array is negative",
            ),
            Pattern("Got unsupported ScalarType", r"Got unsupported ScalarType (?P<type>\w{1,30})"),
            literal("Unable to create tensor, you should probably activate truncation and/or padding"),
            Pattern(
                "expected sequence of length ",
                r"expected sequence of length (?P<expected>\d{1,9}) at dim (?P<dimension>\d{1,2})"
                r" \(got",
            ),
            Pattern("too many dimensions '", r"ValueError: too many dimensions '(?P<type>\w{1,12})'"),
            Pattern("elem = batch[0]", r"\belem = batch\[0\][\s~^]{0,60}IndexError: list index out of range"),
            Pattern("Could not infer dtype of", r"Could not infer dtype of (?!numpy\.)(?P<type>[\w.]{1,40})"),
        ),
        causes=(
            "The data set returns an image, None, a string or an object instead of a tensor or a number.",
            "Samples of a batch have different lengths, and nothing pads them.",
            "An array was flipped (negative stride), or holds objects because its rows have different lengths.",
            "NumPy has no bfloat16: convert to float32 before numpy().",
        ),
        fixes=(
            Fix("Print one item of the data set.", "print(dataset[0])"),
            Fix("Copy a flipped array.", "image = image.copy()", first_for=("negative",)),
            Fix("Convert before NumPy.", "values = tensor.float().cpu().numpy()", first_for=("ScalarType",)),
            Fix(
                "Pad the labels too: use the collator for sequences, and remove columns that are no numbers.",
                "collator = DataCollatorForSeq2Seq(tokenizer, padding=True)",
                first_for=("`labels` in this case",),
            ),
            Fix(
                "Pad in the tokenizer.",
                "batch = tokenizer(texts, padding=True, truncation=True, return_tensors='pt')",
                first_for=("padding", "expected sequence of length"),
            ),
            Fix(
                "A column is still text: tokenize it, turn labels in words into numbers, and remove the other columns.",
                'dataset = dataset.map(tokenize, batched=True, remove_columns=["text"])',
                first_for=("dimensions 'str'",),
                hidden_otherwise=True,
            ),
            Fix(
                "Pad in the function that collects a batch.",
                "batch = torch.nn.utils.rnn.pad_sequence(items, batch_first=True)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/data.html",),
        said_by="torch 1.13-2.13, transformers 4.30-5.0",
    ),
    KnownError(
        id="tensor-layout",
        section=SECTION,
        title="Tensor is not laid out as the kernel needs",
        summary=(
            "A kernel needs neighboring elements next to each other in memory, which a transposed or cut tensor has"
            " not."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                ".is_contiguous() to be true, but got false",
                r"Expected (?P<tensor>[\w.]{1,60})\.is_contiguous\(\) to be true, but got false",
            ),
            Pattern("stride(-1) == 1", r"Expected (?P<tensor>\w{1,30})\.stride\(-1\) == 1"),
            Pattern("layout requires strides", r"causal_conv1d with channel last layout requires strides"),
            literal("p.attn_bias_ptr is not correctly aligned"),
            Pattern("last dimension must be contiguous", r"\(\*bias\): last dimension must be contiguous"),
            Pattern(
                "must have a last dimension with stride 1",
                r"(?:Tensor|tensors?|[qkv]) must have a last dimension with stride 1",
            ),
            Pattern("rnn: hx is not contiguous", r"rnn: hx is not contiguous"),
        ),
        causes=(
            "The tensor was transposed, permuted, sliced or expanded.",
            "A part of a packed batch does not start or end at the multiple that the kernel needs.",
        ),
        fixes=(
            Fix("Copy it to a contiguous one before the call.", "hidden = hidden.contiguous()"),
            Fix("Print the layout.", "print(hidden.shape, hidden.stride())"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/tensor_view.html",),
        said_by="torch 1.13-2.13, flash-attn 2.0-2.8, causal-conv1d 1.1-1.5",
    ),
)
