"""Fixes that depend on the program in whose log an error stands: a server of models runs no code of the user."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Final

from gpumon.diagnosis.programs import (
    ATTENTION,
    CONTAINER,
    GAUSSIANS,
    INFERENCE,
    ISAAC_GYM,
    JETSON,
    KOHYA,
    LMDEPLOY,
    LOADING,
    OPTIMIZER,
    PIP,
)
from gpumon.diagnosis.servers import CAUSES_OF_FULL_MEMORY, SERVERS, Server
from gpumon.errors.entry import Fix, KnownError

_SMALLER_INFERENCE: Final = Fix(
    "Compute fewer samples, tokens or pixels at a time, and move the results to the CPU.",
    "with torch.inference_mode():\n    outputs = [model(part).cpu() for part in batch.split(8)]",
)
_SMALLER_WEIGHTS: Final = (
    Fix(
        "The weights themselves do not fit: load them in 16 or 4 bits, or partly on the CPU.",
        'model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, device_map="auto")',
    ),
    Fix(
        "In a notebook, delete the model of an earlier run first, or restart the kernel.",
        "import gc\n\ndel model\ngc.collect()\ntorch.cuda.empty_cache()",
    ),
)
_SMALLER_STATE: Final = Fix(
    "The state of the optimizer does not fit, two numbers for each weight that is trained: keep it in 8 bits, or train"
    " an adapter.",
    'arguments = TrainingArguments(optim="adamw_bnb_8bit")',
)
_FUSED_ATTENTION: Final = Fix(
    "PyTorch's attention stored all scores, because no fused kernel takes these arguments: use float16 or bfloat16 on"
    " Ampere or newer, no mask of floats, and fewer tokens: frames, resolution or length. Permit one kernel, to see"
    " why it is not used.",
    "from torch.nn.attention import SDPBackend, sdpa_kernel\n\nwith sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):\n"
    "    output = model(batch)",
)
_FEWER_GAUSSIANS: Final = (
    Fix(
        "The memory grows with the number of Gaussians and the size of the images: keep the images on the CPU, make"
        " them smaller, and let fewer Gaussians be added.",
        "python train.py -s SCENE -r 2 --data_device cpu --densify_grad_threshold 0.0004",
    ),
    Fix(
        "If the request is larger than any GPU, the rasterizer got wrong numbers: build it again for the installed"
        " PyTorch and CUDA, and check the cameras.",
        "pip install --no-build-isolation --force-reinstall --no-deps ./submodules/diff-gaussian-rasterization",
    ),
)
_SMALLER_KOHYA: Final = (
    Fix(
        "Recompute activations, cache the latents, and train with a batch of 1 and Adafactor; in a full training, also"
        " free each gradient at once.",
        "accelerate launch sdxl_train.py --config_file CONFIG.toml --train_batch_size 1 --gradient_checkpointing"
        " --cache_latents --optimizer_type Adafactor --fused_backward_pass",
    ),
    Fix(
        "Or train a LoRA, whose gradients and optimizer are small.",
        "accelerate launch sdxl_train_network.py --config_file CONFIG.toml --gradient_checkpointing --cache_latents",
    ),
)
_PHASES: Final[Mapping[str, tuple[Fix, ...]]] = {
    GAUSSIANS: _FEWER_GAUSSIANS,
    KOHYA: _SMALLER_KOHYA,
    LOADING: _SMALLER_WEIGHTS,
    OPTIMIZER: (_SMALLER_STATE,),
    ATTENTION: (_FUSED_ATTENTION,),
    INFERENCE: (_SMALLER_INFERENCE,),
}
"""What to do if GPU memory runs out, by what the program does."""

_GRAPHICS: Final = Fix(
    "Isaac Gym mostly crashes in its graphics: train without a window, and name NVIDIA's driver for Vulkan, which"
    " `vulkaninfo` must list. It has no support for the H100 and newer: use Isaac Lab there.",
    "export VK_ICD_FILENAMES=/usr/share/vulkan/icd.d/nvidia_icd.json; python train.py --headless",
)
_JETSON_BUILD: Final = Fix(
    "PyPI has no CUDA build for Jetson with JetPack 6: install the one of NVIDIA's Jetson index.",
    "pip install --force-reinstall torch torchvision --index-url https://pypi.jetson-ai-lab.io/jp6/cu126",
)
_WITHOUT_PYTORCH: Final[Mapping[str, tuple[str, ...]]] = {
    "JAX": ("torch", "tensorflow", "TensorFlow"),
    "llama.cpp": ("torch", "tensor", "bitsandbytes"),
    LMDEPLOY: ("tensor.", "pytorch's own"),
}
"""Programs whose processes have no PyTorch, and what fixes for others contain."""
_EXTRA: Final = {(ISAAC_GYM, "worker-crashed"): _GRAPHICS}
_FIRST: Final = {
    (PIP, "no-torch"): "--no-build-isolation",
    (CONTAINER, "nvml-mismatch"): "dpkg -l",
    ("vLLM", "driver-old"): "reboot",
}
"""A part of the code of the best fix, by program and error."""
_TRAINING_ONLY: Final = ("loss", "hidden", "run_step")
"""Parts of the code of fixes that change a training step."""
_SCRIPT: Final = re.compile(r"(?:python|torchrun --nproc-per-node=gpu) train\.py")
_FULL_MEMORY: Final = frozenset({"oom", "oom-async-backend"})
_KERNEL_ERRORS: Final = frozenset(
    {
        "illegal-address",
        "launch-failure",
        "misaligned",
        "cublas-exec",
        "device-assert",
        "invalid-argument",
        "xid-13",
        "xid-31",
    }
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
        "library-attribute",
    }
)
"""Errors of operations that are usually in the code of the user."""
_ARCH_ERRORS: Final = frozenset({"no-kernel-image"})
_COMPILER_ERRORS: Final = frozenset({"graph-capture", "compile-backend", "compile-tracing", "compile-unsupported"})


def is_phase(program: str) -> bool:
    """Whether a log shows what the program did, in place of its name."""
    return program in _PHASES


def is_server(program: str) -> bool:
    """Whether a program serves models, so that it runs no code of the user."""
    return program in SERVERS


def ends_itself(program: str) -> bool:
    """Whether an error of CUDA ends the process of a program, so that it cannot continue."""
    return program in SERVERS and SERVERS[program].ends_itself


def program_causes(error_id: str, program: str) -> tuple[str, ...] | None:
    """The causes of an error in a program, most frequent first; None if they are those of the entry."""
    return CAUSES_OF_FULL_MEMORY if error_id in _FULL_MEMORY and ends_itself(program) else None


def program_fixes(error: KnownError, program: str, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of an error, the best one for the program first.

    Args:
        error: The entry.
        program: The program in whose log the error stands; empty if it is unknown.
        fixes: The fixes of the entry, those for this message first.
    """
    error_id = error.id
    part = _FIRST.get((program, error_id))
    if part is not None:
        return tuple(sorted(fixes, key=lambda fix: part not in fix.code))
    if error.program == program:
        return tuple(fixes)  # those of the program itself
    fitting = _without_others(program, fixes)
    server = SERVERS.get(program)
    if error_id in _FULL_MEMORY and (server is not None or program in _PHASES):
        smaller = _PHASES[program] if server is None else server.memory
        kept = sorted(fitting, key=lambda fix: "inference" not in fix.text)
        command = "" if server is None else server.command
        useless = (*_TRAINING_ONLY, "from_pretrained") if command else _TRAINING_ONLY
        others = (fix for fix in kept if not any(part in fix.code for part in useless))
        return *smaller, *(_started_by(command, fix) for fix in others)
    if server is None:
        extra = _JETSON_BUILD if program == JETSON else _EXTRA.get((program, error_id))
        return tuple(fitting) if extra is None else (extra, *fitting)
    return _server_fixes(error_id, program, server, fixes)


def _server_fixes(error_id: str, program: str, server: Server, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    fitting = _without_others(program, fixes)
    own = tuple(_started_by(server.command, fix) for fix in fitting)
    if error_id == "fork":
        return *server.fork, *own
    is_named = (program in fix.text or (server.command and server.command in fix.code) for fix in fitting)
    named = tuple(compress(own, is_named))
    if named and not fixes[0].when:
        return *named, *(fix for fix in own if fix not in named)
    if error_id in _KERNEL_ERRORS and server.kernel is not None:
        rest = [fix for fix in own if "LAUNCH_BLOCKING" not in fix.code]
        is_for_log = program in fixes[0].when
        return (rest[0], server.kernel, *rest[1:]) if is_for_log else (server.kernel, *rest)
    is_foreign = fitting[:1] != list(fixes[:1])
    first = _first_fixes(error_id, server) or ((server.code,) if is_foreign and server.code is not None else ())
    return *first, *own


def _started_by(command: str, fix: Fix) -> Fix:
    """A fix with the command that starts the server, if there is one, in place of a training script."""
    return replace(fix, code=_SCRIPT.sub(command or r"\g<0>", fix.code))


def _is_for_others(program: str, fix: Fix) -> bool:
    """Whether a fix is for a process with PyTorch, and those of this program have none."""
    return any(part in fix.code or part in fix.text.lower() for part in _WITHOUT_PYTORCH.get(program, ()))


def _without_others(program: str, fixes: Sequence[Fix]) -> list[Fix]:
    """The fixes without those that a process of this program cannot apply, unless all are of this kind."""
    fitting = [fix for fix in fixes if not _is_for_others(program, fix)]
    return fitting or list(fixes)


def _first_fixes(error_id: str, server: Server) -> tuple[Fix, ...]:
    """What to do first in a server, in addition to the fixes of the entry."""
    if error_id in _ARCH_ERRORS:
        return server.arch
    if error_id in _COMPILER_ERRORS:
        return server.compiled
    return (server.code,) if error_id in _CODE_ERRORS and server.code is not None else ()
