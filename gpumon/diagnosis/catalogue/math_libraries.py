"""Errors of the libraries that PyTorch computes with: cuBLAS, cuDNN and cuFFT."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CUDA_NOTES,
    LAUNCH_BLOCKING,
    NO_MEMORY_MATTER,
    OWN_LIBRARIES,
    ROOM_FOR_LIBRARIES,
    VERSIONS,
    WHO_HOLDS,
    literal,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Operators"
_CUBLAS: Final = "https://docs.nvidia.com/cuda/cublas/index.html"
_CUDNN: Final = "https://docs.nvidia.com/deeplearning/cudnn/latest/"
_CUDNN_CODE: Final = "https://github.com/pytorch/pytorch/blob/main/torch/backends/cudnn/__init__.py"

_WHICH_LIBRARIES: Final = Fix(
    "See whether another package has brought a second version of NVIDIA's libraries.",
    "pip list | grep -i nvidia; echo $LD_LIBRARY_PATH",
)

_CUBLAS_START: Final = KnownError(
    id="cublas-init",
    section=_SECTION,
    title="cuBLAS could not start",
    summary="cuBLAS, which multiplies matrices, could not make its handle.",
    context=Context.ALIVE,
    patterns=(Pattern("CUBLAS_STATUS_", r"\bCUBLAS_STATUS_(?P<status>NOT_INITIALIZED|ALLOC_FAILED)\b"),),
    causes=(
        "The GPU is full, and the handle finds no room: then it is an out-of-memory error in disguise.",
        "An error before, such as a device-side assert, shows only here; then the context is dead.",
        "Another version of cuBLAS is found first.",
    ),
    fixes=(
        WHO_HOLDS,
        ROOM_FOR_LIBRARIES,
        Fix(
            "Make the handle while there is room, before the large tensors.",
            "torch.ones(8, 8, device=device).mm(torch.ones(8, 8, device=device))",
        ),
        LAUNCH_BLOCKING,
        OWN_LIBRARIES,
    ),
    empty_cache="Helps where PyTorch's own unused cache fills the GPU: the handle is made outside of that cache.",
    see_more=(_WHICH_LIBRARIES,),
    sources=(_CUBLAS,),
)

_CUBLAS_RUN: Final = KnownError(
    id="cublas-exec",
    section=_SECTION,
    title="cuBLAS call failed",
    summary="A multiplication of matrices failed, or cuBLAS did not accept its arguments.",
    context=Context.UNKNOWN,
    patterns=(
        Pattern(
            "CUBLAS_STATUS_",
            r"\bCUBLAS_STATUS_(?P<status>EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|ARCH_MISMATCH|NOT_SUPPORTED"
            r"|MAPPING_ERROR|LICENSE_ERROR)\b(?: when calling `(?P<call>\w{1,60}))?",
        ),
    ),
    causes=(
        "An illegal access or an assert of a kernel before shows only here.",
        "Another version of cuBLAS is found first.",
        "A dimension is beyond 2**31, a tensor is empty, or a stride is odd.",
        "The type, such as float8, is not supported on this GPU.",
    ),
    fixes=(
        LAUNCH_BLOCKING,
        OWN_LIBRARIES,
        Fix(
            "As a cross-check, take the other library of the two.",
            'import torch\n\ntorch.backends.cuda.preferred_blas_library("cublaslt")',
        ),
        Fix(
            "Print shapes, strides and types of what is multiplied.",
            "print(a.shape, a.stride(), a.dtype, b.shape, b.stride(), b.dtype)",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(_WHICH_LIBRARIES, VERSIONS),
    sources=(_CUBLAS, CUDA_NOTES),
)

_CUDNN_RUN: Final = KnownError(
    id="cudnn-init",
    section=_SECTION,
    title="cuDNN call failed",
    summary="cuDNN, which computes convolutions and recurrent layers, could not start or failed.",
    context=Context.ALIVE,
    patterns=(Pattern("cuDNN error: CUDNN_STATUS_", r"cuDNN error: (?P<status>CUDNN_STATUS_\w{1,60})"),),
    causes=(
        "No memory is left for the handle or for the work space.",
        "Another version of cuDNN is found first.",
        "An error of a kernel before shows only here; then the context is dead.",
        "NOT_SUPPORTED: the layout, the size or the type is none that cuDNN takes; often the input is not contiguous.",
    ),
    fixes=(
        WHO_HOLDS,
        OWN_LIBRARIES,
        Fix("Give it contiguous inputs.", "output = layer(hidden.contiguous())"),
        Fix(
            "See whether it works without cuDNN, which tells the causes apart.",
            "import torch\n\ntorch.backends.cudnn.enabled = False",
        ),
        LAUNCH_BLOCKING,
    ),
    empty_cache="Helps only where PyTorch's unused cache leaves no room for the handle, which lies outside of it.",
    see_more=(_WHICH_LIBRARIES, VERSIONS),
    sources=(_CUDNN,),
)

_CUDNN_VERSION: Final = KnownError(
    id="cudnn-version",
    section=_SECTION,
    title="Wrong version of cuDNN",
    summary="Another cuDNN was loaded than the one PyTorch was built with.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        Pattern(
            "cuDNN version incompatibility: PyTorch was compiled",
            r"cuDNN version incompatibility: PyTorch was compiled {1,3}against \((?P<built>[\d, ]{1,20})\)"
            r"(?: but found runtime version \((?P<found>[\d, ]{1,20})\))?",
        ),
    ),
    causes=(
        "LD_LIBRARY_PATH leads to a system's cuDNN.",
        "Another package asked for its own version of NVIDIA's cuDNN wheel.",
    ),
    fixes=(
        OWN_LIBRARIES,
        Fix("Install PyTorch anew, which brings its own cuDNN back.", "pip install --force-reinstall torch"),
        _WHICH_LIBRARIES,
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_CUDNN_CODE,),
)

_CUDNN_ENGINE: Final = KnownError(
    id="cudnn-engine",
    section=_SECTION,
    title="cuDNN finds no way to compute it",
    summary="cuDNN has no algorithm that fits the shapes, the type, the GPU and the memory that is free.",
    context=Context.ALIVE,
    patterns=(
        literal("Unable to find a valid cuDNN algorithm to run convolution"),
        Pattern(
            "was unable to find an engine", r"\b(?:GET|FIND) was unable to find an engine to execute this computation"
        ),
        Pattern("cuDNN Frontend error:", r"cuDNN Frontend error: (?P<reason>[^\n]{1,200})"),
    ),
    causes=(
        "The GPU is full, and no algorithm's work space finds room: then it is an out-of-memory error in disguise.",
        "This version of cuDNN does not support the GPU, the type or the layout.",
    ),
    fixes=(
        WHO_HOLDS,
        Fix("Take fewer samples at a time.", "loader = DataLoader(dataset, batch_size=8)"),
        Fix(
            "Do not let cuDNN try algorithms with large work spaces.",
            "import torch\n\ntorch.backends.cudnn.benchmark = False",
        ),
        Fix("For attention, do without cuDNN.", "import torch\n\ntorch.backends.cuda.enable_cudnn_sdp(False)"),
        Fix("Install a newer PyTorch, which brings a newer cuDNN.", "pip install --upgrade torch"),
    ),
    empty_cache="Changes little: work spaces come from PyTorch's own allocator, which empties its cache by itself.",
    see_more=(VERSIONS,),
    sources=(_CUDNN, CUDA_NOTES),
)

_CUFFT: Final = KnownError(
    id="cufft",
    section=_SECTION,
    title="cuFFT call failed",
    summary="cuFFT, which computes Fourier transforms, failed or did not accept the size.",
    context=Context.ALIVE,
    patterns=(Pattern("cuFFT error: CUFFT_", r"cuFFT error: (?P<status>CUFFT_\w{1,40})"),),
    causes=(
        "The build of PyTorch is older than the GPU.",
        "Kept plans fill the memory.",
        "In half precision, the size is not a power of two.",
    ),
    fixes=(
        Fix("Install a newer PyTorch.", "pip install --upgrade torch"),
        Fix("Drop the plans that are kept.", "torch.backends.cuda.cufft_plan_cache.clear()"),
        Fix("Transform in single precision.", "spectrum = torch.fft.rfft(signal.float())"),
    ),
    empty_cache="Does not drop cuFFT's plans; for those there is torch.backends.cuda.cufft_plan_cache.clear().",
    see_more=(LAUNCH_BLOCKING, VERSIONS),
    sources=(CUDA_NOTES, "https://docs.nvidia.com/cuda/cufft/index.html"),
)

ERRORS: Final = (_CUBLAS_START, _CUBLAS_RUN, _CUDNN_RUN, _CUDNN_VERSION, _CUDNN_ENGINE, _CUFFT)
