"""What PyTorch's allocator takes as its configuration: keys and values, read as torch reads them."""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Final

from gpumon.core.text import safe_text

VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The first one counts, if both are set."""

_LEAST_SPLIT_MB: Final = 20
_PAIR: Final = re.compile(r"([^:,\[\]]*):(\[[^\]]*\]|[^,]*)(?:,|$)")
_OPTION: Final = re.compile(r"[\w>]+:(\w+)", re.ASCII)


def _is_boolean(value: str) -> str:
    return "" if value in {"True", "False"} else "it takes True or False, spelled so"


def _is_whole(value: str) -> str:
    return "" if value.isdecimal() else "it takes a whole number"


def _is_split(value: str) -> str:
    if not value.isdecimal():
        return "it takes a whole number of MiB"
    return "" if int(value) >= _LEAST_SPLIT_MB else f"it takes {_LEAST_SPLIT_MB} (MiB) or more"


def _is_inner_share(value: str) -> str:
    number = _number(value)
    return "" if number is not None and 0 < number < 1 else "it takes a number between 0 and 1, neither of them"


def _is_share(value: str) -> str:
    number = _number(value)
    return "" if number is not None and 0 <= number <= 1 else "it takes a number from 0 to 1"


def _is_backend(value: str) -> str:
    return "" if value in {"native", "cudaMallocAsync"} else "it takes native or cudaMallocAsync"


def _is_power_of_two(value: str) -> str:
    parts = [value]
    is_list = value.startswith("[")
    if is_list:
        found = [_OPTION.fullmatch(part) for part in value[1:-1].split(",")]
        parts = [part[1] if part else "" for part in found]
    fewest_bits = 0 if is_list else 1  # in a list, 0 leaves sizes as they are
    right = all(part.isdecimal() and fewest_bits <= int(part).bit_count() <= 1 for part in parts)
    return "" if right else "it takes a power of two, or a list such as [256:1,512:2,>:4]"


def _is_handle(value: str) -> str:
    return "" if value in {"posix_fd", "fabric"} else "it takes posix_fd or fabric"


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
"""The keys of torch 2.13, and what says against a value; older ones know fewer."""


def faults(configuration: str) -> Iterator[str]:
    """What is wrong with a configuration, a sentence each."""
    text = "".join(configuration.split())  # torch, too, ignores all white space
    place = 0
    while place < len(text):
        pair = _PAIR.match(text, place)
        if pair is None:
            yield f"{safe_text(text[place:], 40)!r} is no key:value."
            return
        place = pair.end()
        yield from _pair_faults(pair[1], pair[2])


def _pair_faults(key: str, value: str) -> Iterator[str]:
    judge = _KEYS.get(key)
    if judge is not None:
        said = judge(value)
        if said:
            yield f"{key}:{safe_text(value, 40)}: {said}."
        return
    near = get_close_matches(key, _KEYS, n=1)
    yield f"There is no key {safe_text(key, 40)!r}{f'; near it is {near[0]}' if near else ''}."


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
