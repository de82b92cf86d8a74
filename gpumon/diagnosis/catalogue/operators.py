"""Errors of operators: incompatible tensors, missing kernels, and failures of cuBLAS, cuDNN and cuFFT."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Operators"

_WHICH_LIBRARIES: Final = Fix(
    "Check whether another package installed a second version of NVIDIA's libraries.",
    "pip list | grep -i nvidia; echo $LD_LIBRARY_PATH",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="device-mismatch",
        section=SECTION,
        title="Tensors on different devices",
        summary="An operator received tensors that are not all on the same device.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Expected all tensors to be on the same device",
                r"Expected all tensors to be on the same device"
                r"(?:, but found at least two devices, (?P<device>\w{1,20}(?::\d{1,4})?)"
                r" and (?P<other_device>\w{1,20}(?::\d{1,4})?))?",
            ),
            Pattern(
                "type (torch.",
                r"Input type \(torch\.(?:cuda\.\w{1,40}\) and (?:weight|bias) type \(torch\.(?!cuda\.)"
                r"|(?!cuda\.)\w{1,40}\) and (?:weight|bias) type \(torch\.cuda\.)\w{1,40}\) should be the same",
            ),
            Pattern(
                "to be on GPU (while checking", r"but expected (?:it|them) to be on GPU \(while checking arguments for"
            ),
            literal("or on the same device as the indexed tensor"),
            Pattern(
                "for generator but found",
                r"Expected an? '?(?P<device>\w{1,20})'? device type for generator but found"
                r" '?(?P<other_device>\w{1,20})",
            ),
            Pattern(
                "tensor from a generator of type",
                r"Cannot generate a (?P<device>\w{1,20}) tensor from a generator of type (?P<other_device>\w{1,20})",
            ),
            literal("cannot be accessed from Triton (cpu tensor?)"),
            Pattern(
                "tensors are not at the same device",
                r"Input and (?:hidden|parameter|bias) tensors are not at the same device",
            ),
            Pattern(
                "Type) should be the same",
                r"Input type \((?:CUDA\w{1,30}\) and (?:weight|bias) type \(CPU|CPU\w{1,30}\) and (?:weight|bias) type"
                r" \(CUDA)\w{1,30}Type\) should be the same",
            ),
            Pattern(
                "(device_ids[0]) but found one of them on device",
                r"its parameters and buffers on device (?P<device>\w{1,20}(?::\d{1,4})?) \(device_ids\[0\]\) but found"
                r" one of them on device: (?P<other_device>\w{1,20}(?::\d{1,4})?)",
            ),
        ),
        causes=(
            "The model was moved to the GPU and a batch was not, or the reverse.",
            "A tensor is created inside forward without a device.",
            "A constant is a plain attribute of the module, which .to() does not move.",
            "The optimizer's state was loaded on the CPU.",
            "A random generator was created for another device than the tensor.",
        ),
        fixes=(
            Fix("Move the batch to the model's device.", "batch = batch.to(next(model.parameters()).device)"),
            Fix(
                "Create new tensors on the device of an existing tensor.",
                "steps = torch.arange(length, device=hidden.device)",
            ),
            Fix(
                "Register constants as buffers, so that they move with the module.",
                'self.register_buffer("mask", mask)',
            ),
            Fix(
                "Load a checkpoint to the device on which it is used.",
                "state = torch.load(path, map_location=device, weights_only=True)",
            ),
            Fix(
                "Create random generators on the tensor's device.",
                "generator = torch.Generator(device=device).manual_seed(0)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_NOTES, "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/TensorIterator.cpp"),
        said_by="torch 1.13-2.13, vLLM 0.10-0.19, Triton 2.0-3.6, xFormers 0.0.22-0.0.33",
    ),
    KnownError(
        id="dtype-mismatch",
        section=SECTION,
        title="Tensors of different types",
        summary="An operator received tensors of different types, such as half and float.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "but got dtype ",
                r"expected dtype (?P<type>[\w:]{1,20}) for `\w{1,30}` but got dtype (?P<other_type>[\w:]{1,20})",
            ),
            Pattern(
                "mat2 must have the same dtype",
                r"(?:mat1|self) and mat2 must have the same dtype"
                r"(?:, but got (?P<type>\w{1,20}) and (?P<other_type>\w{1,20}))?",
            ),
            Pattern(
                "Found dtype ",
                r"Found dtype (?P<other_type>\w{1,20}) but expected (?P<type>\w{1,20})",
            ),
            Pattern(
                "to have the same dtype, but got",
                r"(?:expected m1 and m2|expected mat1 and mat2|Expected query, key, and value)"
                r" to have the same dtype, but got",
            ),
            Pattern(
                "should be the same",
                r"Input type \((?P<type>(?:c10::)?\w{1,20})\) and (?:bias|weight) type"
                r" \((?P<other_type>(?:c10::)?\w{1,20})\) should be the same",
            ),
            Pattern(
                "type (torch.",
                r"Input type \(torch\.(?:cuda\.\w{1,40}\) and (?:weight|bias) type \(torch\.cuda\."
                r"|(?!cuda\.)\w{1,40}\) and (?:weight|bias) type \(torch\.(?!cuda\.))\w{1,40}\) should be the same",
            ),
            Pattern(
                "expected scalar type",
                r"expected scalar type (?P<type>\w{1,20}) but found (?P<other_type>\w{1,20})",
            ),
            Pattern(
                "mixed dtype (CPU): expect",
                r"mixed dtype \(CPU\): expect (?:parameter|input) to have scalar type of (?P<type>\w{1,20})",
            ),
            Pattern(
                "source and destination dtypes match",
                r"Index put requires the source and destination dtypes match, got (?P<type>\w{1,20}) for the"
                r" destination and (?P<other_type>\w{1,20})",
            ),
        ),
        causes=(
            "The model was converted to half, and its inputs are float32.",
            "Part of a model, an adapter or a quantized layer has another type than the rest.",
            "A custom function runs under autocast and does not convert its inputs.",
        ),
        fixes=(
            Fix(
                "Keep the model in float32 and let autocast choose the types.",
                'with torch.autocast("cuda", dtype=torch.bfloat16):\n    output = model(batch)',
            ),
            Fix("Or convert the inputs to the model's type.", "batch = batch.to(next(model.parameters()).dtype)"),
            Fix(
                "In a custom function, declare the input type.",
                """\
@staticmethod
@torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
def forward(ctx, value):
    return launch(value)""",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.AMP,),
        said_by="torch 1.13-2.13, vLLM 0.19, Triton 3.0, transformers 4.36-5.0",
    ),
    KnownError(
        id="shape",
        section=SECTION,
        title="Incompatible shapes",
        summary="An operator received tensors whose shapes do not fit together.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "mat1 and mat2 shapes cannot be multiplied",
                r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d{1,19})x(?P<columns>\d{1,19})"
                r" and (?P<other_rows>\d{1,19})x(?P<other_columns>\d{1,19})\)",
            ),
            Pattern(
                "is invalid for input of size",
                r"shape '(?P<shape>\[[\d, -]{1,120}\])' is invalid for input of size (?P<elements>\d{1,19})",
            ),
            Pattern(
                "to match target batch_size",
                r"Expected input batch_size \((?P<rows>\d{1,19})\) to match target batch_size"
                r" \((?P<other_rows>\d{1,19})\)",
            ),
            Pattern(
                "must match the size of tensor",
                r"The size of tensor \w \((?P<size>\d{1,19})\) must match the size of tensor \w"
                r" \((?P<other_size>\d{1,19})\)(?: at non-singleton dimension (?P<dimension>\d{1,3}))?",
            ),
            Pattern(
                "weight of size [",
                r"Given groups=\d{1,6}, weight of size \[[\d, ]{1,80}\], expected input\[[\d, ]{1,80}\]"
                r" to have (?P<expected_channels>\d{1,9}) channels, but got (?P<channels>\d{1,9}) channels",
            ),
            Pattern(
                "Sizes of tensors must match except in dimension",
                r"Sizes of tensors must match except in dimension (?P<dimension>\d{1,3})\. Expected size"
                r" (?P<size>\d{1,19}) but got size (?P<other_size>\d{1,19})",
            ),
            Pattern(
                "must match the existing size",
                r"The expanded size of the tensor \((?P<size>\d{1,19})\) must match the existing size"
                r" \((?P<other_size>\d{1,19})\)(?: at non-singleton dimension (?P<dimension>\d{1,3}))?",
            ),
            Pattern("batch1 must be a 3D tensor", r"batch1 must be a 3D tensor"),
            literal("view size is not compatible with input tensor's size and stride"),
            literal("Trying to resize storage that is not resizable"),
        ),
        causes=(
            "A linear layer's in_features is not the last dimension of its input.",
            "The output of a convolution was not flattened, or the images have another size than expected.",
            "A view or reshape with a fixed size mixes the batch into other dimensions: the batch sizes then differ.",
            "The data has another number of channels than the first layer, such as gray images for an RGB model.",
        ),
        fixes=(
            Fix("Print the shape before the layer.", "print(hidden.shape, layer)"),
            Fix("Flatten all dimensions except the batch.", "hidden = hidden.flatten(1)"),
            Fix("Infer the layer's size from the first batch.", "layer = torch.nn.LazyLinear(out_features)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html",),
        said_by="torch 1.13-2.13, Triton 2.0-3.6",
    ),
    KnownError(
        id="to-numpy",
        section=SECTION,
        title="NumPy conversion of a CUDA tensor",
        summary="NumPy works on host memory and cannot read a tensor on the GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "device type tensor to numpy",
                r"can't convert (?P<device>[\w:]{1,20}) device type tensor to numpy",
            ),
        ),
        causes=("NumPy, matplotlib, scikit-learn or pandas was given a tensor that is on the GPU.",),
        fixes=(Fix("Copy the tensor to the host first.", "values = tensor.detach().cpu().numpy()"),),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.numpy.html",),
        said_by="torch 1.13-2.13",
    ),
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
        patterns=(Pattern("CUBLAS_STATUS_", r"\bCUBLAS_STATUS_(?P<status>NOT_INITIALIZED|ALLOC_FAILED)\b"),),
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
            Pattern("cuBLAS Error: ", r"cuBLAS Error: (?P<reason>the [^\n]{1,100})"),
            Pattern(
                "CUBLAS_STATUS_",
                r"\bCUBLAS_STATUS_(?P<status>EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|ARCH_MISMATCH|NOT_SUPPORTED"
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
            fixes.BUNDLED_LIBRARIES,
            Fix(
                "As a cross-check, use cuBLASLt instead of cuBLAS.",
                'import torch\n\ntorch.backends.cuda.preferred_blas_library("cublaslt")',
            ),
            Fix(
                "Print the shapes, strides and types of the operands.",
                "print(a.shape, a.stride(), a.dtype, b.shape, b.stride(), b.dtype)",
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
        said_by="accelerate 0.25-1.12, Lightning 2.1-2.6",
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
                r"\b(?:GET|FIND) was unable to find an engine to execute this computation",
            ),
            Pattern("cuDNN Frontend error:", r"cuDNN Frontend error: (?P<reason>[^\n]{1,200})"),
            literal("RuntimeError: ptrDesc->finalize()"),
            Pattern("cuDNN Error: ", r"cuDNN Error: (?P<reason>\[cudnn_frontend\] [^\n]{1,200})"),
        ),
        causes=(
            "The GPU is full, and no algorithm's workspace fits: then the real error is out of memory.",
            "This version of cuDNN does not support the GPU, the type or the layout.",
        ),
        fixes=(
            fixes.LIST_PROCESSES,
            Fix("Use a smaller batch.", "loader = DataLoader(dataset, batch_size=8)"),
            Fix(
                "Disable the cuDNN benchmark, which tries algorithms with large workspaces.",
                "import torch\n\ntorch.backends.cudnn.benchmark = False",
            ),
            Fix("For attention, disable cuDNN.", "import torch\n\ntorch.backends.cuda.enable_cudnn_sdp(False)"),
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
        ),
        causes=(
            "The build of PyTorch is older than the GPU.",
            "Cached plans fill the memory.",
            "In half precision, the size is not a power of two.",
        ),
        fixes=(
            Fix("Install a newer PyTorch.", "pip install --upgrade torch"),
            Fix("Clear the cache of plans.", "torch.backends.cuda.cufft_plan_cache.clear()"),
            Fix("Transform in single precision.", "spectrum = torch.fft.rfft(signal.float())"),
        ),
        empty_cache="Does not clear cuFFT's plans; torch.backends.cuda.cufft_plan_cache.clear() does.",
        see_more=(fixes.LAUNCH_BLOCKING, fixes.SHOW_VERSIONS),
        sources=(sources.CUDA_NOTES, "https://docs.nvidia.com/cuda/cufft/index.html"),
    ),
)
