"""What is known about an error that the catalogue does not have: its kind, its frame, and what a report of it needs."""

import re
from enum import Enum
from typing import Final

from gpumon.errors.entry import Fix
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.load import shared_fixes
from gpumon.errors.raised import MODEL_CODE
from gpumon.errors.reading import FailureKind, LogFailure


class ErrorKind(str, Enum):
    """What failed. The values are public names."""

    PYTHON = "python"
    CUDA = "cuda"
    NCCL = "nccl"
    ROCM = "rocm"
    SYSTEM = "system"
    PROGRAM = "program"
    """A line of a log that names nothing of these."""


_KINDS: Final = (
    (ErrorKind.ROCM, lazy_pattern(r"\b(?:hip|rocm|miopen|rccl|amdgpu|hsa_|roc(?:blas|solver|fft))", re.IGNORECASE)),
    (
        ErrorKind.NCCL,
        lazy_pattern(
            r"nccl|process ?group|c10d|gloo|rendezvous|torch\.distributed|\bDist[A-Z]\w+Error|\bcollective|TCPStore",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorKind.CUDA,
        lazy_pattern(
            r"cuda|cudnn|cublas|cu(?:fft|sparse|solver|rand)|\bnv(?:rtc|ml|link|cc|idia)|\bptx|triton|device-side"
            r"|\bgpus?\b|\bXid\b",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorKind.SYSTEM,
        lazy_pattern(
            r"^(?:OS|IO|Permission|FileNotFound|FileExists|Connection\w*|BrokenPipe|Timeout|Memory|BlockingIO|"
            r"ChildProcess|ProcessLookup|NotADirectory|IsADirectory|Interrupted)Error\b|\[?Errno |core dumped"
            r"|segmentation fault|bus error|\bkilled\b|\baborted\b|terminated\b|illegal instruction"
            r"|no space left|signal \d|SIG[A-Z]{3,4}\b|cannot allocate memory|too many open files",
            re.IGNORECASE,
        ),
    ),
)
KIND_SENTENCES: Final = {
    ErrorKind.PYTHON: "This is an exception of Python code: the message is about the values at this place.",
    ErrorKind.PROGRAM: "This line of the log does not say what failed: its reason may stand in the lines around it.",
    ErrorKind.CUDA: "This error concerns the GPU: CUDA, one of its libraries, or the driver.",
    ErrorKind.NCCL: "This error concerns the communication between processes: NCCL, another backend, or the launcher.",
    ErrorKind.ROCM: "This error concerns AMD's ROCm. The catalogue is about NVIDIA GPUs: its advice does not apply.",
    ErrorKind.SYSTEM: "This error comes from the operating system: files, network, host memory, or a signal.",
}
_FAULTS: Final = frozenset({"UnboundLocalError", "NameError"})
"""Exceptions whose cause is the code that raised them, rather than a value that it was given."""


def kind_of(failure: LogFailure) -> ErrorKind:
    """What failed, from the text of an error and how it reads."""
    other = ErrorKind.PROGRAM if failure.kind in {FailureKind.KNOWN, FailureKind.LOGGED} else ErrorKind.PYTHON
    return next((kind for kind, pattern in _KINDS if pattern.search(failure.first_text) is not None), other)


def next_steps(failure: LogFailure) -> tuple[Fix, ...]:
    """What to do first about an unknown error."""
    steps = shared_fixes(f"unknown-{kind_of(failure).value}")
    if failure.name not in _FAULTS or failure.package in {"", MODEL_CODE}:
        return steps
    text = f"The code of {failure.package} has a fault, or does not fit other packages: use its newest version."
    return Fix(text, f"python -m pip install --upgrade {failure.package}"), *steps


def attachments() -> tuple[Fix, ...]:
    """What a report of an unknown error needs."""
    return shared_fixes("unknown-attachments")
