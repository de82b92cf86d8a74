"""Rarer errors of the CUDA runtime: functions that are not supported, peers, the MPS server, and the system."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.kernels import SECTION
from gpumon.diagnosis.catalogue.wording import CONTEXT_IS_DEAD, NOT_ABOUT_MEMORY, cuda_error, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_NATIVE_ALLOCATOR: Final = Fix(
    "Use PyTorch's native allocator without expandable segments; ComfyUI has --disable-cuda-malloc for it.",
    "PYTORCH_CUDA_ALLOC_CONF=backend:native,expandable_segments:False python train.py",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="cuda-not-supported",
        section=SECTION,
        title="Function not supported on this GPU or driver",
        summary="The program used a function of CUDA that this GPU, driver, or virtual machine does not have.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "operation not supported",
                r"(?:CUDA error|Triton Error \[CUDA\]|Cuda error \d{1,4}): operation not supported(?! on )",
            ),
            cuda_error("limit is not supported on this architecture"),
            Pattern("CUDA runtime error: operation not supported", r"CUDA runtime error: operation not supported"),
            cuda_error("the provided execution affinity is not supported"),
            cuda_error("feature not supported by this device"),
            Pattern(
                "Error operation not supported at line",
                r"Error operation not supported at line \d{1,6} in file \S{1,200}/csrc/",
            ),
            Pattern("driver error: operation not supported", r"CUDA driver error: operation not supported"),
            name("cudaErrorNotSupported"),
            name("CUDA_ERROR_NOT_SUPPORTED"),
            cuda_error("API call is not supported in the installed CUDA driver"),
        ),
        causes=(
            "A virtual GPU, WSL and old GPUs do not support cudaMallocAsync or expandable segments.",
            "Peer access, shared CUDA memory or unified memory, on a host or in a container that does not allow them.",
            "The driver is older than the CUDA version of the program.",
        ),
        fixes=(
            _NATIVE_ALLOCATOR,
            Fix("If NCCL failed, let it allocate in the old way.", "NCCL_CUMEM_ENABLE=0 torchrun train.py"),
            Fix(
                "If bitsandbytes failed, use an optimizer without paging, which needs managed memory.",
                'arguments = TrainingArguments(optim="adamw_8bit")',
                first_for=("/csrc/",),
            ),
            Fix(
                "In llama.cpp, run without CUDA graphs and without copies from GPU to GPU.",
                "cmake -B build -DGGML_CUDA=ON -DGGML_CUDA_NO_PEER_COPY=ON && cmake --build build -j",
                first_for=("llama.cpp",),
            ),
            fixes.DRIVER_CUDA_VERSION,
            Fix(
                "Check whether the GPU is virtual.",
                "nvidia-smi -q | grep -A 3 -i virtualization",
            ),
            Fix(
                "In LMDeploy, use the engine that is written in PyTorch.",
                "lmdeploy serve api_server MODEL --backend pytorch",
                first_for=("turbomind",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.LAUNCH_BLOCKING, fixes.CUDA_LOG),
        sources=(sources.CUDA_ERRORS, "https://github.com/Comfy-Org/ComfyUI/issues/6843"),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 3.0-3.6",
    ),
    KnownError(
        id="os-call",
        section=SECTION,
        title="System call of the driver failed",
        summary="The driver asked the operating system for memory, a file or a handle, and was refused.",
        context=ContextState.UNKNOWN,
        patterns=(
            cuda_error("OS call failed"),
            name("cudaErrorOperatingSystem"),
            name("CUDA_ERROR_OPERATING_SYSTEM"),
        ),
        causes=(
            "Pinned host memory: too much of it, or the limit on locked memory is low.",
            "Shared CUDA memory between containers that do not share their process or IPC namespace.",
            "The device files cannot be opened, or the container or a sandbox blocks a system call.",
        ),
        fixes=(
            Fix("Check free host memory and the limit on locked memory.", "free -h; ulimit -l"),
            Fix(
                "Give the container the host's IPC namespace and unlimited locked memory.",
                "docker run --gpus all --ipc=host --ulimit memlock=-1 IMAGE",
            ),
            Fix("Pin less memory.", "loader = DataLoader(dataset, pin_memory=False)"),
            Fix("Check whether the device files exist and can be read and written.", "ls -l /dev/nvidia*; id"),
            fixes.KERNEL_LOG,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS, "https://github.com/vllm-project/vllm/issues/43473"),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="peer-access",
        section=SECTION,
        title="GPUs cannot access each other's memory",
        summary="The program requested direct access between two GPUs that the driver does not offer.",
        context=ContextState.ALIVE,
        patterns=(
            cuda_error("peer access is not supported between these two devices"),
            cuda_error("too many peers mapped in this process"),
            name("cudaErrorPeerAccessUnsupported"),
            name("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"),
            cuda_error("peer mapping resources exhausted"),
            name("cudaErrorTooManyPeers"),
        ),
        causes=(
            "GeForce GPUs without NVLink, GPUs behind different PCIe roots, and virtual machines have no peer access.",
            "One GPU can map at most eight peers.",
        ),
        fixes=(
            Fix("Show which pairs of GPUs can access each other.", "nvidia-smi topo -p2p r"),
            Fix("Let NCCL copy through the host.", "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=gpu train.py"),
            Fix("In vLLM, use NCCL for all-reduce.", "vllm serve MODEL --disable-custom-all-reduce"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS, sources.NCCL_VARIABLES),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="mps-server",
        section=SECTION,
        title="MPS server failed or cannot be reached",
        summary="The program is a client of a Multi-Process Service (MPS) of CUDA, which does not answer.",
        context=ContextState.DEAD,
        patterns=(
            literal("MPS client failed to connect to the MPS control daemon or the MPS server"),
            literal("the remote procedural call between the MPS server and the MPS client failed"),
            literal("MPS server is not ready to accept new MPS client requests"),
            literal("the hardware resources required to create MPS client have been exhausted"),
            literal("the hardware resources required to support device connections have been exhausted"),
            name("CUDA_ERROR_MPS_CONNECTION_FAILED"),
            name("CUDA_ERROR_MPS_RPC_FAILURE"),
            Pattern("cudaErrorMps", r"\bcudaErrorMps(?P<reason>[A-Z]\w{3,30})\b"),
        ),
        causes=(
            "The daemon was started by another user, or its directory is not in the container.",
            "A client crashed and took the server with it; all clients then fail.",
            "More clients connect than the server supports.",
        ),
        fixes=(
            Fix(
                "Give the container the pipes of the daemon on the host, and the host's namespace for IPC.",
                "docker run --gpus all --ipc=host -v /tmp/nvidia-mps:/tmp/nvidia-mps"
                " -e CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps IMAGE",
                first_for=("in a container",),
            ),
            Fix(
                "Or start a daemon in the container, and none on the host.",
                "nvidia-cuda-mps-control -d",
                first_for=("in a container",),
            ),
            Fix(
                "On the host of the daemon, read the log of the server.",
                "cat /var/log/nvidia-mps/control.log /var/log/nvidia-mps/server.log",
            ),
            Fix("Restart the daemon.", "bash -c 'echo quit | nvidia-cuda-mps-control; nvidia-cuda-mps-control -d'"),
            Fix(
                "Run without MPS: stop the daemon, or name a folder without one.",
                "CUDA_MPS_PIPE_DIRECTORY=/tmp/no-mps python train.py",
            ),
        ),
        empty_cache=CONTEXT_IS_DEAD,
        sources=("https://docs.nvidia.com/deploy/mps/index.html", sources.CUDA_ERRORS),
        said_by="torch 1.13, NCCL 2.18-2.29, Triton 2.0-3.6, torchvision 0.14-0.24",
    ),
    KnownError(
        id="symbol-not-found",
        section=SECTION,
        title="Kernel or symbol not found in the GPU's code",
        summary="The loaded GPU code has no kernel of this name: it was compiled for something else.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "named symbol not found",
                cuda_error("").regex + r"(?<!Error 500: )(?<!NOT_FOUND: )named symbol not found",
            ),
            cuda_error("invalid device symbol"),
            name("cudaErrorInvalidSymbol"),
            Pattern("CUDA_ERROR_NOT_FOUND", r"(?<!cuInit results in )(?<!cuInit: )\bCUDA_ERROR_NOT_FOUND\b"),
            name("cudaErrorSymbolNotFound"),
            Pattern("Failed to encode tensor map", r"Failed to encode tensor map: (?P<code>(?!700)\d{1,4})\b"),
            Pattern("symbol: invalid device symbol", r"symbol: invalid device symbol"),
        ),
        causes=(
            "A cache of compiled kernels comes from another version of the package or from another GPU.",
            "The driver is older than the toolkit with which the kernel was compiled.",
        ),
        fixes=(
            Fix(
                "Delete the caches of compiled kernels.",
                "rm -rf ~/.triton/cache ~/.cache/torch_extensions ~/.cache/flashinfer ~/.nv/ComputeCache",
            ),
            fixes.DRIVER_CUDA_VERSION,
            Fix("Show the versions that must fit together.", "pip list | grep -i -E 'torch|triton|flash'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS, sources.TRITON),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 3.0-3.6",
    ),
    KnownError(
        id="cuda-check-failed",
        section=SECTION,
        title="A CUDA call of PyTorch failed",
        summary="PyTorch's C++ code found that a CUDA call failed; the line before, with `CUDA error:`, is the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "c10_cuda_check_implementation",
                r"Exception raised from c10_cuda_check_implementation at (?P<file>[^\s:]{1,200})",
            ),
            literal("c10::cuda::c10_cuda_check_implementation("),
        ),
        causes=(
            "An earlier kernel failed, such as by an index out of range or an illegal memory access.",
            "The process ended with objects that still use a CUDA context which is already dead.",
        ),
        fixes=(
            Fix("Find the line with `CUDA error:` above this one, in the log of the same process, and explain it."),
            fixes.LAUNCH_BLOCKING,
            fixes.RESTART_PROCESS,
        ),
        empty_cache=CONTEXT_IS_DEAD,
        see_more=(fixes.KERNEL_LOG,),
        sources=("https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDAException.cpp",),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
)
