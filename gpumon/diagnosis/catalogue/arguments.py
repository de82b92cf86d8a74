"""Errors of operators that check their arguments, and of torch.func's vmap."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Operators"

_OPERATOR: Final = (
    r"(?:torch\.)?(?:functional\.)?(?P<function>(?:adaptive|avg|max|fractional|lp)_(?:avg_|"
    r"max_)?(?:pool|unpool)\w{0,14}"
    r"|grid_sampler\w{0,4}|affine_grid\w{0,12}|upsample_\w{1,24}|(?:reflection|replication|circular)_pad\w{0,4}"
    r"|index_(?:add|copy|fill|put|reduce|select)_?|scatter\w{0,12}|gather|take_along_dim|bucketize|searchsorted|i?stft"
    r"|fft\w{0,6}|einsum|unflatten|masked_(?:fill|select|scatter)_?|where|select|narrow|unfold|fold|im2col|col2im|roll"
    r"|repeat_interleave|chunk|split\w{0,12}|t?ensor_split|stack|cross|v?dot|mv|addm[mv]|addr|baddbmm|bmm|mm|matmul"
    r"|chain_matmul|multi_dot|tensordot|linalg[._]\w{1,24}|cdist|pdist|topk|k?sort|kthvalue|median|mode|nan\w{1,10}"
    r"|quantile|histc|histogram\w{0,4}|bincount|multinomial|normal|random_|uniform_|bernoulli\w{0,2}|linspace|arange"
    r"|logspace|range|diag\w{0,10}|tri[lu]\w{0,8}|trace|embedding\w{0,10}|layer_norm|group_norm|batch_norm"
    r"|instance_norm|rms_norm|weight_norm|conv(?:_transpose)?[123]d|nll_loss\w{0,4}|cross_entropy\w{0,6}"
    r"|binary_cross_entropy\w{0,12}|ctc_loss|smooth_l1_loss|huber_loss|kl_div|multi\w{0,6}_margin_loss|log_softmax"
    r"|softmax|glu|p?r?relu|pixel_(?:un)?shuffle|channel_shuffle|renorm|cumsum|cumprod|logcumsumexp|logsumexp|std|var"
    r"|mean|sum|a?max|a?min|arg(?:max|min|sort)|aminmax|all|any|unique\w{0,16}|flip|rot90|view_as_complex|complex|polar"
    r"|lerp|clamp|lstm|gru|rnn_\w{1,8}|scaled_dot_product_attention|_scaled_\w{1,12}|_grouped_mm|gradient|diff|meshgrid"
    r"|cartesian_prod|block_diag|inverse|cholesky\w{0,10}|lu_\w{1,8}|svd|qr|eigh?|ormqr|lstsq|repeat|expand|squeeze"
    r"|movedim|flatten|tile|kron|inner|outer|vander|isin|heaviside)"
)
"""Operators whose messages begin with their name."""

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="operator-arguments",
        section=SECTION,
        title="Operator rejects its arguments",
        summary="An operator checks the shapes, sizes and values of its arguments before it computes, and"
        " refused them.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "RuntimeError: ",
                rf"RuntimeError: {_OPERATOR}(?:\(\)|\([^)\n]{{1,160}}\))? ?:?"
                rf" (?:torch\.)?(?![^\n]{{0,160}}(?:dtype|type|device"
                r"|broadcast|undefined|non-empty list|deterministic|not implemented|too large|cannot be multiplied"
                r"|tensor to be equal size|non-empty|to sum exactly to|expected at most|missing value|number of sizes"
                r"|number of dimensions in the tensor|reduction dim|non-zero size"
                r"|positive.definite|elements of std|converge|singular|contains either|Tensor, not))"
                r"(?P<reason>(?:[Ee]xpect|[Ii]nput|[Ii]nvalid|must|should|only|does not|expected|argument|output|stride"
                r"|padding|kernel|dim|index|size|the"
                r" (?:input|first|last)|[Mm]ismatch|[Ss]hape|[Pp]rovided|needs?|cannot)"
                r"[^\n]{3,160})",
            ),
            Pattern(
                "input must have ",
                r"RuntimeError: input must have (?P<expected>\d(?: or \d)?) dimensions, got (?P<rank>\d)",
            ),
            Pattern(
                "maximum size for tensor at dimension ",
                r"maximum size for tensor at dimension (?P<dimension>-?\d{1,3}) is (?P<size>\d{1,12}) but size is"
                r" (?P<expected>\d{1,12})",
            ),
            Pattern("1D tensors expected, but got ", r"1D tensors expected, but got (?P<rank>\d{1,2})D"),
            Pattern(
                "inconsistent tensor size, expected",
                r"inconsistent tensor size, expected tensor (?P<shape>\[[\d, ]{0,60}\]) and src",
            ),
            Pattern(
                "Expected weight to be a vector of size",
                r"Expected weight to be a vector of size equal to the number of channels in input, but got"
                r" weight of shape"
                r" (?P<expected>\[[\d, ]{0,60}\])",
            ),
            Pattern(
                "Given transposed=",
                r"Given transposed=\w{1,5}, weight of size \[[\d, ]{1,80}\], expected input\[[\d, ]{1,80}\] to have"
                r" (?P<expected>\d{1,9}) channels, but got (?P<channels>\d{1,9}) channels",
            ),
            Pattern(
                " out of range for tensor of size ",
                r"\w{1,20}\(\): index (?P<index>-?\d{1,19}) out of range for tensor of size"
                r" (?P<shape>\[[\d, ]{0,60}\])",
            ),
            Pattern(
                "to be divisible by num_groups",
                r"Expected number of channels in input to be divisible by num_groups, but got input of shape"
                r" (?P<shape>\[[\d, ]{0,60}\]) and num_groups=(?P<groups>\d{1,6})",
            ),
            Pattern(
                "do not broadcast with remapped shapes",
                r"einsum\(\): operands do not broadcast with remapped shapes \[original->remapped\]",
            ),
            literal("stride should be greater than zero, but got"),
            literal("output padding must be smaller than either stride or dilation"),
            literal("label_smoothing must be between 0.0 and 1.0"),
            Pattern("Class values must be", r"Class values must be (?:non-negative|smaller than num_classes)\."),
            literal("'lengths' argument should be a 1D CPU int64 tensor"),
            literal("upper bound and larger bound inconsistent with step sign"),
            literal("Expected sequence length to be larger than 0 in RNN"),
            Pattern(
                " on types that implement __torch_function__",
                r"no implementation found for '(?P<operator>torch[\w.]{1,80})' on types that implement"
                r" __torch_function__",
            ),
        ),
        causes=(
            "A tensor has another number of dimensions, or another size, than the operator expects.",
            "The batch dimension is missing, or there is one too many.",
            "An index, a dimension or a setting is out of its range.",
        ),
        fixes=(
            Fix(
                "Print what the operator gets, just before the call that the traceback names.",
                "print([(value.shape, value.dtype, value.device) for value in inputs])",
            ),
            Fix("Add the batch dimension, or remove one.", "batch = image.unsqueeze(0)"),
            Fix("For packed sequences, keep the lengths in host memory.", "pack_padded_sequence(batch, lengths.cpu())"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/torch.html",),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
    KnownError(
        id="binding-arguments",
        section=SECTION,
        title="Compiled function does not accept these arguments",
        summary="A function of an extension was called with arguments of other types than it is compiled for.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "incompatible function arguments",
                r"TypeError: (?P<function>(?!gem[mv]|causal_conv1d|register_custom_|\w{0,60}(?:cuda|fwd|bwd|forward"
                r"|backward|"
                r"_gpu|gemm|kernel))"
                r"\w{1,60})\(\): incompatible function arguments\. The following argument types are supported:",
            ),
            Pattern(
                "incompatible constructor arguments",
                r"TypeError: (?P<function>[\w.]{0,80}__init__)\(\): incompatible constructor arguments\. The"
                r" following argument"
                r" types are supported:",
            ),
        ),
        causes=(
            "An argument is a NumPy array, a list or None where the function expects a tensor.",
            "The extension was built from another version than the Python code that calls it.",
        ),
        fixes=(
            Fix('Compare the types after "Invoked with" with those that the message lists.'),
            Fix("Convert arrays to tensors on the GPU.", 'points = torch.as_tensor(points, device="cuda").float()'),
            Fix(
                "Build the extension again from the sources of the program.",
                "pip install --force-reinstall --no-build-isolation --no-deps ./EXTENSION",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://pybind11.readthedocs.io/en/stable/advanced/functions.html",),
        said_by="pybind11 2.6-3.0",
        is_echo=True,
    ),
    KnownError(
        id="vmap",
        section=SECTION,
        title="Function cannot be vectorized with vmap",
        summary="torch.func.vmap, or jacrev and hessian, which use it, met code that has no meaning for a whole batch.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Batching rule not implemented for",
                r"Batching rule not implemented for (?P<operator>[\w:.]{1,80})",
            ),
            Pattern("vmap: It looks like you're ", r"vmap: It looks like you're (?P<reason>[^\n]{1,120})"),
            Pattern(
                "vmap: called random operation while in",
                r"vmap: called random operation while in randomness error mode",
            ),
            Pattern(
                "vmap: inplace arithmetic(",
                r"vmap: inplace arithmetic\(self, \*extra_args\) is not possible",
            ),
        ),
        causes=(
            "The function reads a number with item(), or branches on the value of a tensor.",
            "It writes into a tensor that is not batched, or uses random numbers.",
        ),
        fixes=(
            Fix("Replace the branch by an expression of tensors.", "result = torch.where(condition, first, second)"),
            Fix(
                "Let random numbers differ within the batch.",
                'outputs = torch.func.vmap(function, randomness="different")(batch)',
            ),
            Fix("Replace operations in place by ones that return a new tensor.", "hidden = hidden + update"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/func.ux_limitations.html",),
        said_by="torch 2.0-2.13",
    ),
)
