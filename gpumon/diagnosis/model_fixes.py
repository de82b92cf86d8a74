"""Fixes for weights and values: where they are, how they are named, what an assertion about them means."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpumon.errors.entry import Fix, Values

MOVE_MODEL: Final = Fix(
    "Move the model to the GPU before the optimizer is created; layers in a list or dict move only in a ModuleList.",
    "model = model.to(device)",
)
_WEIGHTS: Final = frozenset({"weight", "bias", "running_mean", "running_var"})
_INPUTS: Final = frozenset({"mat1", "index", "indices"})
"""Arguments of operators: the parameters of a layer, and what it is called with, which is compared with them."""
_PLACES: Final = {"device": "place", "other_device": "other_place"}
"""The devices in a message, by their names in the older and the newer wording."""
_WRAPPER_PREFIXES: Final = ("module.", "_orig_mod.")
_PLAIN_TYPES: Final = frozenset(
    {
        "argparse.Namespace",
        "collections.OrderedDict",
        "collections.defaultdict",
        "numpy._core.multiarray._reconstruct",
        "numpy._core.multiarray.scalar",
        "numpy.core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy.dtype",
        "numpy.ndarray",
        "omegaconf.dictconfig.DictConfig",
        "omegaconf.listconfig.ListConfig",
        "pathlib.Path",
        "pathlib.PosixPath",
        "ultralytics.nn.tasks.DetectionModel",
    }
)
"""Types that only contain values. Others are not named in code to copy: a checkpoint may name what runs a command."""
_VOCABULARY: Final = ("embed_tokens", "lm_head", "wte", "word_embeddings", "token_embedding")
"""Parts of the names of parameters that have one row for each token."""
_HEADS: Final = (
    "fc.",
    "classifier",
    "class_embed",
    "head.",
    "score.",
    "cls_score",
    "bbox_pred",
    "out_proj",
    "last_linear",
    "logits",
)
"""Parts of the names of parameters that have one row for each class."""
_LEAVE_OUT_HEAD: Final = Fix(
    "Leave out the last layer, which was made for another number of classes; it starts random, and is trained.",
    "own = model.state_dict()\n"
    "state = {name: value for name, value in state.items() if own[name].shape == value.shape}\n"
    "model.load_state_dict(state, strict=False)",
)
_LOAD_INTO_CONTAINED: Final = Fix(
    "Load the weights before the model is compiled or wrapped, or into the model that it contains.",
    'inner = getattr(model, "_orig_mod", getattr(model, "module", model))\ninner.load_state_dict(state)',
)
_ASSERTIONS: Final = (
    (
        ("n_classes", "cur_target"),
        Fix(
            "A class label is out of range: print the range, and compare it with the number of outputs of the model.",
            "print(labels.min().item(), labels.max().item(), logits.shape[-1])",
        ),
    ),
    (
        ("idx_dim", "index_size"),
        Fix(
            "An index of gather, scatter or one_hot is out of range, such as a label of -100 or one class too many:"
            " print the range.",
            "print(index.min().item(), index.max().item(), values.shape)",
        ),
    ),
    (
        ("sizes[i]",),
        Fix(
            "An index in values[index] is out of range; in the table of positions, the sequence is too long: print the"
            " range.",
            "print(index.min().item(), index.max().item(), values.shape)",
        ),
    ),
    (
        ("srcSelectDimSize", "index out of bounds", "ind >= 0", "ind_dim_size", "vectorized_gather"),
        Fix(
            "An index is out of range, in most cases a token id or a position in an embedding: print the ranges.",
            "print(input_ids.min().item(), input_ids.max().item(), model.get_input_embeddings().num_embeddings)",
        ),
    ),
    (
        ("target_val >= zero", "target_val <= one"),
        Fix(
            "A target of binary cross entropy is outside 0 to 1, or NaN: print the range of the labels.",
            "print(target.min().item(), target.max().item(), target.isnan().any())",
        ),
    ),
    (
        ("input_val >= zero", "input_val <= one"),
        Fix(
            "A probability is outside 0 to 1, or NaN: compute the loss from the logits.",
            "loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target)",
        ),
    ),
)
"""What an assertion of PyTorch's kernels means, by words of its condition."""


def moved_model(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Two GPUs mean a model that is divided over them; a weight on the CPU means that the model was not moved."""
    devices = [str(values.get(name, values.get(place, ""))) for name, place in _PLACES.items()]
    is_divided = all(device.startswith("cuda") for device in devices)
    kept = sorted(fixes, key=lambda fix: not (is_divided and "device_map" in fix.text))
    of_weight, of_input = (str(values.get("argument", "")) in names for names in (_WEIGHTS, _INPUTS))
    is_weight = (of_weight and devices[1] == "cpu") or (of_input and devices[0] == "cpu")
    is_placed = devices[int(values.get("placed") in _INPUTS)] == "cpu" and values.get("placed") in _WEIGHTS | _INPUTS
    return (*((MOVE_MODEL,) if is_weight or is_placed else ()), *kept)


def checkpoint_names(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Names with the prefix of a wrapper need only to lose it; a shape of 0 or of a vocabulary has its own fix."""
    unexpected, name = (str(values.get(key, "")) for key in ("unexpected", "name"))
    names, shape = (unexpected, name), str(values.get("model_shape", ""))
    if not shape and not unexpected and name.startswith(_WRAPPER_PREFIXES):
        return (_LOAD_INTO_CONTAINED, *fixes)
    if shape == "[0]":
        marker = "GatheredParameters"
    elif shape and any(part in name for part in _VOCABULARY for name in names):
        marker = "resize_token_embeddings"
    elif shape and any(part in name for part in _HEADS):
        return (_LEAVE_OUT_HEAD, *fixes)
    elif shape:
        return tuple(sorted(fixes, key=lambda fix: "with the configuration" not in fix.text))
    elif not name and any(part in unexpected for part in _HEADS):
        marker = "strict=False)"
    else:
        marker = "removeprefix" if any(name.startswith(_WRAPPER_PREFIXES) for name in names) else ""
    return tuple(sorted(fixes, key=lambda fix: not (marker and marker in fix.code)))


def permitted_type(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the type that a checkpoint contains in the code that permits it."""
    name = str(values.get("type", ""))
    if name not in _PLAIN_TYPES:
        return tuple(fixes)
    code = f"import {name.rpartition('.')[0]}\n\ntorch.serialization.add_safe_globals([{name}])"
    return tuple(replace(fix, code=code) if "add_safe_globals" in fix.code else fix for fix in fixes)


def assertion_meaning(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The assertion is in the log, so it need not be looked for; its words name what is out of range."""
    assertion = str(values.get("assertion", ""))
    if not assertion:
        return tuple(fixes)
    kept = [fix for fix in fixes if "`Assertion` line" not in fix.text]
    if kept[0].when:
        return tuple(kept)
    meaning = next((fix for words, fix in _ASSERTIONS if any(word in assertion for word in words)), None)
    return *(() if meaning is None else (meaning,)), *kept
