"""Fixes for shared libraries that are missing, or were built for another version."""

from collections.abc import Sequence
from typing import Final

from gpumon.diagnosis.number_fixes import other_generation
from gpumon.diagnosis.package_names import PYG_PACKAGES, PYG_WHEELS, requirement_of
from gpumon.errors.entry import Fix, Values

_ONLY_FOR_PYTORCH: Final = ("libcusparseLt.", "libcufile.", "libnvshmem_host.", "libcupti.", "libnvJitLink.")
"""Libraries in the wheels that pip installs with PyTorch, and for which the toolkit has no common folder."""
_PACKAGES: Final = {
    "flash_attn": "flash-attn",
    "causal_conv1d": "causal-conv1d",
    "selective_scan": "mamba-ssm",
    "transformer_engine": "transformer-engine",
    "xformers": "xformers",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "apex": "apex",
    "vllm": "vllm",
    "mmcv": "mmcv",
    "fbgemm_gpu": "fbgemm-gpu",
    "torchtext": "torchtext",
    "sgl_kernel": "sgl-kernel",
    "pytorch3d": "pytorch3d",
    "detectron2": "detectron2",
    **{f"torch_{part}": f"torch-{part}" for part in ("scatter", "sparse", "cluster", "spline_conv")},
}
"""Packages by a part of the path of their extensions. A command installs no package that only a log names."""
_FORCED: Final = {"mamba-ssm": "MAMBA_FORCE_BUILD=TRUE ", "causal-conv1d": "CAUSAL_CONV1D_FORCE_BUILD=TRUE "}
"""Variables without which these packages take a wheel."""
_NEEDS_ITS_PYTORCH: Final = frozenset({"vllm", "xformers", "torchvision", "torchaudio", "sgl-kernel", "fbgemm-gpu"})
"""Packages whose wheels are built for one version of PyTorch each."""


def same_library(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the package of the extension, and the function that it lacks."""
    package, symbol = _package(values), str(values.get("symbol", ""))
    if fixes[0].when:
        return fixes[0], *same_library(values, fixes[1:])
    build, *others = fixes
    if package == "torchtext":
        first = Fix(
            "torchtext is no longer developed: remove it, or install its last version with its PyTorch.",
            'pip install "torch==2.3.*" "torchtext==0.18.*"',
        )
    elif package in PYG_PACKAGES:
        first = Fix(
            "Install the wheel for the installed PyTorch.",
            f'pip install --force-reinstall --no-deps {package} -f "{PYG_WHEELS}"',
        )
    elif package in _NEEDS_ITS_PYTORCH:
        text = "Install the extension again together with the PyTorch for which it is built."
        first = Fix(text, f"pip install --upgrade --force-reinstall {package} torch")
    else:
        forced = build.code.replace("FLASH_ATTENTION_FORCE_BUILD=TRUE ", _FORCED.get(package, ""))
        first = build if package == "flash-attn" else Fix(build.text, forced.replace("flash-attn", package))
    is_attention = package == "flash-attn"
    kept = [
        fix for fix in others if is_attention or not any(part in fix.code for part in ("dot_product", "FORCE_BUILD"))
    ]
    return first, *(Fix(fix.text, f"c++filt {symbol}") if symbol and "c++filt" in fix.code else fix for fix in kept)


def missing_library(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Where to look for a file that does not exist or is not on the search path; no other version is loaded first."""
    missing = str(values.get("missing", ""))
    if not missing:
        is_default = fixes[0].code.startswith("pip list")
        return *(other_generation(str(values.get("library", ""))) if is_default else ()), *fixes
    if missing.startswith(_ONLY_FOR_PYTORCH):
        return tuple(sorted(fixes, key=lambda fix: "--force-reinstall torch" not in fix.code))
    if fixes[0].when:  # sorted before the others, so that it is made for this message
        return tuple(fixes)
    other = other_generation(missing)
    look = Fix(
        "Look for the file in the environment and in the toolkit.",
        f"find \"$(python -c 'import site; print(site.getsitepackages()[0])')\" /usr/local/cuda*/ -name '{missing}*'",
    )
    add = Fix("If it exists, add its folder to the search path.", "export LD_LIBRARY_PATH=FOLDER:$LD_LIBRARY_PATH")
    return *other, look, add, *(fix for fix in fixes if "LD_LIBRARY_PATH" not in fix.code)


def _package(values: Values) -> str:
    """The name for pip of the package to which an extension belongs; a placeholder if it is unknown."""
    library, folder = str(values.get("library", "")), str(values.get("package", ""))
    known = next((name for part, name in _PACKAGES.items() if part in f"{folder}/{library}"), "")
    return requirement_of(known) if known else "PACKAGE" if library or folder else "flash-attn"
