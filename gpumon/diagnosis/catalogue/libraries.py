"""Errors of libraries and builds: shared libraries, extensions, compilers."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern
from gpumon.diagnosis.package_names import CUDA_12_PATHS, PYG_WHEELS

SECTION: Final = "Libraries and builds"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="lib-missing",
        section=SECTION,
        title="CUDA library missing or wrong version",
        summary="A CUDA or PyTorch library was not found, or another version was loaded instead.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "cannot open shared object file",
                r"(?<!dlerror: )(?<!with error: )"
                r"\b(?P<missing>lib(?:cu(?:dart|blas\w{0,4}|dnn\w{0,40}|fft\w?|rand|solver\w{0,4}|sparse\w{0,4}|pti|f"
                r"ile\w{0,8}|dss|tensor"
                r"\w{0,6}|vs|ml|graph|df|obj|inj64\w{0,8})|nvrtc[\w-]{0,20}|nvJitLink|nvToolsExt|nvshmem\w{0,20}|nvjp"
                r"eg|npp\w{1,6}|nvvm|nvinfer\w{0,20}"
                r"|nvonnxparser|nvidia-(?:ptxjitcompiler|encode|opticalflow|nvvm|cfg)|nvcuvid|nvcomp\w{0,12}|nvblas|n"
                r"ccl(?!-net|-tuner|-profiler)[\w-]{0,12}|torch\w{0,30}|c10\w{0,20}"
                r"|shm|tensorrt\w{0,12}|cupti|raft|rmm|dgl\w{0,12}|onnxruntime\w{0,30}|caffe2\w{0,16}|nvrm\w{0,12}|nv"
                r"mpi|nvpl_\w{1,30}|cutlass\w{0,12}|mpi(?:_\w{2,8})?)"
                r"\.so[\w.]{0,20}): cannot open shared object file",
            ),
            Pattern("undefined symbol: __nvJitLink", r"undefined symbol: (?P<symbol>__nvJitLink\w{1,60})"),
            Pattern(
                "with link time reference",
                r"symbol (?P<symbol>\w{1,300}),? version lib(?:cu|nv)\w{1,30}\.so[\w.]{0,12} not defined in file"
                r" (?P<library>lib\w{1,30}\.so[\w.]{0,12}) with link time reference",
            ),
            Pattern("undefined symbol: nccl", r"undefined symbol: (?P<symbol>nccl\w{1,60})"),
            Pattern(
                "undefined symbol: cu",
                r"undefined symbol: (?P<symbol>cu(?:blas|dnn|sparse|solver|fft|rand|da|[A-Z])\w{1,60})",
            ),
            Pattern("undefined symbol: __cuda", r"undefined symbol: (?P<symbol>__cuda\w{1,60})"),
            Pattern("undefined symbol: nv", r"undefined symbol: (?P<symbol>nv(?:ml|rtc|tx|shmem|jpeg)\w{1,60})"),
            Pattern("Unable to load any of {", r"Unable to load any of \{(?P<library>lib\w{1,40}\.so[\w.]{0,20})"),
            Pattern(
                "Could not load library ",
                r"Could not load library (?P<library>(?:lib)?cu\w{1,40}\.(?:so(?:\.\w{1,8}){0,4}|dll))\.? ?"
                r"Error(?: code|: ?lib)",
            ),
            Pattern(
                "is not found or cannot be loaded",
                r"Library (?P<library>lib\w{1,40}\.so[\w.]{0,20}) is not found or cannot be loaded",
            ),
            Pattern("Could not locate cu", r"Could not locate (?P<library>cu\w{1,40}\.dll)"),
            Pattern(
                "is not found or cannot be loaded",
                r"Library (?P<library>(?:cu|nv)\w{1,40}\.dll) is not found or cannot be loaded",
            ),
            Pattern(
                ".dll is not found",
                r"\b(?P<library>(?:cu(?:dnn|blas|dart|fft|rand|solver|sparse)|nvrtc)[\w -]{0,30}\.dll) is not found",
            ),
            Pattern(
                "nable to load lib",
                r"[Uu]nable to load (?P<library>lib(?:cudnn|cublas|cudart|cufft|nvrtc|nccl)\w{0,20}\.so[\w.]{0,20})",
            ),
            Pattern(
                "Failed to load NCCL library from",
                r"Failed to load NCCL library from (?P<missing>libnccl[\w.-]{0,20})",
            ),
            Pattern("Cannot load symbol cu", r"Cannot load symbol (?P<symbol>cu(?:dnn|blas)\w{1,60})"),
            Pattern(
                "Error in dlopen",
                r"Error in dlopen(?: for library)?:? ?(?P<library>lib(?:nvrtc|cu|caffe2_nvrtc)[\w.-]{0,40})",
            ),
        ),
        causes=(
            (
                "If a symbol is missing: LD_LIBRARY_PATH points to another version, such as the system's CUDA, which is"
                " found before the libraries of the wheels."
            ),
            "If a file is missing: a package was built for another major version of CUDA.",
            "The installation of another package replaced or removed one of NVIDIA's wheels.",
            "A package such as ctranslate2, ONNX Runtime or TensorRT expects a library that is not installed.",
        ),
        fixes=(
            Fix(
                "List the installed NVIDIA wheels, and check whether they are compatible.",
                "pip list | grep -i nvidia; pip check",
            ),
            Fix(
                "Reinstall PyTorch, which restores its CUDA libraries.",
                "pip install --force-reinstall torch",
                first_for=("undefined symbol: nccl",),
            ),
            Fix(
                fixes.BUNDLED_LIBRARIES.text,
                fixes.BUNDLED_LIBRARIES.code,
                first_for=(
                    "undefined symbol: __nvJitLink",
                    "with link time reference",
                    "{libcudnn_engines",
                ),
            ),
            Fix(
                "For ctranslate2 and faster-whisper, install the libraries of CUDA 12, and add their folders to the"
                " search path.",
                f"pip install nvidia-cudnn-cu12 nvidia-cublas-cu12\n{CUDA_12_PATHS}",
                first_for=(
                    "Unable to load any of {libcudnn_ops",
                    "Unable to load any of {libcudnn_cnn",
                    "Library libcu",
                    "Cannot load symbol cudnn",
                    "so.12 is not found",
                    "so.11 is not found",
                ),
            ),
            Fix(
                "On Windows, add the folder of PyTorch's libraries, `Lib\\site-packages\\torch\\lib`, to PATH, if it"
                " has the"
                " file; otherwise, install the version of CUDA or cuDNN that the message names, and add its folder.",
                first_for=(".dll is not found", "Could not locate cu", "_infer64_8.dll", "_9.dll", "_12.dll"),
            ),
            Fix(
                "Install PyTorch in a new environment.",
                "python3 -m venv fresh && fresh/bin/pip install torch --index-url"
                " https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "Install the package's build for your PyTorch's CUDA version.",
                "python -c 'import torch; print(torch.version.cuda)'",
            ),
            Fix(
                "The driver's library was not found under the name libcuda.so; in WSL, let the loader find it.",
                "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",
                first_for=("Error: libcuda.so",),
                hidden_otherwise=True,
            ),
            Fix(
                "If the library belongs to torch-scatter, torch-sparse, torch-cluster or torch-spline-conv, install"
                " their wheels for the installed PyTorch.",
                f'pip install --force-reinstall --no-deps torch-scatter torch-sparse -f "{PYG_WHEELS}"',
                first_for=("PyG extension",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(
            Fix(
                "Show which file each library is loaded from.",
                "LD_DEBUG=libs python -c 'import torch' 2>&1 | grep 'calling init'",
            ),
        ),
        sources=(
            "https://github.com/pytorch/pytorch/issues/111469",
            "https://github.com/pytorch/pytorch/issues/134929",
            "https://github.com/pytorch/pytorch/issues/152783",
        ),
        said_by="Triton 3.6, bitsandbytes 0.49, ONNX Runtime 1.17",
    ),
    KnownError(
        id="flash-attn-abi",
        section=SECTION,
        title="Extension built for another PyTorch",
        summary=("A compiled extension needs a function that the installed PyTorch does not have with this signature."),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "undefined symbol: _Z",
                r"(?:-packages/(?P<package>\w{1,30})/(?:[\w.+-]{1,30}/){0,2})?(?P<library>[\w.+-]{1,80}\.so):"
                r" undefined symbol: (?P<symbol>_Z\w{0,60}?(?:3c10|2at|5torch|6caffe2|12tensorrt_llm|6triton)\w{0,200"
                r"})",
            ),
            Pattern(
                ".so: undefined symbol: ",
                r"(?P<library>[\w.+-]{1,80}\.so): undefined symbol:"
                r" (?P<symbol>(?:_?TH[A-Z]|aoti_torch_|torch_)\w{1,80})",
            ),
            Pattern(
                "No such operator ",
                r"RuntimeError: No such operator"
                r" (?P<package>(?!torchvision|aten|prim|quantized)\w{1,40})::(?P<operator>\w{1,60})",
            ),
            Pattern(
                "'_OpNamespace' '",
                r"'_OpNamespace' '(?P<package>(?!torchvision'|_C'|aten'|prim')\w{1,60})' object has no attribute"
                r" '(?P<operator>\w{1,60})'",
            ),
            Pattern(
                "undefined symbol: _Z",
                r"(?P<library>[\w.+-]{0,40}(?:cuda|torch|flash|gemm|triton|tensorrt|cutlass|xformers|spconv)[\w.+-]{0"
                r",60}\.so):"
                r" undefined symbol: (?P<symbol>_Z(?!\w{0,60}?(?:3c10|2at|5torch|6caffe2|12tensorrt_llm|6triton))\w{1"
                r",200})",
            ),
            Pattern(
                "Could not load this library: ",
                r"Could not load this library: (?P<library>(?![^\n]{0,200}torchcodec)[^\n]{0,200}\.(?:so|pyd"
                r"|dll|dylib))",
            ),
            Pattern(
                ".so: undefined symbol",
                r"(?P<library>(?:selective_scan_cuda|causal_conv1d_cuda|flash_attn_\w{0,4}_?cuda|fused_layer_norm_cuda"
                r"|amp_C|exllamav?2?_kernels|awq_\w{1,10}_?engine|transformer_engine_torch)[\w.-]{0,60}\.so):"
                r" undefined symbol(?!: )",
            ),
            Pattern(".so: undefined symbol", r"(?P<library>(?:mmcv/)?_ext\.cpython[\w.-]{0,60}\.so): undefined symbol"),
        ),
        causes=(
            "PyTorch was upgraded after flash-attn or another extension was installed.",
            "The wheel was built for another version of PyTorch, CUDA, Python or the C++ ABI.",
        ),
        fixes=(
            Fix(
                "Install the extension again for the installed PyTorch; what has no wheel for it is built.",
                "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps flash-attn",
            ),
            Fix(
                "If the error stays, let pip build it in any case, which takes long and needs nvcc.",
                "FLASH_ATTENTION_FORCE_BUILD=TRUE pip install --no-build-isolation --no-cache-dir --force-reinstall"
                " --no-deps flash-attn",
            ),
            Fix(
                "Or choose the wheel that matches your versions.",
                """\
import sys, torch

print(torch.__version__, torch.version.cuda, torch.compiled_with_cxx11_abi(), sys.version_info[:2])""",
            ),
            Fix(
                "Or remove the extension: PyTorch's own attention is as fast in most cases.",
                "output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)",
            ),
            Fix("Show which function is missing.", "c++filt _ZN3c104cuda9SetDeviceEi"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/Dao-AILab/flash-attention/issues/931",
            "https://github.com/Dao-AILab/flash-attention/issues/1832",
        ),
    ),
    KnownError(
        id="bnb",
        section=SECTION,
        title="bitsandbytes found no compiled library",
        summary="bitsandbytes did not find its compiled library, or none for PyTorch's CUDA version.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("itsandbytes is only supported on CUDA", r"[Bb]itsandbytes is only supported on CUDA GPUs?"),
            Pattern(
                "not available in CPU-only version of",
                r"Method '(?P<method>\w{1,60})' not available in CPU-only version of bitsandbytes",
            ),
            literal("Check your CUDA paths. Proceeding to load CPU-only library"),
            Pattern("name 'str2optimizer", r"name '(?P<name>str2optimizer\w{1,20})' is not defined"),
            Pattern(
                "not found in any environmental path",
                r"CUDA_SETUP: WARNING! (?P<file>\S{1,60}) not found in any environmental path",
            ),
            Pattern(
                "Could not find the bitsandbytes ",
                r"Could not find the bitsandbytes (?:CUDA|ROCm) binary at \w{0,16}\(?'?(?P<file>[^')\n]{1,200})",
            ),
            Pattern(" binary not found at ", r"Configured (?:CUDA|ROCm) binary not found at (?P<file>[^\n]{1,200})"),
            literal("Could not load bitsandbytes native library"),
            Pattern(
                "libbitsandbytes_",
                r"Could not find module '(?P<file>[^'\n]{1,200}[\\/]libbitsandbytes_\w{1,20}\.dll)'",
            ),
            literal("CUDA SETUP: Required library version not found"),
            literal("CUDA SETUP: CUDA detection failed"),
            literal("CUDA SETUP: Setup Failed"),
            literal("CUDA SETUP ERROR"),
            literal("Your GPU does not support Int8 Matmul"),
            literal("CUDA VERSION MISMATCH"),
            literal("No compatible CUDA binary found at"),
            literal("bitsandbytes was compiled without GPU support"),
            literal("bitsandbytes native library functionality but it's not available"),
            Pattern("CUDA Setup failed despite", r"CUDA Setup failed despite (?:GPU|CUDA) being available"),
            Pattern(
                "' object has no attribute 'c",
                r"'NoneType' object has no attribute"
                r" '(?P<symbol>cget_\w{1,40}|c\w{1,20}(?:8bit|32bit|blockwise)\w{0,40})'",
            ),
            Pattern(
                "libbitsandbytes_c",
                r"libbitsandbytes_c(?:pu|uda\d{2,4})\.so: cannot open shared object file",
            ),
            Pattern(
                "libbitsandbytes_cpu.so: undefined symbol",
                r"libbitsandbytes_cpu\.so: undefined symbol: (?P<symbol>\w{1,60})",
            ),
        ),
        causes=(
            "bitsandbytes is older than PyTorch's CUDA version, or its source folder was never compiled.",
            "A CUDA library that bitsandbytes needs is not found.",
            "Old versions multiply in 8 bits only on some GPUs.",
        ),
        fixes=(
            Fix("Upgrade bitsandbytes.", "pip install --upgrade bitsandbytes"),
            Fix(
                "Remove this old build for Windows, and install bitsandbytes itself, which has one since version 0.43;"
                " PyTorch must be a build with CUDA.",
                "pip uninstall -y bitsandbytes bitsandbytes-windows\npip install --upgrade bitsandbytes",
                first_for=("Could not find module '",),
            ),
            Fix("Print what bitsandbytes looks for.", "python -m bitsandbytes"),
            Fix(
                "This is the source folder, which was not compiled: install the wheel, and start the program in another"
                " folder.",
                "pip install --upgrade bitsandbytes && cd ~",
                first_for=("/bitsandbytes/bitsandbytes/lib",),
                hidden_otherwise=True,
            ),
            Fix(
                "Select a version that bitsandbytes includes, for example 12.6.", "BNB_CUDA_VERSION=126 python train.py"
            ),
            Fix(
                "The GPU is older than Turing and has no 8-bit products: load the model in 4 bits.",
                "config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float16)",
                first_for=("Int8 Matmul",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=("https://huggingface.co/docs/bitsandbytes/main/en/installation",),
        said_by="bitsandbytes 0.41-0.49",
    ),
    KnownError(
        id="triton-resources",
        section=SECTION,
        title="Kernel exceeds the GPU's resources",
        summary="A kernel of Triton, gsplat or Warp needs more shared memory or registers per block than the GPU has.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("increase TRITON_MAX_BLOCK", r"increase TRITON_MAX_BLOCK\['(?P<axis>\w)'\] to (?P<size>\d{1,6})"),
            Pattern(
                "out of resource: ",
                r"out of resource: (?P<resource>\w{1,80}) Required: (?P<required>\d{1,12}) Hardware limit: ?(?P<limit"
                r">\d{1,12})",
            ),
            Pattern(
                "out of resource:",
                r"out of resource: (?P<resource>[\w ]{1,40}), Required: (?P<required>\d{1,12}),"
                r" Hardware limit: (?P<limit>\d{1,12})",
            ),
            Pattern(
                "Failed to set the allowed dynamic",
                r"Failed to set the allowed dynamic shared ?memory size to (?P<required>\d{1,12})",
            ),
            Pattern(
                "Failed to set maximum shared memory size",
                r"Failed to set maximum shared memory size \(requested (?P<required>\d{1,12}) bytes\)",
            ),
            Pattern(
                "Failed to configure kernel dynamic shared memory",
                r"Failed to configure kernel dynamic shared memory[^\n]{0,40}, tried to configure (?P<kernel>\w{1,120})"
                r" kernel for (?P<required>\d{1,12}) bytes, but maximum"
                r" available is (?P<limit>\d{1,12})",
            ),
        ),
        causes=(
            "The kernel was tuned for an A100 or H100, and this GPU has 64 to 100 KB of shared memory per block.",
            "Block sizes or num_stages are too large for the type.",
            "If fewer than 48 KB were requested: the package has no kernel for this GPU; build it again.",
        ),
        fixes=(
            Fix(
                "Use smaller blocks and fewer stages.",
                "triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64}, num_stages=2, num_warps=4)",
            ),
            Fix(
                "With torch.compile, disable max-autotune.",
                "TORCHINDUCTOR_MAX_AUTOTUNE=0 python train.py",
            ),
            Fix("Upgrade the package that contains the kernel."),
            Fix(
                "This GPU has 64 KB per block, as Turing and AMD have, and the kernel is made for GPUs with more: use a"
                " version or, if the model permits another one, an attention backend that supports it, or another GPU.",
                first_for=("limit: 65536",),
                hidden_otherwise=True,
            ),
            Fix(
                "For gsplat, use smaller tiles, or fewer channels at once.",
                "rasterization(means, quats, scales, opacities, colors, viewmats, Ks, width, height, tile_size=8)",
                first_for=("tile_size",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/triton-lang/triton/blob/main/python/triton/runtime/errors.py",),
        said_by="gsplat 1.0, Warp 1.10, torch 2.13",
    ),
    KnownError(
        id="executable-stack",
        section=SECTION,
        title="Library asks for an executable stack",
        summary="A library is marked as needing an executable stack, which newer systems refuse; it does not need one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "cannot enable executable stack",
                r"(?P<library>[\w.+-]{1,80}\.so[\w.]{0,20}): cannot enable executable stack as shared object requires",
            ),
        ),
        causes=("The C library of the system, since glibc 2.41, loads no such library into a running program.",),
        fixes=(
            Fix("Upgrade the package of the library, such as ctranslate2.", "pip install --upgrade ctranslate2"),
            Fix("Or remove the mark from the file.", "patchelf --clear-execstack LIBRARY.so"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/m-bain/whisperX/issues/1038",),
        said_by="CTranslate2 4.4",
    ),
)
