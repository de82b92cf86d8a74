"""Errors of the CUDA toolkit before it compiles anything: CMake does not find it, or it does not fit the host."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "CUDA toolkit"

_CMAKE: Final = "https://cmake.org/cmake/help/latest/envvar/CUDACXX.html"
_TOOLKIT: Final = "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/"

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
                first_for=("'compute_'", "CMAKE_CUDA_ARCHITECTURES", "'native'", "default CUDA architecture"),
            ),
            Fix(
                "With Visual Studio, run the installer of the CUDA toolkit again after it: it adds the integration.",
                first_for=("CUDA toolset",),
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
)
