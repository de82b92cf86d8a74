"""Errors of process groups: the environment and the store by which the ranks find each other, and the backend."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Process groups"

_TORCHRUN: Final = Fix(
    "Start the program with torchrun, which sets these variables.",
    "torchrun --standalone --nproc-per-node=gpu train.py",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="tcpstore",
        section=SECTION,
        title="Ranks could not connect to the store",
        summary="The ranks connect to a store that one of them hosts, and it could not be reached in time.",
        context=ContextState.NOT_APPLICABLE,
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
            Pattern("ailed to recv, got 0 bytes", r"[Ff]ailed to recv, got 0 bytes"),
            Pattern(
                "failed on SocketImpl", r"(?P<operation>sendBytes|recvValue|sendVector|recvVector) failed on SocketImpl"
            ),
            Pattern(
                "retrieving ncclUniqueId from",
                r"is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<from_rank>\d{1,6})\]",
            ),
            Pattern("RendezvousTimeoutError", r"\bRendezvousTimeoutError\b"),
            Pattern("RendezvousClosedError", r"\bRendezvousClosedError\b"),
            literal("The connection to the C10d store has failed"),
            Pattern(
                "Timed out initializing process group in store based barrier",
                r"Timed out initializing process group in store based barrier on rank:?"
                r" (?P<rank>\d{1,6})[^\n]{0,160}?(?:worker_count=(?P<joined>\d{1,6}))?",
            ),
            literal("Stop_waiting response is expected"),
            Pattern("connect() timed out. Original", r"connect\(\) timed out\. Original timeout was \d{1,9} ms"),
            Pattern("RuntimeError: Socket Timeout", r"RuntimeError: Socket Timeout"),
            Pattern("RuntimeError: Connection reset by peer", r"RuntimeError: Connection reset by peer"),
            Pattern("RuntimeError: Broken pipe", r"RuntimeError: Broken pipe"),
            Pattern("DistNetworkError: Unknown error", r"DistNetworkError: Unknown error"),
            Pattern("Failed to recv, got ", r"DistNetworkError: Failed to recv, got (?P<bytes>[1-9]\d{0,9}) bytes"),
        ),
        causes=(
            "Rank 0 failed first; its log contains the cause.",
            "A rank started too late or waits elsewhere: it downloads, compiles, or reads data while the others wait.",
            "The address or the port is wrong, or a firewall blocks the connection between the hosts.",
            "The port is still in use by an earlier run or by another one.",
            "Fewer processes were started than the world size.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix("Check whether rank 0 can be reached from the other hosts.", 'nc -vz "$MASTER_ADDR" "$MASTER_PORT"'),
            Fix(
                "On a single host, let torchrun choose the port.", "torchrun --standalone --nproc-per-node=gpu train.py"
            ),
            Fix("Check which process uses the port.", "ss -ltnp | grep 29500"),
            Fix(
                "Allow more time for slow starts.",
                """\
from datetime import timedelta

torch.distributed.init_process_group("nccl", timeout=timedelta(minutes=60))""",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(
            Fix(
                "Enable the logs of torch.distributed.",
                "TORCH_CPP_LOG_LEVEL=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL python train.py",
            ),
        ),
        sources=(sources.TORCHRUN, sources.TORCH_DISTRIBUTED),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="rank-not-set",
        section=SECTION,
        title="Process group without a launcher",
        summary="The program reads its rank from the environment, and was started with python instead of torchrun.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("torch.distributed process group is initialized, but local_rank == -1"),
            literal("LOCAL_RANK is not in the environment"),
            literal("Tried to launch on distributed with multinode, but `MASTER_ADDR` env was not set"),
            Pattern(
                "expected, but not set",
                r"rendezvous: environment variable (?P<variable>[A-Z_]{1,40}) expected, but not set",
            ),
            Pattern("KeyError: 'LOCAL_RANK'", r"KeyError: '(?P<variable>LOCAL_RANK)'"),
            literal("KeyError: 'WORLD_SIZE'"),
            Pattern("No module named 'mpi4py'", r"No module named '(?P<variable>mpi4py)'"),
            Pattern("DCP needs MASTER_", r"DCP needs MASTER_(?P<variable>ADDR|PORT)"),
        ),
        causes=(
            "The program was started with python, or from a notebook.",
            "In a Slurm job, srun sets SLURM_PROCID, and nothing translates it into RANK.",
            "DeepSpeed finds no variables of a launcher, and therefore asks MPI, through mpi4py.",
        ),
        fixes=(
            _TORCHRUN,
            Fix("Or use the launcher of accelerate.", "accelerate launch --num_processes 2 train.py"),
            Fix(
                "For a single process, set the variables.",
                "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 python train.py",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCHRUN, sources.TORCH_DISTRIBUTED),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="port-in-use",
        section=SECTION,
        title="Port of the launcher is in use",
        summary="Another job, or an earlier one that still runs, uses the port over which the ranks find each other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "but another process is utilizing it",
                r"Tried to launch distributed communication on port `(?P<port>\d{1,5})`, but another process is"
                r" utilizing it",
            ),
            literal("OSError: [Errno 98] Address already in use"),
            Pattern(
                "server socket has failed to bind to",
                r"server socket has failed to bind to \S{1,60}?:?(?P<port>\d{2,5}) \(errno: \d{1,3} - Address already"
                r" in use\)",
            ),
            Pattern(
                "server socket has failed to listen on any local",
                r"server socket has failed to listen on any local network address\.(?: port: (?P<port>\d{1,5}))?",
            ),
            Pattern("RuntimeError: Address already in use", r"RuntimeError: Address already in use"),
            Pattern("name: EADDRINUSE", r"(?:port: (?P<port>\d{1,5})[^\n]{0,60}?)?name: EADDRINUSE"),
        ),
        causes=(
            "Two jobs on this host use the default port 29500.",
            "A process of an earlier run is still alive.",
        ),
        fixes=(
            Fix("On one host, let torchrun choose a free port.", "torchrun --standalone --nproc-per-node=gpu train.py"),
            Fix("Or let Accelerate choose one.", "accelerate launch --main_process_port 0 train.py"),
            Fix("Or find the process that uses the port, and end it.", "ss -ltnp | grep 29500"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py",),
        said_by="torch 1.13-2.13, accelerate 0.25-1.12",
    ),
    KnownError(
        id="no-process-group",
        section=SECTION,
        title="No process group",
        summary="A function of torch.distributed was called before init_process_group, or after its destruction.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Default process group has not been initialized"),
            literal("trying to initialize the default process group twice"),
        ),
        causes=(
            "A module that needs several processes, such as SyncBatchNorm, is used in a single process.",
            "The group is created in another process, or in a branch that is not executed.",
            "Twice: a library such as accelerate, Lightning or DeepSpeed creates the group as well.",
        ),
        fixes=(
            Fix(
                "Create the group first, once per process.",
                'if not torch.distributed.is_initialized():\n    torch.distributed.init_process_group("nccl")',
            ),
            Fix(
                "Call collectives only where a group exists.",
                "rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0",
            ),
            _TORCHRUN,
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="gloo-address",
        section=SECTION,
        title="Gloo: addresses of the ranks do not fit each other",
        summary="Some ranks use IPv4 and others IPv6, or a rank cannot connect to the address that it chose.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ss1.ss_family == ss2.ss_family", r"ss1\.ss_family == ss2\.ss_family\. (?P<families>\d{1,3} vs \d{1,3})"
            ),
            Pattern("Unable to find interface for: ", r"Unable to find interface for: (?P<address>[\w.:]{1,60})"),
            Pattern("Cannot connect to self", r"gloo/transport/[^\n]{0,60}Cannot connect to self"),
            Pattern("Unknown ai_family: ", r"Unknown ai_family: (?P<families>\d{1,6})"),
        ),
        causes=(
            "The names of the hosts resolve to addresses of different families: 2 is IPv4, 10 is IPv6.",
            "In /etc/hosts, the name of a host is 127.0.1.1 or ::1.",
        ),
        fixes=(
            Fix(
                "Name the interface over which the hosts reach each other.",
                "GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0 torchrun --nproc-per-node=gpu train.py",
            ),
            Fix("Show to which addresses the name of this host resolves.", "hostname; getent ahosts $(hostname)"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/pytorch/pytorch/issues/135355",),
        said_by="torch 2.3-2.13",
    ),
    KnownError(
        id="backend-device",
        section=SECTION,
        title="Process group cannot send tensors of this device",
        summary=(
            "The backend of the process group does not support the device of the tensor: NCCL sends only GPU tensors."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "No backend type associated with device type",
                r"No backend type associated with device type (?P<device>\w{1,20})",
            ),
            literal("Tensors must be CUDA and dense"),
        ),
        causes=(
            "A tensor on the CPU, such as a metric, a buffer or a barrier's tensor, is sent over NCCL.",
            "FSDP with CPU offload clips or gathers parameters that are on the CPU.",
        ),
        fixes=(
            Fix("Move the tensor to the GPU of this rank before the collective.", "value = value.cuda()"),
            Fix(
                "Or create the group with a backend for each device type.",
                'torch.distributed.init_process_group("cpu:gloo,cuda:nccl")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="backend-missing",
        section=SECTION,
        title="PyTorch without this backend",
        summary="The installed PyTorch was built without the requested backend of torch.distributed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Distributed package doesn't have ",
                r"Distributed package doesn't have (?P<backend>NCCL|MPI|UCC|Gloo) ?built in",
            ),
            Pattern(
                "Distributed package doesn't have ",
                r"Distributed package doesn't have (?P<backend>NCCL|MPI|UCC|Gloo) module",
            ),
            Pattern(
                "use_libuv was requested but PyTorch was buil",
                r"use_libuv was requested but PyTorch was buil[dt] without libuv support",
            ),
        ),
        causes=(
            "Windows and macOS builds have no NCCL; neither do CPU-only builds.",
            "Windows builds before PyTorch 2.7 have no libuv.",
        ),
        fixes=(
            Fix("On Windows, use gloo, or train on one GPU.", 'torch.distributed.init_process_group("gloo")'),
            Fix(
                "On Linux, install a build with CUDA.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("Run in WSL 2, where NCCL works.", "wsl --install"),
            Fix(
                "Without libuv, use the older server of the store.",
                "USE_LIBUV=0 torchrun --nproc-per-node=gpu train.py",
                first_for=("libuv",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
)
