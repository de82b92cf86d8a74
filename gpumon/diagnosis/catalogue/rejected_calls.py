"""Errors of CUDA calls: arguments, code that the driver cannot load, captures, and failures of the hardware."""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.kernels import SECTION
from gpumon.diagnosis.catalogue.wording import CONTEXT_IS_DEAD, NOT_ABOUT_MEMORY, cuda_error, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
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
            Fix(
                "A kernel of ONNX Runtime refused its sizes: upgrade it, or compute this model on the CPU.",
                "pip install --upgrade onnxruntime-gpu",
                first_for=("; GPU=",),
                hidden_otherwise=True,
            ),
            fixes.LAUNCH_BLOCKING,
            fixes.CUDA_LOG,
            fixes.SANITIZER,
            Fix("Update the package whose call the traceback names.", first_for=("Triton Error",)),
            Fix(
                "If you built llama.cpp yourself, compare the CUDA version of its compiler with that of the library"
                " that it loads: if they differ, as 13 and 12, build again in an empty folder with one toolkit, or"
                " use the official build.",
                "find . -name 'libggml-cuda.so' -exec ldd {} + | grep cudart; nvcc --version",
                first_for=("llama.cpp",),
                hidden_otherwise=True,
            ),
            fixes.OTHER_ATTENTION,
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
            Pattern("CUDA_ERROR_INVALID_PTX", r"(?<!failed with ')\bCUDA_ERROR_INVALID_PTX\b"),
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
            Pattern("CUDA_ERROR_INVALID_HANDLE", r"(?<!failed with ')\bCUDA_ERROR_INVALID_HANDLE\b"),
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
            Pattern(
                "Attempting CUDA graph capture of step",
                r"Attempting CUDA graph capture of step\(\) for an instance of (?P<optimizer>\w{1,40})"
                r" but (?:param_groups' capturable is False|this instance was constructed with capturable=False)",
            ),
            literal("philox_cuda_state for an unexpected CUDA generator used during capture"),
            Pattern(
                "cudaStreamCaptureStatusInvalidated",
                r"status [!=]= (?:cudaStreamCaptureStatus::)?cudaStreamCaptureStatusInvalidated",
            ),
            literal("make_graphed_callables does not support the autocast caching"),
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
                "Upgrade SGLang, or choose another attention backend, which may permit graphs.",
                "python -m sglang.launch_server --model-path MODEL --attention-backend flashinfer",
                first_for=("SGLang",),
            ),
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
            Fix(
                "Join every side stream back before the capture ends.",
                "torch.cuda.current_stream().wait_stream(side)",
                first_for=("unjoined work",),
            ),
            Fix(
                "Create the optimizer for CUDA graphs.",
                "optimizer = torch.optim.AdamW(model.parameters(), capturable=True)",
                first_for=("capturable=False",),
            ),
            Fix(
                "Load what is loaded at the first use before the capture; with Warp, all modules.",
                "wp.force_load(device)",
                first_for=("load_module",),
            ),
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
            Fix(
                "If the remapping failed or the error returns, have the GPU replaced; on a cluster, leave the node out"
                " until then.",
                "sbatch --exclude=NODE job.sh",
            ),
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
            Fix(
                "CUDA had already worked on this GPU: on the host of this rank, check whether all GPUs answer and"
                " whether the kernel log has an Xid from that time. If a GPU failed, take the host out of the job, and"
                " resume from the last checkpoint.",
                "nvidia-smi; sudo dmesg -T | grep -i -E 'xid|fallen off'",
                first_for=("working NCCL",),
                hidden_otherwise=True,
            ),
            replace(
                fixes.RELOAD_UVM,
                text="If already the first CUDA call fails, as after a suspend, reload the nvidia_uvm module while no"
                " process uses the GPUs.",
            ),
            fixes.KERNEL_LOG,
            fixes.REBOOT,
            Fix(
                "Find the other libcuda, such as one of cuda-compat or Conda, and take it out of the search path.",
                first_for=("other libcuda",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS, "https://github.com/pytorch/pytorch/issues/49081"),
        said_by="torch 1.13-2.13",
    ),
)
