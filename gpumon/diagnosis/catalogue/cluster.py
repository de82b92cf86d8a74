"""Errors of clusters: MPI, UCX and Horovod."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "MPI, UCX and Horovod"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="ucx",
        section=SECTION,
        title="UCX cannot move GPU memory",
        summary="UCX, the transport below MPI, has no working path for GPU memory between these processes.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "no copy across memory types", r"UCX  ?ERROR {1,3}(?P<reason>no copy across memory types[^\n]{0,80})"
            ),
            Pattern(
                "UCX  ERROR ",
                r"UCX  ERROR {1,3}(?P<reason>(?:ibv_\w{1,40}\(|cu[A-Z]\w{2,40}\(|cuda_"
                r"|failed to (?:register|open|create)|[^\n]{0,60}CUDA)[^\n]{0,80})",
            ),
        ),
        causes=(
            "UCX was built without CUDA, or its CUDA modules are not found.",
            "UCX_TLS excludes the transports for CUDA.",
            "Another error ended a process, and its peer reports it.",
            "Calls of ibv_ fail: the network card that UCX chose is not connected to the other host.",
        ),
        fixes=(
            Fix("Check whether UCX has its transports for CUDA.", "ucx_info -d | grep -i cuda"),
            Fix("Allow them.", "mpirun -x UCX_TLS=rc,sm,self,cuda_copy,cuda_ipc -np 2 python train.py"),
            Fix("Load the UCX and MPI modules of the cluster that were built with CUDA."),
            Fix(
                "Show how much memory a process may lock: network cards need it unlimited, also in a container.",
                "ulimit -l; docker run --gpus all --ulimit memlock=-1 --device=/dev/infiniband IMAGE",
                first_for=("Cannot allocate memory",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/openucx/ucx/issues/8469", "https://openucx.readthedocs.io/en/master/faq.html"),
        said_by="UCX 1.3-1.17",
    ),
    KnownError(
        id="mpi-slots",
        section=SECTION,
        title="MPI: more processes than slots",
        summary="More processes were requested than the hosts in the list have slots.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("There are not enough slots available in the system to satisfy the"),),
        causes=("The list of hosts gives too few slots, or Slurm assigned fewer tasks than GPUs.",),
        fixes=(
            Fix("Name the slots of each host: one per GPU.", "mpirun -np 16 -H host1:8,host2:8 python train.py"),
            Fix(
                "In Slurm, request as many tasks per node as GPUs.",
                "srun --ntasks-per-node=8 --gpus-per-node=8 python train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.open-mpi.org/en/main/launching-apps/scheduling.html",),
        said_by="Open MPI 3-5",
    ),
    KnownError(
        id="mpi-ended",
        section=SECTION,
        title="MPI: a process ended",
        summary="One process ended with an error, and MPI ended the others; the output of that process has the cause.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("MPI_ABORT was invoked on rank", r"MPI_ABORT was invoked on rank (?P<rank>\d{1,6})"),
            Pattern(
                "mpirun noticed that process rank",
                r"mpirun noticed that process rank (?P<rank>\d{1,6}) with PID (?P<pid>\d{1,10})",
            ),
            Pattern(
                "mpirun has exited due to process rank",
                r"mpirun has exited due to process rank (?P<rank>\d{1,6}) with PID (?P<pid>\d{1,10})",
            ),
        ),
        causes=("The process of the named rank crashed, was killed, or raised an exception.",),
        fixes=(
            fixes.FIRST_RANK,
            Fix("Mark each line with its rank.", "mpirun --tag-output -np 8 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.open-mpi.org/en/main/man-openmpi/man1/mpirun.1.html",),
        said_by="Open MPI 3-5",
        is_echo=True,
    ),
    KnownError(
        id="hostname-unknown",
        section=SECTION,
        title="Name of the first host cannot be resolved",
        summary="The address of rank 0 is a name that this host does not know, so that it cannot join the group.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "network addresses of (",
                r"IPv[46] network addresses of \((?P<host>[^,\n]{1,200}), (?P<port>\d{1,5})\) cannot be retrieved",
            ),
            literal("ValueError: host not found: Name or service not known"),
            Pattern(
                "nslookup: can't resolve", r"nslookup: can't resolve '(?P<host>[\w.-]{3,100})': Name does not resolve"
            ),
            Pattern("Failed to resolve hostname", r"Failed to resolve hostname (?P<host>\S{1,100})"),
        ),
        causes=(
            "MASTER_ADDR is a name that only the first host knows, or one with a typing error.",
            "In Kubernetes, the headless service of the pods is missing, or the first pod has not started.",
        ),
        fixes=(
            Fix(
                "Check whether the name is known here.",
                "python -c 'import socket; print(socket.gethostbyname(\"HOST\"))'",
            ),
            Fix(
                "Use the IP address of the first host.",
                "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 10.0.0.1:29500 train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCHRUN,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="horovod",
        section=SECTION,
        title="Horovod: the processes do not run together",
        summary="Horovod's operations failed or wait for a process, or it was built without PyTorch or NCCL.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("HorovodInternalError", r"HorovodInternalError: (?P<reason>[^\n]{1,120})"),
            Pattern(
                "were submitted to be reduced, gathered",
                r"tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
            ),
            literal("Horovod has been shut down"),
            literal("This was caused by an exception on one of the ranks or an attempt to allreduce"),
            Pattern("Extension horovod.", r"Extension horovod\.(?P<framework>\w{1,20}) has not been built"),
        ),
        causes=(
            "A process ended or crashed, or a branch of the program makes only some ranks call a collective.",
            "Horovod was installed before PyTorch, or without nvcc and NCCL.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix("Show what it was built with.", "horovodrun --check-build"),
            Fix(
                "Build it again for the installed PyTorch.",
                "HOROVOD_WITH_PYTORCH=1 HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir --upgrade horovod",
                first_for=("not been built",),
            ),
            Fix("For a new program use torchrun and DistributedDataParallel, which are maintained."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://horovod.readthedocs.io/en/stable/install_include.html",),
        said_by="Horovod 0.19-0.28",
    ),
    KnownError(
        id="ray-exception",
        section=SECTION,
        title="Ray could not read what another process sent",
        summary=(
            "An exception, an argument or a result arrived, and this process could not rebuild it; an exception that"
            " cannot be rebuilt hides the real error."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Failed to unpickle serialized exception"),
            literal("in RayTaskError can't be subclassed"),
            Pattern(
                "RaySystemError: System error: ",
                r"RaySystemError: System error: (?P<reason>No module named [^\n]{1,80}|Can't get attribute [^\n]{1,80}"
                r"|[^\n]{1,80} object has no attribute [^\n]{1,60})",
            ),
        ),
        causes=(
            "The class of the exception needs arguments that pickle does not keep; the line with TypeError names it.",
            "A module is not installed, or has another version, in the environment of this process.",
        ),
        fixes=(
            Fix(
                "Read the real error in the log of the worker.",
                "grep -n -A 30 Traceback /tmp/ray/session_latest/logs/worker-*.err | tail -n 60",
            ),
            Fix(
                "Send the modules of the program to every worker, and use the same environment on all hosts.",
                'ray.init(runtime_env={"working_dir": "."})',
                first_for=("No module named",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/ray-project/ray/issues/49885", "https://github.com/ray-project/ray/issues/54341"),
    ),
    KnownError(
        id="mpi-daemon",
        section=SECTION,
        title="mpirun lost a daemon on another host",
        summary="On every host a daemon of Open MPI starts the processes; one ended or could not be reached.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "has lost communication with a remote daemon",
                r"(?:ORTE|PRTE) has lost communication with a remote daemon",
            ),
            Pattern("daemon has unexpectedly failed", r"An? (?:ORTE|PRTE) daemon has unexpectedly failed after launch"),
            Pattern(
                "does not know how to route a message",
                r"(?:ORTE|PRTE) does not know how to route a message to the specified daemon",
            ),
        ),
        causes=(
            "The login to the host fails, or the name of the host is not known.",
            "The host has no Open MPI, or not in the same folder; its shell does not set PATH.",
            "The daemon cannot reach mpirun: it chose an interface of containers, or a firewall blocks the ports.",
            "Lost later: the host went down, or the kernel ended the daemon for lack of memory.",
        ),
        fixes=(
            Fix("Check the login and the program on each host.", "ssh HOST 'hostname; which orted prted'"),
            Fix(
                "Let mpirun name the folder of Open MPI to the other hosts.",
                "mpirun --prefix /opt/openmpi -np 16 python train.py",
            ),
            Fix(
                "Name the network that all hosts share.",
                "mpirun --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 -np 16 python train.py",
                first_for=("unexpectedly failed", "route a message"),
            ),
            Fix(
                "Check whether the host is up, and why the daemon ended there.",
                "ssh HOST \"uptime; sudo dmesg -T | grep -i -E 'oom-kill|out of memory'\"",
                first_for=("lost communication",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.open-mpi.org/en/main/launching-apps/ssh.html",),
        said_by="Open MPI 3.0-4.1",
        is_echo=True,
    ),
)
