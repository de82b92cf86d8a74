"""Errors with which a distributed run ends. Most of them are echoes: another rank, or another error, was first."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import FIRST_RANK, KERNEL_LOG, NO_MEMORY_MATTER, literal, names
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "NCCL and distributed"
_TORCH_VARIABLES: Final = "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_FLIGHT_RECORDER: Final = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html"
_DISTRIBUTED: Final = "https://docs.pytorch.org/docs/stable/distributed.html"
_NCCL_ERRORS: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html"

_ROOT_CAUSE: Final = Fix("torchrun names it at the end of its log.", "grep -n -A 8 'Root Cause' torchrun.log")
_STACKS: Final = Fix("While it hangs, see where each rank stands.", "py-spy dump --pid PID")

_TIMEOUT: Final = KnownError(
    id="nccl-timeout",
    section=_SECTION,
    title="Collective timed out",
    summary="A rank waited for the others in a collective until its time was up.",
    context=Context.DEAD,
    patterns=(
        Pattern(
            "aught collective operation timeout",
            r"aught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<sequence>\d{1,12}), )?"
            r"OpType=(?P<operation>\w{1,40})(?:, NumelIn=(?P<elements>\d{1,15}))?",
        ),
    ),
    causes=(
        "Another rank failed first, by its own error or the host's out-of-memory killer; its log has the cause.",
        "The ranks do not do the same: uneven data, a branch on rank 0 alone, saving or evaluating on one rank.",
        "One rank is slow: it reads, tokenizes or writes for longer than the timeout.",
        "A GPU or a link hangs; then the kernel log has an Xid.",
    ),
    fixes=(
        FIRST_RANK,
        _ROOT_CAUSE,
        _STACKS,
        Fix(
            "Record the last collectives of every rank, and compare them after the timeout.",
            """\
mkdir -p flight
export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=flight/rank_
torchrun --nproc-per-node=gpu train.py
torchfrtrace --prefix rank_ flight""",
        ),
        Fix(
            "Check that all ranks call the same collectives with the same shapes.",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node=gpu train.py",
        ),
        Fix(
            "Give slow work on one rank more time.",
            """\
from datetime import timedelta

torch.distributed.init_process_group("nccl", timeout=timedelta(minutes=60))""",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(
        Fix("Let NCCL tell what it does.", "NCCL_DEBUG=INFO torchrun --nproc-per-node=gpu train.py"),
        KERNEL_LOG,
    ),
    sources=(_TORCH_VARIABLES, _FLIGHT_RECORDER),
    is_echo=True,
)

_TAKEDOWN: Final = KnownError(
    id="nccl-takedown",
    section=_SECTION,
    title="Process group takes the process down",
    summary="torch.distributed ended the process after a collective had failed or had hung.",
    context=Context.DEAD,
    patterns=(
        literal("we are taking the entire process down"),
        Pattern("watchdog got stuck for", r"watchdog got stuck for (?P<seconds>\d{1,9}) seconds"),
        Pattern("atchdog thread terminated with exception", r"[Ww]atchdog thread terminated with exception"),
        literal("failure detected by watchdog at work sequence id"),
    ),
    causes=(
        "A collective timed out, or a CUDA error came before: the first message above tells which.",
        "Stuck: a CUDA call hangs, the CPU has no time for the thread, or Python's lock is held.",
    ),
    fixes=(
        FIRST_RANK,
        _ROOT_CAUSE,
        _STACKS,
        Fix(
            "If a long pause is meant, let the monitor wait longer.",
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800 torchrun --nproc-per-node=gpu train.py",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(KERNEL_LOG,),
    sources=(_TORCH_VARIABLES,),
    is_echo=True,
)

_REMOTE: Final = KnownError(
    id="nccl-remote",
    section=_SECTION,
    title="NCCL: another rank is gone",
    summary="NCCL lost the connection to another rank, or found itself in a state it did not expect.",
    context=Context.UNKNOWN,
    patterns=(
        *names("ncclRemoteError", "ncclInternalError"),
        literal("remote process exited or there was a network error"),
        literal("internal error - please report this issue to the NCCL developers"),
    ),
    causes=(
        "Another rank ended first: out of memory, an assert, the host's out-of-memory killer.",
        "The network between the machines failed.",
    ),
    fixes=(
        FIRST_RANK,
        _ROOT_CAUSE,
        Fix("See what NCCL warns of.", "NCCL_DEBUG=WARN torchrun --nproc-per-node=gpu train.py"),
        Fix("See whether the kernel killed a rank.", "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(KERNEL_LOG,),
    sources=(_NCCL_ERRORS,),
    is_echo=True,
)

_NOT_DESTROYED: Final = KnownError(
    id="nccl-destroy",
    section=_SECTION,
    title="Process group was not destroyed",
    summary="A rank ended without closing its process group, by an error or because the program never does so.",
    context=Context.ALIVE,
    patterns=(literal("destroy_process_group() was not called before program exit"),),
    causes=(
        "The rank ended by an exception, which stands above.",
        "The program does not close the process group at its end, which is harmless in most cases.",
    ),
    fixes=(
        Fix(
            "Close it at the end.",
            """\
try:
    train()
finally:
    torch.distributed.destroy_process_group()""",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_DISTRIBUTED,),
    is_echo=True,
)

ERRORS: Final = (_TIMEOUT, _TAKEDOWN, _REMOTE, _NOT_DESTROYED)
