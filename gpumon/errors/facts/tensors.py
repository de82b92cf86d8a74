"""Where tensors are, how the parameters of a checkpoint are named, which types are in a message."""

from collections.abc import Mapping
from typing import Final

from gpumon.errors.entry import Values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.signs import sign

_WEIGHTS: Final = frozenset({"weight", "bias", "mat2", "parameter", "parameters", "running_mean", "running_var"})
_INPUTS: Final = frozenset({"mat1", "index", "indices"})
"""Arguments of operators: the parameters of a layer (its weight is ``mat2``), and what it is called with."""
_OF_VALUES: Final = ("bmm", "nll_loss", "cross_entropy", "multi_margin")
"""Operators whose ``mat2`` is computed, or whose ``weight`` weighs the classes of a loss: no parameters of a model."""
_PLACES: Final = {"device": "place", "other_device": "other_place"}
"""The devices in a message, by their names in the older and the newer wording."""
_WRAPPER_PREFIXES: Final = ("module.", "_orig_mod.")
_VOCABULARY: Final = sign("vocabulary")
"""Parts of the names of parameters that have one row for each token."""
_HEAD: Final = sign("head")
"""Parts of the names of parameters that have one row for each class."""
_PLAIN_TYPE: Final = sign("plain type")
"""Types that only contain values. Others are not named in code to copy: a checkpoint may name what runs a command."""
_SHAPE: Final = lazy_pattern(r"torch\.Size\(\[(?P<rows>\d+), (?P<columns>\d+)\]\)?")


def devices(values: Values, _: str) -> Mapping[str, str]:
    """What is on the wrong device, as `misplaced`: the model, weights of a loss, or parts of a model on GPUs."""
    if any(name in str(values.get("method", "")) for name in _OF_VALUES):
        return {"misplaced": "weights of a loss"} if "weight" in {values.get("argument"), values.get("placed")} else {}
    places = [str(values.get(name, values.get(place, ""))) for name, place in _PLACES.items()]
    of_weight, of_input = (str(values.get("argument", "")) in names for names in (_WEIGHTS, _INPUTS))
    is_placed = places[int(values.get("placed") in _INPUTS)] == "cpu" and values.get("placed") in _WEIGHTS | _INPUTS
    if is_placed or (of_weight and places[1] == "cpu") or (of_input and places[0] == "cpu"):
        return {"misplaced": "model"}
    return {"misplaced": "parts"} if all(place.startswith("cuda") for place in places) else {}


def half(values: Values, _: str) -> Mapping[str, str]:
    """The type of 16 bits in a message, as `half`, if it is float16 alone."""
    types = {str(values.get(name, "")).removeprefix("c10::") for name in ("type", "other_type")}
    return {"half": "float16"} if "Half" in types and "BFloat16" not in types else {}


def parameters(values: Values, _: str) -> Mapping[str, str]:
    """What the `parameters` of a checkpoint that do not fit are: wrapped, sharded, vocabulary, head, or other sizes."""
    unexpected, name = (str(values.get(key, "")) for key in ("unexpected", "name"))
    shape = str(values.get("model_shape", ""))
    if not shape:
        if not unexpected and name.startswith(_WRAPPER_PREFIXES):
            return {"parameters": "of a wrapped model"}
        if not name and _HEAD.is_in(unexpected):
            return {"parameters": "another head"}
        is_wrapped = any(key.startswith(_WRAPPER_PREFIXES) for key in (unexpected, name))
        return {"parameters": "wrapped"} if is_wrapped else {}
    if shape == "[0]":
        return {"parameters": "sharded"}
    if _VOCABULARY.is_in(f"{unexpected} {name}"):
        return {"parameters": "vocabulary"}
    return {"parameters": "head" if _HEAD.is_in(name) else "sizes"}


def plain_type(values: Values, _: str) -> Mapping[str, str]:
    """The type in a checkpoint and its module, as `plain_type` and `type_module`, if it only contains values."""
    name = str(values.get("type", ""))
    return {"plain_type": name, "type_module": name.rpartition(".")[0]} if _PLAIN_TYPE.pattern.fullmatch(name) else {}


def four_bits(values: Values, _: str) -> Mapping[str, str]:
    """Whether a weight is in the 4-bit form of bitsandbytes, as `four_bits`: one column with two weights per byte."""
    loaded, expected = (_SHAPE.search(str(values.get(name, ""))) for name in ("loaded", "shape"))
    if loaded is None or expected is None or loaded["columns"] != "1":
        return {}
    is_half = 2 * int(loaded["rows"]) == int(expected["rows"]) * int(expected["columns"])
    return {"four_bits": "yes"} if is_half else {}
