"""The kind of a message about shapes, and what its sizes show."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.entry import Code, Values
from gpumon.errors.lazy_pattern import lazy_pattern

Facts = Mapping[str, int | str]

_NUMBER: Final = lazy_pattern(r"-?\d+")
_IMAGE_DIMENSIONS: Final = 4
_POSITIONS: Final = {77: "CLIP", 448: "Whisper", 512: "BERT", 514: "RoBERTa", 1024: "GPT-2 and BART"}
"""Numbers of positions of models, which a text must not exceed."""
_FEATURES: Final = 64
"""What the numbers of features of language models are multiples of, and the number of tokens of a text rarely is."""
_MIN_IMAGE_SIDE: Final = 16
"""What is smaller is no image, but a board or a map of features."""
_MIN_ROWS: Final = 8
"""Rows of a sample from which on it was probably not flattened; models of other widths differ by less."""


def shapes(_: Values, text: str) -> Facts:
    """The kind of the message, as `shapes`, and its sizes; nothing if they decide nothing.

    The sizes are `given` and `expected`; `output` and `target`; `smaller` and `larger`, and a `model` with that many
    positions; `elements` and the `known` ones, or the `factor` between two sizes; `layers` and `features` of a hidden
    state; and an `order` of dimensions.
    """
    name, match = next(((name, match) for name, form in _forms() if (match := form.search(text))), ("", None))
    if match is None:
        return {}
    kind = name.removeprefix("= ")
    return _READERS[name](match) if kind == name else {"shapes": kind, **match.groupdict()}


def _sizes(text: str) -> list[int]:
    return list(map(int, _NUMBER.findall(text)))


def _features(match: re.Match[str]) -> Facts:
    rows, given, expected = (int(match[name]) for name in ("rows", "given", "expected"))
    factor = expected // given if given else 0
    if factor >= _MIN_ROWS and factor * given == expected and rows % factor == 0:
        return {"shapes": "rows of a sample"}
    return {"shapes": "features", "given": given, "expected": expected}


def _channels(match: re.Match[str]) -> Facts:
    shape, expected = _sizes(match["shape"]), int(match["expected"])
    if len(shape) > 2 and shape[-1] == expected:
        order = Code(", ".join(map(str, (0, len(shape) - 1, *range(1, len(shape) - 1)))))
        return {"shapes": "channels last", "order": order}
    kind = "planes" if shape[-1] < _MIN_IMAGE_SIDE else "channels"
    return {"shapes": kind, "given": int(match["given"]), "expected": expected}


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
    width = elements // prod(shape[:-2]) if min(shape) > 0 and elements % prod(shape[:-2]) == 0 else 0
    fitting = {size: elements * size // known for size in shape[:-2] if size > 1 and elements * size % known == 0}
    pair = next(iter(fitting.items())) if elements % known and -1 not in shape and len(fitting) == 1 else ()
    kind = "one size"
    if min(shape) > 0 and elements > known and elements % rest == 0:
        kind, pair = "fixed batch", (shape[0], elements // rest)
    elif width and width % shape[-2] and width // shape[-2] == shape[-1]:
        kind, pair = "heads", (shape[-2], width)
    if pair:
        return {"shapes": kind, "given": pair[0], "expected": pair[1], **sizes}
    if elements % known and len(shape) > 2 and shape[-1] == shape[-2]:
        return {"shapes": "input size", **sizes}
    if shape[0] > 1 and (-1 in shape or (elements % rest == 0 and elements < known)):
        return {"shapes": "last batch"}
    return {"shapes": "sample size", **sizes} if shape[0] < 0 and elements % known else {}


def _two_sizes(match: re.Match[str]) -> Facts:
    smaller, larger = sorted((int(match["first"]), int(match["second"])))
    dimension = match["dimension"] or ""
    if dimension == "1" and smaller in _POSITIONS and larger % _FEATURES:
        return {"shapes": "positions", "model": _POSITIONS[smaller], "smaller": smaller, "larger": larger}
    return {"shapes": "odd size"} if dimension > "1" and larger - smaller == 1 and smaller > 1 else {}


def _concatenated(match: re.Match[str]) -> Facts:
    return {"shapes": "odd size" if abs(int(match["first"]) - int(match["second"])) == 1 else "concatenation"}


def _dimensions(match: re.Match[str]) -> Facts:
    return {"shapes": "too many" if len(_sizes(match["shape"])) > int(match["batched"]) else "too few"}


_READERS: Final[Mapping[str, Callable[[re.Match[str]], Facts]]] = {
    reader.__name__[1:].replace("_", " "): reader
    for reader in (_features, _channels, _loss_shapes, _rows, _view, _two_sizes, _concatenated, _dimensions)
}


@cache
def _forms() -> Sequence[tuple[str, re.Pattern[str]]]:
    """The forms of messages, each with the name of what reads it, or of its kind."""
    rows = (row.split(" | ", 1) for row in table("gpumon.errors", "shapes"))
    pairs = ((name, regex.replace("SIZE", r"\d{1,19}").replace("SHAPE", r"[\d, -]{0,120}")) for name, regex in rows)
    return [(name, lazy_pattern(regex, re.IGNORECASE)) for name, regex in pairs]
