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
                r" to (?P<host>[\w.-]{1,200}):(?P<port>\d{1,5})",
            ),
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
            Pattern(
                " timeout after ", r"(?:wait|barrier) timeout after (?P<waited>\d{1,9}ms), keys?: (?P<key>\S{1,200})"
            ),
            Pattern(
                "waitForInput: ",
                r"waitForInput: [^\n]{0,20}?socket SocketImpl\([^\n]{1,200}?\)"
                r" (?:timed out after (?P<waited>\d{1,9}ms)|returned 0, likely a timeout)",
            ),
            Pattern(
                "TCP client failed to connect/validate to host ",
                r"TCP client failed to connect/validate to host (?P<host>[^\s:]{1,200}):(?P<port>\d{1,5}) - timed out",
            ),
            literal("Failed to send, sent 0 bytes. Connection was likely closed"),
            Pattern(
                " failed -- missing ranks: ",
                r"(?P<operation>gather|all_gather|barrier) failed -- missing ranks: (?P<missing>[^\n]{1,80})",
            ),
            Pattern(
                "seconds waiting for clients",
                r"Timed out after \d{1,9} seconds waiting for clients\."
                r" (?P<joined>\d{1,6})/(?P<ranks>\d{1,6}) clients",
            ),
            Pattern("ailed to recv, got 0 bytes", r"[Ff]ailed to recv, got 0 bytes"),
            Pattern(
                "retrieving ncclUniqueId from",
                r"is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<from_rank>\d{1,6})\]",
            ),
            Pattern("RendezvousTimeoutError", r"\bRendezvousTimeoutError\b"),
            Pattern("RendezvousClosedError", r"\bRendezvousClosedError\b"),
            literal("The connection to the C10d store has failed"),
            literal("Stop_waiting response is expected"),
            Pattern(
                "Timed out waiting on barrier on rank",
                r"Timed out waiting on barrier on rank (?P<rank>\d{1,6}), for key prefix",
            ),
            Pattern("connect() timed out. Original", r"connect\(\) timed out\. Original timeout was \d{1,9} ms"),
            Pattern("Error: Socket Timeout", r"(?:Runtime|DistStore|DistNetwork)Error: Socket Timeout"),
            Pattern("RuntimeError: Connection reset by peer", r"RuntimeError: Connection reset by peer"),
            Pattern("RuntimeError: Broken pipe", r"RuntimeError: Broken pipe"),
            Pattern("DistNetworkError: Unknown error", r"DistNetworkError: Unknown error"),
            Pattern("ailed to recv, got ", r"DistNetworkError: [Ff]ailed to recv, got (?P<bytes>[1-9]\d{0,9}) bytes"),
        ),
        causes=(
            "Rank 0 failed first; its log contains the cause.",
            "A rank started too late or waits elsewhere: it downloads, compiles, or reads data while the others wait.",
            "The address or the port is wrong, or a firewall blocks the connection between the hosts.",
            "The port is still in use by an earlier run or by another one.",
            "Fewer processes were started than the world size.",
        ),
        fixes=(
            Fix(
                "Another agent closed the rendezvous because it was ended: find out what ended it, then start"
                " all with a new"
                " identifier.",
                "grep -n -E 'death signal|Signal|Error' torchrun.log",
                first_for=("RendezvousClosedError",),
                hidden_otherwise=True,
            ),
            fixes.FIRST_RANK,
            Fix(
                "Check whether the host of the store can be reached from the other hosts.",
                'nc -vz "$MASTER_ADDR" "$MASTER_PORT"',
                first_for=("connect() timed out", "connection to the C10d store has failed"),
            ),
            Fix(
                "Start torchrun on every node, each with the same number of nodes, endpoint and identifier.",
                "torchrun --nnodes=2 --nproc-per-node=gpu --rdzv-backend=c10d --rdzv-id=JOB --rdzv-endpoint=HOST:29500"
                " train.py",
                first_for=("RendezvousTimeoutError", "seconds waiting for clients"),
            ),
            Fix(
                "Start torchrun on the host of the endpoint too; if that host does not recognize its own address, no"
                " agent hosts the store: set is_host there.",
                "torchrun --nnodes=2 --nproc-per-node=gpu --rdzv-backend=c10d --rdzv-id=JOB --rdzv-endpoint=HOST:29500"
                " --rdzv-conf=is_host=1 train.py",
                first_for=("c10d rendezvous",),
            ),
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
            Pattern("KeyError: 'RANK'", r"KeyError: '(?P<variable>RANK)'"),
            Pattern("LOCAL_RANK'", r"KeyError: '(?P<variable>LOCAL_RANK)'"),
            Pattern("NODE_RANK'", r"KeyError: '(?P<variable>NODE_RANK)'"),
            Pattern("COMM_WORLD_RANK'", r"KeyError: '(?P<variable>OMPI_COMM_WORLD_RANK)'"),
            Pattern("WORLD_SIZE'", r"KeyError: ?'(?P<variable>(?:LOCAL_)?WORLD_SIZE)'"),
            Pattern("'MASTER_", r"KeyError: ?'(?P<variable>MASTER_(?:ADDR|PORT))'"),
            Pattern("SLURM_PROCID'", r"KeyError: ?'(?P<variable>SLURM_PROCID)'"),
            Pattern(
                " = int(os.getenv(",
                r"^ {0,80}\S{1,60} = int\(os\.getenv\([\"'](?P<variable>(?:LOCAL_)?(?:RANK|WORLD_SIZE))[\"']\)\)$",
            ),
            Pattern(
                " environment, visit ",
                r"Could not find '(?P<variable>\w{1,30})' in the \w{1,10} environment, visit https",
            ),
            Pattern(
                "rendezvous: ",
                r"Error initializing torch\.distributed using \w{1,8}:// rendezvous: (?P<variable>rank"
                r"|world size|port number)",
            ),
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
            Fix(
                "Start it in a job of Slurm, one task per GPU.",
                "srun --ntasks-per-node=8 --gpus-per-node=8 python train.py",
                first_for=("'SLURM_",),
            ),
            Fix("Start it with MPI.", "mpirun -np 8 python train.py", first_for=("'OMPI_",)),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCHRUN, sources.TORCH_DISTRIBUTED),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="port-in-use",
        section=SECTION,
        title="Port of the launcher is in use",
        summary="Another process already uses the port over which the ranks find each other.",
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
            "Two jobs on this host use the same port, such as the default one, 29500.",
            "A process of an earlier run is still alive.",
        ),
        fixes=(
            Fix(
                "If each of several Slurm tasks on one host starts torchrun, they compete for the port: start one task"
                " per host.",
                "srun --ntasks-per-node=1 --gpus-per-node=8 torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8"
                " --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=HOST:29500 train.py",
                first_for=("several Slurm tasks",),
            ),
            Fix(
                "On one host, with one launcher, let torchrun choose a free port.",
                "torchrun --standalone --nproc-per-node=gpu train.py",
            ),
            Fix("Or let Accelerate choose one.", "accelerate launch --main_process_port 0 train.py"),
            Fix("Or find the process that uses the port, and end it.", "ss -ltnp | grep 29500"),
            Fix(
                "A launcher that starts torchrun itself, such as swift, takes the port from the environment: set it"
                " together with the number of processes.",
                "export NPROC_PER_NODE=2 MASTER_PORT=29501\nswift sft --model MODEL --dataset DATASET",
                first_for=("swift",),
                hidden_otherwise=True,
            ),
            Fix(
                "Or give the launcher of DeepSpeed another port.",
                "deepspeed --master_port 29501 train.py",
                first_for=("DeepSpeed",),
            ),
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
            literal("Default process group is not initialized"),
            Pattern(
                "is only supported within torch.nn.parallel",
                r"SyncBatchNorm is only supported within torch\.nn\.parallel",
            ),
            literal("DeepSpeed backend not set, please initialize it using init_process_group()"),
            literal("Distributed backend is not initialized. Please set dist_init_required"),
            literal("trying to initialize the default process group twice"),
            literal('Need to initialize default process group using "init_process_group"'),
            literal("Could not resolve the process group registered under the name"),
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
            Fix(
                "In a single process, use the ordinary layer; in OpenMMLab's configurations, BN instead of SyncBN.",
                "norm_cfg = dict(type='BN', requires_grad=True)",
                first_for=("SyncBatchNorm",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.1-2.13",
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
        id="rendezvous-lost",
        section=SECTION,
        title="Rendezvous of torchrun went away",
        summary="The host that keeps the list of nodes ended or cannot be reached, and this node ends as well.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " the rendezvous '",
                r"The node '(?P<node>[^'\n]{1,120})' has failed to (?:shutdown|send a keep-alive heartbeat to)"
                r" the rendezvous '[^'\n]{1,80}' due to an error of type (?P<exception>Rendezvous\w{1,30})",
            ),
            Pattern(
                "'NoneType' object has no attribute 'is_failed'", r"'NoneType' object has no attribute 'is_failed'"
            ),
        ),
        causes=(
            "The program failed on the first host, whose torchrun ended and with it the list.",
            "Two jobs on a host share a port: the first that ends takes the list of the other with it.",
            "More nodes were started than the job takes, and the last ones are not needed.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix(
                "Give each job a port and an identifier.",
                "torchrun --rdzv-backend c10d --rdzv-endpoint localhost:0 --rdzv-id $RANDOM train.py",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCHRUN, "https://github.com/pytorch/pytorch/issues/67742"),
        said_by="torch 1.9-2.13",
        is_echo=True,
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
                r"No backend type associated with device type (?!xpu)(?P<device>\w{1,20})",
            ),
            Pattern(
                "Could not find the default backend type ",
                r"Could not find the default backend type \d{1,3} for Process Group with name",
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
        id="backend-operation",
        section=SECTION,
        title="Backend does not have this collective",
        summary="NCCL, Gloo and MPI differ in the collectives and reductions that they offer.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Cannot use ReduceOp.",
                r"Cannot use ReduceOp\.(?P<operation>\w{1,16}) with (?P<backend>\w{1,16}|non-integral dtype)",
            ),
            Pattern(
                " does not support ",
                r"Backend (?P<backend>nccl|gloo|mpi|ucc|\w{1,16}) does not support (?P<operation>_?(?:all\w{5,40}"
                r"|reduce\w{0,40}|gather|scatter|broadcast|recvAnysource|monitoredBarrier|barrier)(?: sparse)?)",
            ),
            Pattern("::send takes a single tensor", r"ProcessGroup(?P<backend>\w{1,16})::send takes a single tensor"),
        ),
        causes=(
            "The group was created with Gloo, as without a GPU, and the program uses what only NCCL offers.",
            "NCCL cannot reduce sparse tensors, and has no bitwise reductions.",
        ),
        fixes=(
            Fix(
                "For tensors on the GPU, create the group with NCCL.",
                'torch.distributed.init_process_group("nccl")',
                first_for=("gloo does",),
            ),
            Fix(
                "Compute the mean from the sum.",
                "torch.distributed.all_reduce(value)\nvalue /= torch.distributed.get_world_size()",
                first_for=("ReduceOp.AVG",),
            ),
            Fix(
                "Reduce dense gradients.",
                "embedding = torch.nn.Embedding(vocabulary, size, sparse=False)",
                first_for=("sparse",),
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
            "Many Windows builds of PyTorch have no libuv.",
        ),
        fixes=(
            Fix("On Windows, use gloo, or train on one GPU.", 'torch.distributed.init_process_group("gloo")'),
            Fix(
                "On Linux, install a build with CUDA.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("Run in WSL 2, where NCCL works.", "wsl --install"),
            Fix(
                "torchrun does not pass the setting on to this store: start a single process without torchrun (with"
                " accelerate, configure one process), or train in WSL 2.",
                "USE_LIBUV=0 python train.py",
                first_for=("static rendezvous",),
            ),
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
