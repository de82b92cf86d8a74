"""Errors of libraries and builds: shared libraries, extensions, compilers."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CUDA_COMPATIBILITY,
    NO_MEMORY_MATTER,
    OWN_LIBRARIES,
    VERSIONS,
    literal,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Libraries and builds"
_EXTENSIONS: Final = "https://docs.pytorch.org/docs/stable/cpp_extension.html"
_COMPILE: Final = "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html"
_TRITON: Final = "https://github.com/triton-lang/triton"

_MISSING: Final = KnownError(
    id="lib-missing",
    section=_SECTION,
    title="CUDA library missing or of another version",
    summary="A library of CUDA or PyTorch was not found, or one of another version was loaded in its place.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        Pattern(
            "cannot open shared object file",
            r"\b(?P<library>lib(?:cudart|cublas\w{0,4}|cudnn\w{0,40}|cufft\w?|curand|cusolver\w{0,4}|cusparse\w{0,4}|cupti"
            r"|cufile|nvrtc[\w-]{0,20}|nvJitLink|nvToolsExt|nvshmem\w{0,20}|nccl|torch\w{0,30}|c10\w{0,20})"
            r"\.so[\w.]{0,20}): cannot open shared object file",
        ),
        Pattern("undefined symbol: __nvJitLink", r"undefined symbol: (?P<symbol>__nvJitLink\w{1,60})"),
    ),
    causes=(
        "LD_LIBRARY_PATH leads to a system's CUDA, which is found before the libraries of the wheels.",
        "A package was built for another major version of CUDA.",
        "The installation of another package has replaced one of NVIDIA's wheels.",
    ),
    fixes=(
        OWN_LIBRARIES,
        Fix(
            "See which of NVIDIA's wheels are installed, and whether they fit each other.",
            "pip list | grep -i nvidia; pip check",
        ),
        Fix(
            "Install PyTorch in a fresh environment.",
            "python3 -m venv fresh && fresh/bin/pip install torch --index-url https://download.pytorch.org/whl/cu130",
        ),
        Fix(
            "Install the package's build for the CUDA of your PyTorch.",
            "python -c 'import torch; print(torch.version.cuda)'",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(
        Fix(
            "See which file each library comes from.",
            "LD_DEBUG=libs python -c 'import torch' 2>&1 | grep 'calling init'",
        ),
    ),
    sources=(
        "https://github.com/pytorch/pytorch/issues/111469",
        "https://github.com/pytorch/pytorch/issues/134929",
        "https://github.com/pytorch/pytorch/issues/152783",
    ),
)

_OTHER_TORCH: Final = KnownError(
    id="flash-attn-abi",
    section=_SECTION,
    title="Extension built for another PyTorch",
    summary="A compiled extension looks for a function that the installed PyTorch does not have in this form.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        Pattern(
            "undefined symbol: _Z",
            r"\.so: undefined symbol: (?P<symbol>_Z(?:T[ISV])?NK?(?:3c10|2at|5torch|6caffe2)\w{0,300})",
        ),
    ),
    causes=(
        "PyTorch was upgraded after flash-attn or another extension was installed.",
        "The wheel is for another version of PyTorch, of CUDA or of the C++ interface.",
    ),
    fixes=(
        Fix(
            "Build it against the PyTorch that is installed.",
            "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps flash-attn",
        ),
        Fix(
            "Or choose the wheel that names your versions.",
            """\
import sys, torch

print(torch.__version__, torch.version.cuda, torch.compiled_with_cxx11_abi(), sys.version_info[:2])""",
        ),
        Fix(
            "Or do without: PyTorch's own attention is as fast in most cases.",
            "output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(Fix("Read the name of the function.", "c++filt _ZN3c104cuda9SetDeviceEi"),),
    sources=(
        "https://github.com/Dao-AILab/flash-attention/issues/931",
        "https://github.com/Dao-AILab/flash-attention/issues/1832",
    ),
)

_BITSANDBYTES: Final = KnownError(
    id="bnb",
    section=_SECTION,
    title="bitsandbytes has no library for this CUDA",
    summary="bitsandbytes did not find its compiled part for the CUDA that PyTorch was built with.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        literal("CUDA SETUP ERROR"),
        literal("CUDA VERSION MISMATCH"),
        literal("No compatible CUDA binary found at"),
        literal("bitsandbytes native library functionality but it's not available"),
        Pattern("CUDA Setup failed despite", r"CUDA Setup failed despite (?:GPU|CUDA) being available"),
    ),
    causes=(
        "bitsandbytes is older than the CUDA of PyTorch.",
        "A CUDA library that it needs is not found.",
    ),
    fixes=(
        Fix("Upgrade it.", "pip install --upgrade bitsandbytes"),
        Fix("Let it say what it looks for.", "python -m bitsandbytes"),
        Fix("Take a version that it does have, here 12.6.", "BNB_CUDA_VERSION=126 python train.py"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(VERSIONS,),
    sources=("https://huggingface.co/docs/bitsandbytes/main/en/installation",),
)

_COMPILER: Final = KnownError(
    id="triton-cc",
    section=_SECTION,
    title="Triton finds no C compiler",
    summary="Triton compiles a small launcher for its kernels, and there is no C compiler.",
    context=Context.NOT_APPLICABLE,
    patterns=(literal("Failed to find C compiler. Please specify via CC"),),
    causes=("The container image is a slim one, without gcc.",),
    fixes=(
        Fix("Install a compiler and Python's headers.", "sudo apt-get install -y gcc python3-dev"),
        Fix("Or name the compiler that is there.", "CC=clang python train.py"),
        Fix("Or run without compilation.", "TORCHDYNAMO_DISABLE=1 python train.py"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_TRITON, _COMPILE),
)

_TRITON_RESOURCES: Final = KnownError(
    id="triton-resources",
    section=_SECTION,
    title="Triton kernel too large for this GPU",
    summary="A Triton kernel needs more shared memory or registers for a block than the GPU has.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "out of resource:",
            r"out of resource: (?P<resource>[\w ]{1,40}), Required: (?P<required>\d{1,12}),"
            r" Hardware limit: (?P<limit>\d{1,12})",
        ),
    ),
    causes=(
        "The kernel was tuned for an A100 or H100, and this GPU has about 100 KB of shared memory for a block.",
        "Block sizes or num_stages are too large for the type.",
    ),
    fixes=(
        Fix(
            "Take smaller blocks and fewer stages.",
            "triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64}, num_stages=2, num_warps=4)",
        ),
        Fix(
            "With torch.compile, do without the search for the fastest kernel.",
            "TORCHINDUCTOR_MAX_AUTOTUNE=0 python train.py",
        ),
        Fix("Upgrade the package whose kernel it is."),
    ),
    empty_cache="Does nothing here: it is the small memory within a multiprocessor that is too small, not the GPU's.",
    sources=("https://github.com/triton-lang/triton/blob/main/python/triton/runtime/errors.py",),
)

_OLD_GPU: Final = KnownError(
    id="inductor-old-gpu",
    section=_SECTION,
    title="torch.compile without Triton",
    summary="torch.compile needs Triton, which is not installed or does not support this GPU.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "too old to be supported by the triton GPU compiler",
            r"(?:Found (?P<name>[^\n]{1,100}?) which is )?too old to be supported by the triton GPU compiler",
        ),
        literal("Cannot find a working triton installation"),
    ),
    causes=(
        "The GPU is older than Volta, capability 7.0.",
        "Triton is missing, as on Windows, or does not fit this PyTorch.",
    ),
    fixes=(
        Fix("Run without compilation.", "TORCHDYNAMO_DISABLE=1 python train.py"),
        Fix("Install PyTorch together with its own Triton.", "pip install --upgrade torch triton"),
        Fix("Or compile without kernels of Triton.", 'model = torch.compile(model, backend="aot_eager")'),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(VERSIONS,),
    sources=(_COMPILE, _TRITON),
)

_TOOLKIT: Final = KnownError(
    id="cuda-home",
    section=_SECTION,
    title="CUDA toolkit missing or of another version",
    summary="An extension is to be compiled, and the CUDA toolkit is not there or is not of PyTorch's version.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        literal("CUDA_HOME environment variable is not set"),
        Pattern(
            "mismatches the version that was used to compile",
            r"The detected CUDA version \((?P<toolkit>[\d.]{1,12})\) mismatches the version that was used to compile"
            r"(?: ?PyTorch \((?P<torch>[\d.]{1,12})\))?",
        ),
    ),
    causes=(
        "pip found no ready wheel and builds the package from source.",
        "The system's toolkit has another major version than torch.version.cuda.",
        "torch.cuda._compile_kernel asks for CUDA_HOME although it needs no toolkit.",
    ),
    fixes=(
        Fix("Look for a ready wheel of the package for your versions.", "pip install --only-binary :all: PACKAGE"),
        Fix("See which version is needed.", "python -c 'import torch; print(torch.version.cuda)'; nvcc --version"),
        Fix(
            "Install that toolkit, and say where it is.",
            "export CUDA_HOME=/usr/local/cuda-13.0 PATH=/usr/local/cuda-13.0/bin:$PATH",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_EXTENSIONS, CUDA_COMPATIBILITY),
)

_RUNTIME_COMPILER: Final = KnownError(
    id="nvrtc-compile",
    section=_SECTION,
    title="Kernel did not compile",
    summary="A kernel's source was compiled while the program ran, and NVRTC did not accept it.",
    context=Context.ALIVE,
    patterns=(literal("RuntimeError: Kernel compilation failed:"), literal("nvrtc: error:")),
    causes=(
        "The source of the kernel has a mistake: the lines below name it.",
        "The GPU is newer than this NVRTC: then it does not accept the value of --gpu-architecture.",
    ),
    fixes=(
        Fix("Read the lines below: they name line and mistake."),
        Fix("For a new GPU, install a newer PyTorch.", "pip install --upgrade torch"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=("https://docs.nvidia.com/cuda/nvrtc/index.html", _EXTENSIONS),
)

ERRORS: Final = (
    _MISSING,
    _OTHER_TORCH,
    _BITSANDBYTES,
    _COMPILER,
    _TRITON_RESOURCES,
    _OLD_GPU,
    _TOOLKIT,
    _RUNTIME_COMPILER,
)
