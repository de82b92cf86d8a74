"""Fixes that depend on the program in whose log an error stands: a server of models runs no code of the user."""

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from gpumon.diagnosis.known import Fix

_PIP: Final = "pip"
"""A package that pip builds."""
_TRAINER: Final = "trainer"
"""A program that trains, and may use a server of models for a part of it."""


class _Server(NamedTuple):
    """What to do in a server of models.

    Attributes:
        memory: If GPU memory ran out.
        kernel: If a kernel failed.
        code: If an operation of the server's own code failed.
        fork: If CUDA was used in a forked process.
    """

    memory: tuple[Fix, ...]
    kernel: Fix
    code: Fix
    fork: tuple[Fix, ...] = ()


_SERVERS: Final[Mapping[str, _Server]] = {
    "vLLM": _Server(
        (
            Fix(
                "Process fewer requests at a time, with a shorter context.",
                "vllm serve MODEL --max-num-seqs 64 --max-model-len 8192",
            ),
            Fix(
                "If the weights themselves do not fit, divide them over several GPUs, or use a quantized model.",
                "vllm serve MODEL --tensor-parallel-size 2",
            ),
        ),
        Fix(
            "Find the kernel: run with synchronous launches and without CUDA graphs.",
            "CUDA_LAUNCH_BLOCKING=1 vllm serve MODEL --enforce-eager",
        ),
        Fix(
            "The operation is in the server's own code: upgrade the server, or use the model in another format.",
            "pip install --upgrade vllm",
        ),
        (Fix("Let vLLM spawn its workers.", "VLLM_WORKER_MULTIPROC_METHOD=spawn vllm serve MODEL"),),
    ),
    "SGLang": _Server(
        (
            Fix(
                "Leave more memory for the graphs and activations, and record fewer batch sizes.",
                "python -m sglang.launch_server --model-path MODEL --mem-fraction-static 0.8 --cuda-graph-max-bs 16",
            ),
            Fix(
                "If the weights themselves do not fit, divide them over several GPUs, or use a quantized model.",
                "python -m sglang.launch_server --model-path MODEL --tp 2",
            ),
        ),
        Fix(
            "Find the kernel: run with synchronous launches and without CUDA graphs.",
            "CUDA_LAUNCH_BLOCKING=1 python -m sglang.launch_server --model-path MODEL --disable-cuda-graph",
        ),
        Fix(
            "The operation is in the server's own code: upgrade the server, or use the model in another format.",
            "pip install --upgrade sglang",
        ),
    ),
    "ComfyUI": _Server(
        (
            Fix("Use a smaller image, fewer frames, or a model that is quantized to FP8 or GGUF."),
            Fix("Keep less of the models on the GPU.", "python main.py --lowvram"),
        ),
        Fix("Find the kernel: run with synchronous launches.", "CUDA_LAUNCH_BLOCKING=1 python main.py"),
        Fix(
            "The operation is in a node: check that the models of the workflow belong together, and update ComfyUI.",
            "git -C ComfyUI pull",
        ),
    ),
}
"""Servers by their names."""
_FILES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "vLLM": (b"asyncllmengine", b"vllmengine", b"vllmvengine", b"vllmworker", b"vllmentrypoints"),
    "SGLang": (b"sglangsrt",),
    "ComfyUI": (b"comfyuiexecutionpy", b"comfymodelmanagementpy"),
    _TRAINER: (b"verltrainer", b"verlworkers", b"trltrainer", b"openrlhf", b"transformerstrainer"),
}
"""The letters of files of these programs, which their logs and tracebacks name."""
_ERRORS: Final = {"vllm-": "vLLM", "sglang-": "SGLang", "comfy-": "ComfyUI", "install-build": _PIP}
"""Programs by the beginning of the ids of their errors."""
_TRAINING_ONLY: Final = ("loss", "hidden", "run_step")
"""Parts of the code of fixes that change a training step."""
_MEMORY_ERRORS: Final = frozenset({"oom", "oom-async-backend"})
_KERNEL_ERRORS: Final = frozenset(
    {"illegal-address", "launch-failure", "misaligned", "cublas-exec", "device-assert", "invalid-argument"}
)
_CODE_ERRORS: Final = frozenset(
    {
        "dtype-mismatch",
        "shape",
        "device-mismatch",
        "tensor-missing",
        "tensor-layout",
        "index-invalid",
        "index-range",
        "operator-arguments",
        "scalar-conversion",
        "none-value",
        "type-unsupported",
    }
)
"""Errors of operations that are usually in the code of the user."""


def programs_in(letters: bytes) -> frozenset[str]:
    """The programs whose files a part of a log names.

    Args:
        letters: The letters of the part, in lower case.
    """
    return frozenset(name for name, parts in _FILES.items() if any(part in letters for part in parts))


def server_of(programs: Container[str]) -> str:
    """The server whose log it is, by all programs that the log names; empty if it is none, or a trainer uses it."""
    return "" if _TRAINER in programs else next((name for name in _SERVERS if name in programs), "")


def program_of_errors(error_ids: Iterable[str]) -> str:
    """The program whose log it is, by the errors that only it has; empty if there are none."""
    ids = tuple(error_ids)
    return next((name for start, name in _ERRORS.items() if any(map(str.startswith, ids, repeat(start)))), "")


def program_fixes(error_id: str, program: str, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of an error, the best one for the program first.

    Args:
        error_id: The entry of the catalogue.
        program: The program in whose log the error stands; empty if it is unknown.
        fixes: The fixes of the entry.
    """
    if program == _PIP and error_id == "no-torch":
        return tuple(sorted(fixes, key=lambda fix: "--no-build-isolation" not in fix.code))
    server = _SERVERS.get(program)
    if server is None:
        return tuple(fixes)
    if error_id in _MEMORY_ERRORS:
        return *server.memory, *(fix for fix in fixes if not any(part in fix.code for part in _TRAINING_ONLY))
    if error_id == "fork":
        return *server.fork, *fixes
    if error_id in _KERNEL_ERRORS:
        return server.kernel, *(fix for fix in fixes if "LAUNCH_BLOCKING" not in fix.code)
    return (server.code, *fixes) if error_id in _CODE_ERRORS else tuple(fixes)
