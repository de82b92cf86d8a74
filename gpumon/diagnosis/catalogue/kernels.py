"""Errors of kernels: what a kernel did wrong while it ran. Most of them end the CUDA context."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CONTEXT_IS_DEAD,
    CPP_STACKTRACES,
    CUDA_ERRORS,
    KERNEL_LOG,
    LAUNCH_BLOCKING,
    RESTART,
    SANITIZER,
    SANITIZER_MANUAL,
    cuda_error,
    literal,
    names,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Kernel faults"

_DEVICE_ASSERT: Final = KnownError(
    id="device-assert",
    section=_SECTION,
    title="Device-side assert",
    summary="A kernel checked a condition, most often that an index is in range, and it did not hold.",
    context=Context.DEAD,
    patterns=(
        Pattern(
            "], thread: [",
            r"block: \[\d{1,10},\d{1,10},\d{1,10}\], thread: \[\d{1,5},\d{1,5},\d{1,5}\]"
            r" Assertion `(?P<assertion>[^`\n]{1,300})",
        ),
        literal("device-side assert triggered"),
        *names("cudaErrorAssert", "CUDA_ERROR_ASSERT"),
    ),
    causes=(
        "A class label is negative or not below the number of classes.",
        "A token id is not below the size of the vocabulary, often after tokens were added without new embeddings.",
        "A position is beyond the longest sequence for which the model has embeddings.",
        "Binary cross entropy got values outside 0 to 1, or multinomial got NaN, negative or all-zero probabilities.",
    ),
    fixes=(
        Fix("Read the first line with `Assertion` on stderr: it names the condition and the source of the kernel."),
        Fix(
            "Check the range of labels and token ids before the step.",
            """\
assert 0 <= labels.min().item() and labels.max().item() < num_classes
assert input_ids.max().item() < model.get_input_embeddings().num_embeddings""",
        ),
        Fix(
            "Run the failing batch on the CPU, where the same fault is a Python error at the right line.",
            "CUDA_VISIBLE_DEVICES= python train.py",
        ),
        Fix("After tokens were added, resize the embeddings.", "model.resize_token_embeddings(len(tokenizer))"),
        RESTART,
    ),
    empty_cache=CONTEXT_IS_DEAD,
    see_more=(LAUNCH_BLOCKING,),
    sources=(CUDA_ERRORS, "https://github.com/pytorch/pytorch/issues/17425"),
)

_ILLEGAL_ADDRESS: Final = KnownError(
    id="illegal-address",
    section=_SECTION,
    title="Illegal memory access",
    summary="A kernel read or wrote at an address that does not belong to the process.",
    context=Context.DEAD,
    patterns=(
        literal("an illegal memory access was encountered"),
        *names("cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ),
    causes=(
        "A custom, Triton or attention kernel reads beyond the end of a tensor.",
        "A tensor has more than 2**31 elements and the kernel counts in 32 bits.",
        "Memory was freed too early for a second stream that still reads it: record_stream is missing.",
        "A kernel was launched on one GPU with pointers to another.",
        "The GPU's memory is failing, which is rare; then the kernel log has an Xid such as 48, 94 or 95.",
    ),
    fixes=(
        LAUNCH_BLOCKING,
        SANITIZER,
        Fix("Update or remove the extension whose kernel it is, or use PyTorch's own operator in its place."),
        Fix(
            "Launch custom kernels with the tensor's GPU as the current one.",
            """\
with torch.cuda.device(tensor.device):
    launch(tensor)""",
        ),
        Fix("Tell the allocator which other stream uses a tensor.", "tensor.record_stream(side_stream)"),
        RESTART,
    ),
    empty_cache=CONTEXT_IS_DEAD,
    see_more=(
        KERNEL_LOG,
        Fix(
            "Let the driver write a core dump of the GPU, which cuda-gdb opens.",
            "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 python train.py",
        ),
    ),
    sources=(CUDA_ERRORS, SANITIZER_MANUAL),
)

_MISALIGNED: Final = KnownError(
    id="misaligned",
    section=_SECTION,
    title="Misaligned address",
    summary="A kernel read several values at once from an address that is not a multiple of their size.",
    context=Context.DEAD,
    patterns=(cuda_error("misaligned address"), *names("cudaErrorMisalignedAddress", "CUDA_ERROR_MISALIGNED_ADDRESS")),
    causes=(
        "A custom kernel loads 16 bytes at a time, and a slice or a view begins at an odd offset.",
        "A kernel got a pointer to values of another type than it was written for.",
    ),
    fixes=(
        Fix(
            "Give the kernel a tensor with memory of its own.",
            "launch(tensor.clone(memory_format=torch.contiguous_format))",
        ),
        Fix("In your own kernel, check the alignment before wide loads.", "assert tensor.data_ptr() % 16 == 0"),
        RESTART,
    ),
    empty_cache=CONTEXT_IS_DEAD,
    see_more=(LAUNCH_BLOCKING, SANITIZER),
    sources=(CUDA_ERRORS,),
)

_ILLEGAL_INSTRUCTION: Final = KnownError(
    id="illegal-instruction",
    section=_SECTION,
    title="Illegal instruction or damaged program",
    summary="A kernel ran into code, a jump or an address space that the GPU cannot execute.",
    context=Context.DEAD,
    patterns=(
        literal("an illegal instruction was encountered"),
        cuda_error("hardware stack error"),
        cuda_error("operation not supported on global/shared address space"),
        cuda_error("invalid program counter"),
        *names("cudaErrorIllegalInstruction", "cudaErrorHardwareStackError"),
        *names("cudaErrorInvalidAddressSpace", "cudaErrorInvalidPc"),
    ),
    causes=(
        "A kernel was built for another architecture, or its cached binary is damaged.",
        "A kernel calls through a bad function pointer or overflows its stack.",
        "The GPU is unstable: overclocked, short of power or failing; then the place changes from run to run.",
    ),
    fixes=(
        Fix(
            "Delete the caches of compiled kernels and build the extensions anew.",
            "rm -rf ~/.triton/cache ~/.nv/ComputeCache ~/.cache/torch_extensions",
        ),
        Fix("Set the clocks back to their defaults, then run a burn-in.", "sudo nvidia-smi -rgc; sudo nvidia-smi -rmc"),
        RESTART,
    ),
    empty_cache=CONTEXT_IS_DEAD,
    see_more=(KERNEL_LOG, LAUNCH_BLOCKING),
    sources=(CUDA_ERRORS,),
)

_LAUNCH_FAILURE: Final = KnownError(
    id="launch-failure",
    section=_SECTION,
    title="Unspecified launch failure",
    summary="A kernel died, and CUDA has no more precise name for how.",
    context=Context.DEAD,
    patterns=(
        literal("unspecified launch failure"),
        *names("cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED"),
    ),
    causes=(
        "A custom kernel leaves its shared memory or its stack.",
        "The driver or the GPU failed: the kernel log has an Xid.",
        "Clocks or power are unstable.",
    ),
    fixes=(
        KERNEL_LOG,
        SANITIZER,
        LAUNCH_BLOCKING,
        RESTART,
        Fix("If it comes back on one GPU alone, test that GPU's hardware.", "dcgmi diag -r 3"),
    ),
    empty_cache=CONTEXT_IS_DEAD,
    see_more=(CPP_STACKTRACES,),
    sources=(CUDA_ERRORS, SANITIZER_MANUAL),
)

_LAUNCH_TIMEOUT: Final = KnownError(
    id="launch-timeout",
    section=_SECTION,
    title="Kernel ran for too long",
    summary="The driver ended a kernel because the GPU also draws a screen, which must not freeze.",
    context=Context.DEAD,
    patterns=(
        literal("the launch timed out and was terminated"),
        *names("cudaErrorLaunchTimeout", "CUDA_ERROR_LAUNCH_TIMEOUT"),
    ),
    causes=("A single kernel takes longer than the few seconds that a GPU with a display grants.",),
    fixes=(
        Fix(
            "Compute on a GPU without a display.",
            "nvidia-smi --query-gpu=index,name,display_active --format=csv",
        ),
        Fix("Stop the desktop and work over SSH.", "sudo systemctl isolate multi-user.target"),
        Fix("Split the work into smaller kernels: smaller tensors, more launches."),
        RESTART,
    ),
    empty_cache=CONTEXT_IS_DEAD,
    see_more=(LAUNCH_BLOCKING,),
    sources=(CUDA_ERRORS,),
)

ERRORS: Final = (
    _DEVICE_ASSERT,
    _ILLEGAL_ADDRESS,
    _MISALIGNED,
    _ILLEGAL_INSTRUCTION,
    _LAUNCH_FAILURE,
    _LAUNCH_TIMEOUT,
)
