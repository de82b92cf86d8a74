"""Errors of clusters: Ray, Slurm, MPI and UCX."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Ray, Slurm and MPI"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="ray-gpus",
        section=SECTION,
        title="Ray has no GPU for the program",
        summary="Ray knows of fewer free GPUs than the program requests, or of none on the host where it starts.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Ray does not allocate any GPUs on the driver node"),
            Pattern(
                "Current node has no GPU available",
                r"Current node has no GPU available(?:\. current_node_resource=(?P<resources>\{[^}\n]{0,160}\}))?",
            ),
            Pattern(
                "No available node types can fulfill resource request",
                r"No available node types can fulfill resource requests? (?P<request>\{[^}\n]{0,120}GPU[^}\n]{0,120}"
                r"\})",
            ),
            Pattern(
                "placement group of specs for",
                r"Waiting for creating a placement group of specs for (?P<seconds>\d{1,6}) seconds",
            ),
            Pattern(
                "Cannot provide a placement group of",
                r"Cannot provide a placement group of \w{0,40}=?(?P<request>[^\n]{1,120}?) within (?P<seconds>\d{1,6}"
                r") seconds",
            ),
            Pattern(
                "is less than total desired GPUs",
                r"Total available GPUs (?P<available>[\d.]{1,8}) is less than total desired GPUs (?P<desired>[\d.]{1,"
                r"8})",
            ),
            Pattern(
                "cannot be scheduled right now",
                r"The actor or task with ID \w{1,60} cannot be scheduled right now\. [^\n]{0,80}GPU[^\n]{0,80}",
            ),
        ),
        causes=(
            "Another job, or a placement group that was left behind, holds the GPUs of the cluster.",
            "A host joined the cluster without GPUs: its container has none, or `ray start` counted none.",
            "The address of the host differs from the one that Ray knows, as with several network interfaces.",
        ),
        fixes=(
            Fix("Show how many GPUs Ray knows, and how many are in use.", "ray status"),
            Fix("List what holds them; remove what is left behind.", "ray list placement-groups; ray list actors"),
            Fix(
                "Name the address with which each host joined the cluster.",
                "export VLLM_HOST_IP=$(hostname -I | cut -d' ' -f1)",
            ),
            Fix(
                "Start Ray on each host inside the container that has the GPUs.",
                "ray start --address HEAD:6379 --num-gpus 8",
            ),
            Fix("On one host, vLLM needs no Ray.", "vllm serve MODEL -tp 8 --distributed-executor-backend mp"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/vllm-project/vllm/issues/6956",
            "https://github.com/vllm-project/vllm/issues/13909",
            "https://github.com/vllm-project/vllm/issues/29265",
        ),
        said_by="Ray 2.9-2.50, vLLM 0.4-0.19",
    ),
    KnownError(
        id="slurm-gres",
        section=SECTION,
        title="Slurm cannot give the GPUs that were requested",
        summary="No node or partition has this number or kind of GPUs, or the limits of the account forbid them.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Invalid generic resource (gres) specification"),
            literal("Invalid Trackable RESource (TRES) specification"),
            Pattern("MaxGRESPer", r"\b(?P<limit>(?:QOS|Assoc)MaxGRESPer\w{0,12})\b"),
            Pattern("MaxTRESPer", r"\b(?P<limit>(?:QOS|Assoc)MaxTRESPer\w{0,12})\b"),
            Pattern("gres/gpu count", r"gres/gpu count (?:reported )?(?:lower than configured|changed)[^\n]{0,60}"),
        ),
        causes=(
            "The type in --gres or --gpus is not spelled as in the cluster, or the partition has no GPUs.",
            "More GPUs, CPUs or memory per node were requested than any node has.",
            "The node reports fewer GPUs than its configuration, because one is lost.",
        ),
        fixes=(
            Fix("List the GPUs of each partition, as Slurm spells them.", "sinfo -o '%P %G %D %t'"),
            Fix("Request GPUs in this spelling.", "srun --partition=PARTITION --gpus-per-node=1 nvidia-smi -L"),
            Fix(
                "If the count is lower than configured, look for the lost GPU on the node.",
                "nvidia-smi -L; sudo dmesg -T | grep -i xid",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://slurm.schedmd.com/gres.html",),
        said_by="Slurm 20-24",
    ),
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
                r"UCX  ERROR {1,3}(?P<reason>(?:cu[A-Z]\w{2,40}\(|cuda_|failed to (?:register|open|create)|[^\n]{0,60"
                r"}CUDA)[^\n]{0,80})",
            ),
        ),
        causes=(
            "UCX was built without CUDA, or its CUDA modules are not found.",
            "UCX_TLS excludes the transports for CUDA.",
            "Another error ended a process, and its peer reports it.",
        ),
        fixes=(
            Fix("Check whether UCX has its transports for CUDA.", "ucx_info -d | grep -i cuda"),
            Fix("Allow them.", "mpirun -x UCX_TLS=rc,sm,self,cuda_copy,cuda_ipc -np 2 python train.py"),
            Fix("Load the UCX and MPI modules of the cluster that were built with CUDA."),
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
            Pattern("Failed to resolve hostname", r"Failed to resolve hostname (?P<host>\S{1,100})"),
            Pattern("Could not resolve hostname", r"ssh: Could not resolve hostname (?P<host>[^\s:]{1,100})"),
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
        id="ray-start",
        section=SECTION,
        title="Ray could not start or lost a node",
        summary="Ray's processes on this host did not start, ended, or do not reach each other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Failed to register worker to Raylet", r"Failed to register worker to Raylet"),
            Pattern("Unable to register worker with raylet", r"Unable to register worker with raylet"),
            Pattern(
                "has been marked dead because the detector",
                r"The node with node id: \w{1,80} and address: (?P<address>[\d.]{7,15}) [^\n]{0,80}has been"
                r" marked dead because"
                r" the detector",
            ),
            Pattern(
                "ray.exceptions.", r"ray\.exceptions\.(?P<error>NodeDiedError|RaySystemError|LocalRayletDiedError)"
            ),
        ),
        causes=(
            (
                "Too many workers start at once, so that threads, open files or memory run out: Ray counts all cores"
                " of the host."
            ),
            "Another Ray runs on this host, or one that was left behind, in another version.",
            "A node was ended for lack of host memory, or its network stopped.",
        ),
        fixes=(
            Fix("End what is left of an earlier Ray, and start again.", "ray stop --force"),
            Fix(
                "Limit the number of processes to the cores of the job.", "ray start --head --num-cpus 16 --num-gpus 8"
            ),
            Fix("Raise the limits.", "ulimit -n 65536; ulimit -u 65536"),
            Fix(
                "Read the log of the raylet.",
                "cat /tmp/ray/session_latest/logs/raylet.err",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.ray.io/en/latest/ray-observability/user-guides/debug-apps/debug-failures.html",),
        said_by="Ray 2.9-2.52",
    ),
)
