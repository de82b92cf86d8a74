"""Errors of compiled parts that do not fit: sources for another PyTorch, kernels that were not built, caches."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.toolchain import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_QUOTED: Final = r"['\u2018\"]"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="extension-source",
        section=SECTION,
        title="Source of an extension is for another PyTorch",
        summary="The C++ or CUDA code uses functions of PyTorch that the installed version does not have, or no"
        " longer.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("_jit_compile() missing", r"TypeError: _jit_compile\(\) missing \d required positional arguments?"),
            Pattern("at::DeprecatedTypeProperties", r"error: [^\n]{0,160}?at::DeprecatedTypeProperties"),
            Pattern(
                "error: no match for ",
                rf"error: no match for {_QUOTED}operator[^\n]{{1,6}} \(operand types are"
                rf" {_QUOTED}[^\n]{{0,40}}?at::Tensor",
            ),
            Pattern(
                "has no member",
                r"error: (?:namespace \"|class \"|['\u2018](?:class |struct |const"
                r" )?)(?P<scope>at|c10|torch)(?:::\w{1,40}){0,4}[\"'\u2019]"
                r" has no member",
            ),
            Pattern(
                "is not a member of ",
                r"error: ['\u2018](?P<name>\w{1,60})['\u2019] is not a member of"
                r" ['\u2018](?P<scope>at|c10|torch)(?:::\w{1,40}){0,3}['\u2019]",
            ),
            Pattern("AT_CHECK", r"error: (?:identifier \"|['\u2018])(?P<name>AT_CHECK)[\"'\u2019]"),
            Pattern("AT_ASSERT", r"error: (?:identifier \"|['\u2018])(?P<name>AT_ASSERT)[\"'\u2019]"),
            Pattern("AT_ERROR", r"error: (?:identifier \"|['\u2018])(?P<name>AT_ERROR)[\"'\u2019]"),
            Pattern(" to compile PyTorch", r"#error .?You need C\+\+(?P<standard>\d\d) to compile PyTorch"),
            Pattern(
                "compiler is required to use ATen",
                r"#error .?C\+\+(?P<standard>\d\d) or later compatible compiler is required to use ATen",
            ),
            Pattern(
                ": No such file or directory",
                r"fatal error: (?P<header>TH[CH]?/[\w.]{1,40}): No such file or directory",
            ),
            Pattern(
                "Cannot open include file: '",
                r"Cannot open include file: '(?P<header>TH[CH]?/[\w.]{1,40})'",
            ),
        ),
        causes=(
            "The extension is older than PyTorch: AT_CHECK, type() and the headers THC were removed.",
            "The extension is newer than PyTorch, and uses what was added later.",
        ),
        fixes=(
            Fix(
                "Fetch the current version of the extension, and build it again.",
                "git pull && pip install --no-build-isolation .",
            ),
            Fix(
                "Or install the PyTorch for which it was written, in a separate environment.",
                "conda create -n fresh python=3.10",
            ),
            Fix(
                "Let the build use this standard of C++: its files name an older one.",
                "grep -rlE 'std=c[+][+]1[14]' . | xargs sed -i -E 's/std=c[+][+]1[14]/std=c++17/'",
                first_for=("to compile PyTorch", "required to use ATen"),
            ),
            Fix(
                "Or change the source: AT_CHECK is TORCH_CHECK, x.type() is x.scalar_type(), x.data<T>() is"
                " x.data_ptr<T>().",
                "grep -rn -E 'AT_CHECK|[.]type[(][)]|THC/' --include=*.cpp --include=*.cu .",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CPP_EXTENSIONS, "https://github.com/pytorch/pytorch/issues/72807"),
        said_by="torch 1.5-2.9, GCC 7-13, nvcc 10-12",
    ),
    KnownError(
        id="arch-list-empty",
        section=SECTION,
        title="Extension is built where no GPU is visible",
        summary="Without a GPU, PyTorch does not know for which one it compiles, and fails on an empty list.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("arch_list[-1] += '+PTX'", r"arch_list\[-1\] \+= '\+PTX'"),),
        causes=(
            "The build runs in docker build, on a login node, or in a session without a GPU.",
            "The driver does not work, so that PyTorch sees no GPU.",
        ),
        fixes=(
            Fix(
                "Name the compute capabilities, for example of A100 and H100.",
                'TORCH_CUDA_ARCH_LIST="8.0;9.0" FORCE_CUDA=1 pip install --no-build-isolation -v .',
            ),
            Fix("Show the compute capability of a GPU.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/cpp_extension.html",),
        said_by="torch 1.8-2.13",
    ),
    KnownError(
        id="compile-cache",
        section=SECTION,
        title="Cache of compiled kernels cannot be written or read",
        summary="torch.compile, Triton or an extension keeps its kernels in files, and one of them is not accessible.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "torchinductor",
                r"(?:PermissionError|FileNotFoundError|FileExistsError|NotADirectoryError|OSError):"
                r" \[(?:Errno|WinError) (?P<code>(?!(?:13|28|122)\])\d{1,4})\]"
                r" [^\n]{1,200}?torchinductor",
            ),
            Pattern(
                ".triton",
                r"(?:PermissionError|FileNotFoundError|FileExistsError|OSError): \[(?:Errno|WinError)"
                r" (?P<code>(?!(?:13|28|122)\])\d{1,4})\] [^\n]{1,160}?\.triton[\\/]",
            ),
            Pattern(
                "torch_extensions",
                r"(?:PermissionError|FileNotFoundError|FileExistsError|OSError): \[(?:Errno|WinError)"
                r" (?P<code>(?!(?:13|28|122)\])\d{1,4})\] [^\n]{1,160}?torch_extensions",
            ),
            Pattern(
                "triton_cache",
                r"(?:PermissionError|FileNotFoundError|FileExistsError|OSError): \[(?:Errno|WinError)"
                r" (?P<code>(?!(?:13|28|122)\])\d{1,4})\] [^\n]{1,160}?triton_cache",
            ),
        ),
        causes=(
            "The cache belongs to another user, such as root, or its disk is full or read-only.",
            "Several processes or jobs write the same cache, on a network file system or on Windows.",
            "On Windows, an antivirus program holds the file, or the path is too long.",
        ),
        fixes=(
            Fix("Delete the caches.", 'rm -rf "/tmp/torchinductor_$USER" ~/.triton/cache ~/.cache/torch_extensions'),
            Fix(
                "Keep the caches on a disk of the node: several processes write the same files on a network disk.",
                "export TRITON_CACHE_DIR=/tmp/triton_$USER TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor_$USER",
                first_for=("[Errno 16]", "[Errno 116]", "tmp.pid"),
            ),
            Fix(
                "Use a folder that belongs to this job.",
                "export TORCHINDUCTOR_CACHE_DIR=$HOME/inductor TRITON_CACHE_DIR=$HOME/triton"
                " TORCH_EXTENSIONS_DIR=$HOME/extensions",
            ),
            Fix(
                "Upgrade PyTorch and Triton: the writing of the cache on Windows was corrected.",
                "pip install --upgrade torch",
            ),
            Fix("Or do without compilation.", "TORCHDYNAMO_DISABLE=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_COMPILE, sources.TRITON),
        said_by="torch 2.1-2.13, Triton 2.1-3.6",
    ),
    KnownError(
        id="torchao-extensions",
        section=SECTION,
        title="torchao does not load its kernels",
        summary="torchao was built for another PyTorch; it goes on in Python, without its compiled kernels.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Skipping import of cpp extensions due to",
                r"Skipping import of cpp extensions due to incompatible torch version"
                r"(?: (?P<version>[\w.+]{1,40}) for torchao version (?P<torchao>[\w.+]{1,30})|\. Please upgrade"
                r" to torch"
                r" >= (?P<required>[\w.+]{1,30}))?",
            ),
            Pattern("Failed to load ", r"Failed to load [^\n]{0,200}/torchao/[\w.-]{1,80}\.so"),
        ),
        causes=("torchao and PyTorch were upgraded one without the other.",),
        fixes=(
            Fix("Ignore it, unless the program quantizes or trains with torchao."),
            Fix(
                "Install both together.",
                "pip install --upgrade torch torchao --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("Or install the torchao that belongs to this PyTorch, from the table in the source below."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/ao/issues/2919",),
        said_by="torchao 0.13-0.17",
        is_warning=True,
    ),
    KnownError(
        id="sage-attention",
        section=SECTION,
        title="SageAttention has no kernel for this GPU",
        summary="SageAttention was built without the kernels for this GPU, is too old for it, or does not"
        " support the input.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "kernel is not available.",
                r"(?P<architecture>SM\d{2,3}) kernel is not available\. [Mm]ake sure you GPUs",
            ),
            Pattern(
                "Unsupported CUDA architecture: sm",
                r"Unsupported CUDA architecture: (?P<architecture>sm_?\d{2,3})",
            ),
            literal("sageattention is not new enough version or could not determine CUDA architecture"),
            Pattern(
                "Error running sage attention: ", r"Error running sage attention: (?!SM\d)(?P<reason>[^\n]{1,160})"
            ),
            Pattern(
                "_qattn_sm",
                r"(?:No module named|cannot import name) '(?:sageattention\.)?(?P<module>_qattn_sm\d{2,3})'",
            ),
            Pattern("import name '_fused' from", r"cannot import name '(?P<module>_fused)' from 'sageattention"),
            Pattern("headdim should be in [", r"headdim should be in \[(?P<limit>[\d, ]{2,30})\]"),
            Pattern(
                "Input tensors must be in dtype of torch.float16",
                r"Input tensors must be in dtype of torch\.float16(?! or torch\.bfloat16, using pytorch attention)",
            ),
        ),
        causes=(
            "The wheel was built for another GPU; each generation has separate kernels.",
            "Version 1 from PyPI is installed, and the program needs version 2.",
            "A part of the model computes in float32, such as the text encoder; SageAttention takes 16 bits only.",
            "The size of a head is not 64, 96 or 128; the program then uses PyTorch's attention.",
        ),
        fixes=(
            Fix(
                "Build version 2 for the GPU of this host, for example 8.9.",
                "TORCH_CUDA_ARCH_LIST=8.9 pip install --no-build-isolation git+https://github.com/thu-ml/SageAttention",
            ),
            Fix("On Windows, install a wheel for this PyTorch and CUDA from github.com/woct0rdho/SageAttention."),
            Fix(
                "Or use PyTorch's attention: in ComfyUI, start without the option.",
                "python main.py --use-pytorch-cross-attention",
                first_for=("headdim", "must be in dtype", "Unsupported"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/thu-ml/SageAttention/blob/main/sageattention/core.py",),
        said_by="SageAttention 1.0-2.2, ComfyUI of 2025",
    ),
    KnownError(
        id="library-damaged",
        section=SECTION,
        title="Library is damaged or for another processor",
        summary="The file of a library exists, and it is empty, incomplete, or made for another kind of processor.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("file too short", r"Error: (?P<library>/[^\n:]{1,200}\.so[\w.]{0,20}): file too short"),
            Pattern("invalid ELF header", r"Error: (?P<library>/[^\n:]{1,200}\.so[\w.]{0,20}): invalid ELF header"),
            Pattern("ELF load command", r"Error: (?P<library>/[^\n:]{1,200}\.so[\w.]{0,20}): ELF load command"),
            Pattern("wrong ELF class", r"Error: (?P<library>/[^\n:]{1,200}\.so[\w.]{0,20}): wrong ELF class"),
        ),
        causes=(
            "The installation or the compilation stopped halfway, as with a full disk.",
            "In a container on a Jetson, the files of the driver are empty until the NVIDIA runtime replaces them.",
            "The folder was copied from a host with another kind of processor.",
        ),
        fixes=(
            Fix(
                "Install the package again, without the files in the cache.",
                "pip install --force-reinstall --no-cache-dir PACKAGE",
            ),
            Fix(
                "Start the container with the NVIDIA runtime, which brings the libraries of the driver.",
                "docker run --rm --runtime nvidia IMAGE nvidia-smi",
                first_for=("linux-gnu/nvidia/",),
            ),
            Fix("Show the size of the file, and the processor of the host.", "ls -lL /lib/*-linux-gnu/libcuda.so*"),
            Fix("Check the free space.", "df -h"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/docker/compose/issues/12203", sources.CPP_EXTENSIONS),
        said_by="glibc 2.17-2.41",
    ),
)
