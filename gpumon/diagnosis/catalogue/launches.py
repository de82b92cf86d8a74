"""Errors of launching kernels: binaries that do not fit the GPU, and launches that CUDA refuses."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CUDA_COMPATIBILITY,
    CUDA_ERRORS,
    CUDA_LOG,
    CUDA_NOTES,
    LAUNCH_BLOCKING,
    NO_MEMORY_MATTER,
    PYTORCH_INSTALL,
    VERSIONS,
    cuda_error,
    literal,
    names,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Kernel faults"

_COMPARE_ARCHITECTURES: Final = Fix(
    "Compare what PyTorch was built for with what the GPU is.",
    """\
import torch

print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())""",
)
_FITTING_BUILD: Final = Fix(
    "Install a build of PyTorch for your GPU: Volta and older need CUDA 12.6, Blackwell needs 12.8 or later.",
    "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
)

_RESOURCES: Final = KnownError(
    id="launch-resources",
    section=_SECTION,
    title="Launch asks for too much",
    summary="A kernel was launched with a grid, a block or shared memory that the GPU cannot provide.",
    context=Context.ALIVE,
    patterns=(
        literal("too many resources requested for launch"),
        cuda_error("invalid configuration argument"),
        literal("too many blocks in cooperative launch"),
        *names("cudaErrorLaunchOutOfResources", "cudaErrorInvalidConfiguration", "cudaErrorCooperativeLaunchTooLarge"),
    ),
    causes=(
        "A tensor is empty, so the grid has no block.",
        "A dimension is so large that the grid exceeds its limit, which is 65535 in y and z.",
        "A custom kernel needs more registers or shared memory for a block than this GPU has.",
    ),
    fixes=(
        Fix("Skip empty tensors.", "if tensor.numel():\n    launch(tensor)"),
        Fix("Split a very large dimension.", "result = torch.cat([run(part) for part in tensor.split(32768)])"),
        Fix("In your own kernel use smaller blocks, or bound its registers with __launch_bounds__."),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(LAUNCH_BLOCKING, CUDA_LOG),
    sources=(CUDA_ERRORS,),
)

_NO_IMAGE: Final = KnownError(
    id="no-kernel-image",
    section=_SECTION,
    title="No kernel for this GPU",
    summary="The binary holds no code for the architecture of this GPU.",
    context=Context.ALIVE,
    patterns=(
        literal("no kernel image is available for execution on the device"),
        cuda_error("invalid device function"),
        *names("cudaErrorNoKernelImageForDevice", "cudaErrorInvalidDeviceFunction", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    ),
    causes=(
        "The GPU is newer than PyTorch, or older than what this build still supports.",
        "An extension was built on a machine with another GPU.",
    ),
    fixes=(
        _COMPARE_ARCHITECTURES,
        _FITTING_BUILD,
        Fix(
            "Build the extension for your GPU, here one of capability 8.6.",
            "TORCH_CUDA_ARCH_LIST=8.6 pip install --no-build-isolation --no-cache-dir --force-reinstall PACKAGE",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(VERSIONS,),
    sources=(CUDA_ERRORS, PYTORCH_INSTALL),
)

_ARCHITECTURE_WARNING: Final = KnownError(
    id="arch-warning",
    section=_SECTION,
    title="This build does not support the GPU",
    summary="PyTorch warns that it holds no kernels for a GPU of this machine; the first operation on it will fail.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "which is of compute capability (CC)",
            r"Found GPU(?P<gpu>\d{1,4}) (?P<name>[^\n]{1,100}?) which is of compute capability \(CC\)"
            r" (?P<capability>\d{1,3}\.\d)",
        ),
        Pattern(
            "is not compatible with the current PyTorch installation",
            r"with CUDA capability sm_(?P<capability>\d{1,4}\w?) is not compatible"
            r" with the current PyTorch installation",
        ),
    ),
    causes=(
        "The GPU is newer than this PyTorch.",
        "The GPU is older than what this build supports: those for CUDA 13 begin at Turing, capability 7.5.",
    ),
    fixes=(
        Fix("Install the build that the warning names, if it names one."),
        _FITTING_BUILD,
        _COMPARE_ARCHITECTURES,
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(VERSIONS,),
    sources=(PYTORCH_INSTALL, "https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py"),
)

_PTX: Final = KnownError(
    id="ptx",
    section=_SECTION,
    title="Driver cannot read the kernel's code",
    summary="A kernel came as intermediate code (PTX) or as an image that this driver does not understand.",
    context=Context.ALIVE,
    patterns=(
        literal("the provided PTX was compiled with an unsupported toolchain"),
        literal("a PTX JIT compilation failed"),
        literal("device kernel image is invalid"),
        *names("cudaErrorUnsupportedPtxVersion", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "cudaErrorInvalidPtx"),
    ),
    causes=(
        "An extension, Triton or NVRTC made code of a newer CUDA than the driver has.",
        "The cached kernel is damaged.",
    ),
    fixes=(
        Fix("See which CUDA the driver supports, and upgrade the driver.", "nvidia-smi | grep 'CUDA Version'"),
        Fix(
            "Or install a PyTorch built for no newer CUDA than that.",
            "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
        ),
        Fix(
            "Build extensions as machine code for your GPU, without PTX.",
            "TORCH_CUDA_ARCH_LIST=9.0 pip install --no-build-isolation --no-cache-dir --force-reinstall PACKAGE",
        ),
        Fix("Delete the caches of compiled kernels.", "rm -rf ~/.triton/cache ~/.nv/ComputeCache"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(VERSIONS, CUDA_LOG),
    sources=(CUDA_ERRORS, CUDA_COMPATIBILITY),
)

_HANDLE: Final = KnownError(
    id="invalid-handle",
    section=_SECTION,
    title="Invalid resource handle",
    summary="A stream, an event or another handle was used where it does not belong.",
    context=Context.ALIVE,
    patterns=(
        cuda_error("invalid resource handle"),
        *names("cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE"),
    ),
    causes=(
        "A stream or an event of one GPU was used while another one was current.",
        "The handle was made before a fork, in the parent process.",
    ),
    fixes=(
        Fix(
            "Make the tensor's GPU the current one around the call.",
            """\
with torch.cuda.device(tensor.device):
    launch(tensor)""",
        ),
        Fix("In each process, choose its GPU before anything else.", "torch.cuda.set_device(local_rank)"),
        Fix("Make streams and events in the process and for the GPU that use them."),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(LAUNCH_BLOCKING, CUDA_LOG),
    sources=(CUDA_ERRORS,),
)

_GRAPH_CAPTURE: Final = KnownError(
    id="graph-capture",
    section=_SECTION,
    title="Not allowed while a CUDA graph is captured",
    summary="Something was done during the capture of a CUDA graph that a graph cannot hold; the capture is lost.",
    context=Context.ALIVE,
    patterns=(
        literal("operation not permitted when stream is capturing"),
        literal("operation failed due to a previous error during capture"),
        literal("capturing stream has unjoined work"),
        literal("make the legacy stream depend on a capturing"),
        literal("generator is not registered with the capturing graph"),
        literal("during CUDA graph capture. If you need this call to be captured"),
        *names("cudaErrorStreamCaptureUnsupported", "cudaErrorStreamCaptureInvalidated"),
        *names("cudaErrorStreamCaptureUnjoined", "cudaErrorStreamCaptureImplicit"),
    ),
    causes=(
        "The captured code waits for the GPU: .item(), .cpu(), print of a tensor, a mask whose result has any size.",
        "A library allocates memory or makes a handle for the first time, because there was no warm-up.",
        "Work on a side stream was not joined again.",
        "Another thread called CUDA meanwhile.",
    ),
    fixes=(
        Fix(
            "Warm up on a side stream, then capture with inputs that stay in place.",
            """\
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        output = model(static_input)
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    output = model(static_input)""",
        ),
        Fix("Take everything that needs a number on the CPU out of the captured part."),
        Fix(
            "Let other threads call CUDA during the capture.",
            'with torch.cuda.graph(graph, capture_error_mode="thread_local"):\n    output = model(static_input)',
        ),
        Fix("Or let PyTorch find what can be captured.", 'model = torch.compile(model, mode="reduce-overhead")'),
    ),
    empty_cache="Must not be called during the capture; before it, it only makes the warm-up slower.",
    see_more=(
        Fix(
            "Find the operations that wait for the GPU.",
            'import torch\n\ntorch.cuda.set_sync_debug_mode("warn")',
        ),
    ),
    sources=(CUDA_ERRORS, CUDA_NOTES),
)

ERRORS: Final = (
    _RESOURCES,
    _NO_IMAGE,
    _ARCHITECTURE_WARNING,
    _PTX,
    _HANDLE,
    _GRAPH_CAPTURE,
)
