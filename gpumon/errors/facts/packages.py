"""The names for pip of packages, by the modules that programs import, and packages of shared libraries.

A command installs no package that only a log names.
"""

from collections.abc import Mapping
from typing import Final

from gpumon.errors.entry import Code, Values
from gpumon.errors.lazy_pattern import lazy_pattern

_OTHER_NAMES: Final[Mapping[str, str]] = {
    "absl": "absl-py",
    "amp_C": "apex",
    "auto_gptq": "gptqmodel",
    "awq": "gptqmodel",
    "cuda": "cuda-python",
    "cuequivariance_ops_torch": "cuequivariance-torch",
    "cupy": "cupy-cuda12x",
    "cutlass": "nvidia-cutlass-dsl",
    "cv2": "opencv-python-headless",
    "faiss": "faiss-cpu",
    "fla": "flash-linear-attention",
    "flashinfer": "flashinfer-python",
    "fused_layer_norm_cuda": "apex",
    "hydra": "hydra-core",
    "llama_cpp": "llama-cpp-python",
    "Megatron": "megatron-core",
    "megatron": "megatron-core",
    "megatron.bridge": "megatron-bridge",
    "megatron.core": "megatron-core",
    "mmseg": "mmsegmentation",
    "modelopt": "nvidia-modelopt",
    "onnxruntime": "onnxruntime-gpu",
    "open_clip": "open-clip-torch",
    "PIL": "pillow",
    "pynvml": "nvidia-ml-py",
    "rsl_rl": "rsl-rl-lib",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "spconv": "spconv-cu126",
    "swift": "ms-swift",
    "transformer_engine_torch": "transformer-engine",
    "TTS": "coqui-tts",
    "whisper": "openai-whisper",
    "yaml": "pyyaml",
}
_SAME_NAMES: Final = frozenset(
    {
        "accelerate",
        "albumentations",
        "apex",
        "av",
        "bitsandbytes",
        "braceexpand",
        "causal_conv1d",
        "clip",
        "comfy_aimdo",
        "comfy_kitchen",
        "ctranslate2",
        "datasets",
        "decord",
        "deep_ep",
        "deep_gemm",
        "deepspeed",
        "detectron2",
        "diff_gaussian_rasterization",
        "diffusers",
        "diso",
        "easydict",
        "einops",
        "evaluate",
        "exllamav2",
        "exllamav3",
        "fire",
        "flashinfer_python",
        "flax",
        "ftfy",
        "fused_ssim",
        "fvcore",
        "gguf",
        "gptqmodel",
        "gradio",
        "grouped_gemm",
        "gsplat",
        "h5py",
        "hf_transfer",
        "hf_xet",
        "hqq",
        "huggingface_hub",
        "imageio",
        "insightface",
        "kernels",
        "kornia",
        "librosa",
        "liger_kernel",
        "lightning",
        "llm_blender",
        "lmdb",
        "lmdeploy",
        "loguru",
        "lpips",
        "mamba_ssm",
        "matplotlib",
        "mergekit",
        "ml_dtypes",
        "mmcv",
        "mmdet",
        "mmdet3d",
        "mmengine",
        "modelscope",
        "nerfacc",
        "ninja",
        "nltk",
        "numba",
        "numpy",
        "nvdiffrast",
        "omegaconf",
        "onnx",
        "open3d",
        "optax",
        "optimum",
        "packaging",
        "pandas",
        "peft",
        "plyfile",
        "pydantic",
        "pytorch3d",
        "pytorch_fid",
        "pytorch_lightning",
        "regex",
        "rich",
        "rouge_score",
        "safetensors",
        "sageattention",
        "sam2",
        "scipy",
        "segment_anything",
        "sentence_transformers",
        "sentencepiece",
        "sgl_kernel",
        "sglang",
        "simple_knn",
        "soundfile",
        "spacy",
        "tensorboard",
        "tensorrt",
        "tensorrt_llm",
        "tiktoken",
        "timm",
        "tinycudann",
        "tokenizers",
        "torch_cluster",
        "torch_geometric",
        "torch_scatter",
        "torch_sparse",
        "torch_spline_conv",
        "torchao",
        "torchaudio",
        "torchcodec",
        "torchmcubes",
        "torchmetrics",
        "torchvision",
        "tqdm",
        "transformer_engine",
        "transformers",
        "trimesh",
        "trl",
        "ultralytics",
        "unsloth",
        "vllm",
        "wandb",
        "webdataset",
        "xformers",
        "xfuser",
    }
)
"""Modules whose package has their name, with a hyphen for an underscore."""
_SOURCES: Final[Mapping[str, str]] = {
    "clip": "git+https://github.com/openai/CLIP",
    "deep-ep": "git+https://github.com/deepseek-ai/DeepEP",
    "deep-gemm": "git+https://github.com/deepseek-ai/DeepGEMM",
    "detectron2": "git+https://github.com/facebookresearch/detectron2",
    "diff-gaussian-rasterization": "./submodules/diff-gaussian-rasterization",
    "fused-ssim": "git+https://github.com/rahul-goel/fused-ssim",
    "nvdiffrast": "git+https://github.com/NVlabs/nvdiffrast",
    "pytorch3d": "git+https://github.com/facebookresearch/pytorch3d",
    "sam2": "git+https://github.com/facebookresearch/sam2",
    "segment-anything": "git+https://github.com/facebookresearch/segment-anything",
    "simple-knn": "./submodules/simple-knn",
    "tinycudann": "'git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch'",
    "torchmcubes": "git+https://github.com/tatsy/torchmcubes",
    "transformer-engine": "'transformer_engine[pytorch]'",
}
"""What pip installs for a package that is not on PyPI under its name alone."""
_BUILT: Final = frozenset(
    {
        "causal-conv1d",
        "deep-ep",
        "deep-gemm",
        "detectron2",
        "diff-gaussian-rasterization",
        "fused-ssim",
        "gptqmodel",
        "grouped-gemm",
        "mamba-ssm",
        "nvdiffrast",
        "pytorch3d",
        "sageattention",
        "sam2",
        "simple-knn",
        "tinycudann",
        "torch-cluster",
        "torch-scatter",
        "torch-sparse",
        "torch-spline-conv",
        "torchmcubes",
        "transformer-engine",
    }
)
"""Packages that are built with the installed PyTorch, which an isolated environment lacks."""
_PYG_WHEELS: Final = "https://data.pyg.org/whl/torch-$(python -c 'import torch; print(torch.__version__)').html"
"""The page of the wheels for the installed PyTorch."""
_PYG_PACKAGES: Final = frozenset({"torch-cluster", "torch-scatter", "torch-sparse", "torch-spline-conv"})
_COMMANDS: Final[Mapping[str, str]] = {
    **{name: f'python -m pip install --no-build-isolation {name} -f "{_PYG_WHEELS}"' for name in _PYG_PACKAGES},
    "apex": "git clone https://github.com/NVIDIA/apex && cd apex && APEX_CPP_EXT=1 APEX_CUDA_EXT=1"
    " python -m pip install --no-build-isolation .",
    "cuequivariance-torch": "python -m pip install cuequivariance-torch cuequivariance-ops-torch-cu12",
    "mmcv": "python -m pip install openmim && mim install mmcv",
    "tensorrt-llm": "python -m pip install tensorrt-llm --extra-index-url https://pypi.nvidia.com",
}
"""How to install a package for which one run of pip with its name is not enough."""


def package_of(module: str) -> str:
    """The name for pip of the package with a module, or an empty text if it is not one of those known here."""
    parts = module.split(".")
    name = next((_OTHER_NAMES[key] for key in (".".join(parts[:2]), parts[0]) if key in _OTHER_NAMES), "")
    same = parts[0].replace("-", "_")
    known = next((key for key in (same, same.lower()) if key in _SAME_NAMES), "")
    return name or known.replace("_", "-")


def requirement_of(package: str) -> str:
    """What pip installs for a package: its name, or the place of its source."""
    return _SOURCES.get(package, package)


def install_command(module: str) -> str:
    """The command that installs the package with a module, or an empty text if the package is not known here."""
    package = package_of(module)
    isolated = "--no-build-isolation " if package in _BUILT else ""
    command = f"python -m pip install {isolated}{requirement_of(package)}"
    return _COMMANDS.get(package, command) if package else ""


_ONLY_FOR_PYTORCH: Final = ("libcusparseLt.", "libcufile.", "libnvshmem_host.", "libcupti.", "libnvJitLink.")
"""Libraries in the wheels that pip installs with PyTorch, and for which the toolkit has no common folder."""
_OF_EXTENSIONS: Final = {
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
_CUDA_LIBRARY: Final = lazy_pattern(
    r"(?:lib)?(?P<name>cudart|cublas(?:Lt)?|nvrtc|cudnn)(?:_[a-z_]{1,40}?)?(?:\.so\.|64_|_)(?P<major>\d{1,2})"
)
_CUDNN_8: Final = "8"


def install(values: Values, _: str) -> Mapping[str, str]:
    """The command that installs the package of a missing module, as `install`; `interpreter` if that is torch."""
    name = str(values.get("module", "")).split(",")[0].split(".")[0].strip()
    if name == "torch":
        return {"interpreter": "other"}
    command = install_command(name)
    return {"install": Code(command)} if command else {}


def extension(values: Values, _: str) -> Mapping[str, str]:
    """The package of an extension, as `package`; flash-attn if the message names none."""
    library, folder = str(values.get("library", "")), str(values.get("package", ""))
    known = next((name for part, name in _OF_EXTENSIONS.items() if part in f"{folder}/{library}"), "")
    package = requirement_of(known) if known else "PACKAGE" if library or folder else "flash-attn"
    return {"package": Code(package)}


def library(values: Values, _: str) -> Mapping[str, str]:
    """What a missing library belongs to, as `generation`: PyTorch alone, cuDNN 8, or CUDA of the version `major`."""
    name = str(values.get("missing", ""))
    if name.startswith(_ONLY_FOR_PYTORCH):
        return {"generation": "PyTorch"}
    match = _CUDA_LIBRARY.match(name or str(values.get("library", "")))
    if match is None:
        return {}
    if match["name"] != "cudnn":
        return {"generation": "CUDA", "major": match["major"]}
    return {"generation": "cuDNN 8"} if match["major"] == _CUDNN_8 else {}
