"""Errors of the CUDA toolkit: it is not found, does not fit the host, or one of its compilers crashes."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "CUDA toolkit"

_CMAKE: Final = "https://cmake.org/cmake/help/latest/envvar/CUDACXX.html"
_TOOLKIT: Final = "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/"
_STAGE: Final = r"'(?P<compiler>ptxas|cicc|cudafe\+\+|nvlink|fatbinary|(?:cl|gcc|g\+\+|c\+\+)(?:\.exe)?)'"
"""A compiler that nvcc starts, in the quotation marks of its message."""

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="cmake-cuda",
        section=SECTION,
        title="CMake finds no working CUDA compiler",
        summary="CMake did not find nvcc or the toolkit, or nvcc could not compile CMake's test file.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("No CMAKE_CUDA_COMPILER could be found"),
            Pattern("CMAKE_CUDA_COMPILER not found", r"CMAKE_CUDA_COMPILER not found"),
            literal("Failed to detect a default CUDA architecture"),
            Pattern("CMakeCUDACompilerId.cu", r"\"?CMakeCUDACompilerId\.cu\"? failed"),
            Pattern("ould NOT find CUDA", r"Could NOT find CUDA(?:Toolkit)? \(missing: (?P<missing>[^)\n]{1,160})\)"),
            Pattern("CMAKE_CUDA_ARCHITECTURES must be", r"CMAKE_CUDA_ARCHITECTURES must be (?:non-empty|valid)"),
            Pattern("No CUDA toolset found", r"No CUDA toolset found"),
            Pattern("Specify CUDA_TOOLKIT_ROOT_DIR", r"Specify CUDA_TOOLKIT_ROOT_DIR"),
            literal("Caffe2: Cannot find CUDA library"),
            literal("Unsupported gpu architecture 'compute_'"),
            Pattern("'compute_No CUDA", r"Unsupported gpu architecture 'compute_No CUDA devices found"),
            literal("Value 'native' is not defined for option 'gpu-architecture'"),
            literal("Your installed Caffe2 version uses CUDA but I cannot find"),
            Pattern("CUDACompiler.cmake:", r"CMake(?:Test|Determine)CUDACompiler\.cmake:\d{1,5} \(message\)"),
            Pattern("Check for working CUDA compiler", r"Check for working CUDA compiler: [^\n]{1,200} - broken"),
        ),
        causes=(
            "The toolkit is not installed: PyTorch's packages contain no nvcc.",
            "The compiler nvcc is not on PATH, or an old one of the distribution (/usr/bin/nvcc) comes first.",
            "The host's compiler is newer than the toolkit supports; the lines above then say so.",
            "Visual Studio has no integration of CUDA, because it was installed after the toolkit.",
            (
                "The architecture is taken from the GPU of the host, and none is visible, or this nvcc is too old for"
                " that."
            ),
        ),
        fixes=(
            Fix("Show which nvcc is found, and its version.", "which -a nvcc; nvcc --version; ls -d /usr/local/cuda*"),
            Fix(
                "Install the toolkit that belongs to PyTorch's CUDA version.",
                "sudo apt-get install -y cuda-toolkit-12-8",
            ),
            Fix(
                "Name the compiler, and remove CMake's memory of the failure.",
                "rm -rf build; export CUDACXX=/usr/local/cuda/bin/nvcc PATH=/usr/local/cuda/bin:$PATH",
            ),
            Fix(
                "Name the architecture, if no GPU is visible while building.",
                "cmake -B build -DCMAKE_CUDA_ARCHITECTURES=90",
                first_for=(
                    "'compute_'",
                    "'compute_No CUDA",
                    "CMAKE_CUDA_ARCHITECTURES",
                    "'native'",
                    "default CUDA architecture",
                ),
            ),
            Fix(
                "With Visual Studio, run the installer of the CUDA toolkit again after it: it adds the integration.",
                first_for=("CUDA toolset",),
            ),
            Fix(
                "Read the error of the compiler in the lines below: in most cases nvcc does not support this newer"
                " C++ compiler, or finds none.",
                first_for=("- broken",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_CMAKE, _TOOLKIT),
        said_by="CMake 3.18-4.1",
    ),
    KnownError(
        id="toolkit-headers",
        section=SECTION,
        title="CUDA's headers do not fit the system's",
        summary="A header of the CUDA toolkit contradicts a newer header of the C library or of the compiler.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "exception specification is incompatible with that of previous function",
                r"exception specification is incompatible with that of previous function \"(?P<function>\w{1,20})\"",
            ),
            Pattern(
                "is undefined",
                r"identifier \"(?P<name>__(?:Float32x4_t|Float64x2_t|SVFloat32_t|builtin_\w{1,40}|is_\w{1,30}))\" is"
                r" undefined",
            ),
            Pattern('identifier "_Float', r"identifier \"_Float(?:32|64|128)\w{0,2}\" is undefined"),
        ),
        causes=("The distribution, for example with glibc 2.41 or gcc 15, is newer than this version of the toolkit.",),
        fixes=(
            Fix(
                "Upgrade to CUDA 13.1 or later, with a PyTorch for CUDA 13: CUDA 12 does not know glibc 2.41.",
                "sudo apt-get install -y cuda-toolkit",
            ),
            Fix(
                "Use an older compiler for nvcc.",
                "sudo apt-get install -y g++-13 && export NVCC_PREPEND_FLAGS='-ccbin g++-13'",
                first_for=("_Float32", "__Float32x4_t"),
            ),
            Fix(
                "Or build in a container of NVIDIA, which has a system that fits.",
                "docker run --rm -it -v $PWD:/work nvidia/cuda:12.8.1-devel-ubuntu24.04",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_TOOLKIT,),
        said_by="CUDA 12.0-12.9",
    ),
    KnownError(
        id="compiler-memory",
        section=SECTION,
        title="Compiler ran out of memory",
        summary="The kernel of the host ended a compiler, or gave it no memory: too many compilers run at once.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("died due to signal 9", rf"{_STAGE} died due to signal 9\b"),
            Pattern(
                "internal compiler error:", r"internal compiler error: Killed(?: \(program (?P<compiler>\w{1,20})\))?"
            ),
            Pattern(
                "Memory allocation failure", r"(?P<compiler>ptxas|nvcc|nvlink) fatal {1,4}: Memory allocation failure"
            ),
            Pattern("out of memory allocating", r"(?P<compiler>cc1(?:plus)?): out of memory allocating \d{1,20} bytes"),
            Pattern("compiler is out of heap space", r"fatal error C1060: compiler is out of heap space"),
        ),
        causes=(
            "A build starts as many compilers as the host has cores, and one file of CUDA code can need several GB.",
            "The limit of the container, or of the build, is lower than the memory of the host.",
        ),
        fixes=(
            Fix(
                "Compile with fewer jobs; MAX_JOBS counts for pip and PyTorch's builds.",
                "MAX_JOBS=2 pip install --no-build-isolation PACKAGE",
            ),
            Fix("With CMake or make, name the number of jobs.", "cmake --build build --parallel 2"),
            Fix(
                "Compile only for this host's GPU, of which this is the capability.",
                "export TORCH_CUDA_ARCH_LIST=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader)",
            ),
            Fix(
                "Install a wheel that is already compiled, if there is one.", "pip install --only-binary :all: PACKAGE"
            ),
        ),
        see_more=(Fix("Show what the kernel ended.", "sudo dmesg -T | grep -i -E 'killed process|out of memory'"),),
        empty_cache=NO_CONTEXT_YET,
        sources=(_TOOLKIT, "https://github.com/Dao-AILab/flash-attention#installation-and-features"),
        said_by="CUDA 9.2-12.6",
    ),
    KnownError(
        id="driver-compile-memory",
        section=SECTION,
        title="Driver ran out of host memory while it compiled",
        summary="The driver compiles kernels for the GPU while the program runs, and the host had no memory left.",
        context=ContextState.UNKNOWN,
        patterns=(Pattern("Memory allocation failure", r"^fatal {2,4}: Memory allocation failure"),),
        causes=(
            "PyTorch, or an extension, has no machine code for this GPU, so that the driver compiles all of it.",
            "The memory of the host, or on Windows its paging file, is too small.",
        ),
        fixes=(
            Fix(
                "Compare the GPU with the architectures of PyTorch; if it is missing, install a build that has it.",
                "python -c 'import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())'",
            ),
            Fix("Install the newest PyTorch.", "pip install --upgrade torch"),
            Fix("Free memory of the host: start fewer workers, or enlarge the paging file on Windows.", "free -h"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_TOOLKIT, "https://github.com/bubbliiiing/yolo3-pytorch/issues/188"),
        said_by="CUDA 9.2-12.6",
    ),
    KnownError(
        id="compiler-crashed",
        section=SECTION,
        title="Compiler crashed",
        summary="A compiler that the build starts crashed; it did not reject the code.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("died due to signal", rf"{_STAGE} died due to signal (?P<signal>(?!(?:2|9|15)\b)\d{{1,2}})\b"),
            Pattern("died with status", rf"{_STAGE} died with status (?P<code>0x[0-9A-Fa-f]{{8}})"),
            Pattern("internal compiler error:", r"internal compiler error: (?P<reason>Segmentation fault)"),
        ),
        causes=(
            "The version of the toolkit has a fault that this code, or this architecture, meets.",
            "The compiler of the host is newer than the toolkit supports.",
            "A compiler that crashes in another file each time: the memory of the host is full or defective.",
        ),
        fixes=(
            Fix(
                "Use another version of the toolkit, of the same CUDA major version as PyTorch.",
                "sudo apt-get install -y cuda-toolkit-12-8 && export CUDA_HOME=/usr/local/cuda-12.8",
            ),
            Fix(
                "Compile with one job, and see whether it crashes in the same file again.",
                "MAX_JOBS=1 pip install --no-build-isolation PACKAGE",
            ),
            Fix(
                "Compile only for this host's GPU, which leaves out the architecture with the fault.",
                "export TORCH_CUDA_ARCH_LIST=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader)",
            ),
            Fix(
                "Use an older compiler for nvcc.",
                "sudo apt-get install -y g++-13 && export NVCC_PREPEND_FLAGS='-ccbin g++-13'",
                first_for=("cudafe++",),
            ),
            Fix(
                "Install an older version of Visual Studio's compiler, which the toolkit supports.",
                first_for=("cl.exe",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_TOOLKIT, "https://github.com/ggml-org/llama.cpp/issues/8714"),
        said_by="CUDA 10.2-12.9",
    ),
)
