"""Errors of Slurm and Kubernetes that end a job, or do not start it."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Schedulers"

_REASON: Final = r"(?P<reason>(?!Invalid ?(?:gen|Track|$))[^\n]{1,120})"
"""Why Slurm refused, except for GPUs that it does not have."""
ERRORS: Final[tuple[KnownError, ...]] = (
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
            Pattern("Gres format wrong", r"Gres format wrong, specify (?P<requested>--[^\s\\]{1,60})"),
            Pattern("Step requested GRES", r"Step requested GRES \((?P<requested>[^\n]{1,60})\) not found in the job"),
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
                first_for=("count",),
            ),
            Fix(
                "Leave --gres and --gpus out of srun, so that the step gets the GPUs of the job, or name them as the"
                " job does.",
                "scontrol show job $SLURM_JOB_ID | grep -i tres",
                first_for=("Step requested", "Unable to create step"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://slurm.schedmd.com/gres.html",),
        said_by="Slurm 20-24",
    ),
    KnownError(
        id="slurm-rejected",
        section=SECTION,
        title="Slurm does not accept the job",
        summary="Slurm refused the job or step, for the reason in the message.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "are mutually exclusive",
                r"(?:srun|sbatch|salloc): (?:fatal|error): [^\n]{1,160}are mutually exclusive",
            ),
            Pattern("equested node configuration is not available", r"Requested node configuration is not available"),
            Pattern(
                "ob submission failed:",
                r"Batch job submission failed: (?P<reason>(?!Invalid ?(?:gen|Track|$))[^\n]{1,100})",
            ),
            Pattern(
                "nable to allocate resources:",
                r"Unable to allocate resources: (?P<reason>(?!Invalid ?(?:gen|Track|$))[^\n]{1,100})",
            ),
            Pattern(
                "nable to create step for job",
                r"Unable to create step for job (?P<job>\d{1,12}): (?!Invalid gen|Invalid"
                r" Track)(?P<reason>[^\n]{1,80})",
            ),
            Pattern("More processors requested than permitted", r"More processors requested than permitted"),
            Pattern("invalid partition specified", r"(?:srun|sbatch|salloc): error: invalid partition specified"),
            Pattern(
                "error: Batch job submission failed",
                r"sbatch: error: Batch job submission failed: (?P<reason>(?:Invalid (?:account|partition|qos|feature"
                r"|job)|Job violates|Access/permission|Requested time limit)[^\n]{0,100})",
            ),
            Pattern(
                "error: Unable to allocate resources",
                r"(?:srun|salloc): error: Unable to allocate resources: " + _REASON,
            ),
            Pattern(
                "error: Unable to create step for job",
                r"srun: error: Unable to create step for job \d{1,12}: " + _REASON,
            ),
            Pattern(
                "sbatch: error: ",
                r"sbatch: error: (?P<reason>(?!Batch job|Gres format)[^\n]{0,160}\b"
                r"(?:GPUs?\b|gpus-per-|CPU job setup|GPU\w{0,8} Account\b)[^\n]{0,120})",
            ),
            literal("SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive"),
        ),
        causes=(
            "Requested node configuration is not available: no node of the partition has that many GPUs or cores.",
            "More processors requested than permitted: a step asks for more than its job has.",
            "Invalid account, partition or quality of service; or a limit of the user is reached.",
        ),
        fixes=(
            Fix("Show what the nodes of each partition have.", "sinfo -o '%P %D %c %m %G %l'"),
            Fix(
                "Request GPUs, tasks and cores so that they fit one node.",
                "sbatch --gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=12 job.sh",
            ),
            Fix(
                "Request a GPU in the job: this partition takes only jobs that do.",
                "sbatch --partition=PARTITION --gpus-per-node=1 job.sh",
                first_for=("not requesting GPU", "CPU job setup"),
            ),
            Fix(
                "State the number of tasks as well.",
                "sbatch --ntasks=8 --gpus-per-task=1 job.sh",
                first_for=("per-task used without",),
            ),
            Fix(
                "Let each step request only its share of the job's memory.",
                "srun --exact --ntasks=1 --mem=16G python train.py",
                first_for=("Memory required by task",),
            ),
            Fix(
                "In a job of another job, remove the variables of the outer one.",
                "unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE; srun python train.py",
                first_for=("mutually exclusive",),
            ),
            Fix(
                "Show which accounts, partitions and limits are yours.",
                "sacctmgr show associations user=$USER format=Account,Partition,QOS,MaxTRES; sinfo -s",
                first_for=("Invalid account", "nvalid partition", "QOS", "group not permitted", "Account"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://slurm.schedmd.com/sbatch.html",),
        said_by="Slurm 20.11-24.11",
    ),
    KnownError(
        id="slurm-limit",
        section=SECTION,
        title="Slurm ended the job",
        summary="The job reached its time limit, was preempted by another job, or its node failed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "CANCELLED AT ",
                r"\*\*\* (?:STEP|JOB) (?P<job>[\w.+]{1,40}) ON \S{1,80} CANCELLED AT (?:\S{1,30} )?"
                r"DUE TO (?P<reason>TIME LIMIT|PREEMPTION|NODE FAILURE)",
            ),
        ),
        causes=(
            "TIME LIMIT: the job runs longer than requested, or hung until then.",
            "PREEMPTION: a job of higher priority needs the nodes.",
            "NODE FAILURE: the node crashed or lost its connection.",
        ),
        fixes=(
            Fix(
                "Request more time, up to the limit of the partition.",
                "sbatch --time=2-00:00:00 job.sh",
                first_for=("TIME LIMIT",),
            ),
            Fix("Let Slurm queue the job again, and resume from a checkpoint.", "sbatch --requeue job.sh"),
            Fix(
                "Let Slurm send a signal before the end, and save a checkpoint then.",
                "sbatch --signal=B:USR1@300 job.sh",
            ),
            Fix(
                "Check whether the job made progress until its end.",
                "sacct -j JOBID --format=JobID,State,Elapsed,Timelimit,ExitCode",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://slurm.schedmd.com/sbatch.html",),
        said_by="Slurm 19.05-25.11",
    ),
    KnownError(
        id="slurm-task-ended",
        section=SECTION,
        title="Slurm: a task of the step ended",
        summary="A task of the job step ended with an error or was killed; its own output has the cause.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "srun: error: ",
                r"srun: error: (?P<node>[\w.-]{1,80}): tasks? (?P<tasks>[\d,-]{1,60}): (?P<reason>Exited with exit code"
                r" \d{1,3}|Killed|Terminated|Aborted)",
            ),
        ),
        causes=(
            "The program of that task failed: look for its traceback.",
            "Killed: often too little host memory, or another task ended first with --kill-on-bad-exit.",
        ),
        fixes=(
            Fix("Mark each line with its task, and read the first one that failed.", "srun --label python train.py"),
            Fix("Show the exit code and the memory of each step.", "sacct -j JOB --format=JobID,State,ExitCode,MaxRSS"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://slurm.schedmd.com/srun.html",),
        said_by="Slurm 20.11-24.11",
        is_echo=True,
    ),
    KnownError(
        id="slurm-node",
        section=SECTION,
        title="Slurm cannot use the node or its GPUs",
        summary="The daemon of the node cannot read its GPUs, or the node differs from the configuration.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("find_node_record", r"find_node_record: lookup failure for node \"(?P<node>[\w.-]{1,80})\""),
            Pattern(
                "Node configuration differs from hardware", r"Node configuration differs from hardware: [^\n]{1,80}"
            ),
            Pattern(
                "Reason=",
                r"\bReason=(?P<reason>Low RealMemory|Low socket\*core\*thread count|Low TmpDisk|Not responding"
                r"|Kill task failed|Prolog error|Epilog error|Node unexpectedly rebooted)",
            ),
            Pattern("Unable to determine this slurmd's", r"Unable to determine this slurmd's NodeName"),
            Pattern("specified plugin name for cgroup", r"Couldn't find the specified plugin name for cgroup/v2"),
        ),
        causes=(
            "The driver was not loaded when the daemon started: the files of the GPUs did not exist yet.",
            "Configuration files of Slurm name a node, GPUs or memory that the hardware does not have.",
            "Kill task failed: a process on a GPU did not end, often because of an error of the driver.",
        ),
        fixes=(
            Fix("Show why nodes are not available.", "sinfo -R; scontrol show node NODE"),
            Fix(
                "On the node, compare its hardware with the configuration.",
                "slurmd -C; nvidia-smi -L; ls /dev/nvidia*",
                first_for=("differs from hardware",),
            ),
            Fix(
                "Load the driver before the daemon, and start it again.",
                "sudo nvidia-smi; sudo systemctl restart slurmd",
            ),
            Fix("Then return the node to service.", "sudo scontrol update nodename=NODE state=resume"),
            Fix(
                "Write the node's name into slurm.conf on all hosts as `hostname -s` prints it, then read it again.",
                "sudo scontrol reconfigure",
                first_for=("lookup failure for node",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://slurm.schedmd.com/gres.html", "https://slurm.schedmd.com/troubleshoot.html"),
        said_by="Slurm 19.05-25.11",
    ),
    KnownError(
        id="slurm-controller",
        section=SECTION,
        title="Slurm's controller cannot be reached",
        summary="The commands or nodes of Slurm cannot connect to its controller, or cannot prove who they are.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Unable to contact slurm controller"),
            Pattern("Munge decode failed: ", r"Munge decode failed: (?P<reason>[^\n]{1,60})"),
            Pattern("Munge encode failed: ", r"Munge encode failed: (?P<reason>[^\n]{1,100})"),
            literal("Protocol authentication error"),
            Pattern("were transmitted or received", r"Zero Bytes were transmitted or received"),
            Pattern("resolve_ctls_from_dns_srv", r"resolve_ctls_from_dns_srv: res_nsearch error"),
            Pattern("Could not establish a configuration source", r"Could not establish a configuration source"),
            literal("error: Slurm controller not responding"),
        ),
        causes=(
            "The service munge does not run, its keys differ between the hosts, or a clock is wrong.",
            "A container does not have Slurm's configuration or the socket of munge.",
            "The controller is down or overloaded.",
        ),
        fixes=(
            Fix("Check whether the controller answers.", "scontrol ping"),
            Fix("Check munge and the clock of this host.", "munge -n | unmunge; timedatectl"),
            Fix(
                "In a container, mount both.",
                "docker run --gpus all -v /run/munge:/run/munge -v /etc/slurm:/etc/slurm IMAGE",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://slurm.schedmd.com/troubleshoot.html",),
        said_by="Slurm 19.05-25.11",
    ),
    KnownError(
        id="slurm-launch",
        section=SECTION,
        title="Slurm could not start the program on a node",
        summary="A node of the job could not start its tasks, for the reason in the message.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "slurmstepd: error: execve",
                r"slurmstepd: error: execve\(\): (?P<program>[^\n:]{1,120}): (?P<reason>[^\n]{1,60})",
            ),
            Pattern(
                "ommon_file_write_",
                r"common_file_write_\w{1,12}: write value [^\n]{1,160} failed: (?P<reason>[^\n]{1,60})",
            ),
            Pattern(
                "launch failed: ",
                r"srun: error: task \d{1,6} launch failed: (?P<reason>[^\n]{1,80})",
            ),
            Pattern("Application launch failed", r"Application launch failed: (?P<reason>[^\n]{1,80})"),
            Pattern("couldn't chdir to", r"couldn't chdir to [^\n]{1,160}"),
            Pattern(
                "error: Task launch for",
                r"srun: error: Task launch for (?:StepId=)?(?P<step>[\w.+]{1,40}) failed on node (?P<node>[\w.-]{1,80})"
                r": (?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                "error: Application launch failed", r"srun: error: Application launch failed: (?P<reason>[^\n]{1,120})"
            ),
            Pattern(
                "error: execve()", r"slurmstepd: error: execve\(\): (?P<program>[^\n:]{1,160}): (?P<reason>[^\n]{1,80})"
            ),
            Pattern(
                "error: couldn't chdir to",
                r"slurmstepd: error: couldn't chdir to `(?P<folder>[^'\n]{1,160})': (?P<reason>[^\n:]{1,80})",
            ),
            Pattern("Prolog hung on node", r"Prolog hung on node (?P<node>[\w.-]{1,80})"),
            Pattern("Socket timed out on send/recv", r"Socket timed out on send/recv operation"),
        ),
        causes=(
            "The environment or the folder of the program does not exist on that node.",
            "The node has a fault: its daemon, file system or clock.",
            "Many tasks start at once from a slow file system.",
        ),
        fixes=(
            Fix("Test whether the program exists on the node.", "srun --nodelist=NODE --ntasks=1 which python"),
            Fix("Leave the node out, and report it to the administrator.", "sbatch --exclude=NODE job.sh"),
            Fix(
                "Synchronize the clocks of all nodes, and restart Munge: a credential is valid for some minutes only.",
                "ssh NODE date; date",
                first_for=("credential",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://slurm.schedmd.com/troubleshoot.html",),
        said_by="Slurm 20.11-24.11",
    ),
)
