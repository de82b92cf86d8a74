"""Errors of kernels: faults while they run, launches that CUDA rejects, and failures of the hardware below them."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import CONTEXT_IS_DEAD, NOT_ABOUT_MEMORY, cuda_error, literal, name, not_hip
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Kernel faults"

_COMPARE_ARCHITECTURES: Final = Fix(
    "Compare the architectures that PyTorch was built for with the GPU's compute capability.",
    """\
import torch

print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())""",
)

_NEWER_BUILD: Final = Fix(
    "For Blackwell (compute capability 10.0 and 12.0), install a build for CUDA 12.8 or later.",
    "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
)
_OLDER_BUILD: Final = Fix(
    "For Volta, Pascal and Maxwell, install a build for CUDA 12.6, the last one that supports them.",
    "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
)

_DRIVER_OF_BUILD: Final = Fix(
    "Check the driver before: a build for CUDA 13 needs branch 580, one for CUDA 12 needs 525; upgrade an older one.",
    "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="device-assert",
        section=SECTION,
        title="Device-side assert",
        summary="A kernel checked a condition, usually that an index is in range, and the condition was false.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "], thread: [",
                r"block: \[\d{1,10},\d{1,10},\d{1,10}\], thread: \[\d{1,5},\d{1,5},\d{1,5}\]"
                r" Assertion `(?P<assertion>(?!probability tensor contains)[^`\n]{1,300})",
            ),
            literal("device-side assert triggered"),
            name("cudaErrorAssert"),
            name("CUDA_ERROR_ASSERT"),
        ),
        causes=(
            "A class label is negative or not less than the number of classes.",
            "A token id is not less than the vocabulary size, often after tokens were added without new embeddings.",
            "A position exceeds the maximum sequence length of the model's embeddings.",
            "Binary cross entropy got values outside 0 to 1; multinomial got NaN, negative or all-zero probabilities.",
        ),
        fixes=(
            Fix(
                "Read the first `Assertion` line on stderr: it contains the condition and the kernel's source location."
            ),
            Fix(
                "Check the range of labels and token ids before the step.",
                """\
assert 0 <= labels.min().item() and labels.max().item() < num_classes
assert input_ids.max().item() < model.get_input_embeddings().num_embeddings""",
            ),
            Fix(
                "Run the failing batch on the CPU, where the same error is a Python exception at the correct line.",
                "CUDA_VISIBLE_DEVICES= python train.py",
            ),
            Fix("After adding tokens, resize the embeddings.", "model.resize_token_embeddings(len(tokenizer))"),
            fixes.RESTART_PROCESS,
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(fixes.LAUNCH_BLOCKING,),
        sources=(sources.CUDA_ERRORS, "https://github.com/pytorch/pytorch/issues/17425"),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, Triton 2.0-3.6, transformers 4.57-5.0",
    ),
    KnownError(
        id="illegal-address",
        section=SECTION,
        title="Illegal memory access",
        summary="A kernel read or wrote an address that does not belong to the process.",
        context=ContextState.DEAD,
        patterns=(
            not_hip("an illegal memory access was encountered"),
            name("cudaErrorIllegalAddress"),
            name("CUDA_ERROR_ILLEGAL_ADDRESS"),
            Pattern("Failed to encode tensor map: 700", r"Failed to encode tensor map: 700\b"),
        ),
        causes=(
            "A custom, Triton or attention kernel accesses memory beyond the end of a tensor.",
            "A tensor has more than 2**31 elements and the kernel uses 32-bit indices.",
            "Memory was freed while a second stream still read it: a record_stream call is missing.",
            "A kernel was launched on one GPU with pointers to another GPU's memory.",
            "Rarely, the GPU's memory is failing; the kernel log then contains an Xid such as 48, 94 or 95.",
        ),
        fixes=(
            fixes.LAUNCH_BLOCKING,
            fixes.SANITIZER,
            Fix("Update or remove the extension that contains the kernel, or use PyTorch's own operator instead."),
            Fix(
                "Launch custom kernels with the tensor's GPU as the current device.",
                """\
with torch.cuda.device(tensor.device):
    launch(tensor)""",
            ),
            Fix("Record on the tensor which other stream uses it.", "tensor.record_stream(side_stream)"),
            fixes.RESTART_PROCESS,
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(
            fixes.KERNEL_LOG,
            Fix(
                "Make the driver write a GPU core dump, which cuda-gdb can open.",
                "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 python train.py",
            ),
        ),
        sources=(sources.CUDA_ERRORS, sources.SANITIZER_MANUAL),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="misaligned",
        section=SECTION,
        title="Misaligned address",
        summary="A kernel loaded several values at once from an address that is not a multiple of their total size.",
        context=ContextState.DEAD,
        patterns=(
            cuda_error("misaligned address"),
            name("cudaErrorMisalignedAddress"),
            name("CUDA_ERROR_MISALIGNED_ADDRESS"),
        ),
        causes=(
            "A custom kernel loads 16 bytes at a time, and a slice or a view starts at an unaligned offset.",
            "A kernel received a pointer to values of another type than it was written for.",
        ),
        fixes=(
            Fix(
                "Copy the tensor, so that the kernel gets newly allocated, aligned memory.",
                "launch(tensor.clone(memory_format=torch.contiguous_format))",
            ),
            Fix("In a custom kernel, check the alignment before wide loads.", "assert tensor.data_ptr() % 16 == 0"),
            fixes.RESTART_PROCESS,
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(fixes.LAUNCH_BLOCKING, fixes.SANITIZER),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="illegal-instruction",
        section=SECTION,
        title="Illegal instruction or damaged binary",
        summary=(
            "A kernel reached an instruction, a jump target or an address space that the GPU cannot execute or access."
        ),
        context=ContextState.DEAD,
        patterns=(
            not_hip("an illegal instruction was encountered"),
            cuda_error("hardware stack error"),
            cuda_error("operation not supported on global/shared address space"),
            cuda_error("invalid program counter"),
            name("CUDA_ERROR_ILLEGAL_INSTRUCTION"),
            name("CUDA_ERROR_HARDWARE_STACK_ERROR"),
            name("CUDA_ERROR_INVALID_PC"),
            name("CUDA_ERROR_INVALID_ADDRESS_SPACE"),
            name("cudaErrorIllegalInstruction"),
            name("cudaErrorHardwareStackError"),
            name("cudaErrorInvalidAddressSpace"),
            name("cudaErrorInvalidPc"),
        ),
        causes=(
            "A kernel was built for another architecture, or its cached binary is damaged.",
            "A kernel calls an invalid function pointer or overflows its stack.",
            "The GPU is unstable: overclocked, short of power or failing; the failing operation then varies by run.",
        ),
        fixes=(
            Fix(
                "Delete the caches of compiled kernels and rebuild the extensions.",
                "rm -rf ~/.triton/cache ~/.nv/ComputeCache ~/.cache/torch_extensions",
            ),
            Fix(
                "Reset the clocks to their defaults, then run a burn-in test.",
                "sudo nvidia-smi -rgc; sudo nvidia-smi -rmc",
            ),
            fixes.RESTART_PROCESS,
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(fixes.KERNEL_LOG, fixes.LAUNCH_BLOCKING),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 3.0-3.6",
    ),
    KnownError(
        id="launch-failure",
        section=SECTION,
        title="Unspecified launch failure",
        summary="A kernel failed, and CUDA has no more specific error code.",
        context=ContextState.DEAD,
        patterns=(
            not_hip("unspecified launch failure"),
            name("cudaErrorLaunchFailure"),
            name("CUDA_ERROR_LAUNCH_FAILED"),
        ),
        causes=(
            "A custom kernel accesses shared memory or its stack out of bounds.",
            "The driver or the GPU failed: the kernel log has an Xid.",
            "The clocks or the power supply are unstable.",
        ),
        fixes=(
            fixes.KERNEL_LOG,
            fixes.SANITIZER,
            fixes.LAUNCH_BLOCKING,
            fixes.RESTART_PROCESS,
            Fix("If the error returns on one GPU only, test that GPU's hardware.", "dcgmi diag -r 3"),
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(fixes.CPP_STACKTRACES,),
        sources=(sources.CUDA_ERRORS, sources.SANITIZER_MANUAL),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="launch-timeout",
        section=SECTION,
        title="Kernel exceeded the time limit",
        summary="The driver terminated a kernel because the GPU also drives a display, which must stay responsive.",
        context=ContextState.DEAD,
        patterns=(
            literal("the launch timed out and was terminated"),
            name("cudaErrorLaunchTimeout"),
            name("CUDA_ERROR_LAUNCH_TIMEOUT"),
        ),
        causes=("A single kernel takes longer than the few seconds allowed on a GPU with a display.",),
        fixes=(
            Fix(
                "Use a GPU without a display for computing.",
                "nvidia-smi --query-gpu=index,name,display_active --format=csv",
            ),
            Fix("Stop the desktop and work over SSH.", "sudo systemctl isolate multi-user.target"),
            Fix("Split the work into smaller kernels: smaller tensors, more launches."),
            Fix("On Windows, raise the limit: set TdrDelay to 60 below HKLM, Control, GraphicsDrivers, and restart."),
            fixes.RESTART_PROCESS,
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(fixes.LAUNCH_BLOCKING,),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="launch-resources",
        section=SECTION,
        title="Launch exceeds the GPU's resources",
        summary="A kernel was launched with a grid, a block or shared memory that the GPU cannot provide.",
        context=ContextState.ALIVE,
        patterns=(
            literal("too many resources requested for launch"),
            cuda_error("invalid configuration argument"),
            literal("too many blocks in cooperative launch"),
            cuda_error("a kernel launch error has occurred due to cluster misconfiguration"),
            name("cudaErrorInvalidClusterSize"),
            name("CUDA_ERROR_INVALID_CLUSTER_SIZE"),
            name("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
            name("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"),
            name("cudaErrorLaunchOutOfResources"),
            name("cudaErrorInvalidConfiguration"),
            name("cudaErrorCooperativeLaunchTooLarge"),
        ),
        causes=(
            "A tensor is empty, so the grid has no blocks.",
            "A dimension is so large that the grid exceeds its limit, which is 65535 in y and z.",
            "A custom kernel needs more registers or shared memory per block than this GPU has.",
        ),
        fixes=(
            Fix("Skip empty tensors.", "if tensor.numel():\n    launch(tensor)"),
            Fix("Split a very large dimension.", "result = torch.cat([run(part) for part in tensor.split(32768)])"),
            Fix("In a custom kernel, use smaller blocks, or limit its registers with __launch_bounds__."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.LAUNCH_BLOCKING, fixes.CUDA_LOG),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 3.0-3.6",
    ),
    KnownError(
        id="no-kernel-image",
        section=SECTION,
        title="No kernel for this GPU",
        summary="The binary contains no code for the architecture of this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            not_hip("no kernel image is available for execution on the device"),
            cuda_error("invalid device function"),
            name("cudaErrorNoKernelImageForDevice"),
            name("cudaErrorInvalidDeviceFunction"),
            name("CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ),
        causes=(
            "The GPU is newer than PyTorch, or older than this build supports.",
            "An extension was built on a host with another GPU.",
        ),
        fixes=(
            _COMPARE_ARCHITECTURES,
            _NEWER_BUILD,
            _OLDER_BUILD,
            Fix(
                "Build the extension for your GPU, for example compute capability 8.6.",
                "TORCH_CUDA_ARCH_LIST=8.6 pip install --no-build-isolation --no-cache-dir --force-reinstall PACKAGE",
            ),
            _DRIVER_OF_BUILD,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.CUDA_ERRORS, sources.PYTORCH_INSTALL),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="arch-warning",
        section=SECTION,
        title="PyTorch build does not support the GPU",
        summary=(
            "PyTorch warns that it has no kernels for a GPU of this host; operations on that GPU then fail with `no "
            "kernel image is available`."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "which is of compute capability (CC)",
                r"Found GPU(?P<gpu>\d{1,4})(?! NVIDIA GB10\b) (?P<name>[^\n]{1,100}?) which is of compute capability"
                r" \(CC\) (?P<capability>\d{1,3}\.\d)",
            ),
            Pattern(
                "which is of cuda capability",
                r"Found GPU(?P<gpu>\d{1,4})(?! NVIDIA GB10\b) (?P<name>[^\n]{1,100}?) which is of cuda capability"
                r" (?P<capability>\d{1,3}\.\d)",
            ),
            Pattern(
                "not compatible with the current PyTorch",
                r"with CUDA capabilit(?:y|ies) sm_(?P<capability>\d{1,4}\w?) (?:is )?not compatible"
                r" with the current PyTorch [Ii]nstal",
            ),
        ),
        causes=(
            "The GPU is newer than this PyTorch.",
            "The GPU is older than this build supports: CUDA 13 requires Turing (compute capability 7.5) or newer.",
        ),
        fixes=(
            Fix("Install the build that the warning names, if any."),
            _NEWER_BUILD,
            _OLDER_BUILD,
            _COMPARE_ARCHITECTURES,
            _DRIVER_OF_BUILD,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.PYTORCH_INSTALL, "https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py"),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="arch-compatible",
        section=SECTION,
        title="GPU newer than this build, but compatible",
        summary=(
            "PyTorch warns about the GB10 of a DGX Spark, which runs the build's kernels for compute capability 12.0."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Found GPU",
                r"Found GPU(?P<gpu>\d{1,4}) (?P<name>NVIDIA GB10) which is of (?:cuda|compute) capability(?: \(CC\))?"
                r" (?P<capability>\d{1,3}\.\d)",
            ),
        ),
        causes=("The GPU has compute capability 12.1, and the warning compares only with the maximum of the build.",),
        fixes=(
            Fix("Ignore the warning if the program works: code for 12.0 also runs on 12.1."),
            Fix(
                "To avoid the warning, install a build for CUDA 13.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "Build extensions that report `no kernel image` for this GPU.",
                "TORCH_CUDA_ARCH_LIST=12.1 pip install --no-build-isolation --no-cache-dir --force-reinstall PACKAGE",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(_COMPARE_ARCHITECTURES,),
        sources=(sources.PYTORCH_INSTALL, "https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py"),
        is_echo=True,
    ),
    KnownError(
        id="invalid-argument",
        section=SECTION,
        title="Invalid argument",
        summary="A CUDA call got a value that it does not accept; an earlier asynchronous error may be the cause.",
        context=ContextState.ALIVE,
        patterns=(
            cuda_error("invalid argument"),
            cuda_error("invalid pitch argument"),
            cuda_error("invalid device pointer"),
            cuda_error("invalid copy direction for memcpy"),
            name("cudaErrorInvalidValue"),
            name("cudaErrorInvalidDevicePointer"),
            name("cudaErrorInvalidMemcpyDirection"),
            name("CUDA_ERROR_INVALID_VALUE"),
        ),
        causes=(
            "A custom kernel or library passes a wrong size, pointer, stream or attribute.",
            "Memory of one process or GPU was used where it is not mapped, such as pinned memory of another process.",
            "A kernel requests more dynamic shared memory than the GPU allows per block.",
            "The driver or a virtual machine does not support the feature, such as memory pools or IPC.",
        ),
        fixes=(
            fixes.LAUNCH_BLOCKING,
            fixes.CUDA_LOG,
            fixes.SANITIZER,
            Fix("Update the package whose call the traceback names."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.CPP_STACKTRACES,),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="ptx",
        section=SECTION,
        title="Driver cannot load the kernel's code",
        summary="A kernel was provided as intermediate code (PTX) or as an image that this driver does not support.",
        context=ContextState.ALIVE,
        patterns=(
            literal("the provided PTX was compiled with an unsupported toolchain"),
            literal("a PTX JIT compilation failed"),
            literal("device kernel image is invalid"),
            name("cudaErrorUnsupportedPtxVersion"),
            name("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
            name("cudaErrorInvalidPtx"),
            name("cudaErrorInvalidKernelImage"),
            name("CUDA_ERROR_INVALID_PTX"),
            name("CUDA_ERROR_INVALID_IMAGE"),
            literal("Call to cuLinkAddData results in"),
        ),
        causes=(
            "An extension, Triton or NVRTC generated code for a newer CUDA version than the driver supports.",
            "The cached kernel is damaged.",
        ),
        fixes=(
            fixes.DRIVER_CUDA_VERSION,
            Fix("Upgrade the driver to one for that CUDA version, and reboot."),
            Fix(
                "Or install a PyTorch built for that CUDA version or an older one.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
            ),
            Fix(
                "Build extensions as machine code for your GPU, without PTX.",
                "TORCH_CUDA_ARCH_LIST=9.0 pip install --no-build-isolation --no-cache-dir --force-reinstall PACKAGE",
            ),
            Fix("Delete the caches of compiled kernels.", "rm -rf ~/.triton/cache ~/.nv/ComputeCache"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS, fixes.CUDA_LOG),
        sources=(sources.CUDA_ERRORS, sources.CUDA_COMPATIBILITY),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="invalid-handle",
        section=SECTION,
        title="Invalid resource handle",
        summary="A stream, an event or another handle was used in the wrong context.",
        context=ContextState.ALIVE,
        patterns=(
            cuda_error("invalid resource handle"),
            name("cudaErrorInvalidResourceHandle"),
            name("CUDA_ERROR_INVALID_HANDLE"),
        ),
        causes=(
            "A stream or an event of one GPU was used while another GPU was the current device.",
            "The handle was created in the parent process before a fork.",
        ),
        fixes=(
            Fix(
                "Make the tensor's GPU the current device for the call.",
                """\
with torch.cuda.device(tensor.device):
    launch(tensor)""",
            ),
            Fix("In each process, set the device before any other CUDA call.", "torch.cuda.set_device(local_rank)"),
            Fix("Create streams and events in the process and on the GPU that use them."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.LAUNCH_BLOCKING, fixes.CUDA_LOG),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="graph-capture",
        section=SECTION,
        title="Operation not permitted during CUDA graph capture",
        summary="An operation that a CUDA graph cannot contain ran during the capture; the capture is invalid.",
        context=ContextState.ALIVE,
        patterns=(
            literal("operation not permitted when stream is capturing"),
            literal("operation failed due to a previous error during capture"),
            literal("capturing stream has unjoined work"),
            literal("make the legacy stream depend on a capturing"),
            literal("generator is not registered with the capturing graph"),
            literal("during CUDA graph capture. If you need this call to be captured"),
            cuda_error("operation would result in a merge of separate capture sequences"),
            cuda_error("capture was not ended in the same stream as it began"),
            cuda_error("dependency created on uncaptured work in another stream"),
            cuda_error("operation not permitted on an event last recorded in a capturing stream"),
            cuda_error("attempt to terminate a thread-local capture sequence from another thread"),
            name("cudaErrorStreamCaptureMerge"),
            name("cudaErrorStreamCaptureUnmatched"),
            name("cudaErrorStreamCaptureIsolation"),
            name("cudaErrorStreamCaptureWrongThread"),
            name("cudaErrorCapturedEvent"),
            name("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
            name("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
            name("cudaErrorStreamCaptureUnsupported"),
            name("cudaErrorStreamCaptureInvalidated"),
            name("cudaErrorStreamCaptureUnjoined"),
            name("cudaErrorStreamCaptureImplicit"),
            Pattern(
                "during CUDA graph capture.", r"Cannot call CUDAGeneratorImpl::\w{1,40} during CUDA graph capture\."
            ),
            literal("CUDA graphs must be captured on a non-default stream"),
        ),
        causes=(
            "The captured code waits for the GPU: .item(), .cpu(), print(tensor), a mask with a data-dependent size.",
            "A library allocates memory or creates a handle for the first time, because there was no warm-up.",
            "Work on a side stream was not joined back.",
            "Another thread called CUDA during the capture.",
        ),
        fixes=(
            Fix("Move everything that needs a value on the CPU out of the captured part."),
            Fix(
                "Warm up on a side stream, then capture with inputs that keep their addresses.",
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
            Fix(
                "Allow other threads to call CUDA during the capture.",
                'with torch.cuda.graph(graph, capture_error_mode="thread_local"):\n    output = model(static_input)',
            ),
            Fix("Or let PyTorch choose what to capture.", 'model = torch.compile(model, mode="reduce-overhead")'),
        ),
        empty_cache="Must not be called during the capture; before the capture, it only makes the warm-up slower.",
        see_more=(
            Fix(
                "Find the operations that wait for the GPU.",
                'import torch\n\ntorch.cuda.set_sync_debug_mode("warn")',
            ),
        ),
        sources=(sources.CUDA_ERRORS, sources.CUDA_NOTES),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4-0.19, Triton 3.0-3.6",
    ),
    KnownError(
        id="ecc",
        section=SECTION,
        title="Uncorrectable GPU memory error",
        summary="The GPU's memory returned data with more flipped bits than ECC can correct.",
        context=ContextState.DEAD,
        patterns=(
            literal("uncorrectable ECC error encountered"),
            name("cudaErrorECCUncorrectable"),
            name("CUDA_ERROR_ECC_UNCORRECTABLE"),
        ),
        causes=(
            "A memory cell failed once; the driver remaps its row to a spare one at the next reset.",
            "The memory is failing: the error returns on the same GPU.",
        ),
        fixes=(
            fixes.MEMORY_ERRORS,
            fixes.RESET_GPU,
            fixes.RESTART_PROCESS,
            Fix("If the remapping failed or the error returns, have the GPU replaced."),
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(fixes.KERNEL_LOG,),
        sources=(
            sources.CUDA_ERRORS,
            sources.XID_CATALOG,
            "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
        ),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="nvlink",
        section=SECTION,
        title="NVLink error",
        summary="Data on a link between GPUs was lost, or another GPU's memory was not reachable.",
        context=ContextState.DEAD,
        patterns=(
            literal("uncorrectable NVLink error detected during the execution"),
            literal("Invalid access of peer GPU memory over nvlink"),
            name("cudaErrorNvlinkUncorrectable"),
            name("CUDA_ERROR_NVLINK_UNCORRECTABLE"),
        ),
        causes=(
            "The process that owned the other GPU's memory exited, or that GPU was reset.",
            ("A link, a bridge or an NVSwitch is failing: the kernel log has Xid 74 or, on Blackwell, Xid 144 to 150."),
            "The fabric is not ready.",
        ),
        fixes=(
            Fix("Restart all ranks, and find the one that failed first."),
            fixes.LINK_STATE,
            Fix("End all work on the host and reset all of its GPUs together.", "sudo nvidia-smi --gpu-reset"),
            Fix(
                "To confirm that the links are the cause, disable peer-to-peer transfers for one run.",
                "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(fixes.KERNEL_LOG,),
        sources=(sources.CUDA_ERRORS, sources.XID_CATALOG),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="cuda-unknown",
        section=SECTION,
        title="Unknown CUDA error",
        summary="The driver failed with an error that has no specific code.",
        context=ContextState.UNKNOWN,
        patterns=(
            cuda_error("unknown error"),
            name("cudaErrorUnknown"),
            name("CUDA_ERROR_UNKNOWN"),
            cuda_error("Unrecognized error code"),
        ),
        causes=(
            "The host was suspended and resumed.",
            "The nvidia_uvm module is missing or in a bad state.",
            "The GPU was lost; the kernel log then contains an Xid.",
        ),
        fixes=(
            fixes.RELOAD_UVM,
            fixes.KERNEL_LOG,
            fixes.REBOOT,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS, "https://github.com/pytorch/pytorch/issues/49081"),
        said_by="torch 1.13-2.13",
    ),
)
