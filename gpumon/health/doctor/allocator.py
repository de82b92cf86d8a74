"""The configuration of PyTorch's allocator: its keys and values, parsed as torch parses them."""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Final

from gpumon.core.text import safe_text

VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The first has precedence if both are set."""

_MIN_SPLIT_MB: Final = 20
_PAIR: Final = re.compile(r"([^:,\[\]]*):(\[[^\]]*\]|[^,]*)(?:,|$)")
_OPTION: Final = re.compile(r"[\w>]+:(\w+)", re.ASCII)


def _is_boolean(value: str) -> str:
    return "" if value in {"True", "False"} else "must be True or False"


def _is_whole(value: str) -> str:
    return "" if value.isdecimal() else "must be a whole number"


def _is_split(value: str) -> str:
    if not value.isdecimal():
        return "must be a whole number of MiB"
    return "" if int(value) >= _MIN_SPLIT_MB else f"must be {_MIN_SPLIT_MB} (MiB) or more"


def _is_inner_share(value: str) -> str:
    number = _number(value)
    return "" if number is not None and 0 < number < 1 else "must be greater than 0 and less than 1"


def _is_share(value: str) -> str:
    number = _number(value)
    return "" if number is not None and 0 <= number <= 1 else "must be a number from 0 to 1"


def _is_backend(value: str) -> str:
    return "" if value in {"native", "cudaMallocAsync"} else "must be native or cudaMallocAsync"


def _is_power_of_two(value: str) -> str:
    parts = [value]
    is_list = value.startswith("[")
    if is_list:
        matches = [_OPTION.fullmatch(part) for part in value[1:-1].split(",")]
        parts = [match[1] if match else "" for match in matches]
    min_bits = 0 if is_list else 1  # in a list, 0 leaves sizes unchanged
    is_valid = all(part.isdecimal() and min_bits <= int(part).bit_count() <= 1 for part in parts)
    return "" if is_valid else "must be a power of two, or a list such as [256:1,512:2,>:4]"


def _is_handle(value: str) -> str:
    return "" if value in {"posix_fd", "fabric"} else "must be posix_fd or fabric"


_KEYS: Final[dict[str, Callable[[str], str]]] = {
    "backend": _is_backend,
    "expandable_segments": _is_boolean,
    "expandable_segments_handle_type": _is_handle,
    "garbage_collection_threshold": _is_inner_share,
    "graph_capture_record_stream_reuse": _is_boolean,
    "large_segment_size_mb": _is_whole,
    "max_non_split_rounding_mb": _is_whole,
    "max_split_size_mb": _is_split,
    "per_process_memory_fraction": _is_share,
    "pinned_free_catch_all": _is_boolean,
    "pinned_max_cached_size_mb": _is_whole,
    "pinned_max_round_threshold_mb": _is_whole,
    "pinned_num_register_threads": _is_power_of_two,
    "pinned_reserve_segment_size_mb": _is_whole,
    "pinned_use_background_threads": _is_boolean,
    "pinned_use_cuda_host_register": _is_boolean,
    "release_lock_on_cudamalloc": _is_boolean,
    "roundup_power2_divisions": _is_power_of_two,
    "throw_on_cudamalloc_oom": _is_boolean,
}
"""The keys of torch 2.13, each with a function that returns what is wrong with a value, or an empty text. Older
releases have fewer keys."""


def faults(configuration: str) -> Iterator[str]:
    """What is wrong with a configuration, one sentence per fault."""
    text = "".join(configuration.split())  # torch ignores all white space, too
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            yield f"{safe_text(text[position:], 40)!r} is not a key:value pair."
            return
        position = pair.end()
        yield from _pair_faults(pair[1], pair[2])


def _pair_faults(key: str, value: str) -> Iterator[str]:
    fault_of = _KEYS.get(key)
    if fault_of is not None:
        fault = fault_of(value)
        if fault:
            yield f"{key}:{safe_text(value, 40)}: {fault}."
        return
    similar = get_close_matches(key, _KEYS, n=1)
    yield f"There is no key {safe_text(key, 40)!r}{f'; did you mean {similar[0]}?' if similar else '.'}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
