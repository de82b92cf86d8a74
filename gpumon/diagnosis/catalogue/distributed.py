"""Errors of NCCL and of torch.distributed. Of many ranks that complain, the first one tells the cause."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    FIRST_RANK,
    KERNEL_LOG,
    NO_CONTEXT_YET,
    NO_MEMORY_MATTER,
    ONE_PROCESS_A_GPU,
    ROOM_FOR_LIBRARIES,
    literal,
    names,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "NCCL and distributed"
_TROUBLESHOOTING: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_VARIABLES: Final = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_DISTRIBUTED: Final = "https://docs.pytorch.org/docs/stable/distributed.html"
_TORCHRUN: Final = "https://docs.pytorch.org/docs/stable/elastic/run.html"

_NCCL_DEBUG: Final = Fix(
    "Let NCCL tell what it does; the first line with WARN is the one to read.",
    "NCCL_DEBUG=INFO torchrun --nproc-per-node=gpu train.py",
)
_GPU_OF_RANK: Final = Fix(
    "Give each process its own GPU, before the process group is made.",
    """\
import os

import torch

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.distributed.init_process_group("nccl", device_id=device)""",
)

_SYSTEM: Final = KnownError(
    id="nccl-system",
    section=_SECTION,
    title="NCCL: system error",
    summary="A call of NCCL to the operating system failed: shared memory, a socket or a network card.",
    context=Context.ALIVE,
    patterns=(
        *names("ncclSystemError"),
        Pattern("unhandled system error", r"\bunhandled system error(?: \(run with NCCL_DEBUG|, NCCL version)"),
    ),
    causes=(
        "Shared memory (/dev/shm) is too small: a container gets 64 MB of it unless told otherwise.",
        "NCCL chose a network interface over which the machines do not reach each other.",
        "A firewall stands between, InfiniBand is set up wrongly, or the limit on locked memory is too low.",
    ),
    fixes=(
        _NCCL_DEBUG,
        Fix(
            "Give the container shared memory and locked memory.",
            "docker run --gpus all --shm-size=16g --ulimit memlock=-1 IMAGE",
        ),
        Fix("Name the interface to use.", "NCCL_SOCKET_IFNAME=eth0 torchrun --nproc-per-node=gpu train.py"),
        Fix(
            "To confirm that it is InfiniBand, do without.", "NCCL_IB_DISABLE=1 torchrun --nproc-per-node=gpu train.py"
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_TROUBLESHOOTING, _VARIABLES),
)

_CUDA: Final = KnownError(
    id="nccl-cuda",
    section=_SECTION,
    title="NCCL: CUDA error",
    summary="A CUDA call of NCCL failed; the text after `Last error` or `Cuda failure` says how.",
    context=Context.UNKNOWN,
    patterns=(
        *names("ncclUnhandledCudaError"),
        Pattern("unhandled cuda error", r"\bunhandled cuda error(?: \(run with NCCL_DEBUG|, NCCL version)"),
        Pattern("Cuda failure", r"\bNCCL WARN Cuda failure (?:(?P<code>\d{1,4}) )?'(?P<reason>[^'\n]{1,100})'"),
    ),
    causes=(
        "The GPU has no room for NCCL's buffers, which lie outside of PyTorch's cache.",
        "A kernel failed before, and NCCL is the first to notice.",
        "The GPUs cannot reach each other's memory, or the driver is older than NCCL's CUDA.",
    ),
    fixes=(
        FIRST_RANK,
        ROOM_FOR_LIBRARIES,
        _NCCL_DEBUG,
        Fix(
            "As a test, do without NCCL's newer ways to get memory.",
            "NCCL_CUMEM_ENABLE=0 NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node=gpu train.py",
        ),
    ),
    empty_cache="Helps where the cause is out of memory: NCCL's buffers need room beside PyTorch's cache.",
    see_more=(KERNEL_LOG,),
    sources=(_TROUBLESHOOTING, _VARIABLES),
)

_USAGE: Final = KnownError(
    id="nccl-usage",
    section=_SECTION,
    title="NCCL: wrong use",
    summary="The ranks called NCCL in a way it does not allow, most often two of them with the same GPU.",
    context=Context.ALIVE,
    patterns=(
        *names("ncclInvalidUsage"),
        Pattern(
            "Duplicate GPU detected",
            r"Duplicate GPU detected : rank (?P<rank>\d{1,6}) and rank (?P<other_rank>\d{1,6})"
            r"(?: both on CUDA device (?P<device>\w{1,16}))?",
        ),
        Pattern("invalid usage", r"\binvalid usage(?: \(run with NCCL_DEBUG|, NCCL version)"),
    ),
    causes=(
        "No process chose its GPU, so all of them use cuda:0.",
        "More processes were started than there are GPUs.",
        "The machines have different versions of NCCL.",
    ),
    fixes=(
        _GPU_OF_RANK,
        ONE_PROCESS_A_GPU,
        Fix("Compare the versions on all machines.", "python -c 'import torch; print(torch.cuda.nccl.version())'"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(_NCCL_DEBUG,),
    sources=(_DISTRIBUTED, _TROUBLESHOOTING),
)

_NO_GPU: Final = KnownError(
    id="nccl-no-gpu",
    section=_SECTION,
    title="NCCL without GPUs",
    summary="The backend nccl was asked for, and the process sees no GPU.",
    context=Context.NOT_APPLICABLE,
    patterns=(literal("ProcessGroupNCCL is only supported with GPUs"),),
    causes=("The machine has no GPU, or it is hidden from the process.",),
    fixes=(
        Fix(
            "Choose the backend by what is there.",
            'torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        ),
        Fix("Or take one for each kind of tensor.", 'torch.distributed.init_process_group("cpu:gloo,cuda:nccl")'),
        Fix("See what the process may use.", 'echo "$CUDA_VISIBLE_DEVICES"; nvidia-smi -L'),
    ),
    empty_cache=NO_CONTEXT_YET,
    sources=(_DISTRIBUTED,),
)

_STORE: Final = KnownError(
    id="tcpstore",
    section=_SECTION,
    title="Ranks did not find each other",
    summary="The ranks meet at a store that one of them serves, and this one could not be reached in time.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        Pattern(
            "The client socket has timed out after",
            r"The client socket has timed out after (?P<waited>\d{1,9} ?(?:ms|s|seconds)) while trying to connect"
            r"(?: to \((?P<host>[^,\n]{1,200}), (?P<port>\d{1,5})\))?",
        ),
        Pattern(
            "The client socket has failed to connect to any",
            r"The client socket has failed to connect to any network address of"
            r" \((?P<host>[^,\n]{1,200}), (?P<port>\d{1,5})\)",
        ),
        Pattern("wait timeout after", r"wait timeout after (?P<waited>\d{1,9}ms), keys: (?P<key>\S{1,200})"),
        Pattern(
            "clients joined",
            r"Timed out after \d{1,9} seconds waiting for clients\."
            r" (?P<joined>\d{1,6})/(?P<ranks>\d{1,6}) clients joined",
        ),
        Pattern("Failed to recv, got 0 bytes", r"[Ff]ailed to recv, got 0 bytes"),
        Pattern(
            "retrieving ncclUniqueId from",
            r"is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<from_rank>\d{1,6})\]",
        ),
        Pattern(
            "server socket has failed to listen on any local",
            r"server socket has failed to listen on any local network address\.(?: port: (?P<port>\d{1,5}))?",
        ),
    ),
    causes=(
        "Rank 0 ended first, by an error of its own; its log has the cause.",
        "A rank started too late or waits elsewhere: it downloads, compiles, or reads data while the others wait.",
        "The address or the port is wrong, or a firewall stands between the machines.",
        "The port is still taken, by a run before or by another one.",
        "Fewer processes were started than the world size says.",
    ),
    fixes=(
        FIRST_RANK,
        Fix("See whether rank 0 can be reached from the other machines.", 'nc -vz "$MASTER_ADDR" "$MASTER_PORT"'),
        Fix("On one machine, let torchrun choose the port.", "torchrun --standalone --nproc-per-node=gpu train.py"),
        Fix("See who has the port.", "ss -ltnp | grep 29500"),
        Fix(
            "Give slow starts more time.",
            """\
from datetime import timedelta

torch.distributed.init_process_group("nccl", timeout=timedelta(minutes=60))""",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    see_more=(
        Fix(
            "Let torch.distributed tell what it does.",
            "TORCH_CPP_LOG_LEVEL=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL python train.py",
        ),
    ),
    sources=(_TORCHRUN, _DISTRIBUTED),
)

ERRORS: Final = (_SYSTEM, _CUDA, _USAGE, _NO_GPU, _STORE)
