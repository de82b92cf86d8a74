"""The first fix of a message about shapes: by its kind, and by the sizes in it."""

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from gpumon.diagnosis.known import Fix

_NUMBER: Final = re.compile(r"-?\d+")
_RGB: Final = 3
_RGBA: Final = 4
_MODEL_LENGTHS: Final = frozenset({77, 128, 256, 512, 514, 1024, 2048, 4096})
"""Numbers of positions for which language models are trained."""
_FEATURES: Final = 64
"""What the numbers of features of language models are multiples of, and the number of tokens of a text rarely is."""
_MIN_ROWS: Final = 8
"""Rows of a sample from which on it was probably not flattened; models of other widths differ by less."""

_TO_RGB: Final = 'image = image.convert("RGB")'
_FLATTEN: Final = Fix(
    "Flatten all dimensions except the batch before the layer: it received rows of an image, or of a sequence.",
    "hidden = hidden.flatten(1)",
)
_OWN_BATCH: Final = Fix(
    "Take the batch size from the tensor, because the last batch may be smaller than the others.",
    "hidden = hidden.view(hidden.size(0), -1)",
)
_ENLARGE: Final = Fix(
    "The inputs are smaller than the layers allow: enlarge them, or leave out strides and pooling.",
    "transform = torchvision.transforms.Resize((224, 224))",
)
_CLASS_WEIGHTS: Final = Fix(
    "Give the loss one weight for each class of the output.",
    "weight = torch.ones(output.size(1), device=output.device)",
)
_TRUNCATE: Final = Fix(
    "The text has more tokens than the model has positions: truncate it, or divide it into parts.",
    "inputs = tokenizer(text, truncation=True, max_length=model.config.max_position_embeddings)",
)
_PAD: Final = Fix(
    "The sizes differ by one, as after halving an odd size: pad the inputs to a multiple of the model's stride.",
    "images = torch.nn.functional.pad(images, (0, -images.size(-1) % 32, 0, -images.size(-2) % 32))",
)


def shape_fixes(message: str, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a message about shapes, first the one for its kind and its sizes, if there is one.

    Args:
        message: The message, and the values in it.
        fixes: The fixes of the entry.
    """
    for pattern, advise in _ADVICE:
        match = pattern.search(message)
        if match is not None:
            first = advise(match)
            return tuple(fixes) if first is None else (first, *(fix for fix in fixes if fix.code != first.code))
    return tuple(fixes)


def _sizes(text: str) -> list[int]:
    return list(map(int, _NUMBER.findall(text)))


def _features(match: re.Match[str]) -> Fix:
    rows, given, expected = (int(match[name]) for name in ("rows", "given", "expected"))
    factor = expected // given if given else 0
    if factor >= _MIN_ROWS and factor * given == expected and rows % factor == 0:
        return _FLATTEN
    return Fix(
        f"The input has {given} features, and the layer expects {expected}: give it the features for which it was made,"
        " or create the layer for these.",
        f"layer = torch.nn.Linear({given}, out_features)",
    )


def _channels(match: re.Match[str]) -> Fix:
    shape, expected, given = _sizes(match["shape"]), int(match["expected"]), int(match["given"])
    if len(shape) > 2 and shape[-1] == expected:
        order = ", ".join(map(str, (0, len(shape) - 1, *range(1, len(shape) - 1))))
        return Fix(
            "The channels are the last dimension: move them behind the batch.", f"inputs = inputs.permute({order})"
        )
    if expected == _RGB and given in {1, _RGBA}:
        kind = "are gray" if given == 1 else "have an alpha channel"
        return Fix(f"The images {kind}, and the layer expects three channels: convert them to RGB.", _TO_RGB)
    if expected == 1 and given == _RGB:
        text = "The images are in color, and the layer expects one channel: convert them to gray."
        return Fix(text, "transform = torchvision.transforms.Grayscale()")
    return Fix(
        f"The input has {given} channels, and the layer expects {expected}: create the layer for these, or check what"
        " is concatenated before it.",
        f"layer = torch.nn.Conv2d({given}, out_channels, kernel_size)",
    )


def _loss_shapes(match: re.Match[str]) -> Fix:
    target, output = _sizes(match["target"]), _sizes(match["output"])
    if [size for size in target if size != 1] == [size for size in output if size != 1]:
        return Fix(
            "Give the output and the target the same shape: they differ in a dimension of size 1 only.",
            "loss = loss_function(output.squeeze(-1), target.float())",
        )
    if len(target) + 1 == len(output) and target == [output[0], *output[2:]]:
        return Fix(
            "The target has one class per sample and the output a value per class: use cross-entropy, or make the"
            " target one-hot.",
            "loss = torch.nn.functional.cross_entropy(output, target.long())",
        )
    return Fix(
        "Labels and outputs differ: give the model as many outputs as the labels have classes.",
        "print(output.shape, target.shape)",
    )


def _target_dimensions(_: re.Match[str]) -> Fix:
    return Fix(
        "Give cross-entropy one class per sample: remove the extra dimension; of one-hot labels, take the argmax.",
        "target = target.squeeze(1) if target.size(1) == 1 else target.argmax(1)",
    )


def _batches(match: re.Match[str]) -> Fix:
    output, target = int(match["output"]), int(match["target"])
    if target and output > target and output % target == 0:
        text = f"The output has {output // target} rows per label: a view has moved another dimension into the batch."
        return Fix(text, _FLATTEN.code)
    return Fix(
        f"The output has {output} rows for {target} labels: give both the same rows, for sequences one per token.",
        "loss = torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())",
    )


def _view(match: re.Match[str]) -> Fix | None:
    shape, elements = _sizes(match["shape"]), int(match["elements"])
    known = prod(size for size in shape if size > 0)
    rest = prod(size for size in shape[1:] if size > 0)
    if len(shape) < 2 or not known:
        return None
    if shape[0] > 0 and (-1 in shape or (elements % rest == 0 and elements < known)):
        return _OWN_BATCH
    if shape[0] < 0 and elements % known:
        return Fix(
            f"A sample does not have {known} values: flatten what is there, and create the layer for its size.",
            "hidden = hidden.flatten(1)\nlayer = torch.nn.LazyLinear(out_features)",
        )
    return None


def _two_sizes(match: re.Match[str]) -> Fix | None:
    smaller, larger = sorted((int(match["first"]), int(match["second"])))
    dimension = match["dimension"] or ""
    if (smaller, larger) == (_RGB, _RGBA):
        return Fix("The images have an alpha channel: convert them to RGB.", _TO_RGB)
    if dimension == "1" and smaller in _MODEL_LENGTHS and larger % _FEATURES:
        return _TRUNCATE
    return _PAD if dimension > "1" and larger - smaller == 1 and smaller > 1 else None


def _concatenated(match: re.Match[str]) -> Fix:
    if abs(int(match["first"]) - int(match["second"])) == 1:
        return _PAD
    return Fix(
        "Tensors that are concatenated may differ only in the dimension of the concatenation: print their shapes.",
        "print([tensor.shape for tensor in tensors])",
    )


def _hidden(match: re.Match[str]) -> Fix | None:
    expected, given = _sizes(match["expected"]), _sizes(match["given"])
    if len(expected) == len(given) == 3 and expected[::2] == given[::2]:
        return Fix(
            "The hidden state is for another batch size, such as that of the last batch: create it for each batch.",
            f"hidden = torch.zeros({given[0]}, inputs.size(0), {given[2]}, device=inputs.device)  # batch_first=True",
        )
    return None


def _recurrent_features(match: re.Match[str]) -> Fix:
    expected, given = match["expected"], match["given"]
    return Fix(
        f"The last dimension of the input has {given} values, and the layer was created for {expected}: create it for"
        " these, or move the features to the end.",
        f"layer = torch.nn.LSTM(input_size={given}, hidden_size=hidden_size, batch_first=True)",
    )


def _dimensions(match: re.Match[str]) -> Fix:
    if len(_sizes(match["shape"])) > int(match["batched"]):
        text = "The input has a dimension too many: merge it with the batch, or remove it if its size is 1."
        return Fix(text, "inputs = inputs.flatten(0, 1)")
    return Fix(
        "The input lacks dimensions: give it those of the batch, the channels and the space.",
        "inputs = inputs.view(batch_size, channels, height, width)",
    )


def _one_dimension(_: re.Match[str]) -> Fix:
    return Fix("A single sample lacks the dimension of the batch: add it.", "inputs = inputs.unsqueeze(0)")


def _norm_features(match: re.Match[str]) -> Fix:
    given, expected = match["given"], match["expected"]
    text = f"The input has {given} channels, and the normalization was created for {expected}: create it for these."
    return Fix(text, f"layer = torch.nn.BatchNorm2d({given})")


def _empty_samples(_: re.Match[str]) -> Fix:
    return Fix("Leave out empty samples.", "inputs, lengths = inputs[lengths > 0], lengths[lengths > 0]")


_SIZE: Final = r"\d{1,19}"
_SHAPE: Final = r"[\d, -]{0,120}"
_TWO_SIZES: Final = (
    rf"tensor(?: a)? \((?P<first>{_SIZE})\) must match the (?:size of tensor b|existing size) \((?P<second>{_SIZE})\)"
    r"(?: at non-singleton dimension (?P<dimension>\d))?"
)
_CHANNELS: Final = rf"input\[(?P<shape>{_SHAPE})\] to have (?P<expected>{_SIZE}) channels, but got (?P<given>{_SIZE})"
_LOSS_SHAPES: Final = (
    rf"target size \(torch\.Size\(\[(?P<target>{_SHAPE})\]\)\) [a-z ]{{1,40}} input size"
    rf" \(torch\.Size\(\[(?P<output>{_SHAPE})\]\)\)"
)
_CONCATENATED: Final = (
    rf"except in dimension \d{{1,3}}\.? (?:Expected size|Got) (?P<first>{_SIZE})"
    rf" (?:but got size|and) (?P<second>{_SIZE})"
)
_DIMENSIONS: Final = (
    rf"(?P<batched>\d)D \(batched\) input to conv\w{{1,24}}, but got input of size: \[(?P<shape>{_SHAPE})\]"
)
_NORM_FEATURES: Final = rf"running_(?:mean|var) should contain (?P<given>{_SIZE}) elements not (?P<expected>{_SIZE})"
_ADVICE: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Fix | None]], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), advise)
    for pattern, advise in (
        (rf"multiplied \((?P<rows>{_SIZE})x(?P<given>{_SIZE}) and (?P<expected>{_SIZE})x{_SIZE}\)", _features),
        (_CHANNELS, _channels),
        (_LOSS_SHAPES, _loss_shapes),
        (r"multi-target not supported", _target_dimensions),
        (rf"input batch_size \((?P<output>{_SIZE})\) to match target batch_size \((?P<target>{_SIZE})\)", _batches),
        (rf"shape '\[(?P<shape>{_SHAPE})\]' is invalid for input of size (?P<elements>{_SIZE})", _view),
        (_TWO_SIZES, _two_sizes),
        (_CONCATENATED, _concatenated),
        (rf"Expected hidden(?:\[\d\])? size \((?P<expected>{_SHAPE})\), got \[(?P<given>{_SHAPE})\]", _hidden),
        (rf"equal to input_size\. Expected (?P<expected>{_SIZE}), got (?P<given>{_SIZE})", _recurrent_features),
        (_DIMENSIONS, _dimensions),
        (r"Expected \d-dimensional input for \d-dimensional weight", _one_dimension),
        (r"Output size is too small|can't be greater than actual input size", lambda _: _ENLARGE),
        (_NORM_FEATURES, _norm_features),
        (r"weight tensor should be defined either for all", lambda _: _CLASS_WEIGHTS),
        (r"Length of all samples has to be greater than 0", _empty_samples),
    )
)
"""What to do by the form of the message; the first form that fits counts."""
