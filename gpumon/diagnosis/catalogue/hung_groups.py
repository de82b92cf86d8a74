"""Errors of process groups that hang: the monitor of the watchdog, and groups that cannot be ended."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Hung process groups"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nccl-watchdog-stuck",
        section=SECTION,
        title="NCCL's watchdog hangs",
        summary=(
            "The thread that watches the collectives of this rank made no progress, so that PyTorch ended the process:"
            " a call of CUDA or NCCL does not return, or the thread waits for the GIL."
        ),
        context=ContextState.DEAD,
        patterns=(Pattern("watchdog got stuck for", r"watchdog got stuck for (?P<seconds>\d{1,9}) seconds"),),
        causes=(
            "A kernel or a collective on the GPU does not end, such as when another rank is gone.",
            "Another thread holds the GIL inside a CUDA call, or the host is out of memory or CPU time.",
            "The driver or the GPU hangs: an Xid in the kernel log.",
        ),
        fixes=(
            Fix(
                "Print the stacks of the ranks while they hang: the one that stands elsewhere is the cause.",
                "py-spy dump --native --pid $(pgrep -f train.py | head -1)",
            ),
            fixes.KERNEL_LOG,
            Fix(
                "Record the collectives of every rank, to see which one did not take part.",
                "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun --nproc-per-node=gpu train.py",
            ),
            Fix(
                "If the pause is intended, as while kernels are compiled or a large file is written, allow it.",
                "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800 torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_NCCL_VARIABLES,),
        said_by="torch 2.2-2.13",
    ),
    KnownError(
        id="nccl-abort-stuck",
        section=SECTION,
        title="Process group could not be ended",
        summary="PyTorch tried to abort NCCL, as after an error or in destroy_process_group, and NCCL did not return.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "Future for ProcessGroup ", r"Future for ProcessGroup \w{1,20} timed out after (?P<waited>\d{1,9}) ms"
            ),
            Pattern(
                "thrown when waiting for future ProcessGroup", r"xception thrown when waiting for future ProcessGroup"
            ),
        ),
        causes=(
            "One rank ended or raised an error, and the others wait for it in a collective; its log names the cause.",
            "The ranks called different collectives, so that the GPU still waits when the group is destroyed.",
            "The driver does not answer.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix(
                "End all processes of the job; one that stays keeps its GPU.",
                "nvidia-smi; ps -eo pid,stat,etime,cmd | grep python",
            ),
            Fix(
                "Let every rank finish before the group is destroyed.",
                "torch.cuda.synchronize()\ntorch.distributed.barrier()\ntorch.distributed.destroy_process_group()",
            ),
            fixes.KERNEL_LOG,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_NCCL_VARIABLES, "https://github.com/karpathy/nanochat/issues/554"),
        said_by="torch 2.5-2.13",
        is_echo=True,
    ),
)
