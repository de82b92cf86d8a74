"""Errors of calls to CUDA that are used in the wrong state or way, and those that need a license or a permission."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, cuda_error, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "CUDA calls"

_NOT_PERMITTED: Final = cuda_error("operation not permitted")

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="cuda-shutdown",
        section=SECTION,
        title="CUDA was used while the process ended",
        summary="A call reached the CUDA driver while it was shutting down in this process.",
        context=ContextState.DEAD,
        patterns=(
            cuda_error("driver shutting down"),
            name("cudaErrorCudartUnloading"),
            name("CUDA_ERROR_DEINITIALIZED"),
            Pattern("failed: driver shutting down", r"\bcu\w{2,40}\(\) failed: driver shutting down"),
        ),
        causes=(
            "A global object, a thread or a library frees GPU memory after main has returned.",
            "The process ends because of another error, which is further up.",
        ),
        fixes=(
            Fix("Look for an error above this message; it comes first."),
            Fix(
                "End threads, and delete models and tensors before the program returns.",
                "del model\ntorch.cuda.synchronize()",
            ),
            Fix("If the results are complete, take no action: the memory is freed with the process."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS, "https://github.com/open-mpi/ompi/issues/11855"),
        said_by="torch 1.13-2.13, UCX 1.14",
        is_echo=True,
    ),
    KnownError(
        id="cuda-context",
        section=SECTION,
        title="CUDA context is not valid in this thread or process",
        summary="A call was made with no CUDA context, or with one that was destroyed or belongs to another owner.",
        context=ContextState.DEAD,
        patterns=(
            cuda_error("invalid device context"),
            cuda_error("context is destroyed"),
            cuda_error("context already current"),
            cuda_error("exclusive-thread device already in use by a different thread"),
            name("cudaErrorDeviceUninitialized"),
            name("cudaErrorContextIsDestroyed"),
            name("CUDA_ERROR_INVALID_CONTEXT"),
            name("CUDA_ERROR_CONTEXT_IS_DESTROYED"),
        ),
        causes=(
            ("A thread uses the driver API, as Triton or TensorRT does, before PyTorch made a context current in it."),
            "The process was forked after CUDA was initialized, or another library reset the device.",
            "PyCUDA's autoinit created a second context in addition to PyTorch's.",
        ),
        fixes=(
            Fix(
                "Make PyTorch's context current in the thread before other libraries use CUDA in it.",
                "import torch\n\ntorch.cuda.set_device(0)\ntorch.zeros(1, device='cuda')",
            ),
            Fix("Spawn processes instead of forking them.", 'torch.multiprocessing.set_start_method("spawn")'),
            Fix("With PyCUDA, use the primary context.", "import pycuda.autoprimaryctx"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.LAUNCH_BLOCKING,),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, Triton 2.0-3.6",
    ),
    KnownError(
        id="cuda-not-permitted",
        section=SECTION,
        title="CUDA call is not permitted here",
        summary="The driver refused a call that needs a permission, a device file or another state of the stream.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(_NOT_PERMITTED.needle, _NOT_PERMITTED.regex + r"(?! when stream is capturing| on an event)"),
            Pattern("cuMemCreate failed: ", r"cuMemCreate failed: operation not permitted"),
            name("cudaErrorNotPermitted"),
            name("CUDA_ERROR_NOT_PERMITTED"),
        ),
        causes=(
            "Memory is shared between hosts or through a fabric, and no IMEX channel is assigned to this process.",
            "The container blocks the system calls by which processes exchange handles of GPU memory.",
            "A synchronizing call was made in a callback of a stream, or while a CUDA graph was recorded.",
        ),
        fixes=(
            Fix(
                "Check whether the process has an IMEX channel, if the GPUs are in a fabric of several hosts.",
                "ls /dev/nvidia-caps-imex-channels",
            ),
            Fix(
                "Make NCCL share memory without fabric handles.",
                "NCCL_MNNVL_ENABLE=0 NCCL_CUMEM_ENABLE=0 torchrun train.py",
            ),
            Fix(
                "Start the container with the permission to exchange handles.",
                "docker run --rm --gpus all --cap-add SYS_PTRACE IMAGE",
            ),
            fixes.CUDA_LOG,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.LAUNCH_BLOCKING,),
        sources=(sources.CUDA_ERRORS, "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/overview.html"),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29",
    ),
    KnownError(
        id="vgpu-license",
        section=SECTION,
        title="vGPU has no license",
        summary="The virtual GPU has no valid license, so that CUDA may not be used on it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            cuda_error("device doesn't have a valid Grid license"),
            name("cudaErrorDeviceNotLicensed"),
            name("CUDA_ERROR_DEVICE_NOT_LICENSED"),
            Pattern(
                "nvidia-gridd",
                r"nvidia-gridd(?:\[\d{1,10}\])?: [^\n]{0,80}?(?:Failed to acquire|[Uu]nlicensed|not licensed)[^\n]{0,"
                r"80}",
            ),
            Pattern("Failed to acquire license from", r"Failed to acquire license from (?P<server>\S{1,60})"),
            Pattern("local trusted store", r"Failed to update local trusted store"),
            Pattern(
                "License Status",
                r"License Status {1,40}: (?P<state>Unlicensed(?:"
                r" \((?:Restricted|Unrestricted)\))?)",
            ),
        ),
        causes=(
            "The license server cannot be reached, or has no free license.",
            "The token of the client is missing or has expired, or the clock of the host is wrong.",
        ),
        fixes=(
            Fix("Show the state of the license.", "nvidia-smi -q | grep -i -A 2 license"),
            Fix(
                "Check why no license was obtained, then restart the service.",
                "journalctl -u nvidia-gridd; sudo systemctl restart nvidia-gridd",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CUDA_ERRORS, "https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/index.html"),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="ptx-jit-missing",
        section=SECTION,
        title="Compiler of the driver is missing or disabled",
        summary="A kernel had to be compiled from PTX for this GPU, and the driver's library for it is missing.",
        context=ContextState.ALIVE,
        patterns=(
            cuda_error("PTX JIT compiler library not found"),
            cuda_error("PTX JIT compilation was disabled"),
            name("cudaErrorJitCompilerNotFound"),
            name("cudaErrorJitCompilationDisabled"),
            name("CUDA_ERROR_JIT_COMPILER_NOT_FOUND"),
            name("CUDA_ERROR_JIT_COMPILATION_DISABLED"),
        ),
        causes=(
            "The container has no libnvidia-ptxjitcompiler.so: only the capability `utility` was requested.",
            "The driver's packages are incomplete.",
            "CUDA_DISABLE_PTX_JIT is set.",
        ),
        fixes=(
            Fix(
                "Start the container with the libraries for computing.",
                "docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE",
            ),
            Fix("Check whether the library exists.", "ldconfig -p | grep ptxjitcompiler"),
            Fix("Allow the compilation.", "unset CUDA_DISABLE_PTX_JIT"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS, sources.CONTAINER_TOOLKIT),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="host-registered",
        section=SECTION,
        title="Host memory is already pinned, or is not pinned",
        summary="Memory was pinned a second time, or unpinned although it is not pinned.",
        context=ContextState.ALIVE,
        patterns=(
            cuda_error("part or all of the requested memory range is already mapped"),
            cuda_error("part or all of the requested memory range is not mapped"),
            cuda_error("resource already mapped"),
            name("cudaErrorHostMemoryAlreadyRegistered"),
            name("cudaErrorHostMemoryNotRegistered"),
            name("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
            name("CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"),
        ),
        causes=(
            "Two parts of the program pin the same tensor or buffer, such as an offload and a loader of weights.",
            "A buffer was freed and allocated again while it was still registered.",
        ),
        fixes=(
            Fix("Pin each tensor once, where it is created.", "buffer = torch.empty(shape, pin_memory=True)"),
            Fix("Check before pinning.", "batch = batch if batch.is_pinned() else batch.pin_memory()"),
            Fix("Upgrade the package that offloads or loads the weights."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.LAUNCH_BLOCKING,),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="cuda-illegal-state",
        section=SECTION,
        title="Hardware or driver is not in the state that the call needs",
        summary="The driver refused a call because of its present state; with several GPUs this is usually the fabric.",
        context=ContextState.UNKNOWN,
        patterns=(
            cuda_error("the operation cannot be performed in the present state"),
            name("cudaErrorIllegalState"),
            name("CUDA_ERROR_ILLEGAL_STATE"),
        ),
        causes=(
            "NVLink SHARP (multicast) is used, and Fabric Manager or an NVSwitch is not healthy.",
            "A graph or a stream is used while another call still works on it.",
        ),
        fixes=(
            Fix(
                "Check whether the fabric is ready: state Completed, status Success.",
                "nvidia-smi -q | grep -A 3 -i fabric",
            ),
            Fix("Restart Fabric Manager after all programs have ended.", "sudo systemctl restart nvidia-fabricmanager"),
            Fix("Continue without NVLink SHARP until then.", "NCCL_NVLS_ENABLE=0 torchrun train.py"),
            fixes.CUDA_LOG,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.KERNEL_LOG, fixes.LAUNCH_BLOCKING),
        sources=(sources.CUDA_ERRORS, "https://github.com/NVIDIA/nccl/issues/1788"),
        said_by="torch 2.4-2.13, NCCL 2.26-2.29",
    ),
    KnownError(
        id="graph-update",
        section=SECTION,
        title="CUDA graph cannot be updated",
        summary="A recorded graph was changed in a way that its executable form does not allow.",
        context=ContextState.ALIVE,
        patterns=(
            cuda_error("the graph update was not performed because it included changes which violated constraints"),
            name("cudaErrorGraphExecUpdateFailure"),
            name("CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"),
        ),
        causes=("The number or the kinds of the kernels differ from those of the graph that was instantiated.",),
        fixes=(
            Fix(
                "Record and instantiate the graph again when shapes or the control flow change.",
                "graph = torch.cuda.CUDAGraph()",
            ),
            Fix(
                "Or run without graphs; in llama.cpp, switch them off.",
                "GGML_CUDA_DISABLE_GRAPHS=1 llama-server -m MODEL",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="cuda-other",
        section=SECTION,
        title="CUDA call failed",
        summary="A call to CUDA failed; the text of the message is CUDA's reason, and the call is where it was noted.",
        context=ContextState.UNKNOWN,
        patterns=(
            cuda_error("mapping of buffer object failed"),
            cuda_error("unmapping of buffer object failed"),
            cuda_error("resource already acquired"),
            cuda_error("resource not mapped"),
            cuda_error("array is mapped"),
            cuda_error("invalid OpenGL or DirectX context"),
            cuda_error("shared object symbol not found"),
            cuda_error("shared object initialization failed"),
            cuda_error("device not ready"),
            cuda_error("launch uses incompatible texturing mode"),
            cuda_error("peer access is already enabled"),
            cuda_error("peer access has not been enabled"),
            cuda_error("cannot set while device is active in this process"),
            cuda_error("wait operation timed out"),
            cuda_error("an async error has occurred in external entity outside of CUDA"),
            cuda_error("Tensor memory not completely freed"),
            cuda_error("function or context is deleted"),
            cuda_error("profiler disabled while using external profiling tool"),
            name("cudaErrorTimeout"),
            name("CUDA_ERROR_EXTERNAL_DEVICE"),
            name("CUDA_ERROR_TENSOR_MEMORY_LEAK"),
            name("CUDA_ERROR_ALREADY_MAPPED"),
        ),
        causes=(
            "An extension or another library calls CUDA in a way that it does not allow.",
            "CUDA libraries of several versions are mixed, so that a code of one is unknown to another.",
            "An earlier asynchronous error is reported by this call.",
        ),
        fixes=(
            fixes.LAUNCH_BLOCKING,
            fixes.CUDA_LOG,
            Fix(
                "A library of the driver did not start: restart the host, then install the driver again.",
                first_for=("shared object initialization",),
                hidden_otherwise=True,
            ),
            Fix("Look the reason up in the list of CUDA's errors, and update the package that makes the call."),
            Fix(
                "Use less GPU memory: Windows could not place all of it, although some is shown as free.",
                "torch.cuda.set_per_process_memory_fraction(0.8)",
                first_for=("WSL residency",),
            ),
            Fix(
                "On Windows and in WSL, a kernel that ran too long ends so: allow longer ones, and restart.",
                "reg add HKLM\\System\\CurrentControlSet\\Control\\GraphicsDrivers /v TdrDelay /t REG_DWORD /d 60",
                first_for=("device not ready",),
            ),
            Fix(
                "Where MPS divides the GPU, mount no other /dev/shm into the container: MPS puts its memory there.",
                "kubectl get pod POD -o yaml | grep -n -B 2 -A 4 /dev/shm",
                first_for=("Error 205",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.CPP_STACKTRACES, fixes.KERNEL_LOG),
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13",
    ),
)
