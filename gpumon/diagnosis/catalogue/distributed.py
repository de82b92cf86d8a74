"""Errors of NCCL and torch.distributed. Most errors at the end of a run are echoes: another rank failed first."""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "NCCL and distributed"

_NCCL_DEBUG: Final = Fix(
    "Enable NCCL logging; the first line with WARN is the important one.",
    "NCCL_DEBUG=INFO torchrun --nproc-per-node=gpu train.py",
)

_GPU_OF_RANK: Final = Fix(
    "Give each process its own GPU before the process group is created.",
    """\
import os

import torch

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.distributed.init_process_group("nccl", device_id=device)""",
)

_ROOT_CAUSE: Final = Fix(
    "With torchrun, read the root cause, which it prints at the end of its log.",
    "grep -n -A 8 'Root Cause' torchrun.log",
)

_STACKS: Final = Fix("While the program hangs, show the stack of each rank.", "py-spy dump --pid PID")

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nccl-system",
        section=SECTION,
        title="NCCL: system error",
        summary="A system call of NCCL failed: shared memory, a socket or a network card.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            name("ncclSystemError"),
            literal("NCCL Error 2: unhandled system error"),
            Pattern("Test NCCL failure", r"Test NCCL failure \S{1,60} 'unhandled system error"),
            Pattern("unhandled system error", r"\bunhandled system error(?: \(run with NCCL_DEBUG|, NCCL version)"),
            literal("NCCL error: unhandled system error"),
            Pattern(
                "unhandled system error", r"(?:ProcessGroupNCCL\.cpp:\d{1,5}, |Runtime error: )unhandled system error"
            ),
        ),
        causes=(
            "Shared memory (/dev/shm) is too small: a container has 64 MB of it by default.",
            "NCCL chose a network interface over which the hosts cannot reach each other.",
            "A firewall blocks the connection, InfiniBand is misconfigured, or the limit on locked memory is too low.",
            "The network of one host is broken; other hosts then report that it refused the connection.",
        ),
        fixes=(
            Fix(
                "Read the text after `Last error` and the first line with `NCCL WARN`, which name the failed call; if"
                " the log has neither, enable NCCL's logging.",
                _NCCL_DEBUG.code,
            ),
            Fix(
                "Give the container more shared memory and locked memory.",
                "docker run --gpus all --shm-size=16g --ulimit memlock=-1 IMAGE",
            ),
            Fix("Select the network interface.", "NCCL_SOCKET_IFNAME=eth0 torchrun --nproc-per-node=gpu train.py"),
            Fix(
                "To confirm that InfiniBand is the cause, disable it.",
                "NCCL_IB_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
            ),
            Fix("If always the same host refuses connections, leave it out, and report it.", "sbatch --exclude=HOST"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_TROUBLESHOOTING, sources.NCCL_VARIABLES),
        said_by="torch 1.13, NCCL 2.18-2.29",
        is_echo=True,
    ),
    KnownError(
        id="nccl-cuda",
        section=SECTION,
        title="NCCL: CUDA error",
        summary="A CUDA call of NCCL failed; a line with `Last error` or `Cuda failure`, if any, has the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            name("ncclUnhandledCudaError"),
            literal("NCCL Error 1: unhandled cuda error"),
            Pattern("unhandled cuda error", r"\bunhandled cuda error(?: \(run with NCCL_DEBUG|, NCCL version)"),
            Pattern(
                "Cuda failure",
                r"(?<!nvls\.cc:\d\d )(?<!nvls\.cc:\d\d\d )(?<!nvls\.cc:\d\d\d\d )\bNCCL WARN Cuda failure (?:(?P<code"
                r">\d{1,4}) )?'(?P<reason>(?!out of memory)[^'\n]{1,100})'",
            ),
            literal("NCCL error: unhandled cuda error"),
        ),
        causes=(
            "The GPU has no room for NCCL's buffers, which are outside PyTorch's cache.",
            "An earlier kernel failed, and NCCL is the first to report it.",
            "The GPUs cannot access each other's memory, or the driver is older than NCCL's CUDA version.",
        ),
        fixes=(
            _NCCL_DEBUG,
            Fix(
                "In Slurm, let every task see all GPUs of its host; transfers between them need that.",
                "srun --ntasks-per-node=8 --gpus-per-node=8 --gpu-bind=none python train.py",
                first_for=("invalid device ordinal",),
            ),
            Fix(
                "Test CUDA without NCCL; if that fails too, restart the host, or in WSL the virtual machine.",
                "python -c 'import torch; print(torch.ones(1, device=\"cuda\"))'",
                first_for=("'unknown error'",),
            ),
            Fix(
                "This build of NCCL has no kernels for the GPU, or another one was loaded than that of PyTorch: install"
                " NCCL from its wheel, and remove an LD_PRELOAD or LD_LIBRARY_PATH that leads to another one.",
                "pip install --upgrade nvidia-nccl-cu12",
                first_for=("'named symbol not found'",),
                hidden_otherwise=True,
            ),
            Fix(
                "As a test, disable NCCL's newer memory allocation methods.",
                "NCCL_CUMEM_ENABLE=0 NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node=gpu train.py",
                first_for=("'invalid argument'",),
            ),
            replace(fixes.FIRST_RANK, first_for=("Cuda failure",)),
            fixes.MEMORY_FOR_LIBRARIES,
        ),
        empty_cache="Helps if the cause is out of memory: NCCL's buffers need memory outside PyTorch's cache.",
        see_more=(fixes.KERNEL_LOG,),
        sources=(sources.NCCL_TROUBLESHOOTING, sources.NCCL_VARIABLES),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, SGLang 0.5, CuPy 13.6",
        is_echo=True,
    ),
    KnownError(
        id="nccl-usage",
        section=SECTION,
        title="NCCL: invalid usage",
        summary="The ranks called NCCL in an invalid way, usually two of them with the same GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            name("ncclInvalidUsage"),
            name("ncclInvalidArgument"),
            Pattern(
                "Duplicate GPU detected",
                r"Duplicate GPU detected : rank (?P<rank>\d{1,6}) and rank (?P<other_rank>\d{1,6})"
                r"(?: both on CUDA device (?P<device>\w{1,16}))?",
            ),
            Pattern("invalid usage", r"\binvalid usage(?: \(run with NCCL_DEBUG|, NCCL version)"),
            literal("NCCL error: invalid usage"),
            Pattern("NCCL Error 5: invalid usage", r"NCCL Error 5: invalid usage"),
            Pattern("invalid argument", r"\binvalid argument(?: \(run with NCCL_DEBUG|, NCCL version)"),
        ),
        causes=(
            "No process set its device, so all of them use cuda:0.",
            "More processes were started than there are GPUs.",
            "The hosts have different versions of NCCL.",
        ),
        fixes=(
            _GPU_OF_RANK,
            fixes.ONE_PROCESS_PER_GPU,
            Fix("Compare the versions on all hosts.", "python -c 'import torch; print(torch.cuda.nccl.version())'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(_NCCL_DEBUG,),
        sources=(sources.TORCH_DISTRIBUTED, sources.NCCL_TROUBLESHOOTING),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29",
    ),
    KnownError(
        id="nccl-no-gpu",
        section=SECTION,
        title="NCCL without GPUs",
        summary="The nccl backend was requested, and the process sees no GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("ProcessGroupNCCL is only supported with GPUs"),),
        causes=("The host has no GPU, or it is hidden from the process.",),
        fixes=(
            Fix(
                "Choose the backend by the available hardware.",
                'torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
            ),
            Fix("Or use one backend per device type.", 'torch.distributed.init_process_group("cpu:gloo,cuda:nccl")'),
            Fix("Check which GPUs the process may use.", 'echo "$CUDA_VISIBLE_DEVICES"; nvidia-smi -L'),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="nccl-timeout",
        section=SECTION,
        title="Collective timed out",
        summary="A rank waited for the other ranks in a collective until the timeout.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "collective operation timeout",
                r"(?:Caught|caught) collective operation timeout: WorkNCCL\((?:SeqNum=(?P<sequence>\d{1,12}), )?"
                r"OpType=(?P<operation>\w{1,40})(?:, NumelIn=(?P<elements>\d{1,15}))?",
            ),
        ),
        causes=(
            "Another rank failed first, or the host's out-of-memory killer ended it; its log contains the cause.",
            "The ranks run different collectives: uneven data, a branch on rank 0, saving or evaluating on one rank.",
            "One rank is slow: it reads, tokenizes or writes for longer than the timeout.",
            "A GPU or a link hangs; the kernel log then contains an Xid.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            _ROOT_CAUSE,
            _STACKS,
            Fix(
                "Record the last collectives of every rank, and compare them after the timeout.",
                """\
mkdir -p flight
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=flight/rank_
torchrun --nproc-per-node=gpu train.py
torchfrtrace --prefix rank_ flight""",
            ),
            Fix(
                "Check that all ranks call the same collectives with the same shapes.",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node=gpu train.py",
            ),
            Fix(
                "Allow more time for slow work on one rank, or do it before the job starts: reading, tokenizing,"
                " downloading.",
                """\
from datetime import timedelta

torch.distributed.init_process_group("nccl", timeout=timedelta(minutes=60))""",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(
            _NCCL_DEBUG,
            fixes.KERNEL_LOG,
        ),
        sources=(sources.TORCH_NCCL_VARIABLES, sources.FLIGHT_RECORDER),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
    KnownError(
        id="nccl-takedown",
        section=SECTION,
        title="Process group terminated the process",
        summary="torch.distributed ended the process after a collective failed or hung.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Terminating the process after attempting to dump debug info"),
            literal("we are taking the entire process down"),
            literal("Some NCCL operations have failed or timed out"),
            Pattern("Timeout at NCCL work: ", r"Timeout at NCCL work: (?P<sequence>\d{1,12})"),
            Pattern("atchdog thread terminated with exception", r"[Ww]atchdog thread terminated with exception"),
            Pattern(
                "failure detected by watchdog at work sequence id",
                r"failure detected by watchdog at work sequence id(?:: \d{1,12} PG status: last enqueued work:"
                r" (?P<enqueued>-?\d{1,12}), last completed work: (?P<completed>-?\d{1,12}))?",
            ),
            Pattern(
                "Observed flight recorder dump signal",
                r"Observed flight recorder dump signal from (?:another rank|rank (?P<from_rank>\d{1,6}))",
            ),
            Pattern(
                "detected by watchdog at work: ",
                r"Exception \(either an error or timeout\) detected by watchdog at work: (?P<sequence>\d{1,12})",
            ),
            literal("Heartbeat monitor timed out!"),
        ),
        causes=("A collective timed out, or an earlier CUDA error occurred: the first message above shows which.",),
        fixes=(
            fixes.FIRST_RANK,
            _ROOT_CAUSE,
            _STACKS,
            Fix(
                "If a long pause is intended, raise the heartbeat timeout of the monitor.",
                "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800 torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.KERNEL_LOG,),
        sources=(sources.TORCH_NCCL_VARIABLES,),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
    KnownError(
        id="nccl-remote",
        section=SECTION,
        title="NCCL: another rank failed",
        summary="NCCL lost the connection to another rank, or reached an unexpected state.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                " failed : Connection reset by peer",
                r"NCCL WARN Call to (?P<call>recv|send|write|read) failed : Connection reset by peer",
            ),
            Pattern(
                "rror encountered progressing operation=",
                r"\[Service thread\] Error encountered progressing operation=(?P<operation>\w{1,30}), res=\d{1,3}",
            ),
            Pattern(
                "ailed to execute operation ",
                r"\[Proxy Service \d{1,6}\] Failed to execute operation (?P<operation>\w{1,30}) from rank \d{1,6}",
            ),
            Pattern(
                "Read callback failed",
                r"\[c10d[^\]\n]{0,20}\] Read callback failed\. code:(?P<code>-?\d{1,5})",
            ),
            Pattern("[Proxy thread error]", r"NCCL WARN [^\n]{0,80}\[Proxy thread error\]"),
            name("ncclRemoteError"),
            name("ncclInternalError"),
            literal("remote process exited or there was a network error"),
            literal("internal error - please report this issue to the NCCL developers"),
            Pattern("3: internal error", r"NCCL [Ee]rror:? 3: internal error"),
            Pattern("onnection closed by remote peer", r"(?:socketProgress|Net ?): Connection closed by remote peer"),
            Pattern(
                "WARN Connection closed by remote",
                r"socket\.h:\d{1,5} (?:NCCL )?WARN Connection closed by remote peer",
            ),
            Pattern("Call to recv from", r"Call to recv from (?P<peer>[\w.:%\[\]-]{1,80}<\d{1,5}>) failed :"),
            Pattern("Call to send to", r"Call to send to (?P<peer>[\w.:%\[\]-]{1,80}<\d{1,5}>) failed :"),
            Pattern("NCCL communicator was aborted", r"NCCL communicator was aborted(?: on rank (?P<rank>\d{1,6}))?"),
            Pattern(
                "failed on SocketImpl", r"(?P<operation>sendBytes|recvValue|sendVector|recvVector) failed on SocketImpl"
            ),
        ),
        causes=(
            "Another rank failed first: out of memory, an assert, the host's out-of-memory killer.",
            "The network between the hosts failed.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            _ROOT_CAUSE,
            Fix("Show NCCL's warnings.", "NCCL_DEBUG=WARN torchrun --nproc-per-node=gpu train.py"),
            Fix("Check whether the kernel killed a rank.", "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.KERNEL_LOG,),
        sources=(sources.NCCL_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29",
        is_echo=True,
    ),
    KnownError(
        id="nccl-destroy",
        section=SECTION,
        title="Process group was not destroyed",
        summary=(
            "A rank exited without destroying its process group, after an error or because the program never "
            "destroys it."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("destroy_process_group() was not called before program exit"),
            Pattern("process group has NOT been destroyed", r"process group has NOT been destroyed before"),
        ),
        causes=(
            "The rank exited with an exception, which is printed above.",
            "The program does not destroy the process group at its end, which is usually harmless.",
        ),
        fixes=(
            Fix(
                "Destroy the process group at the end.",
                """\
try:
    train()
finally:
    torch.distributed.destroy_process_group()""",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 2.6-2.13",
        is_echo=True,
    ),
)
