"""Fixes that depend on the values in the message: the fitting build, the package of a library, the driver's action."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpumon.diagnosis.known import Fix
from gpumon.diagnosis.number_fixes import supported_architecture
from gpumon.diagnosis.program_fixes import program_fixes
from gpumon.diagnosis.shape_fixes import shape_fixes
from gpumon.diagnosis.type_fixes import type_fixes
from gpumon.diagnosis.version_fixes import fitting_version

Values = Mapping[str, int | str]

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
_PACKAGES: Final = {
    "flash_attn": "flash-attn",
    "causal_conv1d": "causal-conv1d",
    "selective_scan": "mamba-ssm",
    "xformers": "xformers",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "apex": "apex",
    "vllm": "vllm",
    "sgl_kernel": "sgl-kernel",
}
"""Packages by a part of the path of their extensions. A command installs no package that only a log names."""
_NEEDS_ITS_PYTORCH: Final = frozenset({"vllm", "xformers", "torchvision", "torchaudio", "sgl-kernel"})
"""Packages whose wheels are built for one version of PyTorch each."""
_CRASHED: Final = Fix("Print the Python stack of the crash.", "PYTHONFAULTHANDLER=1 python train.py")
_ENDED: Final = Fix(
    "Find what ended the process: the time limit of the scheduler, a closed terminal, or the failure of another rank.",
    "sacct -j JOBID --format=JobID,State,ExitCode,Elapsed,Timelimit",
)
_ENDING_SIGNALS: Final = frozenset({"Terminated", "Hangup", "Interrupt"})
_NCCL_REASONS: Final = {
    "shared memory": "--shm-size",
    "ibv_": "NCCL_IB_DISABLE",
    "socket": "NCCL_SOCKET_IFNAME",
    "connect": "NCCL_SOCKET_IFNAME",
    "bootstrap": "NCCL_SOCKET_IFNAME",
}
"""Text in the code of the fix, by a word of NCCL's last error; the first word that occurs counts."""
_CUDA_12: Final = 12000
_WRAPPER_PREFIXES: Final = ("module.", "_orig_mod.")
_VOCABULARY: Final = ("embed_tokens", "lm_head", "wte", "word_embeddings", "token_embedding")
"""Parts of the names of parameters that have one row for each token."""
_ASSERTIONS: Final = (
    (
        ("n_classes", "cur_target"),
        Fix(
            "A class label is out of range: print the range, and compare it with the number of outputs of the model.",
            "print(labels.min().item(), labels.max().item(), logits.shape[-1])",
        ),
    ),
    (
        ("srcSelectDimSize", "index out of bounds", "ind >= 0", "idx_dim", "vectorized_gather"),
        Fix(
            "An index is out of range, in most cases a token id or a position in an embedding: print the ranges.",
            "print(input_ids.min().item(), input_ids.max().item(), model.get_input_embeddings().num_embeddings)",
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
_BUILD: Final = "python -m pip install --no-build-isolation"
_INSTALL: Final = {
    **{
        name: f"python -m pip install {name}"
        for name in (
            "accelerate",
            "bitsandbytes",
            "deepspeed",
            "peft",
            "trl",
            "optimum",
            "xformers",
            "vllm",
            "tensorrt",
        )
    },
    **{name: f"python -m pip install {name}" for name in ("torchao", "torchvision", "torchaudio", "torchcodec", "hqq")},
    "DeepSpeed": "python -m pip install deepspeed",
    "Megatron": "python -m pip install megatron-core",
    "megatron": "python -m pip install megatron-core",
    "tensorrt_llm": "python -m pip install tensorrt-llm --extra-index-url https://pypi.nvidia.com",
    "transformer_engine": f"{_BUILD} 'transformer_engine[pytorch]'",
    "apex": f"git clone https://github.com/NVIDIA/apex && cd apex && APEX_CPP_EXT=1 APEX_CUDA_EXT=1 {_BUILD} .",
    "amp_C": f"git clone https://github.com/NVIDIA/apex && cd apex && APEX_CPP_EXT=1 APEX_CUDA_EXT=1 {_BUILD} .",
    "sgl_kernel": "python -m pip install sgl-kernel",
    "flashinfer": "python -m pip install flashinfer-python",
    "auto_gptq": f"{_BUILD} gptqmodel",
    "gptqmodel": f"{_BUILD} gptqmodel",
    "awq": f"{_BUILD} gptqmodel",
    "pynvml": "python -m pip install nvidia-ml-py",
    "cupy": "python -m pip install cupy-cuda12x",
    "cuda": "python -m pip install cuda-python",
    "fla": "python -m pip install flash-linear-attention",
    "liger_kernel": "python -m pip install liger-kernel",
    "onnxruntime": "python -m pip install onnxruntime-gpu",
    "cutlass": "python -m pip install nvidia-cutlass-dsl",
    "pytorch3d": f"{_BUILD} git+https://github.com/facebookresearch/pytorch3d",
    "detectron2": f"{_BUILD} git+https://github.com/facebookresearch/detectron2",
    "tinycudann": f"{_BUILD} 'git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch'",
    "nvdiffrast": f"{_BUILD} git+https://github.com/NVlabs/nvdiffrast",
    "deep_gemm": f"{_BUILD} git+https://github.com/deepseek-ai/DeepGEMM",
    "deep_ep": f"{_BUILD} git+https://github.com/deepseek-ai/DeepEP",
    "grouped_gemm": f"{_BUILD} grouped-gemm",
    "torch_geometric": "python -m pip install torch-geometric",
    "torch": f"{_BUILD} torch-scatter torch-sparse torch-cluster",
}
"""How to install a package, by its module. A command installs no package that only a log names."""
_OF_KIND: Final = {
    "tuple": "the tuple",
    "list": "the list",
    "dict": "the dictionary",
    "float": "item()",
    "int": "item()",
    "NoneType": "returned None",
    "str": "the text names",
}
"""A part of the fix for a value of a type where a tensor is needed."""
_WORKER_ERROR: Final = Fix(
    "Load data in the main process, which then raises the error of the worker itself.",
    "loader = DataLoader(dataset, num_workers=0)",
)
_LINK_CONTINUES: Final = Fix("Let programs continue, unless an Xid 154 requires an action.")


def case_fixes(error_id: str, values: Values, fixes: Sequence[Fix], text: str) -> tuple[Fix, ...]:
    """The fixes of an error, the best one for this message first.

    Args:
        error_id: The entry of the catalogue.
        values: The values in the message, by name.
        fixes: The fixes of the entry.
        text: The line with the error.
    """
    message = "\n".join((text, *map(str, values.values())))  # values may be from further lines of the message
    fixes = _OF_MESSAGE.get(error_id, _unchanged)(message, fixes)
    ranked = tuple(sorted(fixes, key=lambda fix: not any(part in message for part in fix.first_for)))
    rank = _CASES.get(error_id)
    return program_fixes(error_id, str(values.get("program", "")), ranked if rank is None else rank(values, ranked))


def _unchanged(_: str, fixes: Sequence[Fix]) -> Sequence[Fix]:
    return fixes


def wheel_index(capability: str) -> str | None:
    """The index of PyTorch's wheels that have kernels for a GPU, by its compute capability; None if it is no number."""
    number = _capability(capability)
    return None if number is None else _NEWEST_INDEX if number >= _TURING else _VOLTA_INDEX


def _fitting_build(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    index = wheel_index(str(values.get("capability", "")))
    if index is None:
        return tuple(fixes)
    other = _NEWEST_INDEX if index == _VOLTA_INDEX else _VOLTA_INDEX
    kept = [fix for fix in fixes if not fix.code.endswith(f"/{other}")]
    return tuple(sorted(kept, key=lambda fix: not fix.code.endswith(f"/{index}")))


def _capability(text: str) -> float | None:
    """A compute capability from ``8.6`` or from the digits of ``sm_86``, ``sm_120`` or ``sm_90a``."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(digits) if "." in digits else int(digits) / 10
    except ValueError:
        return None


def _divided_model(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Two GPUs mean a model that is divided over them, where the batch is on the right device."""
    is_divided = all(str(values.get(name, "")).startswith("cuda") for name in ("device", "other_device"))
    return tuple(sorted(fixes, key=lambda fix: not (is_divided and "device_map" in fix.text)))


def _same_library(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the package of the extension, and the function that it lacks."""
    package, symbol = _package(values), str(values.get("symbol", ""))
    build, *others = fixes
    if package in _NEEDS_ITS_PYTORCH:
        text = "Install the extension again together with the PyTorch for which it is built."
        first = Fix(text, f"pip install --upgrade --force-reinstall {package} torch")
    else:
        first = Fix(build.text, build.code.replace("flash-attn", package))
    kept = [fix for fix in others if package == "flash-attn" or "scaled_dot_product" not in fix.code]
    return first, *(Fix(fix.text, f"c++filt {symbol}") if symbol and "c++filt" in fix.code else fix for fix in kept)


def _package(values: Values) -> str:
    """The name for pip of the package to which an extension belongs; a placeholder if it is unknown."""
    library, folder = str(values.get("library", "")), str(values.get("package", ""))
    known = next((name for part, name in _PACKAGES.items() if part in f"{folder}/{library}"), "")
    return known or ("PACKAGE" if library else "flash-attn")


def _missing_library(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Where to look for a file that does not exist or is not on the search path; no other version is loaded first."""
    missing = str(values.get("missing", ""))
    if not missing:
        return tuple(fixes)
    look = Fix(
        "Look for the file in the environment and in the toolkit.",
        f"find \"$(python -c 'import site; print(site.getsitepackages()[0])')\" /usr/local/cuda*/ -name '{missing}*'",
    )
    add = Fix("If it exists, add its folder to the search path.", "export LD_LIBRARY_PATH=FOLDER:$LD_LIBRARY_PATH")
    return look, add, *(fix for fix in fixes if "LD_LIBRARY_PATH" not in fix.code)


def _old_gpu(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """No version of Triton helps a GPU that it does not support."""
    return tuple(fix for fix in fixes if not ("name" in values and "pip install" in fix.code))


def _nccl_reason(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fix for the call that NCCL's last error names."""
    reason = str(values.get("last_error", "")).lower()
    if not reason:
        return tuple(fixes)
    marker = next((marker for word, marker in _NCCL_REASONS.items() if word in reason), "")
    read, *others = fixes
    return *sorted(others, key=lambda fix: not (marker and marker in fix.code)), read


def _legacy_driver(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The branch that the driver names, if this GPU needs an older one."""
    branch = str(values.get("legacy", ""))[:3]
    if not branch.isdigit():
        return tuple(fixes)
    install = f"sudo apt-get install nvidia-driver-{branch}-server && sudo reboot"
    first = Fix(f"Install the last branch of the driver that supports this GPU, {branch}.", install)
    return (first, *(fix for fix in fixes if "nvidia-driver-" not in fix.code))


def _host_compiler(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The newest compiler that the message allows."""
    newest, limit = str(values.get("newest", "")), str(values.get("limit", ""))
    version = newest if newest.isdigit() else str(int(limit) - 1) if limit.isdigit() else ""
    return tuple(Fix(fix.text, fix.code.replace("-13", f"-{version}")) if version else fix for fix in fixes)


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
    """A worker that crashed in a library, or that was ended on purpose, has no use for more shared memory."""
    signal = str(values.get("signal", ""))
    if "ending" in values:
        return (_WORKER_ERROR, *fixes)
    if not signal or signal.startswith("Bus"):
        return tuple(fixes)
    first = _ENDED if signal.split(maxsplit=1)[0] in _ENDING_SIGNALS else _CRASHED
    return (first, *(fix for fix in fixes if "shm" not in fix.code))


def _value_kind(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """What to do with a list is of no use for a number."""
    part = _OF_KIND.get(str(values.get("type", "")))
    return tuple(sorted(fixes, key=lambda fix: part is None or part not in fix.text))


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


def _reach_host(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the address that could not be reached; the connection itself failed, so it is the first to check."""
    host, port = str(values.get("host", "")), str(values.get("port", ""))
    named = [Fix(fix.text, fix.code.replace("29500", port)) if port and "ss -l" in fix.code else fix for fix in fixes]
    if not re.fullmatch(r"[\w.:-]{1,200}", host):
        return tuple(named)
    first = Fix("Check whether rank 0 can be reached from this host.", f"nc -vz {host} {port}")
    return (first, *(fix for fix in named if "nc -vz" not in fix.code))


def _driver_build(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The build that runs with the CUDA version that the driver reports: builds for CUDA 12 run with every 12.x.

    A driver for an older CUDA version runs none of the current builds, so it has to be upgraded.
    """
    digits = str(values.get("found", ""))
    if not digits.isdigit():
        return tuple(fixes)
    if int(digits) < _CUDA_12:
        upgrade = Fix(
            "Upgrade the driver to branch 580 or later, and reboot: this one is older than 525, the first for CUDA 12.",
            "sudo ubuntu-drivers install && sudo reboot",
        )
        return (upgrade, *(fix for fix in fixes if "/whl/" not in fix.code and fix.code != upgrade.code))
    version = f"{int(digits) // 1000}.{int(digits) % 1000 // 10}"
    install = next(fix for fix in fixes if "/whl/" in fix.code)
    first = Fix(f"Install a PyTorch that runs with this driver, which supports CUDA {version}.", install.code)
    return (first, *(fix for fix in fixes if fix is not install and "nvidia-smi" not in fix.code))


def _cudnn_status(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Only some of cuDNN's codes can mean that memory is missing."""
    status = str(values.get("status", ""))
    if "NOT_SUPPORTED" in status or "BAD_PARAM" in status:
        return tuple(sorted(fixes, key=lambda fix: "contiguous" not in fix.code))
    if "EXECUTION_FAILED" in status or "MAPPING_ERROR" in status:
        return tuple(sorted(fixes, key=lambda fix: "LAUNCH_BLOCKING" not in fix.code))
    return tuple(fixes)


def _cudnn_plan(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Where cuDNN's frontend gives a reason, no memory is missing: the operation is not supported."""
    is_refused = "reason" in values
    return tuple(sorted(fixes, key=lambda fix: not (is_refused and ("sdp" in fix.code or "pip" in fix.code))))


def _missing_package(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The command that installs a package whose name for pip, or whose place, is not that of its module."""
    check, install, *others = fixes
    name = str(values.get("module", "")).split(",")[0].split(".")[0].strip()
    command = _INSTALL.get(name) or next((code for part, code in _INSTALL.items() if name.startswith(f"{part}_")), "")
    return (Fix(install.text, command), check, *others) if command else (check, install, *others)


def _checkpoint_names(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Names with the prefix of a wrapper need only to lose it; a shape of 0 or of a vocabulary has its own fix."""
    names = [str(values.get(key, "")) for key in ("unexpected", "name")]
    shape = str(values.get("model_shape", ""))
    if shape == "[0]":
        marker = "GatheredParameters"
    elif shape and any(part in name for part in _VOCABULARY for name in names):
        marker = "resize_token_embeddings"
    else:
        marker = "removeprefix" if any(name.startswith(_WRAPPER_PREFIXES) for name in names) else ""
    return tuple(sorted(fixes, key=lambda fix: not (marker and marker in fix.code)))


def _assertion(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The assertion is in the log, so it need not be looked for; its words name what is out of range."""
    assertion = str(values.get("assertion", ""))
    if not assertion:
        return tuple(fixes)
    meaning = next((fix for words, fix in _ASSERTIONS if any(word in assertion for word in words)), None)
    return *(() if meaning is None else (meaning,)), *fixes[1:]


_OF_MESSAGE: Final[Mapping[str, Callable[[str, Sequence[Fix]], Sequence[Fix]]]] = {
    "dtype-mismatch": type_fixes,
    "shape": shape_fixes,
}
"""What completes the fixes of an error by the form of its message."""
_CASES: Final[Mapping[str, Callable[[Values, Sequence[Fix]], tuple[Fix, ...]]]] = {
    "arch-warning": _fitting_build,
    "cudnn-engine": _cudnn_plan,
    "cudnn-init": _cudnn_status,
    "device-assert": _assertion,
    "device-mismatch": _divided_model,
    "driver-old": _driver_build,
    "no-kernel-image": _fitting_build,
    "flash-attn-abi": _same_library,
    "gpu-unsupported": _legacy_driver,
    "host-compiler": _host_compiler,
    "inductor-old-gpu": _old_gpu,
    "lib-missing": _missing_library,
    "library-arguments": fitting_version,
    "library-attribute": fitting_version,
    "nccl-system": _nccl_reason,
    "package-missing": _missing_package,
    "package-version": fitting_version,
    "xid-154": _recovery,
    **{f"xid-{number}": _link_event for number in range(144, 151)},
    "shm": _worker,
    "value-not-tensor": _value_kind,
    "state-dict-mismatch": _checkpoint_names,
    "toolkit-old": supported_architecture,
    "port-in-use": _reach_host,
    "tcpstore": _reach_host,
    "vllm-max-len": _fitting_length,
    "vllm-context-limit": _fitting_length,
    "vllm-memory-taken": _free_fraction,
}
