"""Pattern constructors, and the sentences about ``torch.cuda.empty_cache()`` that several entries share."""

import re
from typing import Final

from gpumon.diagnosis.known import Pattern

SIZE: Final = r"[\d.]{1,16} (?:bytes|[KMGT]i?B)"
"""A size as PyTorch's allocator prints it."""

_ERROR_PREFIX: Final = (
    r"(?:(?:CUDA error(?: \([^()\n]{1,160}:\d{1,6}\)| \d{1,4} at [^\n]{1,160}?:\d{1,6})?"
    r"|CUDA (?:driver|runtime) error(?: in [^:\n]{1,80}| \(\d{1,4}\))?|Triton Error \[CUDA\]|CUDA failure \d{1,4}|Err"
    r"or \d{1,4}): "
    r"|CUDA failed with error |Failed: CUDA error [^\s:]{1,160}:\d{1,6} '|Cuda Runtime \(|cuda runtime error(?: \(\d{"
    r"1,4}\))? : |Error \([^\s:()]{1,60}:\d{1,6}\): |THCudaCheck FAIL file=\S{1,"
    r"160} line=\d{1,6} error=\d{1,4} : |status: Internal: )"
)
"""What precedes CUDA's error text: PyTorch, llama.cpp, the driver API, TensorRT-LLM, Triton, ONNX Runtime,
cudaGetDeviceCount(), CTranslate2, DeepEP, gpu-burn, TensorRT and TensorFlow."""

NOT_ABOUT_MEMORY: Final = "No effect: this error is not about memory."
CONTEXT_IS_DEAD: Final = (
    "Cannot help: the CUDA context is dead, so this call fails like every other CUDA call of the process."
)
NO_CONTEXT_YET: Final = "No effect: there is no CUDA context yet, so there is no cache."
BELOW_PYTORCH: Final = "No effect: the fault is below PyTorch, in the driver or the hardware."


def literal(text: str) -> Pattern:
    """A wording that is distinctive by itself."""
    return Pattern(text, re.escape(text))


def name(word: str) -> Pattern:
    """The name of an error in the CUDA or NCCL API, which PyTorch prints below the text."""
    return Pattern(word, rf"\b{word}\b")


def cuda_error(text: str) -> Pattern:
    """The text of a CUDA error that could be ordinary prose: it counts only after a prefix such as ``CUDA error:``."""
    return Pattern(text, _ERROR_PREFIX + re.escape(text))


def not_hip(text: str) -> Pattern:
    """A wording that HIP shares with CUDA; after ``HIP error:`` it is an error of an AMD GPU."""
    return Pattern(text, r"(?<!HIP error: )(?<!ROCm error: )" + re.escape(text))
