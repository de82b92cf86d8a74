"""Errors of compilers and of builds of extensions.

The wordings are from the sources of PyTorch 2.13 and Triton 3.9, and from reports of older versions.
"""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Compilers and packages"

EXTENSIONS: Final = (
    r"(?:flash[-_]attn|xformers|mamba[-_]ssm|causal[-_]conv1d|apex|deepspeed|bitsandbytes|auto[-_]gptq|vllm"
    r"|torch[-_](?:scatter|sparse|cluster|spline[-_]conv)|detectron2|gptqmodel|"
    r"diff[-_](?:\w{1,20}[-_])?gaussian[-_]rast"
    r"\w{1,20}|simple[-_]knn|nvdiffrast|tinycudann|pytorch3d|kaolin|gsplat|natten|MinkowskiEngine|mmcv|sageattention"
    r"|transformer[-_]engine\w{0,8}|deep[-_]gemm|deep[-_]ep|grouped[-_]gemm|spconv|pycuda|"
    r"llama[-_]cpp[-_]python|fairseq"
    r"|pointnet2\w{0,8}|curope|fused[-_]ssim|diso|torchsparse|groundingdino|MultiScaleDeformableAttention)"
)
"""Packages with CUDA code that pip builds on the host."""
BUILD_TOOLS: Final = (
    "winget install Microsoft.VisualStudio.2022.BuildTools --override"
    ' "--passive --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
)
"""The command for the C++ compiler on Windows; without the workload, it installs no compiler."""
_NVCC_MANUAL: Final = "https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/index.html"
_HOST_COMPILERS: Final = "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/index.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="toolkit-old",
        section=SECTION,
        title="CUDA compiler does not know this GPU",
        summary="The compiler (nvcc or ptxas) is older than the GPU, or so new that it no longer supports the GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is not defined for option 'gpu-",
                r"Value '(?P<capability>sm_\d{2,3}[af]?)' is not defined for option 'gpu-(?:name|architecture)'",
            ),
            Pattern(
                "is not defined for option 'gpu-",
                r"Value 'compute_(?P<capability>\d{2,3}[af]?)' is not defined for option 'gpu-(?:name|architecture)'",
            ),
            Pattern(
                "nsupported gpu architecture 'compute_",
                r"Unsupported gpu architecture 'compute_(?P<capability>\d{2,3}[af]?)'",
            ),
            Pattern(
                "Unknown CUDA Architecture Name ",
                r"Unknown CUDA Architecture Name (?P<capability>[\w.+]{1,12}) in",
            ),
            Pattern("Unknown CUDA arch (", r"Unknown CUDA arch \((?P<capability>[\w.+]{1,12})\) or GPU not supported"),
            Pattern(
                "is not a recognized processor for this target",
                r"'(?P<capability>sm_\d{2,3}[af]?)' is not a recognized processor for this target",
            ),
            Pattern(
                '"computeCapability not supported"', r"Assertion failed: false && \"computeCapability not supported\""
            ),
            Pattern(
                " does not support .target sm_",
                r"PTX \.version (?P<version>\d{1,2}\.\d) does not support \.target (?P<capability>sm_\d{2,3}[af]?)",
            ),
            Pattern(
                "Unsupported .version ",
                r"Unsupported \.version (?P<required>\d{1,2}\.\d); current version is '(?P<version>\d{1,2}\.\d)'",
            ),
        ),
        causes=(
            "Blackwell (sm_100, sm_120) needs CUDA 12.8 or later, sm_103 and sm_121 need 12.9 or later.",
            "CUDA 13 no longer compiles for Maxwell, Pascal and Volta (sm_50 to sm_70), CUDA 12 not for Kepler.",
            "An old nvcc or ptxas is found first, such as that of the distribution in /usr/bin.",
        ),
        fixes=(
            Fix("Check which compiler is found, and its version.", "which -a nvcc ptxas; nvcc --version"),
            Fix(
                "Let Triton use the ptxas of a newer toolkit.",
                "export TRITON_PTXAS_PATH=/usr/local/cuda-13.0/bin/ptxas",
                first_for=tuple(
                    f"'sm_{name}' is not defined for option 'gpu-name'" for name in ("103", "110", "121", "121a")
                ),
            ),
            Fix(
                "Or upgrade PyTorch, which brings a newer Triton and ptxas; for Blackwell (sm_100, sm_120), to 2.7 or"
                " later.",
                "pip install --upgrade torch",
                first_for=("recognized processor", "computeCapability", "PTX .version", "'gpu-name'"),
            ),
            Fix(
                "If CMake builds, delete its folder, which remembers the old compiler, and name the new one.",
                "rm -rf build && cmake -B build -DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc",
            ),
            Fix(
                "To build an extension, select a newer toolkit and only the GPU of this host.",
                "export CUDA_HOME=/usr/local/cuda-13.0 PATH=/usr/local/cuda-13.0/bin:$PATH TORCH_CUDA_ARCH_LIST=12.0",
            ),
            Fix(
                "Name the architectures yourself, without those that this PyTorch does not know.",
                'TORCH_CUDA_ARCH_LIST="8.0;9.0" pip install --no-build-isolation .',
                first_for=("Unknown CUDA Architecture Name",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(Fix("Show the capability of the GPU.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),),
        sources=(
            _NVCC_MANUAL,
            "https://github.com/triton-lang/triton/blob/main/third_party/nvidia/backend/compiler.py",
        ),
        said_by="torch 1.13-2.13, Triton 2.0-3.6, jaxlib 0.4-0.7",
    ),
    KnownError(
        id="host-compiler",
        section=SECTION,
        title="C++ compiler not supported by the CUDA toolkit",
        summary="The CUDA toolkit checks the version of the host's compiler, and this one is newer than it supports.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "unsupported GNU version! gcc versions later than",
                r"unsupported GNU version! gcc versions later than (?P<newest>\d{1,3}) are not supported",
            ),
            Pattern(
                "unsupported clang version!",
                r"unsupported clang version! clang version must be less than (?P<clang>\d{1,3})",
            ),
            Pattern(
                "nsupported Microsoft Visual Studio version!",
                r"unsupported Microsoft Visual Studio version! Only the versions between (?P<years>\d{4} and \d{4})",
            ),
            Pattern(
                "maximum required version by CUDA",
                r"The current installed version of \S{1,80} \((?P<version>[\d.]{1,12})\) is greater than the"
                r" maximum required"
                r" version by CUDA (?P<toolkit>\d{1,2}\.\d)(?:[^\n]{0,80}, <(?P<limit>\d{1,3})\.)?",
            ),
            literal("No supported gcc/g++ host compiler found"),
            Pattern("compiler targets unsupported OS", r"nvcc fatal {1,4}: Host compiler targets unsupported OS"),
        ),
        causes=("The compiler of the distribution, or Visual Studio, is newer than the CUDA toolkit.",),
        fixes=(
            Fix(
                "Install an older compiler, and use it for the build.",
                "sudo apt-get install -y gcc-13 g++-13 && export CC=gcc-13 CXX=g++-13 NVCC_PREPEND_FLAGS='-ccbin"
                " g++-13'",
            ),
            Fix("Or use a newer CUDA toolkit of the same major version."),
            Fix("Or skip the check, at your own risk.", "export NVCC_PREPEND_FLAGS=-allow-unsupported-compiler"),
            Fix("Or install a wheel that is already compiled.", "pip install --only-binary :all: PACKAGE"),
            Fix(
                "Visual Studio 2022 from 17.10 on is too new for CUDA before 12.4: in its installer, add the"
                " toolset v143 14.38"
                " and select it, or upgrade CUDA. As a last resort, skip the checks.",
                "export NVCC_PREPEND_FLAGS='-allow-unsupported-compiler -D_ALLOW_COMPILER_AND_STL_VERSION_MISMATCH'",
                first_for=("Microsoft Visual Studio", "targets unsupported OS"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_HOST_COMPILERS, sources.CPP_EXTENSIONS),
        said_by="torch 1.13-2.13, Triton 3.0-3.6",
    ),
    KnownError(
        id="compiler-missing",
        section=SECTION,
        title="Compiler or header missing",
        summary=(
            "Code is compiled while the program runs or while pip builds, and a compiler, header or library is missing."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                ": No such file or directory",
                r"fatal error: (?P<header>Python\.h|(?:[\w-]{1,40}/)?(?:python3\.\d{1,2}/)?pyconfig\.h|crypt\.h|ffi\.h"
                r"|stdlib\.h|bits/[\w.+-]{1,30}|x86_64-linux-gnu/[\w./-]{1,60}): No such file or directory",
            ),
            Pattern(
                "fatal error C1083: ",
                r"fatal error C1083: (?:Cannot open include file: )?['\"](?P<header>(?!TH[CH]?/)[\w./+-]{1,80})['\"]",
            ),
            Pattern("cannot open file '", r"LINK : fatal error LNK1104: cannot open file '(?P<library>[\w.-]{1,60})'"),
            Pattern(
                ": No such file or directory",
                r"fatal error: (?P<header>cuda(?:_\w{1,30})?\.h|cusparse\.h|cublas_v2\.h|cusolverDn\.h|cudnn\.h|nccl\.h"
                r"|curand\w{0,10}\.h|nvToolsExt\.h|nv/target): No such file or directory",
            ),
            Pattern(
                ".h: No such file or directory",
                r"fatal error: (?P<header>torch/(?:extension|torch|script|all|types)\.h|(?:ATen|c10)/[\w/]{1,40}\.h)"
                r": No such file or directory",
            ),
            Pattern(
                "cannot find -l",
                r"cannot find -l(?P<library>cuda(?:rt\w{0,7}|devrt)?|cublas\w{0,2}"
                r"|cudnn|curand|cusparse|cusolver|nvrtc|nccl|nvToolsExt|torch\w{0,12}|c10\w{0,5})\b",
            ),
            Pattern("libcuda.so cannot found!", r"libcuda\.so cannot found!"),
            Pattern(
                "Command '['",
                r"Command '\['(?:[^'\n]{0,200}[\\/])?(?P<compiler>(?:[\w-]{1,40}-)?(?:gcc|cc|clang)(?:-\d{1,2})?"
                r"|tcc\.exe|cl\.EXE|cl\.exe)',"
                r" '[^'\n]{1,200}"
                r"[\\/](?:main|cuda_utils|driver|\w{0,4}_?triton_launcher\w{0,8}|launcher\w{0,12})\.c', ",
            ),
            literal("Ninja is required to load C++ extensions"),
            Pattern(
                "No working C++ compiler found in",
                r"No working C\+\+ compiler found in torch\._inductor\.config\.cpp\.cxx",
            ),
            Pattern("Compiler: cl is not found", r"Compiler: (?P<compiler>cl) is not found"),
            Pattern("Cannot find compiler 'cl.exe'", r"Cannot find compiler '(?P<compiler>cl)\.exe' in PATH"),
            literal("Microsoft Visual C++ 14.0 or greater is required"),
            Pattern("nvcc not found at", r"nvcc not found at '(?P<path>[^'\n]{1,200})'"),
            literal("MSVC is required to load C++ extensions"),
            literal("Error checking compiler version for cl"),
        ),
        causes=(
            "The image is a runtime image, without compiler and headers.",
            "Python.h: the headers of this Python are not installed.",
            "Library cuda: the driver's libcuda.so.1 exists, but not the name libcuda.so that the linker searches.",
            "On Windows, Visual Studio's Build Tools are missing, or the terminal is not theirs.",
        ),
        fixes=(
            Fix(
                "Install a compiler, ninja, and the headers of this Python.",
                "sudo apt-get install -y build-essential python3-dev ninja-build",
            ),
            Fix(
                "For libcuda, let the linker find the stub or the driver's library.",
                "export LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LIBRARY_PATH",
                first_for=("find -lcuda:", "libcuda"),
            ),
            Fix(
                "Without a CUDA toolkit, which has the stub, give the driver's library the name that the linker"
                " searches, in a folder of yours.",
                "mkdir -p ~/lib && ln -sf \"$(ldconfig -p | awk '/libcuda.so.1/ {print $NF; exit}')\" ~/lib/libcuda.so"
                " && export LIBRARY_PATH=~/lib:$LIBRARY_PATH",
                first_for=("find -lcuda:", "libcuda"),
            ),
            Fix(
                "The linker searches only the folders after -L: find the one that has the library, and name it; if"
                " there is none, install the rest of that toolkit, or set CUDA_HOME to a complete one.",
                "find / -name 'libcudart.so*' 2>/dev/null\nexport LIBRARY_PATH=/usr/local/cuda/lib64:$LIBRARY_PATH",
                first_for=("lcudart",),
                hidden_otherwise=True,
            ),
            Fix(
                "For headers and libraries of CUDA, use a devel image, or install the toolkit in the version of"
                " PyTorch's CUDA.",
                "conda install -c nvidia \"cuda-toolkit=$(python -c 'import torch; print(torch.version.cuda)')\"",
                first_for=("lcudart", "lcurand", "lcublas", "lcudadevrt", "error: cu"),
            ),
            Fix(
                "For Triton on Windows, put the folders include and libs of this Python next to an embedded python.exe,"
                " and have the Build Tools with the Windows SDK.",
                first_for=("include file: 'Python.h'", "cl.EXE'", "tcc.exe", "python_embed"),
            ),
            Fix(
                "On Windows, install the Build Tools with C++, and start from their terminal.",
                BUILD_TOOLS,
                first_for=(
                    "cl is not found",
                    "Visual C++",
                    "MSVC is",
                    "version for cl",
                    "'cl.exe'",
                    "LNK1104",
                    "C1083",
                ),
            ),
            Fix("If torch.compile compiles here, do without it.", "TORCHDYNAMO_DISABLE=1 python train.py"),
            Fix(
                "For headers of PyTorch, build in the environment that has it, not in an isolated one.",
                "pip install --no-build-isolation .",
                first_for=("error: torch/",),
            ),
            Fix(
                "For the libraries of PyTorch, let the linker find their folder.",
                """\
export LIBRARY_PATH="$(python -c 'import os, torch; print(os.path.dirname(torch.__file__))')/lib:$LIBRARY_PATH\"""",
                first_for=("-ltorch",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CPP_EXTENSIONS, sources.TORCH_COMPILE, sources.TRITON),
        said_by="torch 1.13-2.13, Triton 3.0-3.6",
    ),
    KnownError(
        id="source-not-for-windows",
        section=SECTION,
        title="Source code does not compile on Windows",
        summary="The source uses a function that Microsoft's compiler does not have: it was written for Linux.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "': identifier not found",
                r"error C3861: '(?P<identifier>localtime_r|gmtime_r|strtok_r|rand_r|drand48|srand48|usleep|sleep|getpid"
                r"|gettimeofday|clock_gettime|posix_memalign|aligned_alloc|popen|pclose|mkdtemp|strcasecmp|bzero|mmap"
                r"|munmap|dlopen|dlsym|pthread_\w{1,40}|__builtin_\w{1,40}|__sync_\w{1,40})': identifier not found",
            ),
        ),
        causes=("This version of the package supports only Linux.",),
        fixes=(
            Fix("Look for a version, a fork or a wheel of the package for Windows; or use it in WSL.", "wsl --install"),
            Fix(
                "If only a few functions are missing, replace them in the source by those of Windows:"
                " `localtime_r(&rawtime, &local_time)` by `localtime_s(&local_time, &rawtime)`.",
                first_for=("'localtime_r'",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/facebookresearch/detectron2/issues/1842",),
        said_by="Visual Studio 2017-2022",
    ),
    KnownError(
        id="extension-build",
        section=SECTION,
        title="Extension could not be compiled",
        summary="The compiler reported an error while it built an extension; its message stands above, unless lines are"
        " missing.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "detected in the compilation of",
                r"\d{1,5} errors? detected in the compilation of"
                r" \"(?P<file>[^\"\n]{0,100}/flashinfer/[^\"\n]{1,150}\.cu)\"",
            ),
            literal("Error compiling objects for extension"),
            Pattern("unresolved externals", r"fatal error LNK1120: (?P<count>\d{1,5}) unresolved externals"),
            Pattern(
                "has no member",
                r"error: namespace \"(?:cooperative_groups|cub|cutlass|cuda)[\w:]{0,40}\" has no member",
            ),
            Pattern("matches these operands", r"error: no operator \"[^\"\n]{1,8}\" matches these operands"),
            Pattern("is undefined", r"error: identifier \"__(?:nv|half|hf)\w{1,40}\" is undefined"),
            Pattern(
                "must bound __CUDA_ARCH__",
                r"MIN_GPU_ARCH=(?P<architecture>\d{2,4}) must bound __CUDA_ARCH__=(?P<compiled>\d{2,4}) from below",
            ),
            Pattern(
                "detected in the compilation of",
                r"\d{1,5} errors? detected in the compilation of \"(?P<file>[^\"\n]{0,200}/csrc/[^\"\n]{1,100}\.cu)\"",
            ),
            Pattern("FAILED: ", r"FAILED: (?P<code>\[code=\d{1,3}\] )?(?P<file>[\w./-]{1,160}\.cuda\.o)\b"),
            Pattern(
                ".o: No such file or directory", r"ld: cannot find /(?P<file>\S{1,200})\.o: No such file or directory"
            ),
            Pattern("Failed to build CUDA kernels for ", r"Failed to build CUDA kernels for (?P<extension>\w{1,40})"),
            Pattern(
                "Setting up PyTorch plugin", r"Setting up PyTorch plugin \"(?P<extension>\w{1,40})\"\.\.\. Failed!"
            ),
            Pattern(
                "No module named '",
                r"No module named '(?P<extension>upfirdn2d_plugin|bias_act_plugin|filtered_lrelu_plugin)'",
            ),
            Pattern("Error building extension '", r"Error building extension '(?P<extension>[\w.-]{1,80})'"),
            Pattern(
                "]' returned non-zero exit status ",
                r"Command '\['ninja', '-v'[^\n]{0,40}\]' returned non-zero exit status (?P<status>\d{1,3})",
            ),
            Pattern(
                "nvcc' failed with exit",
                r"error: command '[^'\n]{1,120}nvcc' failed with exit (?:code|status) (?P<status>\d{1,3})",
            ),
            Pattern("Failed building wheel for ", rf"Failed building wheel for (?P<extension>{EXTENSIONS})"),
            Pattern(
                "finished with status 'error'",
                rf"Building (?:wheel|editable) for (?P<extension>{EXTENSIONS}) \([\w.]{{1,20}}\): finished with status"
                r" 'error'",
            ),
            literal("A single input file is required for a non-link phase"),
            Pattern(
                "ould not build wheels for ",
                r"[Cc]ould not build wheels for (?P<extension>(?:flash[-_]attn|xformers|mamba[-_]ssm|causal[-_]co"
                r"nv1d|apex|deepspeed|bitsandbytes|auto[-_]gptq|vllm|torch[-_](?:scatter|sparse|cluster)|detectro"
                r"n2|gptqmodel|llama[-_]cpp[-_]python)\b)",
            ),
            Pattern(
                "parameter packs not expanded with",
                r"std_function\.h:\d{1,5}:\d{1,5}: error: parameter packs not expanded with",
            ),
            Pattern("fatal error C", r"torch[\\/]include[^\n]{1,200}fatal error C(?!1060)\d{4}"),
            Pattern("in _run_ninja_build", r"cpp_extension\.py\", line \d{1,6}, in _run_ninja_build"),
            Pattern(
                ".so: cannot open shared object file",
                r"torch_extensions/(?:[\w.+-]{1,40}/)?(?P<extension>(?!cpu_adam|fused_adam|cpu_adagrad|cpu_lion|"
                r"async_io"
                r"|utils/|transformer_inference)\w{1,60})/\w{1,60}\.so: cannot open shared object file",
            ),
            Pattern("Failed to fetch wheel: ", rf"Failed to fetch wheel: (?P<extension>{EXTENSIONS})"),
            Pattern("Failed to build `", rf"Failed to build `(?P<extension>{EXTENSIONS})"),
            Pattern("Failed to download and build `", rf"Failed to download and build `(?P<extension>{EXTENSIONS})"),
        ),
        causes=(
            "The build ran out of host memory: the kernel then kills nvcc, which prints no reason.",
            "PyTorch, the CUDA toolkit and the compiler do not fit together.",
            "The extension's source does not support this version of PyTorch.",
            "The library is missing: an earlier build failed, or another process still builds it.",
        ),
        fixes=(
            Fix("Find the first `error:` or `fatal` above this message.", "grep -n -m 5 -E '(error|fatal)' build.log"),
            Fix(
                "Install a wheel that is already compiled, if there is one.", "pip install --only-binary :all: PACKAGE"
            ),
            Fix("Compile with fewer jobs, if memory ran out.", "MAX_JOBS=2 pip install --no-build-isolation PACKAGE"),
            Fix(
                "Compile only for this host's GPU.", "TORCH_CUDA_ARCH_LIST=8.6 pip install --no-build-isolation PACKAGE"
            ),
            Fix(
                "StyleGAN compiles its operators when it starts: it needs ninja, nvcc of PyTorch's CUDA version, and on"
                " Windows the C++ compiler of Visual Studio.",
                "pip install ninja; nvcc --version; rm -rf ~/.cache/torch_extensions",
                first_for=("upfirdn2d_plugin", "bias_act_plugin", "Failed to build CUDA kernels"),
                hidden_otherwise=True,
            ),
            Fix(
                "For DeepSpeed, show which of its operators can be compiled here, and what is missing.",
                "ds_report",
                first_for=("DeepSpeed",),
                hidden_otherwise=True,
            ),
            Fix(
                "Delete what is half built, and run one process alone, which then builds it.",
                "rm -rf ~/.cache/torch_extensions",
                first_for=(".so: cannot",),
            ),
            Fix(
                "The code 127 means that the compiler was not found: install the CUDA toolkit, or name its folder.",
                "export CUDA_HOME=/usr/local/cuda; ls $CUDA_HOME/bin/nvcc",
                first_for=("[code=127]",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CPP_EXTENSIONS, "https://github.com/Dao-AILab/flash-attention#installation-and-features"),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
    KnownError(
        id="cudnn-development",
        section=SECTION,
        title="Build does not find cuDNN",
        summary="CMake looks for the library and the headers of cuDNN, which PyTorch's packages keep in their"
        " own folder.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("Could not find cudnn_LIBRARY using the following names"),),
        causes=("cuDNN is not installed, or its folder is not among those in which CMake looks.",),
        fixes=(
            Fix(
                "Install cuDNN as a wheel, and name its folder.",
                "pip install nvidia-cudnn-cu12\n"
                "export CUDNN_PATH=$(python -c 'import nvidia.cudnn; print(nvidia.cudnn.__path__[0])')",
            ),
            Fix("Or install it for the system.", "sudo apt-get install -y cudnn9-cuda-12"),
            Fix("Or take the package's wheel.", "pip install --no-build-isolation 'transformer_engine[pytorch]'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/installation.html",),
        said_by="TransformerEngine 0-2",
    ),
)
