"""Errors of installed packages: missing, of another version than the code that uses them, or without a build."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Packages"

_GPU_PACKAGES: Final = (
    r"tensorrt(?:_llm)?|transformer_engine(?:_\w{1,12})?|apex|amp_C|fused_\w{1,40}_cuda|fused_dense_lib"
    r"|dropout_layer_norm|xentropy_cuda_lib|rotary_emb|deepspeed|vllm|sglang|sgl_kernel|flashinfer|flash_mla|xformers"
    r"|bitsandbytes|auto_gptq|gptqmodel|awq|torch_(?:scatter|sparse|cluster|spline_conv)|pyg_lib"
    r"|torch_geometric|pytorch3d|dgl|cupy|pycuda|pynvml|deep_gemm|deep_ep|fla|liger_kernel|torchao|hqq|spconv"
    r"|MinkowskiEngine|nvdiffrast|diff_gaussian_rasterization|simple_knn|tinycudann|kaolin|gsplat|natten|sageattention"
    r"|torchvision|torchaudio|torchcodec|torchdata|accelerate|grouped_gemm|megatron|nemo|detectron2|mmcv|cutlass|quack"
    r"|cuda|onnxruntime|cudf|cuml|rmm|optimum|peft|trl|nvidia\.dali|pytorch_lightning|lightning"
)
"""Packages whose modules compute on the GPU, or that load and train models on it."""
_VERSIONED: Final = (
    r"(?:torch(?:vision|audio|ao)?|triton|transformers|vllm|sglang|accelerate|peft|trl|diffusers|deepspeed|xformers"
    r"|megatron|apex|transformer_engine|flash_attn|flashinfer|bitsandbytes|optimum|lightning|pytorch_lightning|cupy)"
)

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
            literal("no FP8-compatible backend was installed"),
            literal("Transformer Engine, MSAMP or torchao is installed"),
            Pattern("No module named '", rf"No module named '(?P<module>(?:{_GPU_PACKAGES}))'"),
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
        ),
        causes=(
            "The package is optional, or has to be built for the installed PyTorch, so that the requirements omit it.",
            "Another interpreter runs the program than the one for which the package was installed.",
            "Its installation failed; the log of pip has the reason.",
        ),
        fixes=(
            Fix("Check which interpreter runs, and what it has.", "python -m pip --version; python -m pip list"),
            Fix(
                "Install the package with this interpreter; one with CUDA code is built against the installed PyTorch.",
                "python -m pip install --no-build-isolation PACKAGE",
            ),
            Fix(
                "For a package that has to be compiled, check that the CUDA toolkit is there.",
                "nvcc --version; python -c 'import torch; print(torch.version.cuda)'",
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
                rf"No module named '(?P<module>(?!flash_attn){_VERSIONED}\.[\w.]{{1,80}})(?<!\._C)'",
            ),
            Pattern(
                "cannot import name '",
                r"cannot import name '(?P<name>(?!triton_key|AttrsDescriptor)\w{1,80})' from"
                rf" '(?P<module>{_VERSIONED}(?:\.[\w.]{{1,100}})?)'",
            ),
            Pattern(
                "module 'triton",
                r"module 'triton(?P<module>[\w.]{0,60})' has no attribute '(?P<name>\w{1,60})'",
            ),
            Pattern(
                "' object has no attribute '",
                r"'(?P<module>(?:Dynamic|Static|HybridCache|Sliding\w{0,12}|Encoder\w{0,12})Cache|torch\._C\._Cud"
                r"aDeviceProperties)' object has no attribute '(?P<name>\w{1,60})'",
            ),
            Pattern(
                "got an unexpected keyword argument '",
                r"(?P<module>(?:Seq2Seq|SFT|DPO|GRPO|PPO|KTO|ORPO|Reward)?(?:Trainer|Config|TrainingArguments)|Ac"
                r"celerator|AdamW|GradScaler|LLM|EngineArgs)\.__init__\(\) got an unexpected keyword argument"
                r" '(?P<name>\w{1,60})'",
            ),
        ),
        causes=(
            "One of two packages that belong together was upgraded alone, such as PyTorch without Triton.",
            "The program was written for an older or newer version of the package; names are moved and removed.",
        ),
        fixes=(
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
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(
            "https://github.com/hiyouga/LlamaFactory/issues/2050",
            "https://github.com/unslothai/unsloth/issues/1263",
        ),
        said_by="Python 3.6-3.14",
    ),
    KnownError(
        id="extension-not-built",
        section=SECTION,
        title="Compiled part of a package is missing",
        summary="The Python files of the package are there, but its compiled extension is not.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No module named '",
                r"No module named '(?P<module>(?!vllm\b)\w{1,40}(?:\.\w{1,40}){0,4})\._C'",
            ),
            Pattern("name '_C' is not defined", r"NameError: name '(?P<module>_C)' is not defined"),
            literal("Failed to load custom C++ ops"),
            Pattern("so_path = next(so_dir.glob(", r"so_path = next\(so_dir\.glob\("),
            Pattern("No module named '", r"No module named '(?P<module>\w{1,40}(?:\.\w{1,40}){0,4})\._ext'"),
        ),
        causes=(
            "The package was installed without nvcc, so that its build skipped the CUDA code.",
            "The program runs in the source folder of the package, which hides the installed, compiled one.",
            "The extension was built for another version of Python.",
        ),
        fixes=(
            Fix("Run the program from another folder than the package's source."),
            Fix(
                "Build the package again with the CUDA toolkit, against the installed PyTorch.",
                "CUDA_HOME=/usr/local/cuda FORCE_CUDA=1 pip install --no-build-isolation --force-reinstall --no-deps .",
            ),
            Fix(
                "Check the toolkit and PyTorch's CUDA version.",
                "nvcc --version; python -c 'import torch; print(torch.version.cuda)'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/IDEA-Research/GroundingDINO", sources.CPP_EXTENSIONS),
    ),
    KnownError(
        id="no-wheel",
        section=SECTION,
        title="pip finds no build of a package",
        summary="The index has no wheel of this version for this Python, system and CUDA version.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No matching distribution found for ",
                r"No matching distribution found for (?P<package>[\w-]{2,40})(?P<version>[=<>!~]{1,3}[\w.]{1,20}\+cu"
                r"\d{2,3}\w{0,20})",
            ),
            Pattern(
                "No matching distribution found for ",
                r"No matching distribution found for (?P<package>nvidia[-_]\w[\w-]{1,30}|tensorrt[\w-]{0,16}|jax-cuda"
                r"\w{0,20}"
                r"|cupy-cuda\w{1,12}|tensorflow-gpu|onnxruntime-gpu|sgl[-_]kernel|flashinfer[\w-]{0,12}|pytorch-trito"
                r"n)\b",
            ),
            Pattern(
                "is not a supported wheel on this platform",
                r"(?P<package>(?:[\w.-]{2,60}\+cu\d{2,3}|flash_attn-|xformers-|tensorrt_llm-)[\w.+-]{1,120}\.whl) is "
                r"not a"
                r" supported wheel on this platform",
            ),
            Pattern(
                "No matching distribution found for ",
                r"No matching distribution found for (?P<package>xformers|triton"
                r"|flash[-_]attn|bitsandbytes|deepspeed|vllm)(?P<version>[=<>!~]{1,3}[\w.]{1,20})?(?![\w+.-])",
            ),
        ),
        causes=(
            "This version of Python is newer or older than those for which the package has wheels.",
            "The version is only in another index, such as the one for its CUDA version; PyPI has no `+cu` versions.",
            "The index has no more, or not yet, wheels of this version for this CUDA version or system.",
        ),
        fixes=(
            Fix(
                "Check the version of Python and the system.",
                "python -c 'import sys, platform; print(sys.version, platform.machine())'",
            ),
            Fix(
                "Install from the index for the CUDA version, and let pip choose the version.",
                "pip install torch torchvision --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "Or create an environment with a version of Python that has wheels.",
                "conda create -n fresh python=3.12",
            ),
            Fix(
                "List the versions that this index has.",
                "pip index versions torch --index-url https://download.pytorch.org/whl/cu126",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.PYTORCH_INSTALL,),
        said_by="pip 9-25",
    ),
)
