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
    KnownError(
        id="package-conflict",
        section=SECTION,
        title="Packages require different versions of a CUDA library",
        summary="pip installed a version of a CUDA library that another package, such as PyTorch, does not accept.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "which is incompatible",
                r"(?P<package>[\w.-]{2,40}) \S{1,40} requires (?P<required>nvidia-[\w-]{1,30}[^\n]{0,160}?), but you h"
                r"ave"
                r" (?P<installed>nvidia-[\w.-]{2,40} [\w.+-]{1,30}) which is incompatible",
            ),
        ),
        causes=("One package was installed or upgraded later than the other, in a separate command.",),
        fixes=(
            Fix(
                "Name the packages in one command, so that pip finds versions that fit.",
                "pip install --upgrade torch PACKAGE",
            ),
            Fix("Or give each program its own environment.", "python3 -m venv fresh && fresh/bin/pip install PACKAGE"),
            Fix("List all conflicts.", "python -m pip check"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://pip.pypa.io/en/stable/topics/dependency-resolution/",),
        said_by="pip 20-25",
        is_warning=True,
    ),
    KnownError(
        id="dll-load",
        section=SECTION,
        title="Windows could not load a library",
        summary="A compiled module of a package, or a DLL that it needs, is missing or does not fit.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "DLL load failed",
                r"ImportError: DLL load failed(?: while importing (?P<module>(?!_C: |libtriton|flash_attn_2)\w{1,60})"
                r")?\b(?!\w| while)",
            ),
            Pattern(
                "Error: [WinError 1",
                r"Error: \[WinError (?P<code>126|127|193|1114)\] (?![^\n]{1,200}?Error loading)[^\n]{1,100}",
            ),
            Pattern(
                "Could not find module '",
                r"Could not find module '(?P<library>(?!nvrtc64)[^'\n]{1,200}\.dll)' \(or one of its dependencies\)",
            ),
        ),
        causes=(
            "The Visual C++ Redistributable is missing or old.",
            "The package was built for another version of Python, PyTorch or CUDA.",
            "A DLL of CUDA or of another package is not on the search path, or an antivirus program removed it.",
        ),
        fixes=(
            Fix("Install the current Visual C++ Redistributable.", "winget install Microsoft.VCRedist.2015+.x64"),
            Fix(
                "Install the package again, together with the PyTorch for which it is built.",
                "pip install --force-reinstall torch torchvision torchaudio",
            ),
            Fix("Install PyTorch and the package in a new environment, without other versions of CUDA on PATH."),
            Fix("Show which DLL is missing, with the program Dependencies, on the file that could not be loaded."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(
            "https://github.com/pytorch/pytorch/issues/125109",
            "https://github.com/pytorch/pytorch/issues/4518",
        ),
        said_by="Python 3.6-3.13, torch 0.4-2.9",
    ),
    KnownError(
        id="mkl-symbol",
        section=SECTION,
        title="Library of Intel MKL does not fit PyTorch",
        summary="PyTorch's CPU library needs a function that the loaded version of Intel MKL does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("undefined symbol: iJIT", r"undefined symbol: (?P<symbol>iJIT_\w{1,40})"),
            Pattern("undefined symbol: mkl_", r"undefined symbol: (?P<symbol>mkl_\w{1,60})"),
            Pattern("Intel MKL FATAL ERROR", r"Intel MKL FATAL ERROR: (?P<reason>[^\n]{1,80})"),
        ),
        causes=(
            "MKL 2024.1 or later was installed by conda together with an older PyTorch.",
            "Two versions of MKL are mixed.",
        ),
        fixes=(
            Fix("In a conda environment with an older PyTorch, install MKL 2024.0.", 'conda install "mkl<2024.1"'),
            Fix("Or install the wheel of PyTorch, which includes MKL.", "pip install --force-reinstall torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/issues/123097",),
        said_by="torch 1.12-2.3",
    ),
    KnownError(
        id="kernel-signature",
        section=SECTION,
        title="Compiled kernels and Python code are of different versions",
        summary="The Python part of a package calls a compiled function with other arguments than the function has.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "argument(s) but received ",
                r"(?P<function>\w{1,300}::\w{1,80})\(\) expected at most (?P<expected>\d{1,3}) argument\(s\) but rece"
                r"ived (?P<got>\d{1,3})",
            ),
            Pattern(
                "is missing value for argument '",
                r"(?P<function>\w{1,300}::\w{1,80})\(\) is missing value for argument '(?P<argument>\w{1,60})'",
            ),
            Pattern(
                "The following argument types are supported:",
                r"(?<!\w)(?P<function>(?!gem[mv]|causal_conv1d)\w{0,60}(?:cuda|fwd|bwd|forward|backward|_gpu|gemm|ker"
                r"nel)\w{0,30})\(\): incompatible"
                r" function arguments\. The following argument types are supported:",
            ),
        ),
        causes=(
            "Only one part was upgraded: the Python package, or the package with its kernels.",
            "The cache holds kernels that an older version compiled.",
            "Files of an older installation are left in the folder of the package.",
        ),
        fixes=(
            Fix(
                "Install the package and its kernels again in versions that belong together.",
                "pip install --force-reinstall --no-deps --no-cache-dir PACKAGE",
            ),
            Fix(
                "Delete the caches of compiled kernels.",
                "rm -rf ~/.cache/flashinfer ~/.cache/torch_extensions ~/.triton/cache",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/sgl-project/sglang/issues/5022",),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="torchcodec-load",
        section=SECTION,
        title="TorchCodec could not be loaded",
        summary=(
            "TorchCodec found no FFmpeg whose libraries it can load, or it was built for another PyTorch or another"
            " CUDA."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Could not load libtorchcodec"),
            Pattern(
                "libtorchcodec_core",
                r"Could not load this library: (?P<library>[^\n]{0,200}libtorchcodec_core\d\.\w{2,5})",
            ),
            Pattern("TorchCodec is required for ", r"TorchCodec is required for (?P<function>\w{1,60})"),
        ),
        causes=(
            "No FFmpeg with shared libraries is installed; a static ffmpeg program has none.",
            "The version of TorchCodec does not belong to that of PyTorch.",
            "The build for CUDA needs libnvrtc and libnppicc, which are not found.",
        ),
        fixes=(
            Fix("Install FFmpeg with its shared libraries.", 'conda install "ffmpeg<8" -c conda-forge'),
            Fix(
                "Install PyTorch and TorchCodec together, from the same index.",
                "pip install --upgrade torch torchcodec --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("On Windows, install the full-shared build of FFmpeg, and add its folder to PATH."),
            Fix(
                "Show which library is missing.",
                "cd \"$(python -c 'import site; print(site.getsitepackages()[0])')\" && ldd"
                " torchcodec/libtorchcodec_core7.so | grep 'not found'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/meta-pytorch/torchcodec/issues/730",
            "https://github.com/meta-pytorch/torchcodec/issues/1257",
        ),
        said_by="TorchCodec 0.1-0.12, torchaudio 2.8-2.10",
    ),
    KnownError(
        id="sources-missing",
        section=SECTION,
        title="Sources of a dependency are missing",
        summary="The build needs files of another project, which is a submodule that was not cloned.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "missing and no known rule to make it",
                r"ninja: error: '(?P<file>[^'\n]{1,180})', needed by [^\n]{1,180}, missing and no known rule to make "
                r"it",
            ),
            Pattern(
                "fatal error: ",
                r"fatal error: (?P<file>(?:cutlass|cute|glm|fmt|third_party|composable_kernel|cub|thrust|pybind11|tin"
                r"y-cuda-nn)/[\w./-]{1,80}): No such file",
            ),
        ),
        causes=(
            "The repository was cloned without --recursive, or downloaded as a ZIP file, which has no submodules.",
        ),
        fixes=(
            Fix("Fetch the submodules, then build again.", "git submodule update --init --recursive"),
            Fix(
                "If a header of the toolkit is missing, such as cub or thrust, install the complete toolkit.",
                "nvcc --version",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVlabs/tiny-cuda-nn/issues/379",),
        said_by="ninja 1.10-1.12, GCC, Clang",
    ),
    KnownError(
        id="capability-required",
        section=SECTION,
        title="Function needs a newer GPU",
        summary="The function has no code for the compute capability of this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "compute capability",
                r"(?P<feature>(?!scaled_mm|Bfloat16)\b[A-Z]\w{1,24}) (?:is|are) only supported on (?:GPUs?|devices?) "
                r"with comp"
                r"ute capability"
                r" ?(?:>=|of at least|at least)? ?(?P<required>[\d.]{1,5})(?!\d)",
            ),
            Pattern("only supports Hopper", r"(?P<feature>[\w-]{2,40}) only supports Hopper"),
            Pattern("only supports Blackwell", r"(?P<feature>[\w-]{2,40}) only supports Blackwell"),
            Pattern(
                "requires SM",
                r"(?P<feature>\b[A-Z]\w{2,30}) requires SM ?(?P<required>\d{2,3})(?: or (?:newer|higher|above)|\+)",
            ),
        ),
        causes=("The GPU is older than the function, or the program did not choose a function for this GPU.",),
        fixes=(
            Fix("Show the compute capability of the GPU.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
            Fix(
                "Choose another attention, in vLLM for example that of Triton.",
                "vllm serve MODEL --attention-backend TRITON_ATTN",
            ),
            Fix(
                "In a model of transformers, use PyTorch's attention.",
                'model = Model.from_pretrained(NAME, attn_implementation="sdpa")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/issues/52181", "https://developer.nvidia.com/cuda-gpus"),
        said_by="vLLM 0.9-0.19",
    ),
)
