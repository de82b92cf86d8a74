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
        summary="The launcher starts the processes on the other hosts over ssh, and it could not log in there.",
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
            Pattern("Could not resolve hostname", r"ssh: Could not resolve hostname (?P<host>[^\s:]{1,100})"),
            Pattern(": command not found", r"(?P<daemon>orted|prted): command not found"),
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
                "Install Open MPI on every host, and name its folder.",
                "mpirun --prefix /usr/local -np 16 -H host1:8,host2:8 python train.py",
                first_for=("orted: command", "prted: command"),
            ),
            Fix(
                "In Kubernetes, the pod of this worker does not run yet, or its name is not published: look at"
                " the pods, and"
                " let the launcher wait for them.",
                "kubectl get pods -o wide",
                first_for=(".svc",),
            ),
            Fix(
                "Correct the name in the hostfile or in the list of hosts.",
                "ssh HOST hostname",
                first_for=("Could not resolve",),
            ),
            Fix(
                "Install a key, also for the host itself.",
                "ssh-keygen -t ed25519 -N '' -f ~/.ssh/id_ed25519; ssh-copy-id HOST",
            ),
            Fix(
                "Or start on each host by hand, which needs no ssh.",
                "torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr HOST --master-port 29500 train.py",
            ),
            Fix("For a single host, do without a hostfile.", "deepspeed --hostfile /dev/null --num_gpus 8 train.py"),
            Fix(
                "Install pdsh, or let DeepSpeed start the other hosts through another launcher, such as openmpi.",
                "sudo apt-get install -y pdsh",
                first_for=("'pdsh' not installed",),
            ),
            Fix(
                "Set the variable, which older versions of DeepSpeed expect if ssh has a port, or upgrade DeepSpeed.",
                'export PDSH_SSH_ARGS_APPEND=""',
                first_for=("PDSH_SSH_ARGS_APPEND",),
            ),
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
            "No GPU is visible: DeepSpeed then has nothing to start on.",
        ),
        fixes=(
            Fix("Write one line per host.", "printf 'host1 slots=8\\nhost2 slots=8\\n' > hostfile"),
            Fix("Choose GPUs of this host with --include.", "deepspeed --include localhost:0,1 train.py"),
            Fix(
                "With Accelerate on several hosts, name the first one on each.",
                "accelerate launch --num_machines 2 --machine_rank 0 --main_process_ip HOST --main_process_port 29500"
                " --num_processes 16 train.py",
            ),
            Fix(
                "Without a hostfile, DeepSpeed counts the GPUs of this host: check why it sees none.",
                "nvidia-smi -L; python -c 'import torch; print(torch.cuda.is_available(), torch.version.cuda)'",
                first_for=("no GPU resources",),
            ),
            Fix(
                "Name the address of the first host.",
                "deepspeed --master_addr HOST --hostfile hostfile train.py",
                first_for=("master address",),
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
            Pattern("port is missing in endpoint", r"port is missing in endpoint: (?P<endpoint>[^\n]{1,80}?)\. Try"),
            Pattern('is not in "MIN:MAX" format', r"nnodes=(?P<value>\S{1,40}) is not in \"MIN:MAX\" format"),
            literal("min_nodes must be > 0 and <= max_nodes"),
            Pattern("No rendezvous handler for", r"No rendezvous handler for (?P<backend>\w{1,20})://"),
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
            literal("It looks like pmix_init failed for some reason"),
            Pattern(
                "The SLURM process starter for OpenMPI",
                r"The SLURM process starter for OpenMPI was unable to"
                r" locate",
            ),
            Pattern("Component: ", r"Component: (?P<component>munge)"),
            Pattern("PMIX ERROR: ", r"PMIX ERROR: (?P<reason>[A-Z][A-Z-]{2,40}) in file "),
            Pattern(" in file pmix", r"OPAL ERROR: [^\n]{1,40}? in file pmix\w{1,12}\.c"),
            Pattern(
                "Fatal error in ",
                r"Fatal error in (?:P?MPI_Init|internal_Init)(?:_thread)?: (?P<reason>[^\n]{1,80}?), error stack",
            ),
            Pattern("Invalid MPI type '", r"Invalid MPI type '(?P<plugin>\w{1,20})', --mpi=list"),
            Pattern("cannot create mpi context for ", r"cannot create mpi context for mpi/(?P<plugin>\w{1,20})"),
            literal("Open MPI has detected that this process has attempted to initialize"),
            literal("Calling MPI_Init or MPI_Init_thread twice is erroneous"),
            Pattern("PML add procs failed", r"PML add procs failed"),
            Pattern("cannot load MPI library", r"RuntimeError: cannot load MPI library"),
        ),
        causes=(
            "Slurm or torchrun started the process, and this MPI was built without their interface (PMI, PMIx).",
            "The MPI of the container and that of the host differ; UCX or the network device is missing.",
            "The package mpi4py was built for another MPI than the one that is loaded.",
            "Slurm signs its messages with munge, which the container lacks.",
        ),
        fixes=(
            Fix("Show which interfaces Slurm offers, and choose that of the MPI.", "srun --mpi=list"),
            Fix("Start with it.", "srun --mpi=pmix python train.py"),
            Fix(
                "A container has no srun: start it with srun, one container per task, instead of mpirun inside it.",
                "srun --mpi=pmix --ntasks-per-node=8 apptainer exec --nv IMAGE python train.py",
                first_for=("SLURM process starter",),
                hidden_otherwise=True,
            ),
            Fix(
                "In a container without munge, let PMIx sign in another way.",
                "srun --mpi=pmix --export=ALL,PMIX_MCA_psec=native python train.py",
                first_for=("munge", "pmix_init failed"),
            ),
            Fix(
                "If another library initializes MPI, keep mpi4py from it.",
                "import mpi4py\n\nmpi4py.rc.initialize = False",
                first_for=("attempted to initialize", "twice is"),
            ),
            Fix("Or start with the launcher of the same MPI.", "mpirun -np 8 python train.py"),
            Fix("Show which MPI mpi4py uses.", "python -c 'from mpi4py import MPI; print(MPI.Get_library_version())'"),
            Fix(
                "Install an MPI: the package mpi4py from PyPI contains none.",
                "conda install -c conda-forge openmpi mpi4py",
                first_for=("cannot load MPI library",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.open-mpi.org/en/main/launching-apps/slurm.html",),
        said_by="Open MPI 3-5, MPICH 3-4, Intel MPI, Slurm 20-24",
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
            Pattern(
                " replicas were requested",
                r"Only able to place (?P<placed>\d{1,6}) replicas, but (?P<requested>\d{1,6}) replicas were requested",
            ),
            Pattern(
                "slurm tasks",
                r"You requested (?P<requested>\d{1,6}) GPUs but launched (?P<tasks>\d{1,6}) slurm tasks",
            ),
            literal("You are running multi-node training without SLURM handling the processes"),
            literal("You need to use at least 2 processes to use `--multi_gpu`"),
            Pattern(
                "Less than two GPU ids were configured",
                r"Less than two GPU ids were configured and tried to run on (?:on )?multiple GPUs",
            ),
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
            Fix(
                "With torchrun, start one process per GPU.",
                "torchrun --nproc-per-node=gpu train.py",
                first_for=("exceeds available", "MMDataParallel", "must equal world_size"),
            ),
            Fix(
                "With Accelerate.",
                "accelerate launch --multi_gpu --num_processes 8 train.py",
                first_for=("multi_gpu", "GPU ids"),
            ),
            Fix(
                "Read the local rank from the environment, and remove the argument from the command.",
                'local_rank = int(os.environ["LOCAL_RANK"])',
                first_for=("ocal rank", "LOCAL_RANK ("),
            ),
            Fix(
                "Request no more replicas, times the degree of tensor parallelism, than there are GPUs.",
                first_for=("replicas were requested",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html", sources.TORCHRUN),
        said_by="Lightning 2.0-2.6, torch 2.13, DeepSpeed 0.12-0.19, accelerate 0.25-1.14",
    ),
    KnownError(
        id="launcher-missing",
        section=SECTION,
        title="Launcher is not installed",
        summary="The shell does not find the program that starts the processes.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "not found",
                r"\b(?P<launcher>srun|sbatch|mpirun|mpiexec|torchrun|accelerate|deepspeed|ray|horovodrun|colossalai): "
                r"(?:command )?not found",
            ),
        ),
        causes=(
            "The environment that has the package is not active, or its folder of programs is not on PATH.",
            "The host is not part of a cluster, and the script is for Slurm or MPI.",
        ),
        fixes=(
            Fix(
                "Start it as a module of the Python that has PyTorch.",
                "python -m torch.distributed.run --nproc-per-node=gpu train.py",
            ),
            Fix(
                "For accelerate, the same.",
                "python -m accelerate.commands.launch train.py",
                first_for=("accelerate:",),
            ),
            Fix(
                "Install the package into the environment that is active.",
                "python -m pip install accelerate deepspeed",
                first_for=("deepspeed:",),
            ),
            Fix(
                "Without Slurm, start with torchrun, and set what the script reads from Slurm.",
                "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 python train.py",
                first_for=("srun:", "sbatch:"),
            ),
            Fix("Install MPI.", "sudo apt install openmpi-bin", first_for=("mpirun:", "mpiexec:")),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCHRUN, "https://huggingface.co/docs/accelerate/basic_tutorials/launch"),
        said_by="bash, dash, zsh",
    ),
)
