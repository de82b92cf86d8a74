"""Errors of installed packages: missing, or of another version than the code that uses them."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Packages"

GPU_PACKAGES: Final = (
    r"tensorrt(?:_llm)?|transformer_engine(?:_\w{1,12})?|apex|amp_C|fused_\w{1,40}_cuda|fused_dense_lib"
    r"|dropout_layer_norm|xentropy_cuda_lib|rotary_emb|deepspeed|vllm|sglang|sgl_kernel|flashinfer|flash_mla|xformers"
    r"|bitsandbytes|auto_gptq|gptqmodel|awq|torch_(?:scatter|sparse|cluster|spline_conv)|pyg_lib"
    r"|torch_geometric|cuequivariance\w{0,20}|torchsparse|pytorch3d|dgl|cupy|pycuda|pynvml|"
    r"deep_gemm|deep_ep|fla|liger_kernel|torchao|hqq|spconv"
    r"|MinkowskiEngine|nvdiffrast|diff_gaussian_rasterization|simple_knn|tinycudann|kaolin|gsplat|natten|sageattention"
    r"|torchvision|torchaudio|torchcodec|torchdata|accelerate|grouped_gemm|megatron|nemo|detectron2|mmcv|cutlass|quack"
    r"|cuda|onnxruntime|cudf|cuml|rmm|optimum|peft|trl|mergekit|llm_blender|exllamav[23]|"
    r"nvidia\.dali|pytorch_lightning|lightning"
    r"|fused_ssim|vox2seq|diffoctreerast|o_voxel|cumesh|flex_gemm|diso|torchmcubes|cubvh|nerfacc|lietorch|curobo|rsl_rl"
    r"|isaac(?:gym|lab|sim)|mmdet3d|mmseg|basicsr|facexlib|gfpgan|realesrgan|fvcore|custom_rasterizer"
)
"""Packages whose modules compute on the GPU, or that load and train models on it."""
VERSIONED: Final = (
    r"(?:torch(?:vision|audio|ao)?|triton|transformers|vllm|sglang|accelerate|peft|trl|diffusers|deepspeed|xformers"
    r"|megatron|apex|transformer_engine|flash_attn|flashinfer|bitsandbytes|optimum|lightning|"
    r"pytorch_lightning|cupy|verl"
    r"|numba|numba_cuda|cudf|torchsparse|spconv|monai|detectron2|speechbrain|rsl_rl|isaaclab"
    r"|mbridge|modelopt|nemo|openrlhf|swift|llamafactory|colossalai|ultralytics|timm|nunchaku|"
    r"exllamav2|liger_kernel|unsloth|ray|datasets|huggingface_hub)"
)

_INSTALLED: Final = (
    r"(?:transformers|diffusers|huggingface_hub|torchvision|torchaudio|peft|trl|accelerate|bitsandbytes|xformers"
    r"|deepspeed|vllm|sglang|flash_attn|safetensors|tokenizers|datasets|gradio|lightning|pytorch_lightning|PIL\.Image"
    r"|tensorrt|onnxruntime|optimum|awq|gptqmodel|sentence_transformers|timm|scipy|ray|openai|torchao)"
)
"""Packages whose modules the user does not write."""

_IMPORTED: Final = (
    r"(?:transformers|datasets|accelerate|peft|trl|evaluate|tokenizers|safetensors|sentencepiece|tiktoken|einops|timm"
    r"|diffusers|wandb|tensorboard\w{0,2}|cv2|PIL|sklearn|scipy|pandas|matplotlib|tqdm|yaml|torchvision|torchaudio"
    r"|torchtext|torchmetrics|torchdata|torchtune|torchtitan|lightning|pytorch_lightning|hydra|omegaconf|ray|verl"
    r"|onnx|onnxruntime|tensorrt\w{0,8}|modelopt|pycuda|cupy|numba|jax|flax|optax|tensorflow|keras|librosa|soundfile"
    r"|decord|av|imageio|skimage|albumentations|kornia|faiss|sentence_transformers|gradio|fire|absl|ninja|packaging"
    r"|mmcv|mmdet|mmengine|pynvml|liger_kernel|unsloth|axolotl|llamafactory"
    r"|insightface|segment_anything|sam2|groundingdino|ultralytics|easydict|loguru|huggingface_hub|modelscope|open_clip"
    r"|clip|ftfy|nemo|megatron|mergekit|llm_blender|rouge_score|lpips|pytorch_fid|nltk|spacy|gguf|"
    r"llama_cpp|ctranslate2|whisper|TTS|trimesh"
    r"|open3d|plyfile|xfuser|optimum|torchao|hqq|aqlm|exllamav[23]|lm_eval|triton_kernels|"
    r"qwen_vl_utils|faster_whisper|whisperx|kernels|comfy_aimdo|comfy_kitchen|lmdb|webdataset|"
    r"braceexpand|ml_dtypes|rich|h5py)"
)
"""Modules that programs for training and inference import; the package often has another name."""

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="package-missing",
        section=SECTION,
        title="Package is not installed in this environment",
        summary="The program imports a package that the interpreter, which runs it, does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " => run `pip",
                r"(?P<module>DeepSpeed|Megatron) is not (?:installed|available) => run `pip",
            ),
            Pattern(
                "not found on your system",
                r"`(?P<module>torchao|transformer_engine|MS-AMP|bitsandbytes)` was not found on your system",
            ),
            Pattern(
                "coding audio data, please install '",
                r"To support (?:de|en)coding audio data, please install '(?P<module>torchcodec|soundfile|librosa)",
            ),
            literal("no FP8-compatible backend was installed"),
            literal("Transformer Engine, MSAMP or torchao is installed"),
            Pattern("No module named '", rf"No module named '(?P<module>(?:{GPU_PACKAGES}))'"),
            Pattern(
                "No module named ",
                r"python[\w.]{0,8}: No module named (?P<module>(?:torch|deepspeed|accelerate)\b[\w.]{0,40})",
            ),
            Pattern("Error: No module named '", rf"ModuleNotFoundError: No module named '(?P<module>{_IMPORTED})'"),
            Pattern(
                "library but it was not found in your environment",
                r"(?P<class>\w{1,80}) requires the (?P<module>[\w-]{2,40}) library but it was not found in your"
                r" environment",
            ),
            Pattern(" package.", r"Error: [A-Z][\w ]{3,60} requires (?:the )?(?P<module>[\w-]{2,40}) package\."),
            Pattern(
                "' requires 'torch-", r"ImportError: '\w{1,40}' requires '(?P<module>torch-(?:cluster|sparse|scatter))'"
            ),
            Pattern(
                "requires either 'pyg-lib'",
                r"ImportError: '\w{1,40}' requires either 'pyg-lib' or '(?P<module>torch-(?:cluster|sparse|scatter))'",
            ),
            Pattern(
                "PEFT backend is required for this method",
                r"(?P<module>PEFT) backend is required for this"
                r" method",
            ),
            Pattern(" requires `accelerate v", r"`\w{1,60}` requires `(?P<module>accelerate) v[\d.]{1,12}` or higher"),
            Pattern(
                " to be installed. ",
                r"Error: (?P<class>\w{3,60}) requires (?P<module>[\w-]{2,40}) to be installed\. (?:Either|Run|Please)",
            ),
            Pattern(
                "No package metadata was found for ",
                r"No package metadata was found for (?P<module>(?!bitsandbytes)[\w-]{2,40})",
            ),
            Pattern(
                "distribution was not found and is required by",
                r"The '(?P<module>[\w.<>=!,-]{2,60})' distribution was not found and is required by",
            ),
            Pattern(
                "package is not available in your environment",
                r"'(?P<module>hf_transfer|hf_xet)' package is not available in your environment",
            ),
            Pattern(
                "not found in your environment: ",
                r"packages that were not found in your environment: (?P<module>(?!flash_attn)[\w, ]{1,80}?)\. Run `pip",
            ),
            Pattern(
                " quantized model requires ",
                r"Loading an? (?P<type>[\w-]{2,20}) quantized model requires (?:the )?(?P<module>[\w-]{2,30})",
            ),
            Pattern(
                "is not installed. Please install",
                r"ImportError: [^\n]{0,40}?\b(?P<module>cut_cross_entropy|liger[-_]kernel|bitsandbytes|auto[-_]gp"
                r"tq|gptqmodel|autoawq|optimum|xformers|deepspeed|apex|flash[-_"
                r" ][Aa]ttn|vllm|triton|peft|accelerate)`? is not installed\. Please install",
            ),
            Pattern(
                "Attempted to load model '",
                r"Attempted to load model '(?P<module>[\w-]{1,40})', but no model for this name found",
            ),
            Pattern(
                "NameError: name '",
                r"NameError: name '(?P<module>tcnn|bnb|flash_attn\w{0,30}|selective_scan_fn|causal_conv1d_fn|xformers"
                r"|deepspeed|apex)' is not defined",
            ),
        ),
        causes=(
            "The package is optional, or has to be built for the installed PyTorch, so that the requirements omit it.",
            "The module is part of the program itself, which was started from another folder.",
            "Another interpreter runs the program than the one for which the package was installed.",
            "Its installation failed; the log of pip has the reason.",
            "A name that is not defined: the program passes over the failed import and uses the package later.",
        ),
        fixes=(
            Fix("Check which interpreter runs, and what it has.", "python -m pip --version; python -m pip list"),
            Fix(
                "Install the package with this interpreter; one with CUDA code is built against the installed PyTorch.",
                "python -m pip install --no-build-isolation PACKAGE",
            ),
            Fix(
                "If the module is part of the program, start it from the program's folder.",
                "env PYTHONPATH=. python train.py",
            ),
            Fix(
                "For a package that has to be compiled, check that the CUDA toolkit is there.",
                "nvcc --version; python -c 'import torch; print(torch.version.cuda)'",
            ),
            Fix(
                "Upgrade vLLM or transformers, whose newer versions bring these kernels; or install Triton's own.",
                "pip install 'git+https://github.com/triton-lang/triton.git@v3.5.0#subdirectory=python/triton_kernels'",
                first_for=("'triton_kernels'",),
            ),
            Fix(
                "For lm-evaluation-harness, install the part for this kind of model.",
                "python -m pip install 'lm_eval[hf,vllm]'",
                first_for=("Attempted to load model",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(
            "https://github.com/NVIDIA/TensorRT-LLM/issues/1839",
            "https://docs.python.org/3/library/exceptions.html#ModuleNotFoundError",
        ),
        said_by="Python 3.6-3.14, transformers 4.30-5.0",
    ),
    KnownError(
        id="package-version",
        section=SECTION,
        title="Package is installed in another version than the program expects",
        summary="The package is there, but its version does not have the module or the name that is imported.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No module named '",
                r"No module named '(?P<module>(?!flash_attn|deepspeed\.ops\.\w{1,20}\.\w{1,30}_op')"
                rf"{VERSIONED}\.[\w.]{{1,80}})(?<!\._C)'(?!; ')",
            ),
            Pattern(
                "Error: No module named '",
                r"ModuleNotFoundError: No module named '"
                rf"(?P<module>(?!flash_attn|mamba_ssm|causal_conv1d|deepspeed\.ops){_IMPORTED}"
                r"(?:\.\w{1,40}){1,5})(?<!\._C)(?<!\._ext)'(?!; ')",
            ),
            Pattern(
                "cannot import name '",
                r"cannot import name '(?P<name>(?!triton_key|AttrsDescriptor|selective_scan_|csrc'"
                r"|_C' from '(?!torch|vllm))\w{1,80})' from"
                r" '(?P<module>(?!google\.|jax\._src)[\w.]{1,120})' \([^)\n]{0,200}(?:site|dist)-packages",
            ),
            Pattern(
                " has no attribute ",
                r"AttributeError: module (?P<module>(?:transformers|diffusers)[\w.]{0,80}) has no attribute"
                r" (?P<name>\w{1,80})",
            ),
            Pattern(
                "with minimum required version ",
                r"(?P<module>[\w-]{2,40}) with minimum required version (?P<required>[\w.]{1,20}) is not installed",
            ),
            Pattern(
                "cannot import name '",
                r"cannot import name"
                r" '(?P<name>cached_download|split_torch_state_dict_into_shards|HfFolder|is_offline_mode"
                r"|Repository)' from '(?P<module>huggingface_hub[\w.]{0,40})'",
            ),
            Pattern("Failed to import Triton kernels", r"Failed to import Triton kernels\. Please make sure"),
            Pattern(
                "is required for a normal functioning of this module",
                r"(?P<required>[\w-]{2,40}[<>=!][\w.,<>=!]{1,40}) is required for a normal functioning of this"
                r" module, but"
                r" found (?P<module>[\w-]{2,40})==(?P<version>[\w.+]{1,30})",
            ),
            Pattern(
                " is already used by a Transformers ",
                r"'(?P<name>[^\n]{1,120}?)' is already used by a Transformers (?:config, pick another name|model)",
            ),
            Pattern(
                "cannot import name '",
                r"cannot import name '(?P<name>(?!triton_key|AttrsDescriptor|_C' from '(?!torch|vllm))\w{1,80})' from"
                rf" '(?P<module>{VERSIONED}(?:\.[\w.]{{1,100}})?)'",
            ),
            Pattern(
                "' has no attribute '",
                rf"module '(?P<module>(?!torch|triton){VERSIONED}(?:\.[\w.]{{1,100}})?)' has no attribute"
                r" '(?P<name>\w{1,80})'",
            ),
            Pattern(
                "requires PyTorch >=",
                r"(?P<name>FSDP2?|parallelism|GTP) requires PyTorch >= ?(?P<required>[\d.]{1,8})",
            ),
            Pattern(
                "module 'triton",
                r"module 'triton(?P<module>[\w.]{0,60})' has no attribute '(?P<name>\w{1,60})'",
            ),
            Pattern(
                "got an unexpected keyword argument '",
                r"(?P<module>flash_attn\w{0,30}_func)\(\) got an unexpected keyword argument '(?P<name>\w{1,40})'",
            ),
            Pattern("in ALL_PARALLEL_STYLES", r"\bif v not in ALL_PARALLEL_STYLES\b"),
            Pattern(
                "Please make sure ",
                r"Please make sure (?P<module>torchvision|transformers|timm) version >= ?(?P<required>[\d.]{1,12})",
            ),
        ),
        causes=(
            "One of two packages that belong together was upgraded alone, such as PyTorch without Triton.",
            "The program was written for an older or newer version of the package; names are moved and removed.",
        ),
        fixes=(
            Fix(
                "Upgrade the package whose file the traceback shows last, together with the one that the message"
                " names.",
                "pip install --upgrade PACKAGE OTHER_PACKAGE",
            ),
            Fix("List what does not fit together.", "python -m pip check"),
            Fix(
                "Install the versions that the program was written for, from its requirements.",
                "python -m pip install --upgrade -r requirements.txt",
            ),
            Fix(
                "If Triton is named, install PyTorch again, which brings the Triton that fits.",
                "pip install --force-reinstall torch",
            ),
            Fix(
                "If the program is old and has no successor, replace the import; the release notes name the new place."
            ),
            Fix(
                "For functions of flash-attn, upgrade that package.",
                "pip install --upgrade --no-build-isolation flash-attn",
                first_for=("flash_attn_varlen_func",),
            ),
            Fix(
                "For triton.ops, upgrade bitsandbytes: its old versions use a part that Triton 3 removed.",
                "pip install --upgrade bitsandbytes",
                first_for=("'triton.ops",),
            ),
            Fix(
                "Upgrade PyTorch: this transformers needs 2.5 or later for its tensor parallelism.",
                "pip install --upgrade torch",
                first_for=("ALL_PARALLEL_STYLES",),
            ),
            Fix(
                "Upgrade the package that registers this model, which transformers now has itself; for aimv2"
                " that is vLLM.",
                "pip install --upgrade vllm",
                first_for=("is already used by a Transformers",),
            ),
            Fix(
                "The package triton_kernels is newer or older than this Triton: remove it; vLLM brings its own, and"
                " transformers fetches kernels from the Hub.",
                "pip uninstall -y triton_kernels && pip install --upgrade transformers kernels",
                first_for=("'triton.language.target_info'", "'triton.tools.ragged_tma'", "import Triton kernels"),
                hidden_otherwise=True,
            ),
            Fix(
                "Install SageAttention 2: PyPI has version 1, which lacks this function. On Windows, take a wheel"
                " from github.com/woct0rdho/SageAttention.",
                "pip install --no-build-isolation git+https://github.com/thu-ml/SageAttention",
                first_for=("'sageattention'",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(
            "https://github.com/hiyouga/LlamaFactory/issues/2050",
            "https://github.com/unslothai/unsloth/issues/1263",
        ),
        said_by="Python 3.6-3.14",
    ),
)
