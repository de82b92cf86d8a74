"""Errors of kernels: faults while they run, and launches that CUDA rejects."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import CONTEXT_IS_DEAD, NOT_ABOUT_MEMORY, cuda_error, literal, name, not_hip
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Kernel faults"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="device-assert",
        section=SECTION,
        title="Device-side assert",
        summary="A kernel checked a condition, usually that an index is in range, and the condition was false.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "] Assertion ",
                r"block: \[\d{1,10},\d{1,10},\d{1,10}\], thread: \[\d{1,5},\d{1,5},\d{1,5}\]"
                r" Assertion `?(?P<assertion>(?!0`|probability tensor contains)[^`\n]{1,300}?)(?:`| failed|$)",
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
            Pattern("Cuda error: 700[", r"Cuda error: 700\["),
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
            Fix(
                "If the kernel is in a rasterizer of Gaussians, build that of this repository again, with the sizes,"
                " such as the number of channels, that the program uses; then check for points with NaN.",
                "pip install --no-build-isolation --force-reinstall --no-deps submodules/diff-gaussian-rasterization",
                first_for=("CUDA rasterizer",),
                hidden_otherwise=True,
            ),
            Fix(
                "If PhysX of Isaac Sim reports it, the simulation and the training may use different GPUs: give both"
                " the same one, that of the rank, or train on one GPU; then update Isaac Sim and Isaac Lab.",
                "python train.py --headless --device cuda:0",
                first_for=("PhysX",),
                hidden_otherwise=True,
            ),
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
        summary=(
            "The driver terminated a kernel: a GPU that also drives a display, and on Windows every GPU with the driver"
            " model WDDM, must stay responsive."
        ),
        context=ContextState.DEAD,
        patterns=(
            literal("the launch timed out and was terminated"),
            name("cudaErrorLaunchTimeout"),
            name("CUDA_ERROR_LAUNCH_TIMEOUT"),
        ),
        causes=("A single kernel takes longer than the few seconds allowed on such a GPU.",),
        fixes=(
            Fix(
                "Use a GPU without a display for computing.",
                "nvidia-smi --query-gpu=index,name,display_active --format=csv",
            ),
            Fix("On Linux, stop the desktop and work over SSH.", "sudo systemctl isolate multi-user.target"),
            Fix("Split the work into smaller kernels: smaller tensors, more launches."),
            Fix(
                "On Windows, raise the limit to 60 seconds, as an administrator, and restart Windows; then make the"
                " inputs shorter if it is still reached.",
                'reg add "HKLM\\SYSTEM\\CurrentControlSet\\Control\\GraphicsDrivers" /v TdrDelay /t REG_DWORD /d 60',
                first_for=("Windows",),
            ),
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
)
