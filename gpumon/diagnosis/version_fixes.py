"""The version of a package to install, from the name that the installed version does not have."""

import re
from collections.abc import Sequence
from typing import Final

from gpumon.diagnosis.package_names import package_of
from gpumon.diagnosis.programs import AMD
from gpumon.diagnosis.unknown import MODEL_CODE
from gpumon.errors.entry import Fix, Values

_ADDED_CLASS: Final = re.compile(
    r"(?!TF|Flax|AutoModelForVision2Seq|AutoModelWithLMHead)[A-Z]\w*"
    r"(?:Config|Processor(?:Fast)?|Model|For[A-Z]\w+|Pipeline)"
    r"|(?:EncoderDecoder|Dynamic|Static)?Cache|ALL_ATTENTION_FUNCTIONS|FlashAttentionKwargs|TransformersKwargs"
    r"|ROPE_INIT_FUNCTIONS|GradientCheckpointingLayer|dynamic_rope_update|use_kernel_forward_from_hub|auto_docstring"
    r"|can_return_tuple|create_causal_mask|GenerationMixin|is_timm_config_dict|RopeParameters|VideoMetadata"
    r"|[A-Z]\w*ModelOutputWithPast"
)
"""A name of transformers that is missing because it is newer than the installed version; other names were removed."""
_VISION_QWEN: Final = r"transformers[\w.]*:(?:Vision|Qwen2_?(?:5_)?VL|QWEN2_)"
_KEPT_UNTIL: Final = tuple(
    (re.compile(pattern), requirements)
    for pattern, requirements in (
        (r"huggingface_hub[\w.]*:cached_download", '"huggingface_hub<0.26"'),
        (r"huggingface_hub[\w.]*:(?:HfFolder|Repository|is_offline_mode)", '"huggingface_hub<1"'),
        (r"trl[\w.]*:DataCollatorForCompletionOnlyLM", '"trl<0.20"'),
        (r"trl[\w.]*:(?:setup_chat_format|PPO\w+|AutoModelForCausalLMWithValueHead)", '"trl<0.25"'),
        (r"transformers\.deepspeed:.*", '"transformers<4.46"'),
        (r"transformers[\w.]*:shard_checkpoint", '"transformers<4.47"'),
        (rf"{_VISION_QWEN}\w*(?:FlashAttention2|SdpaAttention|_CLASSES)", '"transformers<4.52"'),
        (r"transformers[\w.]*:\w+(?:FlashAttention2|SdpaAttention|ATTENTION_CLASSES)", '"transformers<4.48"'),
        (r"transformers[\w.]*:is_torch_greater_or_equal_than_\w+", '"transformers<4.48"'),
        (r"transformers[\w.]*:LogitsWarper", '"transformers<4.49"'),
        (r"transformers[\w.]*:is_torch_tpu_available", '"transformers<4.50"'),
        (r"transformers[\w.]*image_utils:VideoInput", '"transformers<4.52"'),
        (r"transformers[\w.]*:(?:LossKwargs|_validate_images_text_input_order)", '"transformers<4.54"'),
        (r"transformers\.modeling_utils:(?:apply_chunk|find_prune|prune_linear)\w+", '"transformers<4.56"'),
        (r"transformers[\w.]*:(?:BeamSearchScorer|send_example_telemetry|cached_property)", '"transformers<4.57"'),
        (r"transformers[\w.]*:(?:Hybrid|SlidingWindow)Cache", '"transformers>=4.45,<5"'),
        (r"diffusers\.models\.cross_attention:.*", '"diffusers<0.20" "huggingface_hub<0.26"'),
        (r"diffusers(?:\.pipeline_utils:.*|\.loaders:AttnProcsLayers)", '"diffusers<0.22" "huggingface_hub<0.26"'),
        (
            r"diffusers\.models\.(?:(?:unet_[23]d|transformer_2d|autoencoder_kl|vae)\w*:.*|embeddings:PositionNet)",
            '"diffusers<0.26" "huggingface_hub<0.26"',
        ),
        (r"pytorch_lightning\.(?:lite|profiler|utilities\.(?:distributed|seed|cloud_io)):.*", '"pytorch_lightning<2"'),
    )
)
"""The last versions that have a module and name, which were removed or moved afterwards."""
_REPLACED: Final = tuple(
    (re.compile(pattern), Fix(text, code))
    for pattern, text, code in (
        (
            r"torch\.amp:custom_[bf]wd",
            "Upgrade PyTorch: torch.amp has it from 2.4 on.",
            "pip install --upgrade torch torchvision torchaudio",
        ),
        (
            r"datasets[\w.]*:load_metric",
            "Use the package evaluate: datasets 3 no longer has metrics.",
            "pip install evaluate\npython -c \"import evaluate; print(evaluate.load('accuracy'))\"",
        ),
        (
            r"peft[\w.]*:prepare_model_for_int8_training",
            "Use its new name.",
            "from peft import prepare_model_for_kbit_training",
        ),
        (
            r"transformers[\w.]*:AdamW",
            "Import AdamW from PyTorch: transformers 4.50 and newer have none.",
            "from torch.optim import AdamW",
        ),
        (
            r"diffusers\.utils:(?:randn_tensor|is_compiled_module|maybe_allow_in_graph)",
            "Import it from its new place, or upgrade the program that imports it.",
            "from diffusers.utils.torch_utils import is_compiled_module, maybe_allow_in_graph, randn_tensor",
        ),
        (
            r"pytorch_lightning\.utilities\.distributed:rank_zero_only",
            "Import it from its new place, in the file that the traceback names.",
            "from pytorch_lightning.utilities.rank_zero import rank_zero_only",
        ),
        (
            r"transformers\.(?:modeling|tokenization|configuration)_(?:bert|gpt2|roberta|t5|xlnet|distilbert|bart):.*",
            "Import it from transformers.models, its place since version 4.",
            "from transformers.models.bert.modeling_bert import BertModel",
        ),
        (
            r"megatron\.(?:training|legacy)\b[\w.]*:.*",
            "The package megatron-core has only megatron.core: get Megatron-LM, and put its folder on the path.",
            "git clone https://github.com/NVIDIA/Megatron-LM\nexport PYTHONPATH=$PWD/Megatron-LM:$PYTHONPATH",
        ),
        (
            r"torch\._six:.*",
            "PyTorch 2 has no torch._six: upgrade the package, or replace the import in the file of the traceback.",
            "from collections import abc as container_abcs\nfrom math import inf\n\nstring_classes = (str, bytes)",
        ),
        (
            r"torchvision\.transforms\.functional_tensor:.*",
            "Import from torchvision.transforms.functional in the file of the traceback, mostly one of basicsr.",
            "from torchvision.transforms.functional import rgb_to_grayscale",
        ),
    )
)
"""What replaces a module and name that newer versions do not have."""
_UPGRADED: Final = frozenset(
    {
        "accelerate",
        "bitsandbytes",
        "datasets",
        "diffusers",
        "exllamav2",
        "exllamav3",
        "huggingface_hub",
        "optimum",
        "peft",
        "pydantic",
        "trl",
        "unsloth",
    }
)
"""Packages of which programs mostly need a newer version. A command installs no package that only a log names."""
_BASE_OF_TORCH: Final = frozenset(
    {
        *(
            "Tensor",
            "__version__",
            "_C",
            "bool",
            "cuda",
            "device",
            "dtype",
            "float",
            "float16",
            "float32",
            "from_numpy",
        ),
        *(
            "int32",
            "int64",
            "load",
            "long",
            "manual_seed",
            "nn",
            "no_grad",
            "save",
            "tensor",
            "utils",
            "version",
            "zeros",
        ),
    }
)
"""What every PyTorch has."""
_BASE_OF_DISTRIBUTED: Final = frozenset(
    {
        "Logger",
        "ReduceOp",
        "ProcessGroup",
        "init_process_group",
        "is_initialized",
        "get_rank",
        "get_world_size",
        "group",
    }
)
"""What every PyTorch has that was built with torch.distributed."""
_REMOVED_FROM_TORCH: Final = {
    "_six": "",
    "OperatorExportTypes": "",
    "eig": "torch.linalg.eig",
    "gels": "torch.linalg.lstsq",
    "irfft": "torch.fft.irfft",
    "lstsq": "torch.linalg.lstsq",
    "matrix_rank": "torch.linalg.matrix_rank",
    "rfft": "torch.fft.rfft",
    "solve": "torch.linalg.solve",
    "symbolic_registry": "",
    "symeig": "torch.linalg.eigh",
}
"""What PyTorch no longer has, and what stands for it."""
_DIFFUSERS_CLASS: Final = re.compile(
    r"Transformer[23]DModel|UNet\w*Model|AutoencoderKL|Scheduler$|ControlNetModel|Pipeline$"
)
_REQUIREMENT: Final = re.compile(r"(?P<name>[\w-]{1,60}?)(?P<limits>(?:[<>=!]=?[\d.]{1,20},?){1,4})")


_OPENMMLAB_1: Final = Fix(
    "MMCV 2 moved this to mmengine: install the packages of MMCV 1 together, in the versions that the README names.",
    'pip install -U openmim && mim install "mmcv-full<2" "mmdet<3"',
)


def fitting_version(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes, the command that installs the version with the missing name first, if it is known."""
    module, name = str(values.get("module", "")), str(values.get("name", ""))
    if module.split(".")[:2] in (["mmcv", "runner"], ["mmcv", "parallel"]):
        return _OPENMMLAB_1, *fixes
    first = (
        _required(str(values.get("required", "")), module)
        or _kept(f"{module}:{name}")
        or _newer_torch(module, name)
        or _newer_transformers(module, name)
        or _remote_code(str(values.get("raised_by", "")))
        or _caller(str(values.get("raised_by", "")))
        or _newer_or_older(module, name)
    )
    return tuple(fixes) if first is None else (first, *fixes)


def _required(required: str, module: str) -> Fix | None:
    """The version that the message itself asks for."""
    requirement = _REQUIREMENT.fullmatch(required if _REQUIREMENT.fullmatch(required) else f"{module}>={required}")
    package = package_of(requirement["name"]) if requirement is not None else ""
    if requirement is None or not package:
        return None
    return Fix("Install the version that the message requires.", f'pip install "{package}{requirement["limits"]}"')


def _kept(place: str) -> Fix | None:
    replaced = next((fix for pattern, fix in _REPLACED if pattern.fullmatch(place)), None)
    kept = next((versions for pattern, versions in _KEPT_UNTIL if pattern.fullmatch(place)), "")
    return replaced or (Fix("Install a version that has this name.", f"pip install {kept}") if kept else None)


def _newer_torch(module: str, name: str) -> Fix | None:
    is_removed = module.rpartition(".")[2] in _REMOVED_FROM_TORCH
    text = "Upgrade PyTorch, with the packages that belong to it: this module came with a newer version."
    is_newer = module.startswith("torch.") and not name and not is_removed
    return Fix(text, "pip install --upgrade torch torchvision torchaudio") if is_newer else None


def _newer_transformers(module: str, name: str) -> Fix | None:
    if module == "transformers.models" and name.islower():
        return Fix(
            "The installed transformers does not know this model: upgrade it together with the program that asks for"
            " the model, such as Unsloth.",
            "pip install --upgrade transformers",
        )
    is_newer = module.startswith("transformers") and _ADDED_CLASS.fullmatch(name) is not None
    text = "Upgrade transformers: the name came with a newer version."
    return Fix(text, "pip install --upgrade transformers") if is_newer else None


def _remote_code(caller: str) -> Fix | None:
    if caller != MODEL_CODE:
        return None
    return Fix(
        "The code that came with the model was written for another transformers: install the version that its"
        " configuration names.",
        "grep transformers_version MODEL/config.json",
    )


def _caller(caller: str) -> Fix | None:
    if not caller:
        return None
    return Fix(
        f"Upgrade {caller}, whose code raised the error; if it is the newest release, install the releases of its "
        "dependencies that it was tested with, which its requirements name."
    )


def _newer_or_older(module: str, name: str) -> Fix | None:
    package = "diffusers" if _DIFFUSERS_CLASS.search(module) else module.split(".", maxsplit=1)[0]
    if package in _UPGRADED or (package == "transformers" and (not name or _ADDED_CLASS.fullmatch(name))):
        return Fix(f"Upgrade {package}: the name came with a newer version.", f"pip install --upgrade {package}")
    if package == "transformers":
        return Fix("Install an older transformers: the name was removed or moved.", 'pip install "transformers<5"')
    if package == "torch" and module.rpartition(".")[2] in _REMOVED_FROM_TORCH:
        return Fix("PyTorch has removed it: upgrade the package whose file the traceback shows last.")
    if module == "megatron.bridge":
        return Fix("Install Megatron Bridge, which is a separate package.", "pip install megatron-bridge")
    distribution = package_of(module)
    if not distribution:
        return None
    return Fix(
        f"Compare the version of {distribution} with the one for which the program was written, and install that one.",
        f"python -m pip show {distribution}",
    )


def fitting_torch(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes of a part that PyTorch lacks: it is newer than this version, was removed, or is always there."""
    name = str(values.get("attribute", ""))
    if values.get("module") == "._C":
        first = Fix(
            "The Python files of PyTorch and its compiled part are of two versions: uninstall torch until none is left,"
            " and install it again, without another copy in LD_LIBRARY_PATH or PYTHONPATH.",
            "unset LD_LIBRARY_PATH PYTHONPATH; pip uninstall -y torch; pip show torch",
        )
    elif name in _BASE_OF_TORCH and not values.get("module"):
        first = Fix(
            "Every PyTorch has this: find the file or folder with the name torch that is imported in its place, or"
            " install PyTorch again.",
            "python -c 'import torch; print(torch.__file__, torch.__path__)'",
        )
    elif values.get("module") == ".distributed" and name in _BASE_OF_DISTRIBUTED:
        first = Fix(
            "This build of PyTorch has no torch.distributed, as some for Jetson and for ROCm on Windows: install one"
            " that has it, or run a single process.",
            "python -c 'import torch; print(torch.distributed.is_available())'",
        )
    elif fixes[0].when == f'log has "{AMD}"':
        return tuple(fixes)
    elif name in _REMOVED_FROM_TORCH:
        other = _REMOVED_FROM_TORCH[name]
        first = Fix(
            "PyTorch has removed it: upgrade the package whose code the traceback shows last"
            + (f", or call {other} in your code." if other else ".")
        )
    elif name and name != "xla" and values.get("module") != ".mps":
        first = Fix(
            "Upgrade PyTorch: this came with a newer version. If it cannot be upgraded, install an older version of the"
            " package whose code the traceback shows last.",
            "pip install --upgrade torch torchvision torchaudio",
        )
    else:
        return tuple(fixes)
    return first, *fixes
