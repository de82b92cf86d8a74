"""The kind of a message about shapes, and what its sizes show."""

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from gpumon.errors.entry import Code, Values
from gpumon.errors.lazy_pattern import lazy_pattern

Facts = Mapping[str, int | str]

_NUMBER: Final = lazy_pattern(r"-?\d+")
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


def shapes(_: Values, text: str) -> Facts:
    """The kind of the message, as `shapes`, and its sizes; nothing if they decide nothing.

    The sizes are `given` and `expected`; `output` and `target`; `smaller` and `larger`, and a `model` with that many
    positions; `elements` and the `known` ones, or the `factor` between two sizes; `layers` and `features` of a hidden
    state; and an `order` of dimensions.
    """
    matches = ((pattern.search(text), read) for pattern, read in _FORMS)
    return next((read(match) for match, read in matches if match is not None), {})


def dimensions(values: Values, _: str) -> Facts:
    """The number of `dimensions` of a shape."""
    return {"dimensions": str(values["shape"]).count(",") + 1} if "shape" in values else {}


def _sizes(text: str) -> list[int]:
    return list(map(int, _NUMBER.findall(text)))


def _features(match: re.Match[str]) -> Facts:
    rows, given, expected = (int(match[name]) for name in ("rows", "given", "expected"))
    factor = expected // given if given else 0
    sizes = {"given": given, "expected": expected}
    if factor >= _MIN_ROWS and factor * given == expected and rows % factor == 0:
        return {"shapes": "rows of a sample"}
    return {"shapes": "text encoders" if {given, expected} <= _TEXT_ENCODERS else "features", **sizes}


def _channels(match: re.Match[str]) -> Facts:
    shape, expected, given = _sizes(match["shape"]), int(match["expected"]), int(match["given"])
    sizes = {"given": given, "expected": expected}
    if len(shape) > 2 and shape[-1] == expected:
        order = Code(", ".join(map(str, (0, len(shape) - 1, *range(1, len(shape) - 1)))))
        return {"shapes": "channels last", "order": order}
    if expected == _RGB and given in {1, _RGBA}:
        return {"shapes": "gray images" if given == 1 else "alpha channel"}
    if expected == 1 and given == _RGB:
        return {"shapes": "color images"}
    if {expected, given} == _OF_INPAINTING:
        return {"shapes": "inpainting"}
    return {"shapes": "mel bands" if expected in _MEL_BANDS else "channels", **sizes}


def _loss_shapes(match: re.Match[str]) -> Facts:
    target, output = _sizes(match["target"]), _sizes(match["output"])
    if [size for size in target if size != 1] == [size for size in output if size != 1]:
        return {"shapes": "dimension of 1"}
    if len(target) + 1 == len(output) and target == [output[0], *output[2:]]:
        return {"shapes": "class numbers"}
    if len(target) == len(output) == _IMAGE_DIMENSIONS and target[:2] == output[:2]:
        return {"shapes": "image sizes"}
    return {"shapes": "batches" if target and output and target[0] != output[0] else "classes"}


def _rows(match: re.Match[str]) -> Facts:
    output, target = int(match["output"]), int(match["target"])
    if target and output > target and output % target == 0:
        return {"shapes": "rows per label", "factor": output // target}
    return {"shapes": "labels", "output": output, "target": target}


def _view(match: re.Match[str]) -> Facts:
    shape, elements = _sizes(match["shape"]), int(match["elements"])
    known = prod(size for size in shape if size > 0)
    rest = prod(size for size in shape[1:] if size > 0)
    sizes = {"elements": elements, "known": known}
    if len(shape) < 2 or not known:
        return {}
    is_square = len(shape) > 2 and shape[-1] == shape[-2]
    if elements % known and (is_square or len(shape) >= _IMAGE_DIMENSIONS):
        return {"shapes": "input size", **sizes}
    if shape[0] > 0 and (-1 in shape or (elements % rest == 0 and elements < known)):
        return {"shapes": "last batch"}
    if shape[0] < 0 and elements % known:
        return {"shapes": "sample size", **sizes}
    if -1 not in shape and elements > known and elements % known == 0:
        return {"shapes": "multiple", "factor": elements // known}
    return {}


def _two_sizes(match: re.Match[str]) -> Facts:
    smaller, larger = sorted((int(match["first"]), int(match["second"])))
    dimension = match["dimension"] or ""
    sizes = {"smaller": smaller, "larger": larger}
    if (smaller, larger) == (_RGB, _RGBA):
        return {"shapes": "three and four"}
    if dimension == "1" and smaller in _POSITIONS and larger % _FEATURES:
        return {"shapes": "positions", "model": _POSITIONS[smaller], **sizes}
    if dimension == "1" and smaller in _LENGTHS and larger % _FEATURES and int(match["first"]) == smaller:
        return {"shapes": "length", **sizes}
    return {"shapes": "odd size"} if dimension > "1" and larger - smaller == 1 and smaller > 1 else {}


def _concatenated(match: re.Match[str]) -> Facts:
    return {"shapes": "odd size" if abs(int(match["first"]) - int(match["second"])) == 1 else "concatenation"}


def _hidden(match: re.Match[str]) -> Facts:
    expected, given = _sizes(match["expected"]), _sizes(match["given"])
    is_batch = len(expected) == len(given) == 3 and expected[::2] == given[::2]
    return {"shapes": "hidden state", "layers": given[0], "features": given[2]} if is_batch else {}


def _dimensions(match: re.Match[str]) -> Facts:
    return {"shapes": "too many" if len(_sizes(match["shape"])) > int(match["batched"]) else "too few"}


def _numbers(kind: str) -> Callable[[re.Match[str]], Facts]:
    """A kind whose sizes are the groups of its form."""
    return lambda match: {"shapes": kind, **match.groupdict()}


_SIZE: Final = r"\d{1,19}"
_SHAPE: Final = r"[\d, -]{0,120}"
_TWO_SIZES: Final = (
    rf"tensor(?: a)? \((?P<first>{_SIZE})\) must match the (?:size of tensor b|existing size) \((?P<second>{_SIZE})\)"
    r"(?: at non-singleton dimension (?P<dimension>\d))?"
)
_LOSS_SHAPES: Final = (
    rf"target size \(torch\.Size\(\[(?P<target>{_SHAPE})\]\)\) [a-z ]{{1,40}} input size"
    rf" \(torch\.Size\(\[(?P<output>{_SHAPE})\]\)\)"
)
_CONCATENATED: Final = (
    rf"except in dimension \d{{1,3}}\.? (?:Expected size|Got) (?P<first>{_SIZE})"
    rf" (?:but got size|and) (?P<second>{_SIZE})"
)
_CHANNELS: Final = rf"input\[(?P<shape>{_SHAPE})\] to have (?P<expected>{_SIZE}) channels, but got (?P<given>{_SIZE})"
_INPUT: Final = rf"(?P<batched>\d)D \(batched\) input to conv\w{{1,24}}, but got input of size: \[(?P<shape>{_SHAPE})\]"
_NORM: Final = rf"running_(?:mean|var) should contain (?P<given>{_SIZE}) elements not (?P<expected>{_SIZE})"
_COLOR_MASK: Final = r"got targets of size: : \[\d{1,19}, (?:3, \d{2,19}, \d{1,19}|\d{1,19}, \d{1,19}, [34])\]"
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Facts]], ...]] = tuple(
    (lazy_pattern(pattern, re.IGNORECASE), read)
    for pattern, read in (
        (rf"multiplied \((?P<rows>{_SIZE})x(?P<given>{_SIZE}) and (?P<expected>{_SIZE})x{_SIZE}\)", _features),
        (_CHANNELS, _channels),
        (_LOSS_SHAPES, _loss_shapes),
        (r"multi-target not supported", _numbers("one class")),
        (rf"input batch_size \((?P<output>{_SIZE})\) to match target batch_size \((?P<target>{_SIZE})\)", _rows),
        (rf"shape '\[(?P<shape>{_SHAPE})\]' is invalid for input of size (?P<elements>{_SIZE})", _view),
        (_TWO_SIZES, _two_sizes),
        (_CONCATENATED, _concatenated),
        (rf"Expected hidden(?:\[\d\])? size \((?P<expected>{_SHAPE})\), got \[(?P<given>{_SHAPE})\]", _hidden),
        (
            rf"equal to input_size\. Expected (?P<expected>{_SIZE}), got (?P<given>{_SIZE})",
            _numbers("recurrent layer"),
        ),
        (_INPUT, _dimensions),
        (_COLOR_MASK, _numbers("color mask")),
        (r"Expected \d-dimensional input for \d-dimensional weight", _numbers("no batch")),
        (r"Output size is too small|can't be greater than actual input size", _numbers("small input")),
        (_NORM, _numbers("normalization")),
        (r"weight tensor should be defined either for all", _numbers("class weights")),
        (r"Length of all samples has to be greater than 0", _numbers("empty samples")),
    )
)
"""The forms of messages about shapes, each with what reads it; the first form that fits counts."""
