"""Fixes that depend on the values in the message: the fitting build, the package of a library, the driver's action."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpumon.diagnosis.known import Fix

Values = Mapping[str, int | str]

_BLACKWELL: Final = 10.0
_TURING: Final = 7.5
_NEWEST_INDEX: Final = "cu130"
_VOLTA_INDEX: Final = "cu126"
"""The wheels for CUDA 12.6 are the last ones with kernels for Maxwell, Pascal and Volta."""
_RECOVERY: Final = {
    "drain": Fix("Let the running jobs end and start no new ones on this GPU; then reset it."),
    "reset": Fix("Reset the GPU, after all of its processes have ended.", "sudo nvidia-smi --gpu-reset -i 0"),
    "reboot": Fix("Reboot the host, which the driver requires here.", "sudo reboot"),
    "imex": Fix("Restart the service that shares GPU memory between hosts.", "sudo systemctl restart nvidia-imex"),
    "none": Fix("Take no action: the GPU has recovered."),
}
"""What the driver requires, by a word of the action: the first word that occurs counts."""
_LINK_CONTINUES: Final = Fix("Let programs continue, unless an Xid 154 requires an action.")


def case_fixes(error_id: str, values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of an error, the best one for these values first.

    Args:
        error_id: The entry of the catalogue.
        values: The values in the message, by name.
        fixes: The fixes of the entry.
    """
    rank = _CASES.get(error_id)
    return tuple(fixes) if rank is None else rank(values, fixes)


def _fitting_build(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    capability = _capability(str(values.get("capability", "")))
    if capability is None:
        return tuple(fixes)
    index = _NEWEST_INDEX if capability >= _TURING else _VOLTA_INDEX
    other = _VOLTA_INDEX if capability >= _TURING else _NEWEST_INDEX
    is_fitting = {True: 0, False: 1}
    kept = [fix for fix in fixes if not fix.code.endswith(f"/{other}")]
    return tuple(sorted(kept, key=lambda fix: is_fitting[fix.code.endswith(f"/{index}")]))


def _capability(text: str) -> float | None:
    """A compute capability from ``8.6`` or from the digits of ``sm_86``, ``sm_120`` or ``sm_90a``."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(digits) if "." in digits else int(digits) / 10
    except ValueError:
        return None


def _same_library(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the package of the extension in the command that rebuilds it."""
    library = str(values.get("library", ""))
    packages = {"flash_attn": "flash-attn", "xformers": "xformers", "causal_conv1d": "causal-conv1d"}
    packages |= {
        "selective_scan": "mamba-ssm",
        "torchvision": "torchvision",
        "torchaudio": "torchaudio",
        "apex": "apex",
    }
    package = next((name for part, name in packages.items() if part in library), "")
    if not package or package == "flash-attn":
        return tuple(fixes)
    return tuple(Fix(fix.text, fix.code.replace("flash-attn", package)) for fix in fixes)


def _recovery(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    action = str(values.get("action", "")).lower()
    first = next((fix for word, fix in _RECOVERY.items() if word in action), None)
    return tuple(fixes) if first is None else (first, *(fix for fix in fixes if fix.code != first.code))


def _link_event(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """An event of NVLink 5 that is not fatal needs no reset."""
    if values.get("severity") != "Nonfatal":
        return tuple(fixes)
    return (_LINK_CONTINUES, *(fix for fix in fixes if "--gpu-reset" not in fix.code))


def _worker(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """A worker that crashed in a library has no use for more shared memory."""
    if "Segmentation" not in str(values.get("signal", "")):
        return tuple(fixes)
    first = Fix("Print the Python stack of the crash.", "PYTHONFAULTHANDLER=1 python train.py")
    return (first, *(fix for fix in fixes if "shm" not in fix.code))


def _fitting_length(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the number of tokens for which the cache has room, as the message reports it."""
    tokens = str(values.get("fits", "")) or str(values.get("limit", ""))
    if not tokens.isdigit():
        return tuple(fixes)
    first = Fix(f"Limit a request to {tokens} tokens, which fit.", f"vllm serve MODEL --max-model-len {tokens}")
    return (first, *(fix for fix in fixes if "--max-model-len " not in fix.code or "--hf-overrides" in fix.code))


def _free_fraction(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the part of the GPU that is free, rounded down, in the command that limits vLLM to it."""
    try:
        fraction = math.floor(100 * float(values["free"]) / float(values["total"])) / 100
    except (KeyError, ValueError, ZeroDivisionError):
        return tuple(fixes)
    option = "--gpu-memory-utilization"
    return tuple(
        Fix(fix.text, f"vllm serve MODEL {option} {fraction:.2f}") if option in fix.code else fix for fix in fixes
    )


_CASES: Final[Mapping[str, Callable[[Values, Sequence[Fix]], tuple[Fix, ...]]]] = {
    "arch-warning": _fitting_build,
    "no-kernel-image": _fitting_build,
    "flash-attn-abi": _same_library,
    "xid-154": _recovery,
    **{f"xid-{number}": _link_event for number in range(144, 151)},
    "shm": _worker,
    "vllm-max-len": _fitting_length,
    "vllm-context-limit": _fitting_length,
    "vllm-memory-taken": _free_fraction,
}
