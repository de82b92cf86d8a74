"""Fixes that contain the numbers of a message: the width of a layer, the architecture of a GPU."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpumon.diagnosis.package_names import CUDA_12_PATHS, package_of
from gpumon.errors.entry import Fix, Values

_CUDA_LIBRARY: Final = re.compile(
    r"(?:lib)?(?P<name>cudart|cublas(?:Lt)?|nvrtc|cudnn)(?:_[a-z_]{1,40}?)?(?:\.so\.|64_|_)(?P<major>\d{1,2})"
)
_VERSION: Final = re.compile(r"\d{1,2}\.\d{1,2}")
_CUDNN_8: Final = 8
_CTRANSLATE2: Final = f"pip install --upgrade ctranslate2 nvidia-cudnn-cu12 nvidia-cublas-cu12\n{CUDA_12_PATHS}"
_TORCHCODEC_MINOR: Final = 8
_SHAPE: Final = re.compile(r"torch\.Size\(\[(?P<rows>\d+), (?P<columns>\d+)\]\)?")
_CONTAINER_NAME: Final = re.compile(r"[\da-f]{12}")
_BUS: Final = re.compile(r"[\da-fA-F]{4,8}:[\da-fA-F]{2}:[\da-fA-F]{2}")
_LEADING_NUMBER: Final = re.compile(r"\d+")
_FIRST_TOOLKIT: Final = {
    75: "10.0",
    80: "11.0",
    86: "11.1",
    87: "11.4",
    89: "11.8",
    90: "11.8",
    100: "12.8",
    101: "12.8",
    103: "12.9",
    110: "13.0",
    120: "12.8",
    121: "12.9",
}
"""The first toolkit that compiles for an architecture."""
_FIRST_CONDA_TOOLKIT: Final = (11, 3)
"""The oldest toolkit in NVIDIA's channel of conda."""
_PYTORCH_OF_TOOLKIT: Final = {
    "10.1": "1.8.1+cu101",
    "10.2": "1.12.1+cu102",
    "11.0": "1.7.1+cu110",
    "11.1": "1.10.2+cu111",
    "11.3": "1.12.1+cu113",
    "11.6": "1.13.1+cu116",
    "11.7": "2.0.1+cu117",
}
"""The last PyTorch for an old toolkit."""
_OLDEST_OF_CUDA_12: Final = 50
_OLDEST_OF_CUDA_13: Final = 75
"""Architectures for which these toolkits still compile."""


def fitting_codec(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """A nightly PyTorch, or one before 2.8, does not fit a TorchCodec that was installed later."""
    minor = _LEADING_NUMBER.match(str(values.get("torch", "")).removeprefix("2."))
    is_other = "dev" in str(values.get("torch", "")) or (minor is not None and int(minor[0]) < _TORCHCODEC_MINOR)
    return tuple(sorted(fixes, key=lambda fix: not (is_other and "/whl/" in fix.code)))


def batched_tokens(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of vLLM's limit of a batch, first the limit that the message asks for."""
    wanted = str(values.get("sequences", "") or values.get("length", ""))
    if not wanted.isdigit():
        return tuple(fixes)
    first = Fix("Raise the limit of a batch to this number.", f"vllm serve MODEL --max-num-batched-tokens {wanted}")
    return first, *fixes


def fitting_batch(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of samples that differ in size: texts and sounds are padded, images resized."""
    is_sequence = "shape" in values and str(values["shape"]).count(",") <= 1
    return tuple(sorted(fixes, key=lambda fix: not (is_sequence and "pad_sequence" in fix.code)))


def available_gpus(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a server that wants more GPUs than there are, with the number that is there."""
    gpus = str(values.get("gpus", ""))
    option = "--tensor-parallel-size 1"
    return tuple(
        replace(fix, code=fix.code.replace(option, f"--tensor-parallel-size {gpus}"))
        if gpus.isdigit() and gpus != "0" and fix.code.endswith(option)
        else fix
        for fix in fixes
    )


def supported_architecture(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a compiler that does not know an architecture, which may be too new or too old for it."""
    number = _LEADING_NUMBER.search(str(values.get("capability", "")).replace(".", ""))
    if number is None:
        return tuple(fixes)
    if int(number[0]) >= _OLDEST_OF_CUDA_13:
        toolkit = _FIRST_TOOLKIT.get(int(number[0]), "")
        if not toolkit or not fixes[0].code.startswith("which "):
            return tuple(fixes)
        text = f"Install the CUDA toolkit {toolkit} or later, the first for this architecture, and use its nvcc."
        return Fix(text, "export CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:$PATH; nvcc --version"), *fixes
    if int(number[0]) >= _OLDEST_OF_CUDA_12:
        text = "CUDA 13 no longer compiles for this architecture: remove it, or build with CUDA 12 if the GPU has it."
    else:
        text = (
            "CUDA 12 no longer compiles for this architecture: remove it from the flags in setup.py or CMakeLists.txt."
        )
    return Fix(text, "grep -rn -e gencode -e compute_ setup.py CMakeLists.txt"), *fixes


def other_generation(library: str) -> tuple[Fix, ...]:
    """What a missing library means: the package that loads it was built for the version in its name."""
    match = _CUDA_LIBRARY.match(library)
    if match is None:
        return ()
    major = int(match["major"])
    if match["name"] == "cudnn":
        text = (
            "The library belongs to cuDNN 8, and PyTorch has brought cuDNN 9 since version 2.4: upgrade the program"
            " that loads it. For faster-whisper and WhisperX, that is ctranslate2, which also needs the libraries of"
            " CUDA 12 on the search path."
        )
        return (Fix(text, _CTRANSLATE2),) if major == _CUDNN_8 else ()
    text = (
        f"The library belongs to CUDA {major}: the package that loads it was built for CUDA {major}; install its build"
        " for the CUDA version of PyTorch."
    )
    return (Fix(text, "python -c 'import torch; print(torch.__version__, torch.version.cuda)'"),)


def fitting_image_tokens(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a prompt whose places for images do not fit, first the reason for too few or too many of them."""
    places, tokens = str(values.get("places", "")), str(values.get("tokens", ""))
    if not (places.isdigit() and tokens.isdigit()) or not int(places) or places == tokens:
        return tuple(fixes)
    if int(places) < int(tokens):
        text = (
            f"The text was cut: of {tokens} tokens of images, {places} are left. Raise the maximum length, such as"
            " cutoff_len of LLaMA-Factory or max_length of TRL and swift, or use smaller images."
        )
        return Fix(text, "config = SFTConfig(output_dir, max_length=None)"), *fixes
    if str(values.get("kind", "")).lower().startswith("audio"):
        return Fix(
            "The sound is shorter or was cut, as Whisper's encoder does after 30 seconds, or the versions count its"
            " tokens differently: upgrade, and give one sound for each of its places, in the rate of the model.",
            "pip install --upgrade transformers",
        ), *fixes
    text = "A text of the data contains the token of an image, such as <image> or <|image_pad|>: remove it there."
    return Fix(text, "grep -n -m 5 -E '<image>|<.image_pad.>' data.json"), *fixes


def four_bit_weights(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of weights of another shape; one column with two weights per byte is the 4-bit form of bitsandbytes."""
    loaded, expected = (_SHAPE.search(str(values.get(name, ""))) for name in ("loaded", "shape"))
    if loaded is None or expected is None:
        return tuple(fixes)
    if loaded["columns"] != "1" or 2 * int(loaded["rows"]) != int(expected["rows"]) * int(expected["columns"]):
        return tuple(fixes)
    first = Fix(
        "The checkpoint has this layer in 4 bits by bitsandbytes, which this version does not support for this part of"
        " the model: upgrade vLLM, or use the checkpoint that is not quantized.",
        "pip install --upgrade vllm bitsandbytes",
    )
    return first, *fixes


def reachable_name(host: str) -> tuple[Fix, ...]:
    """What to use in place of a host's name that is a number, which is read as an address, or a container's."""
    if host.isdigit():
        text = (
            "The name of this host is a number, which is read as an IP address: use the address, 127.0.0.1 if all ranks"
            " are on this host."
        )
    elif _CONTAINER_NAME.fullmatch(host):
        text = "The name is that of a container: if all ranks run in it, use this address; otherwise the host's."
    else:
        return ()
    return (Fix(text, "torchrun --nproc-per-node=gpu --master-addr 127.0.0.1 --master-port 29500 train.py"),)


def named_gpu(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes with the GPU of the message, which its PCI address names, in the command that resets it."""
    bus = str(values.get("bus", ""))
    if _BUS.fullmatch(bus) is None:
        return tuple(fixes)
    return tuple(replace(fix, code=fix.code.replace("--gpu-reset -i 0", f"--gpu-reset -i {bus}.0")) for fix in fixes)


def same_half(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of tensors of two types, in float16 where that is the only type of 16 bits in the message."""
    types = {str(values.get(name, "")).removeprefix("c10::") for name in ("type", "other_type")}
    if "Half" not in types or "BFloat16" in types:
        return tuple(fixes)
    return tuple(replace(fix, code=fix.code.replace("torch.bfloat16", "torch.float16")) for fix in fixes)


def visible_gpus(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of two ranks with one GPU; ranks with others between them share too few GPUs."""
    ranks = [str(values.get(name, "")) for name in ("rank", "other_rank")]
    if not all(map(str.isdigit, ranks)) or abs(int(ranks[0]) - int(ranks[1])) == 1:
        return tuple(fixes)
    first = Fix(
        "Start no more processes than this host has GPUs, or than CUDA_VISIBLE_DEVICES names: these ranks were given"
        " the same one.",
        "nvidia-smi -L; torchrun --nproc-per-node=gpu train.py",
    )
    return first, *(fix for fix in fixes if "--nproc-per-node=gpu" not in fix.code)


def fitting_toolkit(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a toolkit whose version is not PyTorch's, first how to install the one that fits."""
    version = _VERSION.fullmatch(str(values.get("torch", "")))
    if version is None:
        package = package_of(str(values.get("extension", "")))
        return tuple(replace(fix, code=fix.code.replace("PACKAGE", package)) if package else fix for fix in fixes)
    if tuple(map(int, version[0].split("."))) < _FIRST_CONDA_TOOLKIT:
        old = _old_toolkit(version[0], str(values.get("toolkit", "")))
        return old, *(fix for fix in fixes if "CUDA_HOME=" not in fix.code)
    first = Fix(
        f"Install the toolkit for CUDA {version[0]}, with which this PyTorch was built, and build with it;"
        " or install a PyTorch for the toolkit that you have.",
        f"conda install -y -c nvidia/label/cuda-{version[0]}.0 cuda-toolkit && export CUDA_HOME=$CONDA_PREFIX",
    )
    return first, *(fix for fix in fixes if "CUDA_HOME=" not in fix.code)


def _old_toolkit(wanted: str, installed: str) -> Fix:
    """What to install if NVIDIA's channel of conda does not have the toolkit with which PyTorch was built."""
    release = _PYTORCH_OF_TOOLKIT.get(installed)
    if release is None:
        text = f"Install CUDA {wanted} from NVIDIA's archive, or a PyTorch for the toolkit that you have."
        return Fix(text, "nvcc --version; python -c 'import torch; print(torch.__version__, torch.version.cuda)'")
    return Fix(
        f"Install a PyTorch for the toolkit {installed} that you have, and the packages that belong to it.",
        f"pip install torch=={release} -f https://download.pytorch.org/whl/torch_stable.html",
    )
