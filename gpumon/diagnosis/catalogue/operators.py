"""Errors of operators: checkpoints of other devices, attention kernels, and failures of cuBLAS, cuDNN and cuFFT."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, cuda_error, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Operators"

_WHICH_LIBRARIES: Final = Fix(
    "Check whether another package installed a second version of NVIDIA's libraries.",
    "pip list | grep -i nvidia; echo $LD_LIBRARY_PATH",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="load-map",
        section=SECTION,
        title="Checkpoint from an unavailable GPU",
        summary="A checkpoint contains tensors on a GPU that this process does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Attempting to deserialize object on",
                r"Attempting to deserialize object on (?:a CUDA device|CUDA device (?P<gpu>\d{1,4}))",
            ),
        ),
        causes=("The checkpoint was saved on cuda:N and is loaded on a host with fewer GPUs, or with none.",),
        fixes=(
            Fix(
                "Load the checkpoint to the CPU, then move the model.",
                'state = torch.load(path, map_location="cpu", weights_only=True)',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.load.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="sdpa",
        section=SECTION,
        title="No attention kernel available",
        summary="None of the enabled attention kernels supports these tensors on this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("No available kernel.", r"No available kernel\. {1,3}Aborting execution"),
            literal("FlashAttention only supports Ampere GPUs or newer"),
            Pattern("no kernel found to launch!", r"cutlass[FB]: no kernel found to launch!"),
        ),
        causes=(
            "sdpa_kernel enables only kernels that do not support the type, the head size or the mask.",
            "FlashAttention requires float16 or bfloat16 and an Ampere or newer GPU.",
        ),
        fixes=(
            Fix("Read the preceding warnings, in which each kernel reports why it cannot be used."),
            Fix(
                "Enable a kernel that supports all inputs.",
                """\
from torch.nn.attention import SDPBackend, sdpa_kernel

with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
    output = model(batch)""",
            ),
            Fix(
                "Compute attention in bfloat16.",
                "query, key, value = (x.to(torch.bfloat16) for x in (query, key, value))",
            ),
            Fix(
                "With transformers, use PyTorch's own attention.",
                'model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")',
            ),
            Fix(
                "The GPU is older than Ampere, such as T4, V100 or RTX 20: use PyTorch's attention instead of"
                " the package flash-attn.",
                'model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")',
                first_for=("only supports Ampere",),
                hidden_otherwise=True,
            ),
            Fix(
                "Let PyTorch use its plain attention: this GPU has no fast kernel for the type, such as bfloat16"
                " before Ampere.",
                "torch.backends.cuda.enable_mem_efficient_sdp(False)",
                first_for=("cutlassF",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.ATTENTION,),
        said_by="torch 2.0-2.13, vLLM 0.6-0.19, transformers 4.36, xFormers 0.0.22-0.0.33",
    ),
    KnownError(
        id="sync-debug",
        section=SECTION,
        title="CPU waits for the GPU",
        summary="An operation made the program wait for the GPU, and set_sync_debug_mode reports it.",
        context=ContextState.ALIVE,
        patterns=(literal("called a synchronizing CUDA operation"),),
        causes=(
            "A value was read on the CPU: .item(), .cpu(), float(tensor) or print.",
            "The size of a result depends on data: nonzero, a boolean mask, unique.",
        ),
        fixes=(
            Fix("Accumulate on the GPU, and read the sum only occasionally.", "total += loss.detach()"),
            Fix("Copy from pinned memory without waiting.", "batch = batch.to(device, non_blocking=True)"),
            Fix("Replace a mask with torch.where, which keeps the shape.", "values = torch.where(mask, values, 0.0)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="amp-disabled",
        section=SECTION,
        title="Gradient scaling is disabled",
        summary="A GradScaler for CUDA was created where CUDA is not available, so it has no effect.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("GradScaler is enabled, but CUDA is not available"),),
        causes=("The program runs on the CPU, intentionally or because no GPU was usable.",),
        fixes=(
            Fix("Check whether PyTorch finds the GPU.", "python -c 'import torch; print(torch.cuda.is_available())'"),
            Fix("Pass the device type that is in use.", "scaler = torch.amp.GradScaler(device.type)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.AMP,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="cublas-init",
        section=SECTION,
        title="cuBLAS initialization failed",
        summary="cuBLAS, the matrix multiplication library, could not create its handle.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("CUBLAS_STATUS_", r"\bCUBLAS_STATUS_(?P<status>NOT_INITIALIZED|ALLOC_FAILED)\b"),
            cuda_error("the resource allocation failed"),
            cuda_error("the library was not initialized"),
        ),
        causes=(
            "The GPU is full, and the handle does not fit: then the real error is out of memory.",
            "An earlier error, such as a device-side assert, is reported only here; the context is then dead.",
            "Another version of cuBLAS is found first.",
        ),
        fixes=(
            fixes.LIST_PROCESSES,
            fixes.MEMORY_FOR_LIBRARIES,
            Fix(
                "Create the handle while memory is free, before the large tensors.",
                "torch.ones(8, 8, device=device).mm(torch.ones(8, 8, device=device))",
            ),
            fixes.LAUNCH_BLOCKING,
            fixes.BUNDLED_LIBRARIES,
        ),
        empty_cache="Helps if PyTorch's unused cache fills the GPU: the handle is allocated outside that cache.",
        see_more=(_WHICH_LIBRARIES,),
        sources=(sources.CUBLAS,),
    ),
    KnownError(
        id="cublas-exec",
        section=SECTION,
        title="cuBLAS call failed",
        summary="A matrix multiplication failed, or cuBLAS rejected its arguments.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("cuBLAS API failed with status", r"cuBLAS API failed with status (?P<status>\d{1,3})"),
            literal("cublasLt ran into an error"),
            cuda_error("an internal operation failed"),
            cuda_error("the GPU program failed to execute"),
            cuda_error("an access to GPU memory space failed"),
            cuda_error("an unsupported value or parameter was passed to the function"),
            cuda_error("the functionality requested is not supported"),
            cuda_error("the function requires an architectural feature absent from the"),
            Pattern("cuBLAS Error: ", r"cuBLAS Error: (?P<reason>the [^\n]{1,100})"),
            Pattern(
                "CUBLAS_STATUS_",
                r"(?<!cuBLAS failed with status"
                r" )\bCUBLAS_STATUS_(?P<status>EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|ARCH_MISMATCH|"
                r"NOT_SUPPORTED"
                r"|MAPPING_ERROR|LICENSE_ERROR)\b(?: when calling `(?P<call>\w{1,60}))?",
            ),
        ),
        causes=(
            "An illegal memory access or an assert in an earlier kernel is reported only here.",
            "Another version of cuBLAS is found first.",
            "A dimension exceeds 2**31, a tensor is empty, or a stride is not supported.",
            "This GPU does not support the type, such as float8.",
        ),
        fixes=(
            fixes.LAUNCH_BLOCKING,
            Fix(
                "Print what cuBLAS rejected; in float8, all sizes must be multiples of 16.",
                "print(a.shape, a.stride(), a.dtype, b.shape, b.stride(), b.dtype)",
                first_for=("cublasLtMatmul with",),
            ),
            Fix(
                fixes.BUNDLED_LIBRARIES.text,
                fixes.BUNDLED_LIBRARIES.code,
                first_for=("CUBLAS_STATUS_INVALID_VALUE", "CUBLAS_STATUS_NOT_SUPPORTED"),
            ),
            Fix(
                "As a cross-check, use cuBLASLt instead of cuBLAS.",
                'import torch\n\ntorch.backends.cuda.preferred_blas_library("cublaslt")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(_WHICH_LIBRARIES, fixes.SHOW_VERSIONS),
        sources=(sources.CUBLAS, sources.CUDA_NOTES),
    ),
    KnownError(
        id="cudnn-init",
        section=SECTION,
        title="cuDNN call failed",
        summary="cuDNN, the library for convolutions and recurrent layers, could not be initialized or failed.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "cuDNN error: CUDNN_STATUS_",
                r"cuDNN error: (?P<status>CUDNN_STATUS_(?!SUBLIBRARY_VERSION_MISMATCH|VERSION_MISMATCH)\w{1,60})",
            ),
            Pattern(
                "CUDNN_STATUS_",
                r"(?:failed|returned|status|error code|CUDNN error|cuDNN Error)[^\n]{0,40}?(?<!handle: )(?<!Error: )("
                r"?<!error: )(?<!\w)(?P<status>CUDNN_STATUS_(?!SUCCESS|(?:SUBLIBRARY_)?VERSION_MISMATCH)\w{4,60})\b(?"
                r"!; Reason)",
            ),
            Pattern("CUDNN failure ", r"CUDNN failure \d{1,5}: (?P<status>CUDNN_STATUS_\w{1,40})"),
        ),
        causes=(
            "No memory is left for the handle or the workspace.",
            "Another version of cuDNN is found first.",
            "An error in an earlier kernel is reported only here; the context is then dead.",
            "NOT_SUPPORTED: cuDNN does not support the layout, size or type; often the input is not contiguous.",
        ),
        fixes=(
            fixes.LIST_PROCESSES,
            fixes.BUNDLED_LIBRARIES,
            Fix(
                "CTranslate2, which faster-whisper uses, needs cuDNN 9 for CUDA 12 since version 4.5: install it, and"
                " let it be found.",
                "pip install --upgrade ctranslate2 nvidia-cublas-cu12 'nvidia-cudnn-cu12==9.*' && export"
                " LD_LIBRARY_PATH=$(python -c 'import nvidia.cublas as b, nvidia.cudnn as d;"
                ' print(b.__path__[0] + "/lib:" + d.__path__[0] + "/lib")\')',
                first_for=("cuDNN failed with status",),
            ),
            Fix("Pass contiguous inputs.", "output = layer(hidden.contiguous())"),
            Fix(
                "Check whether the program works without cuDNN, to distinguish the causes.",
                "import torch\n\ntorch.backends.cudnn.enabled = False",
            ),
            fixes.LAUNCH_BLOCKING,
        ),
        empty_cache=(
            "Helps only if PyTorch's unused cache leaves no room for the handle, which is allocated outside the cache."
        ),
        see_more=(_WHICH_LIBRARIES, fixes.SHOW_VERSIONS),
        sources=(sources.CUDNN,),
        said_by="torch 1.13-2.13, accelerate 0.25-1.12, Lightning 2.1-2.6",
    ),
    KnownError(
        id="cudnn-version",
        section=SECTION,
        title="Wrong cuDNN version",
        summary="PyTorch loaded another cuDNN version than the one it was built with.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "cuDNN version mismatch: PyTorch",
                r"cuDNN version mismatch: PyTorch was compiled against (?P<built>\d{3,6}) but linked against (?P<foun"
                r"d>\d{3,6})",
            ),
            Pattern(
                "cuDNN version incompatibility: PyTorch was compiled",
                r"cuDNN version incompatibility: PyTorch was compiled {1,3}against \((?P<built>[\d, ]{1,20})\)"
                r"(?: but found runtime version \((?P<found>[\d, ]{1,20})\))?",
            ),
            Pattern(
                ": undefined symbol: _Z",
                r"(?P<library>libcudnn\w{0,20}\.so[\d.]{0,12}): undefined symbol: (?P<symbol>_Z\w{1,80})",
            ),
            Pattern("VERSION_MISMATCH", r"(?P<status>CUDNN_STATUS_(?:SUBLIBRARY_)?VERSION_MISMATCH)\b"),
        ),
        causes=(
            "LD_LIBRARY_PATH points to the system's cuDNN.",
            "Another package requires a different version of NVIDIA's cuDNN wheel.",
            "SUBLIBRARY: the parts of cuDNN, such as libcudnn_ops and libcudnn_cnn, come from two versions.",
        ),
        fixes=(
            fixes.BUNDLED_LIBRARIES,
            Fix("Reinstall PyTorch, which restores its bundled cuDNN.", "pip install --force-reinstall torch"),
            _WHICH_LIBRARIES,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDNN_VERSION_CHECK,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="cudnn-engine",
        section=SECTION,
        title="cuDNN found no algorithm",
        summary="cuDNN has no algorithm for the shapes, the type, the GPU and the free memory.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Unable to find a valid cuDNN algorithm to run convolution"),
            Pattern(
                "was unable to find an engine",
                r"\b(?:GET|FIND) was unable to find an engine to execute(?: this computation)?",
            ),
            Pattern("cuDNN Frontend error:", r"cuDNN Frontend error: (?P<reason>[^\n]{1,200})"),
            literal("RuntimeError: ptrDesc->finalize()"),
            Pattern("cuDNN Error: ", r"cuDNN Error: (?P<reason>\[cudnn_frontend\] [^\n]{1,200})"),
        ),
        causes=(
            "The GPU is full, and no algorithm's workspace fits: then the real error is out of memory.",
            "This version of cuDNN does not support the GPU, the type or the layout.",
            "Libraries of two versions of cuDNN are mixed, as after an update of a package, or by LD_LIBRARY_PATH.",
        ),
        fixes=(
            fixes.LIST_PROCESSES,
            Fix("Use a smaller batch.", "loader = DataLoader(dataset, batch_size=8)"),
            Fix(
                "Disable the cuDNN benchmark, which tries algorithms with large workspaces.",
                "import torch\n\ntorch.backends.cudnn.benchmark = False",
            ),
            Fix("For attention, disable cuDNN.", "import torch\n\ntorch.backends.cuda.enable_cudnn_sdp(False)"),
            Fix(
                "If it began with an update and memory is free, let PyTorch find its own cuDNN, and install it again.",
                "unset LD_LIBRARY_PATH; pip install --force-reinstall torch",
            ),
            Fix("Install a newer PyTorch, which includes a newer cuDNN.", "pip install --upgrade torch"),
        ),
        empty_cache="Little effect: workspaces come from PyTorch's own allocator, which empties its cache itself.",
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.CUDNN, sources.CUDA_NOTES),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="cufft",
        section=SECTION,
        title="cuFFT call failed",
        summary="cuFFT, the Fourier transform library, failed or rejected the size.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("cuFFT error: CUFFT_", r"cuFFT error: (?P<status>CUFFT_\w{1,40})"),
            name("CUFFT_INTERNAL_ERROR"),
            name("CUFFT_ALLOC_FAILED"),
            name("CUFFT_EXEC_FAILED"),
            name("CUFFT_SETUP_FAILED"),
            name("CUFFT_INVALID_SIZE"),
            name("CUFFT_INVALID_VALUE"),
            name("CUFFT_INVALID_PLAN"),
            name("CUFFT_NOT_SUPPORTED"),
            name("CUFFT_NVRTC_FAILURE"),
            Pattern(
                "half precision",
                r"cuFFT (?:only supports|doesn't support) [^\n]{1,120}? half precision",
            ),
        ),
        causes=(
            "The build of PyTorch is older than the GPU.",
            "Cached plans fill the memory.",
            "In half precision, the size is not a power of two.",
        ),
        fixes=(
            Fix("Install a newer PyTorch.", "pip install --upgrade torch"),
            Fix(
                "Clear the cache of plans.", "torch.backends.cuda.cufft_plan_cache.clear()", first_for=("ALLOC_FAILED",)
            ),
            Fix(
                "Transform in single precision.",
                "spectrum = torch.fft.rfft(signal.float())",
                first_for=("powers of two",),
            ),
        ),
        empty_cache="Does not clear cuFFT's plans; torch.backends.cuda.cufft_plan_cache.clear() does.",
        see_more=(fixes.LAUNCH_BLOCKING, fixes.SHOW_VERSIONS),
        sources=(sources.CUDA_NOTES, "https://docs.nvidia.com/cuda/cufft/index.html"),
    ),
    KnownError(
        id="sdpa-not-compiled",
        section=SECTION,
        title="Attention without its fastest kernel",
        summary="This build of PyTorch, or this input, cannot use the flash kernel; another kernel computes the same.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Torch was not compiled with flash attention", r"Torch was not compiled with flash attention"),
            Pattern(
                "kernel not used because",
                r"(?P<kernel>Memory efficient|Flash attention|cuDNN attention|CuDNN attention) kernel not used because",
            ),
        ),
        causes=(
            "Builds of PyTorch for Windows contain no flash kernel before version 2.7.",
            "The type is float32, there is a mask, or the head size is not supported.",
        ),
        fixes=(
            Fix("Ignore the warning if the speed is sufficient: the result is right."),
            Fix(
                "Compute in bfloat16, without a mask where is_causal is enough.",
                "output = attention(query, key, value, is_causal=True)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.ATTENTION,),
        said_by="torch 2.0-2.13",
        is_warning=True,
    ),
)
