"""Errors of kernels while they are compiled: Triton and its launcher, and headers and names in C++ and CUDA."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.toolchain import BUILD_TOOLS, SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="triton-compile",
        section=SECTION,
        title="Triton kernel could not be compiled",
        summary="Triton rejected the source of a kernel; the lines after this one show the place and the reason.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("CompilationError: at ", r"\bCompilationError: at (?P<line>\d{1,6}):(?P<column>\d{1,4})"),
            Pattern("CompileTimeAssertionFailure", r"\bCompileTimeAssertionFailure\b"),
            Pattern("Triton compilation failed", r"Triton compilation failed: (?P<kernel>\w{1,120})"),
            literal("Failures have been detected while processing an MLIR pass pipeline"),
            literal("PassManager::run failed"),
            Pattern("'ptxas' failed with error code", r"'ptxas' failed with error code (?P<code>\d{1,10})"),
            Pattern("`ptxas` failed with error code", r"`ptxas` failed with error code (?P<code>\d{1,10})"),
            literal("Internal Triton PTX codegen error"),
            Pattern(
                "triton.compiler.errors.UnsupportedLanguageConstruct",
                r"triton\.compiler\.errors\.UnsupportedLanguageConstruct",
            ),
            Pattern("data type not supported", r"LLVM ERROR: mma\w{1,12} data type not supported"),
        ),
        causes=(
            "The kernel was written for another version of Triton.",
            "The GPU does not support a type of the kernel: bfloat16 before Ampere, float8 before Ada.",
            "The GPU is newer than this Triton.",
        ),
        fixes=(
            Fix("Read the lines around this message: the first one with `error:` is the reason."),
            Fix(
                "Without a reason after it, the GPU mostly lacks a type of the kernel, such as float8 or"
                " bfloat16 on an RTX"
                " 20: use a model in float16 and PyTorch's attention in place of SageAttention; else delete"
                " Triton's cache.",
                "rm -rf ~/.triton/cache",
                first_for=("code 4294967295",),
            ),
            Fix(
                "On a GPU before Ampere, use float16 instead of bfloat16 or float8.",
                "model = model.to(torch.float16)",
                first_for=("PassManager::run failed",),
            ),
            Fix("On a new GPU, upgrade PyTorch, which brings a newer Triton.", "pip install --upgrade torch"),
            Fix(
                "Install the package with the kernel in the version that fits this Triton.",
                "pip list | grep -i -E 'torch|triton'",
            ),
            Fix(
                "Or use an implementation without Triton, if the package has one.",
                "TORCHDYNAMO_DISABLE=1 python train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TRITON,),
        said_by="torch 2.6-2.13, Triton 2.0-3.6, jaxlib 0.4-0.7",
        is_echo=True,
    ),
    KnownError(
        id="kernel-instruction",
        section=SECTION,
        title="Kernel uses an instruction that this GPU does not have",
        summary="A kernel was written for another generation of GPUs: its types or instructions do not exist here.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                " not supported on .target",
                r"(?:Instruction|Feature|Modifier|Type) '(?P<instruction>[^'\n]{1,100})' not supported on \.target",
            ),
            Pattern(
                "' requires .target sm_",
                r"(?:Instruction|Feature|Modifier|Type) '(?P<instruction>[^'\n]{1,100})' requires \.target"
                r" (?P<required>sm_\d{2,3}[af]?)",
            ),
            Pattern(
                "Cannot select: intrinsic %llvm.nvvm",
                r"Cannot select: intrinsic %llvm\.nvvm\.(?P<instruction>[\w.]{1,60})",
            ),
            literal("IndexError: map::at"),
            literal("Arch conditional MMA instruction used without targeting"),
            Pattern("cutlass cannot ", r"cutlass cannot (?:implement|initialize|run)"),
        ),
        causes=(
            "Only Ampere (sm_80) and later have bfloat16 and TF32, only Ada (sm_89) and later float8.",
            "Blackwell is sm_100 as well as sm_120, but tcgen05 and parts of TMA exist only in data center GPUs.",
            "A kernel for Hopper (wgmma, TMA) was selected on another GPU, or gets sizes that it does not support.",
        ),
        fixes=(
            Fix(
                "On a GPU before Ampere, use float16 in place of bfloat16 and float8.",
                "model = model.to(torch.float16)",
                first_for=("sm_80", "bf16"),
            ),
            Fix(
                "Select another implementation of the kernel, for example another attention or MoE backend, and"
                " upgrade the package that contains it.",
                "pip install --upgrade PACKAGE",
                first_for=("not supported on", "tcgen05", "Arch conditional", "cutlass"),
            ),
            Fix(
                "On a GPU before Ampere, let Triton's kernels not use TF32.",
                "TRITON_F32_DEFAULT=ieee python train.py",
                first_for=("map::at",),
            ),
            Fix("Or do without compilation in PyTorch.", "TORCHDYNAMO_DISABLE=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(Fix("Show the capability of the GPU.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),),
        sources=(
            "https://docs.nvidia.com/cuda/parallel-thread-execution/",
            "https://github.com/state-spaces/mamba/issues/361",
        ),
        said_by="Triton 2.0-3.6, ptxas 11-13",
    ),
    KnownError(
        id="triton-launcher",
        section=SECTION,
        title="C compiler failed on Triton's launcher",
        summary="Triton compiles a small C file for its kernels; the compiler was found, and reported errors in it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Failed to compile. cc_cmd:", r"Failed to compile\. cc_cmd: \['(?P<compiler>[^'\n]{1,200})'"),
        ),
        causes=(
            "The compiler, such as Visual Studio 2019, is too old, or its headers (Windows SDK) are not installed.",
            "The headers of this Python are missing, as in embedded versions of Python.",
            "Environment variables such as CC or INCLUDE point to another compiler.",
        ),
        fixes=(
            Fix("Read the first line with `error` above this message: it names what is missing."),
            Fix(
                "On Windows, install the Build Tools of 2022 with C++ and the Windows SDK.",
                BUILD_TOOLS,
                first_for=("cl.EXE", ":\\"),
            ),
            Fix(
                "On Windows, use a recent triton-windows, which contains a compiler.",
                "pip install --upgrade triton-windows",
            ),
            Fix(
                "On Linux, install a compiler and the headers of this Python.",
                "sudo apt-get install -y gcc python3-dev",
            ),
            Fix("Or do without compilation in PyTorch.", "TORCHDYNAMO_DISABLE=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/woct0rdho/triton-windows",),
        said_by="triton-windows 3.0-3.5",
    ),
    KnownError(
        id="ambiguous-symbol",
        section=SECTION,
        title="Visual Studio finds a name of PyTorch's headers ambiguous",
        summary="On Windows, nvcc and Visual Studio cannot compile a header of PyTorch, a known fault of this pair.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("compiled_autograd.h", r"compiled_autograd\.h\(\d{1,5}\): error C\d{4}"),
            Pattern("': ambiguous symbol", r"error C2872: '(?P<name>std|cuda)': ambiguous symbol"),
            Pattern("cooperative_groups", r"cooperative_groups[\\/]details[\\/]reduce\.h\(\d{1,5}\): error C2872"),
        ),
        causes=(
            "Templates in compiled_autograd.h use std; PyTorch leaves them out where USE_CUDA is defined.",
            "The namespaces ::cuda of the toolkit and c10::cuda of PyTorch are both visible.",
        ),
        fixes=(
            Fix("Define USE_CUDA for the build: set NVCC_APPEND_FLAGS to -DUSE_CUDA, then build again."),
            Fix(
                "Fetch the current version of the extension, and build it again.",
                "git pull && pip install --no-build-isolation .",
                first_for=("'cuda'",),
            ),
            Fix("Or install a wheel that is already compiled.", "pip install --only-binary :all: PACKAGE"),
            Fix("Or use an older PyTorch: 2.6 does not have this fault."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/pull/188952", "https://github.com/ashawkey/cubvh/pull/31"),
        said_by="torch 2.7-2.11, Visual Studio 2022",
    ),
    KnownError(
        id="include-missing",
        section=SECTION,
        title="Source of an extension omits a header",
        summary="The source uses a name whose header older compilers included by themselves and newer ones do not.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is undefined",
                r"error: identifier \"(?P<name>u?int(?:8|16|32|64|ptr)_t|(?:FLT|DBL|INT)_M(?:AX|IN))\" is undefined",
            ),
            Pattern(
                "has no member",
                r"error: namespace \"(?:std\" has no member \"(?P<name>u?int(?:8|16|32|64|ptr)_t)\"|thrust\" has no"
                r" member \"(?P<algorithm>\w{1,40})\")",
            ),
            Pattern(
                "has not been declared",
                r"error: ['\u2018](?:std::)?(?P<name>u?int(?:8|16|32|64|ptr)_t)['\u2019] has not been declared",
            ),
            Pattern(
                "does not name a type",
                r"error: ['\u2018](?P<name>u?int(?:8|16|32|64|ptr)_t)['\u2019]"
                r" (?:in namespace ['\u2018](?:::)?std['\u2019] )?does not name a type",
            ),
            Pattern(
                "is not a member of ",
                r"error: ['\u2018](?P<name>u?int(?:8|16|32|64|ptr)_t)['\u2019] is not a member"
                r" of ['\u2018]std['\u2019]",
            ),
        ),
        causes=(
            "GCC 13 and newer no longer include cstdint through other headers.",
            "CUDA 12 and newer no longer include the algorithms of Thrust through other headers.",
        ),
        fixes=(
            Fix("Include the header in the file that the message names: cstdint, and cfloat for FLT_MAX."),
            Fix("Or take the package's newest source, which may have the header by now.", "git pull"),
            Fix(
                "Or add the header of Thrust: device needs thrust/execution_policy.h, remove_if thrust/remove.h.",
                first_for=('"thrust"',),
            ),
            Fix("Or build with GCC 12 or older.", "CC=gcc-12 CXX=g++-12 pip install --no-build-isolation PACKAGE"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://gcc.gnu.org/gcc-13/porting_to.html",
            "https://github.com/graphdeco-inria/gaussian-splatting/issues/923",
            "https://github.com/NVIDIA/MinkowskiEngine/issues/601",
        ),
        said_by="GCC 13-15, nvcc 12-13",
    ),
    KnownError(
        id="triton-gpu",
        section=SECTION,
        title="Triton of this version does not support the GPU",
        summary="A check in Triton's compiler failed and ended the process, mostly because of the GPU's age.",
        context=ContextState.DEAD,
        patterns=(
            literal("Unexpected MMA layout version found"),
            literal("mma -> mma layout conversion is only supported on Ampere"),
            Pattern("UNREACHABLE executed at ", r"UNREACHABLE executed at [^\n]{0,120}?/Triton\w{0,20}/"),
            Pattern(
                "Dialect/Triton",
                r"Dialect/Triton[\w/]{1,80}\.cpp:\d{1,6}: [^\n]{1,240}?Assertion `(?P<check>[^\n]{1,120}?)' failed",
            ),
        ),
        causes=(
            "The GPU is older than Volta: Triton has no products in float16 below compute capability 7.0.",
            "The GPU is newer than this Triton: Blackwell needs Triton 3.3, the GeForce RTX 50 among it.",
            "The kernel asks for something that this Triton does on another generation of GPUs only.",
        ),
        fixes=(
            Fix("On a new GPU, upgrade PyTorch, which brings a newer Triton.", "pip install --upgrade torch"),
            Fix(
                "On an old GPU, compute without Triton's kernels: no torch.compile, no model in GPTQ by Triton.",
                "TORCHDYNAMO_DISABLE=1 python train.py",
            ),
            Fix(
                "Show the compute capability.",
                "nvidia-smi --query-gpu=name,compute_cap --format=csv",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/triton-lang/triton/issues/1271",
            "https://github.com/triton-lang/triton/issues/6087",
        ),
        said_by="Triton 2.0-3.2",
    ),
)
