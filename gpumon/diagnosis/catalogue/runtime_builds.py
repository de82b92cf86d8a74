"""Errors of what is compiled while the program runs: Triton's kernels, extensions, NVRTC."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.libraries import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_TOOLKIT_OF_PYTORCH: Final = """\
conda install -c nvidia "cuda-toolkit=$(python -c 'import torch; print(torch.version.cuda)')"
export CUDA_HOME=$CONDA_PREFIX"""

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="triton-cc",
        section=SECTION,
        title="Triton found no C compiler",
        summary="Triton compiles a small launcher for its kernels, and no C compiler is installed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("Failed to find C compiler. Please specify via CC"),),
        causes=(
            "The container image is a slim image without gcc.",
            "On Windows, neither the Build Tools nor a compiler of a package is installed.",
        ),
        fixes=(
            Fix("Install a compiler and the Python headers.", "sudo apt-get install -y gcc python3-dev"),
            Fix(
                "On Windows, install the Triton for Windows, which brings a small compiler.",
                "pip install --upgrade triton-windows",
                first_for=("Windows",),
            ),
            Fix("Or name an installed compiler.", "CC=clang python train.py"),
            Fix("Without the rights of root, install one with Conda.", "conda install -c conda-forge gcc"),
            Fix("If torch.compile uses Triton, do without it.", "TORCHDYNAMO_DISABLE=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TRITON, sources.TORCH_COMPILE),
        said_by="Triton 2.0-3.6",
    ),
    KnownError(
        id="inductor-old-gpu",
        section=SECTION,
        title="GPU too old for torch.compile",
        summary="torch.compile needs Triton, which does not support this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "too old to be supported by the triton GPU compiler",
                r"(?:Found (?P<name>[^\n]{1,100}?) which is )?too old to be supported by the triton GPU compiler",
            ),
        ),
        causes=(
            "The GPU is older than Volta (compute capability 7.0).",
            "Inductor compiles for another, older GPU of the host.",
        ),
        fixes=(
            Fix("Disable compilation.", "TORCHDYNAMO_DISABLE=1 python train.py"),
            Fix(
                "Or compile with a backend that does not use Triton.",
                'model = torch.compile(model, backend="aot_eager")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.TORCH_COMPILE, sources.TRITON),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="build-capability",
        section=SECTION,
        title="Build does not know the capability of the GPU",
        summary="The build asks PyTorch for the GPU, and the PyTorch of the build has no CUDA or sees no GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Unknown compute capability. Specify the target",
                r"Unknown compute capability\. Specify the target compute",
            ),
        ),
        causes=(
            "The installed PyTorch has no CUDA.",
            "pip builds in an isolated environment with another PyTorch.",
            "The host of the build has no GPU, as while a Docker image is built.",
        ),
        fixes=(
            Fix(
                "Check that PyTorch has CUDA and sees the GPU; if not, install a build with CUDA.",
                "python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'",
            ),
            Fix(
                "Build with the installed PyTorch.",
                "pip install --no-build-isolation"
                " 'git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch'",
            ),
            Fix(
                "Where no GPU is visible, name its capability: 86 for 8.6, 89 for 8.9.",
                "export TCNN_CUDA_ARCHITECTURES=86",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/nerfstudio-project/nerfstudio/issues/980",),
        said_by="tiny-cuda-nn 1.6-1.7",
    ),
    KnownError(
        id="cuda-home",
        section=SECTION,
        title="CUDA toolkit missing or wrong version",
        summary=(
            "An extension must be compiled, and the CUDA toolkit is missing or does not match PyTorch's CUDA version."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("CUDA_HOME environment variable is not set"),
            Pattern(
                "mismatches the version that was used to compile",
                r"The detected CUDA version \((?P<toolkit>[\d.]{1,12})\) mismatches the version that was used to"
                r" compile(?: ?PyTorch \((?P<torch>[\d.]{1,12})\))?",
            ),
            Pattern(
                "The detected CUDA version (%s) mismatches",
                r"The detected CUDA version \(%s\) mismatches the version that was used to compile ?PyTorch"
                r"(?: \(%s\)\. Please make sure to use the same CUDA versions\.', '(?P<toolkit>[\d.]{1,12})',"
                r" '(?P<torch>[\d.]{1,12})')?",
            ),
            Pattern(
                "Please make sure to use the same CUDA versions",
                r"PyTorch \((?P<torch>[\d.]{1,12})\)\. Please make sure to use the same CUDA versions",
            ),
            Pattern(
                "does not match the version torch was compiled with",
                r"Installed CUDA version (?P<toolkit>[\d.]{1,12}) does not match the version torch was compiled with"
                r" (?P<torch>[\d.]{1,12})",
            ),
            Pattern("but nvcc was not found", r"(?P<extension>[\w-]{2,40}) was requested, but nvcc was not found"),
            Pattern("No CUDA toolkit found", r"\w{1,30}: No CUDA toolkit found\. \w{1,30} will be disabled"),
            Pattern("nvcc: not found", r"\bnvcc: not found"),
            literal("nvcc: command not found"),
            Pattern(
                "is only supported on CUDA",
                r"(?P<extension>FlashAttention|\w{2,40}) is only supported on CUDA (?P<required>[\d.]{1,6}) and above",
            ),
            Pattern("ailed to find nvcc", r"[Ff]ailed to find nvcc"),
            Pattern(
                "o such file or directory: '",
                r"No such file or directory: '(?P<file>[^'\n]{0,160}\bnvcc"
                r"(?:\.exe)?)'",
            ),
        ),
        causes=(
            "pip found no prebuilt wheel and builds the package from source.",
            "The system's toolkit has another major version than torch.version.cuda.",
            "torch.cuda._compile_kernel requires CUDA_HOME although it needs no toolkit.",
        ),
        fixes=(
            Fix(
                "Install the toolkit of PyTorch's CUDA version, and build with the installed PyTorch: pip's isolated"
                " environment may have another one.",
                f"{_TOOLKIT_OF_PYTORCH}\npip install --no-build-isolation PACKAGE",
                first_for=("pip build",),
            ),
            Fix(
                "Or look for a wheel for your versions of PyTorch, CUDA and Python among the releases of the package;"
                " PyPI has none for packages such as mamba-ssm, causal-conv1d and flash-attn.",
            ),
            Fix("Install the toolkit of PyTorch's CUDA version, and set CUDA_HOME.", _TOOLKIT_OF_PYTORCH),
            Fix(
                "Check which version is needed.", "python -c 'import torch; print(torch.version.cuda)'; nvcc --version"
            ),
            Fix(
                "Install that toolkit, and set CUDA_HOME to its location.",
                "export CUDA_HOME=/usr/local/cuda-13.0 PATH=/usr/local/cuda-13.0/bin:$PATH",
                first_for=("DeepSpeed Op Builder", "Installed CUDA version"),
            ),
            Fix(
                "CUDA_HOME is one folder, not a list of folders: set it without colons.",
                "export CUDA_HOME=/usr/local/cuda",
                first_for=("':/",),
                hidden_otherwise=True,
            ),
            Fix(
                "For flash-attn, install the wheel of its releases that fits your versions of CUDA, PyTorch and Python;"
                " for Windows there is none, and most programs run without flash-attn.",
                "pip install"
                " https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/flash_attn-2.8.3+cu12"
                "torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
                first_for=("flash_attn was requested", "FlashAttention is only supported on CUDA"),
            ),
            Fix(
                "The compiler is not there: install the CUDA toolkit, or correct CUDA_HOME, which names one"
                " folder and has no colon.",
                "export CUDA_HOME=/usr/local/cuda; ls $CUDA_HOME/bin/nvcc",
                first_for=("nvcc: not found",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CPP_EXTENSIONS, sources.CUDA_COMPATIBILITY),
        said_by="torch 1.13-2.13, vLLM 0.10",
    ),
    KnownError(
        id="build-without-gpu",
        section=SECTION,
        title="Extension is built without a GPU",
        summary="PyTorch sees no GPU while an extension is built, so that the build does not know for which one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No CUDA runtime is found",
                r"No CUDA runtime is found, using"
                r" CUDA_HOME='(?P<toolkit>[^'\n]{1,120})'",
            ),
        ),
        causes=(
            "The build runs where no GPU is visible, as in `docker build` or on a login node.",
            "PyTorch is installed in its build for the CPU.",
        ),
        fixes=(
            Fix(
                "Name the architectures for the build; the message itself does not stop it.",
                "TORCH_CUDA_ARCH_LIST='8.0;9.0' pip install --no-build-isolation PACKAGE",
            ),
            Fix(
                "Check the build of PyTorch, and what it sees.",
                "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())'",
            ),
            Fix("If the build fails, read the error that follows: often nvcc is missing."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CPP_EXTENSIONS, "https://github.com/ByteDance-Seed/Bagel/issues/50"),
        said_by="torch 1.5-2.13",
        is_warning=True,
    ),
    KnownError(
        id="nvrtc-compile",
        section=SECTION,
        title="Kernel compilation failed",
        summary="NVRTC could not compile a kernel's source at run time.",
        context=ContextState.ALIVE,
        patterns=(
            literal("RuntimeError: Kernel compilation failed:"),
            Pattern("nvrtc: error:", r"nvrtc: error:(?! failed to (?:open libnvrtc-builtins|load builtins))"),
            Pattern("NVRTC_ERROR_", r"\b(?P<status>NVRTC_ERROR_(?!BUILTIN)[A-Z_]{4,40})\b"),
            Pattern("NVJITLINK_ERROR_", r"\b(?P<status>NVJITLINK_ERROR_[A-Z_]{4,40})\b"),
        ),
        causes=(
            "The source of the kernel has an error, which the following lines report.",
            "The GPU is newer than this NVRTC, which then rejects the value of --gpu-architecture.",
        ),
        fixes=(
            Fix("Read the following lines, which name the line and the error."),
            Fix(
                "For a new GPU, install a newer PyTorch.",
                "pip install --upgrade torch",
                first_for=("gpu-architecture",),
            ),
            Fix(
                "The compiling library passes an option that this NVRTC does not know: upgrade CuPy, or the toolkit.",
                "pip install --upgrade cupy-cuda12x",
                first_for=("NVRTC_ERROR_INVALID_OPTION",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.nvidia.com/cuda/nvrtc/index.html", sources.CPP_EXTENSIONS),
    ),
    KnownError(
        id="nvrtc-builtins",
        section=SECTION,
        title="NVRTC does not find its library of built-in functions",
        summary="NVRTC compiles kernels with libnvrtc-builtins of exactly its version, which the loader does not find.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "ailed to open libnvrtc-builtins",
                r"failed to open (?P<library>libnvrtc-builtins\.so(?:[\d.]{1,6}\d)?)",
            ),
            Pattern(
                "nvrtc: error: failed to load builtins",
                r"nvrtc: error: failed to load builtins(?: for (?P<capability>compute_\d{2,3}))?",
            ),
            literal("NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"),
        ),
        causes=(
            "The folder of the library is not in the loader's path; the program's RPATH does not count for it.",
            "Libraries of two CUDA versions are mixed: NVRTC of one, the built-in functions of the other.",
            "The wheels of PyTorch 1.8 to 1.10 for CUDA 11 have the library under a name without its version.",
        ),
        fixes=(
            Fix(
                "Show which versions the loader finds, and compare them with the one in the message.",
                "ldconfig -p | grep nvrtc; pip list | grep -i nvrtc",
            ),
            Fix(
                "Add its folder to the loader's path.",
                "export LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH",
            ),
            Fix("Or install it for this CUDA; for CUDA 13, nvidia-cuda-nvrtc.", "pip install nvidia-cuda-nvrtc-cu12"),
            Fix("With an old PyTorch, upgrade it.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.nvidia.com/cuda/nvrtc/index.html",
            "https://github.com/nlesc-recruit/cudawrappers/pull/354",
        ),
        said_by="NVRTC 9-13",
    ),
)
