"""The first fix of a message about shapes: by its kind, and by the sizes in it."""

import re
from collections.abc import Callable
from math import prod
from typing import Final

from gpumon.errors.entry import Fix

_NUMBER: Final = re.compile(r"-?\d+")
_RGB: Final = 3
_RGBA: Final = 4
_IMAGE_DIMENSIONS: Final = 4
_TEXT_ENCODERS: Final = {768, 1280, 2048, 2560, 2816, 3584, 4096, 7680, 12288, 15360}
_OF_INPAINTING: Final = {4, 9}
_MEL_BANDS: Final = frozenset({80, 128})
_POSITIONS: Final = {77: "CLIP", 448: "Whisper", 512: "BERT", 514: "RoBERTa", 1024: "GPT-2 and BART"}
"""Numbers of positions of models, which a text must not exceed."""
_LENGTHS: Final = frozenset({2048, 4096, 8192, 16384, 32768})
"""Common limits of the number of tokens."""
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
_PAD: Final = Fix(
    "The sizes differ by one, as after halving an odd size: pad the inputs to a multiple of the model's stride.",
    "images = torch.nn.functional.pad(images, (0, -images.size(-1) % 32, 0, -images.size(-2) % 32))",
)


def shape_fix(message: str) -> Fix | None:
    """What to do about a message about shapes, by its kind and its sizes; None if they decide nothing.

    Args:
        message: The message, and the values in it.
    """
    matches = ((pattern.search(message), advise) for pattern, advise in _ADVICE)
    return next((advise(match) for match, advise in matches if match is not None), None)


def _sizes(text: str) -> list[int]:
    return list(map(int, _NUMBER.findall(text)))


def _features(match: re.Match[str]) -> Fix:
    rows, given, expected = (int(match[name]) for name in ("rows", "given", "expected"))
    factor = expected // given if given else 0
    if factor >= _MIN_ROWS and factor * given == expected and rows % factor == 0:
        return _FLATTEN
    if {given, expected} <= _TEXT_ENCODERS:
        return Fix(
            f"The input has {given} features, and the layer expects {expected}. In a diffusion model, these are widths"
            " of text encoders (768 CLIP-L, 1280 CLIP-G, 2048 and 2816 SDXL, 2560 Qwen3-4B, 3584 Qwen2.5-VL, 4096"
            " T5-XXL, and three times as much in FLUX.2): load the encoder, LoRA or ControlNet of the model."
        )
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
    if {expected, given} == _OF_INPAINTING:
        return Fix("A model for inpainting takes 9 channels, another one 4: load the model and its parts of one kind.")
    if expected in _MEL_BANDS:
        return Fix(
            f"The sound has {given} mel bands, and the model was made for {expected}: use the processor of the model"
            " itself.",
            "processor = AutoProcessor.from_pretrained(MODEL)",
        )
    return Fix(
        f"The input has {given} channels, and the layer expects {expected}: use an input, or a checkpoint, of this"
        " model; in own code, create the layer for these.",
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
    if len(target) == len(output) == _IMAGE_DIMENSIONS and target[:2] == output[:2]:
        return Fix(
            "The heights and widths differ: bring the output to the size of the labels, or resize the masks.",
            "output = torch.nn.functional.interpolate(output, size=target.shape[-2:])",
        )
    if target and output and target[0] != output[0]:
        return Fix(
            "The first dimensions, those of the batch, differ: flatten without the batch, and give both from the same"
            " samples.",
            "print(output.shape, target.shape)",
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
    is_square = len(shape) > 2 and shape[-1] == shape[-2]
    if elements % known and (is_square or len(shape) >= _IMAGE_DIMENSIONS):
        return Fix(
            f"{elements} elements do not fill a shape of {known}, or a multiple of it: give input of the"
            f" size for which the"
            " model is configured, such as square images, and print the sizes from which the shape is computed.",
            "print(hidden.shape)",
        )
    if shape[0] > 0 and (-1 in shape or (elements % rest == 0 and elements < known)):
        return _OWN_BATCH
    if shape[0] < 0 and elements % known:
        return Fix(
            f"A sample does not have {known} values: flatten what is there, and create the layer for its size.",
            "hidden = hidden.flatten(1)\nlayer = torch.nn.LazyLinear(out_features)",
        )
    if -1 not in shape and elements > known and elements % known == 0:
        return Fix(
            f"The tensor has {elements // known} times the elements of this shape: a number in the settings, such as"
            " of channels, heads or variables, is not that of the data.",
            "print(hidden.shape)",
        )
    return None


def _two_sizes(match: re.Match[str]) -> Fix | None:
    smaller, larger = sorted((int(match["first"]), int(match["second"])))
    dimension = match["dimension"] or ""
    if (smaller, larger) == (_RGB, _RGBA):
        return Fix(
            "If it is an image, its fourth channel is alpha: convert it to RGB. Otherwise, compare the two parts of the"
            " program that these tensors come from.",
            _TO_RGB,
        )
    if dimension == "1" and smaller in _POSITIONS and larger % _FEATURES:
        return Fix(
            f"The text has {larger} tokens, and the model has {smaller} positions, as {_POSITIONS[smaller]} has: cut"
            " the text, or divide it into parts.",
            f"inputs = tokenizer(text, truncation=True, max_length={smaller})",
        )
    if dimension == "1" and smaller in _LENGTHS and larger % _FEATURES and int(match["first"]) == smaller:
        return Fix(
            f"The text has {larger} tokens, more than {smaller}, which is probably the limit of the program or of the"
            " model: raise max_seq_length or max_length, or cut the texts.",
            f"inputs = tokenizer(text, truncation=True, max_length={smaller})",
        )
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


def _color_mask(_: re.Match[str]) -> Fix:
    return Fix(
        "The mask is a color image: read it as one channel of class numbers, starting at 0.",
        'mask = torch.from_numpy(numpy.array(Image.open(path).convert("L"))).long()',
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
        (r"got targets of size: : \[\d{1,19}, (?:3, \d{2,19}, \d{1,19}|\d{1,19}, \d{1,19}, [34])\]", _color_mask),
        (r"Expected \d-dimensional input for \d-dimensional weight", _one_dimension),
        (r"Output size is too small|can't be greater than actual input size", lambda _: _ENLARGE),
        (_NORM_FEATURES, _norm_features),
        (r"weight tensor should be defined either for all", lambda _: _CLASS_WEIGHTS),
        (r"Length of all samples has to be greater than 0", _empty_samples),
    )
)
"""What to do by the form of the message; the first form that fits counts."""
