"""Errors of starting a program on several hosts: ssh, pdsh, DeepSpeed's launcher, MPI, Accelerate and Lightning."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Launchers"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="launch-ssh",
        section=SECTION,
        title="Launcher cannot log in to a host",
        summary="The launcher starts the processes on the other hosts over ssh, and a login without a password failed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "was not reachable via ssh",
                r"Using hostfile at (?P<file>\S{1,200}) but host=(?P<host>\S{1,100}) was not reachable via ssh",
            ),
            Pattern(
                "PasswordAuthentication=no ",
                r"Command 'ssh -o PasswordAuthentication=no (?:-p \d{1,5} )?(?P<host>[^\s']{1,100}) hostname' returned",
            ),
            Pattern("Host key verification failed", r"^(?P<host>[\w.-]{1,100}): Host key verification failed\."),
            Pattern(
                "Permission denied (",
                r"(?P<host>[\w.@-]{1,100}): Permission denied \([\w,-]{0,60}publickey[\w,-]{0,60}\)",
            ),
            Pattern(
                "ssh: connect to host",
                r"^[\w.-]{1,100}: ssh: connect to host (?P<host>\S{1,100}) port (?P<port>\d{1,5}): "
                r"(?P<reason>[^\n]{1,60})",
            ),
            Pattern(
                "ssh exited with exit code",
                r"pdsh@[\w.-]{1,100}: (?P<host>[\w.-]{1,100}): ssh exited with exit code (?P<code>\d{1,3})",
            ),
            literal("KeyError: 'PDSH_SSH_ARGS_APPEND'"),
            Pattern("' not installed", r"launcher '(?P<launcher>\w{1,20})' not installed"),
            Pattern("ORTE was unable to reliably start", r"ORTE was unable to reliably start one or more daemons"),
            Pattern("PRTE has lost communication with", r"PRTE has lost communication with a remote daemon"),
        ),
        causes=(
            "The key of this host is not known to the other one, or the first login asks to confirm the host.",
            "The ssh server of a container listens at another port, or none runs.",
            "The hostfile names a host that does not exist; on a single host, the launcher found a leftover hostfile.",
            "The program pdsh is not installed on the host from which the job is started.",
        ),
        fixes=(
            Fix("Test the login; it must print the name without a question.", "ssh -o BatchMode=yes HOST hostname"),
            Fix(
                "Install a key, also for the host itself.",
                "ssh-keygen -t ed25519 -N '' -f ~/.ssh/id_ed25519; ssh-copy-id HOST",
            ),
            Fix(
                "Or start on each host by hand, which needs no ssh.",
                "torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr HOST --master-port 29500 train.py",
            ),
            Fix("For a single host, do without a hostfile.", "deepspeed --hostfile /dev/null --num_gpus 8 train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://www.deepspeed.ai/getting-started/", "https://github.com/deepspeedai/DeepSpeed/issues/4907"),
        said_by="DeepSpeed 0.12-0.19, pdsh 2.31, OpenSSH, Open MPI 3-5",
    ),
    KnownError(
        id="launch-hostfile",
        section=SECTION,
        title="Launcher: list of hosts or their GPUs is wrong",
        summary="The list of hosts is missing, empty or malformed, or names a host or GPU that does not exist.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Hostfile ",
                r"Hostfile (?:is empty or not formatted correctly|contains a bad entry|contains multiple entries)",
            ),
            Pattern("not found in hostfile", r"Hostname '(?P<host>[^'\n]{1,100})' not found in hostfile"),
            literal("Num nodes is >1 but no extra nodes available via hostfile"),
            Pattern(
                "' specified on host '", r"No slot '(?P<slot>\d{1,4})' specified on host '(?P<host>[^'\n]{1,100})'"
            ),
            literal("Unable to proceed, no GPU resources available"),
            literal("Unable to detect suitable master address via `hostname -I`"),
            literal("Cannot specify num_nodes/gpus with include/exclude"),
            literal("When using multiple machines, you need to specify the main process"),
        ),
        causes=(
            "Each line of the hostfile must read `NAME slots=GPUS`; the names must be those that ssh knows.",
            "CUDA_VISIBLE_DEVICES was set, which DeepSpeed's launcher replaces; it selects GPUs with --include.",
            "More than one node was requested without a hostfile.",
        ),
        fixes=(
            Fix("Write one line per host.", "printf 'host1 slots=8\\nhost2 slots=8\\n' > hostfile"),
            Fix("Choose GPUs of this host with --include.", "deepspeed --include localhost:0,1 train.py"),
            Fix(
                "With Accelerate on several hosts, name the first one on each.",
                "accelerate launch --num_machines 2 --machine_rank 0 --main_process_ip HOST --main_process_port 29500"
                " --num_processes 16 train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://www.deepspeed.ai/getting-started/",),
        said_by="DeepSpeed 0.12-0.19, accelerate 0.25-1.14",
    ),
    KnownError(
        id="launch-endpoint",
        section=SECTION,
        title="torchrun: address, number of nodes or processes is missing or malformed",
        summary="The options of torchrun for the rendezvous of the hosts are incomplete or not valid.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is absent in RendezvousParameters", r"(?P<option>rank|endpoint) is absent in RendezvousParameters"
            ),
            Pattern("Port is absent in endpoint", r"Port is absent in endpoint: (?P<endpoint>[^\n]{1,80}?)\. Try"),
            Pattern("Endpoint is missing in endpoint", r"Endpoint is missing in endpoint\. Try to add"),
            Pattern(
                "number of the rendezvous endpoint",
                r"The port number of the rendezvous endpoint '(?P<endpoint>[^'\n]{1,120})' must be an integer",
            ),
            Pattern(
                "The hostname of the rendezvous",
                r"The hostname of the rendezvous endpoint '(?P<endpoint>[^'\n]{1,120})' must be",
            ),
            Pattern("The rendezvous backend '", r"The rendezvous backend '(?P<backend>[\w-]{1,40})' is not registered"),
            Pattern("number of nodes (", r"The (?:minimum|maximum) number of nodes \(\d{1,6}\) must be greater than"),
            Pattern(
                "rendezvous configuration",
                r"The rendezvous configuration (?:option '[\w-]{1,40}' (?:does not|must)|string must)",
            ),
            Pattern("Unsupported nproc_per_node value", r"Unsupported nproc_per_node value: (?P<value>\S{1,40})"),
        ),
        causes=(
            "A variable of the script, such as MASTER_ADDR, is empty, or has a space or a scheme such as http://.",
            "Without --standalone or an endpoint, each host needs --node-rank, --master-addr and --master-port.",
        ),
        fixes=(
            Fix("Print the command that the shell executes.", "bash -x train.sh"),
            Fix(
                "Give the same address on every host.",
                "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 train.py",
            ),
            Fix("On a single host, leave it to torchrun.", "torchrun --standalone --nproc-per-node=gpu train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCHRUN,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="launch-file",
        section=SECTION,
        title="Launcher cannot find the script",
        summary="Python was started with the path of a script that does not exist on this host or in this folder.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "can't open file '",
                r"python[\w.]{0,8}: can't open file '(?P<file>[^'\n]{1,200})': \[Errno (?P<code>\d{1,3})\]",
            ),
        ),
        causes=(
            "The path is relative, and the launcher starts in another folder, such as the home on other hosts.",
            "The program changed its folder before the launcher of Lightning or torch started it again.",
            "The container or the other host does not have the folder.",
        ),
        fixes=(
            Fix("Give the whole path of the script.", 'torchrun --nproc-per-node=gpu "$PWD/train.py"'),
            Fix("Check that every host has it.", "srun --ntasks-per-node=1 ls -l /path/train.py"),
            Fix("In a container, mount the folder.", 'docker run --gpus all -v "$PWD:$PWD" -w "$PWD" IMAGE'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/Lightning-AI/pytorch-lightning/issues/17530",),
        said_by="Python 3.8-3.13",
    ),
    KnownError(
        id="mpi-init",
        section=SECTION,
        title="MPI could not be initialized",
        summary="A library of the program uses MPI, and MPI cannot start in a process that was launched like this.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("error occurred in MPI_Init", r"An error occurred in MPI_Init(?:_thread)?"),
            literal("It looks like MPI_INIT failed for some reason"),
            Pattern("but OMPI was not built with", r"but OMPI was not built with SLURM(?:'s PMI)? support"),
            literal("It looks like orte_init failed for some reason"),
            Pattern("PML add procs failed", r"PML add procs failed"),
            Pattern("cannot load MPI library", r"RuntimeError: cannot load MPI library"),
        ),
        causes=(
            "Slurm or torchrun started the process, and this MPI was built without their interface (PMI, PMIx).",
            "The MPI of the container and that of the host differ; UCX or the network device is missing.",
            "The package mpi4py was built for another MPI than the one that is loaded.",
        ),
        fixes=(
            Fix("Show which interfaces Slurm offers, and choose that of the MPI.", "srun --mpi=list"),
            Fix("Start with it.", "srun --mpi=pmix python train.py"),
            Fix("Or start with the launcher of the same MPI.", "mpirun -np 8 python train.py"),
            Fix("Show which MPI mpi4py uses.", "python -c 'from mpi4py import MPI; print(MPI.Get_library_version())'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.open-mpi.org/en/main/launching-apps/slurm.html",),
        said_by="Open MPI 3-5",
    ),
    KnownError(
        id="launch-size",
        section=SECTION,
        title="Processes that were started do not fit the trainer's settings",
        summary="The trainer expects another number of processes or nodes than the launcher or scheduler started.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "in Lightning, but the ",
                r"You set `(?P<setting>\w{1,20})=(?P<value>\d{1,6})`[^\n]{0,40} in Lightning, but the ",
            ),
            Pattern(
                "in your SLURM bash script, but this variable is not supported",
                r"You set `--ntasks=(?P<tasks>\d{1,6})` in your SLURM bash script, but this variable is not supported",
            ),
            Pattern(
                "exceeds available GPUs in",
                r"local_rank (?P<rank>\d{1,5}) exceeds available GPUs in CUDA_VISIBLE_DEVICES",
            ),
            Pattern(
                "Mismatch in local rank setting", r"Mismatch in local rank setting, args\.local_rank=-?\d{1,5} but env"
            ),
            Pattern(
                "not sure how to proceed as we're seeing",
                r"not sure how to proceed as we're seeing conflicting local rank",
            ),
            literal("MMDataParallel only supports single GPU training"),
            literal("You are running multi-node training without SLURM handling the processes"),
            literal("You need to use at least 2 processes to use `--multi_gpu`"),
            literal("Less than two GPU ids were configured and tried to run on multiple GPUs"),
            Pattern(
                "data_parallel_size (",
                r"data_parallel_size \(\d{1,6}\) \* tensor_model_parallel_size \(\d{1,6}\) must equal",
            ),
        ),
        causes=(
            "In Slurm, the number of tasks per node is not the number of GPUs that the trainer uses.",
            "The launcher starts another number of processes than there are GPUs.",
            "The trainer was started with python, without a launcher, for several GPUs.",
        ),
        fixes=(
            Fix(
                "In Slurm, start one task per GPU, and set devices and num_nodes to the same numbers.",
                "srun --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 python train.py",
            ),
            Fix("With torchrun, start one process per GPU.", "torchrun --nproc-per-node=gpu train.py"),
            Fix("With Accelerate.", "accelerate launch --multi_gpu --num_processes 8 train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html", sources.TORCHRUN),
        said_by="Lightning 2.0-2.6, torch 2.13, DeepSpeed 0.12-0.19, accelerate 0.25-1.14",
    ),
)
