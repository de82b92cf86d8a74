"""Errors that CUDA reports when the GPU's memory, its links or the driver below them fail."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CONTEXT_IS_DEAD,
    CUDA_ERRORS,
    KERNEL_LOG,
    LINKS,
    REBOOT_MACHINE,
    RELOAD_UVM,
    RESET_GPU,
    RESTART,
    XID_CATALOG,
    cuda_error,
    literal,
    names,
)
from gpumon.diagnosis.known import Context, Fix, KnownError

_SECTION: Final = "Kernel faults"

_ECC: Final = KnownError(
    id="ecc",
    section=_SECTION,
    title="Uncorrectable memory error of the GPU",
    summary="The GPU's memory returned data with more flipped bits than its error correction can mend.",
    context=Context.DEAD,
    patterns=(
        literal("uncorrectable ECC error encountered"),
        *names("cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE"),
    ),
    causes=(
        "A cell of the memory failed once; the driver maps a spare row in its place at the next reset.",
        "The memory is failing: the error comes back on the same GPU.",
    ),
    fixes=(
        Fix(
            "See what the driver has counted, and whether a remapping is pending.", "nvidia-smi -q -d ECC,ROW_REMAPPER"
        ),
        RESET_GPU,
        RESTART,
        Fix("If remapping failed or the error comes back, have the GPU replaced."),
    ),
    empty_cache=CONTEXT_IS_DEAD,
    see_more=(KERNEL_LOG,),
    sources=(CUDA_ERRORS, XID_CATALOG, "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"),
)

_NVLINK: Final = KnownError(
    id="nvlink",
    section=_SECTION,
    title="NVLink error",
    summary="Data on a link between GPUs was lost, or another GPU's memory could not be reached.",
    context=Context.DEAD,
    patterns=(
        literal("uncorrectable NVLink error detected during the execution"),
        literal("Invalid access of peer GPU memory over nvlink"),
        *names("cudaErrorNvlinkUncorrectable", "CUDA_ERROR_NVLINK_UNCORRECTABLE"),
    ),
    causes=(
        "The process that owned the other GPU's memory has ended, or that GPU was reset.",
        "A link, a bridge or a switch is failing: the kernel log has Xid 74 or, on Blackwell, 144 to 150.",
        "The fabric is not ready.",
    ),
    fixes=(
        Fix("Start all ranks anew, and look for the one that failed first."),
        LINKS,
        Fix("End all work on the machine and reset all of its GPUs together.", "sudo nvidia-smi --gpu-reset"),
        Fix(
            "To confirm that it is the links, do without them for one run.",
            "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
        ),
    ),
    empty_cache=CONTEXT_IS_DEAD,
    see_more=(KERNEL_LOG,),
    sources=(CUDA_ERRORS, XID_CATALOG),
)

_UNKNOWN: Final = KnownError(
    id="cuda-unknown",
    section=_SECTION,
    title="Unknown CUDA error",
    summary="The driver failed in a way it has no name for.",
    context=Context.UNKNOWN,
    patterns=(cuda_error("unknown error"), *names("cudaErrorUnknown", "CUDA_ERROR_UNKNOWN")),
    causes=(
        "The machine was suspended and resumed.",
        "The module nvidia_uvm is missing or in a bad state.",
        "The GPU was lost; then the kernel log has an Xid.",
    ),
    fixes=(
        RELOAD_UVM,
        KERNEL_LOG,
        REBOOT_MACHINE,
    ),
    empty_cache="Cannot help: the driver is in a bad state, and the call most likely fails as well.",
    sources=(CUDA_ERRORS, "https://github.com/pytorch/pytorch/issues/49081"),
)

ERRORS: Final = (_ECC, _NVLINK, _UNKNOWN)
