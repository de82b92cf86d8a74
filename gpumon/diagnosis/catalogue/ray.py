"""Errors of Ray: GPUs that it does not have, its own processes, objects, and connections."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Ray"

_DEBUG: Final = "https://docs.ray.io/en/latest/ray-observability/user-guides/debug-apps/debug-failures.html"
ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="ray-gpus",
        section=SECTION,
        title="Ray has no GPU for the program",
        summary="Ray knows of fewer free GPUs than the program requests, or of none on the host where it starts.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Placement group creation timed out. Make sure your cluster either has enough resources"),
            literal("Ray does not allocate any GPUs on the driver node"),
            Pattern("local_gpu_idx ", r"local_gpu_idx (?P<index>\d{1,4}) is not a valid GPU id or is not available"),
            Pattern(
                "Current node has no GPU available",
                r"Current node has no GPU available(?:\. current_node_resource=(?P<resources>\{[^}\n]{0,160}\}))?",
            ),
            Pattern(
                "No available node types can fulfill resource request",
                r"No available node types can fulfill resource requests? (?:defaultdict\(<class 'float'>, )?"
                r"(?P<request>\{[^}\n]{0,120}GPU[^}\n]{0,120}\})",
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
            Pattern(
                "resource request cannot be scheduled right now",
                r"resource request cannot be scheduled right now: [^\n]{0,60}?"
                r"(?P<request>\{[^}\n]{0,80}'GPU'[^}\n]{0,80}\})",
            ),
        ),
        causes=(
            "Another job, or a placement group that was left behind, holds the GPUs of the cluster.",
            "A host joined the cluster without GPUs: its container has none, or `ray start` counted none.",
            "The address of the host differs from the one that Ray knows, as with several network interfaces.",
        ),
        fixes=(
            Fix(
                "Request no more GPUs than the cluster has, and for one node no more than a node has; or join more"
                " nodes. In verl, the number is trainer.n_gpus_per_node; vLLM divides a model by -tp.",
                "vllm serve MODEL -tp 1",
                first_for=("No available node types",),
            ),
            Fix(
                "Show how many GPUs Ray knows, and how many are in use.",
                "ray status",
                first_for=("placement group", "GPU", "scheduled right now"),
            ),
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
        id="ray-check",
        section=SECTION,
        title="Ray's own code stopped the process",
        summary="A check inside Ray failed, so that Ray ended the process; the program did not cause it directly.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " Check failed: ",
                r"(?:^|\] )(?:\(\w{1,20}\) )?\w{1,40}\.cc:\d{1,5}:(?: An unexpected system state[^\n]{0,200}?)? {1,4}"
                r"Check failed: "
                r"(?P<check>[^\n]{1,120})",
            ),
        ),
        causes=(
            "The disk of /tmp or the shared memory that Ray stores objects in is full.",
            "The process was being ended, so that it could not store its result; another error comes first.",
            "The hosts have different versions of Ray or Python, or this version has a fault.",
        ),
        fixes=(
            Fix("Look for an earlier error of the same process in Ray's logs.", "ls -t /tmp/ray/session_latest/logs"),
            Fix("Check the free space of both.", "df -h /tmp /dev/shm"),
            Fix("Install the current version on all hosts.", 'pip install --upgrade "ray[default]"'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/verl-project/verl/issues/2380",),
        said_by="Ray 2.9-2.60",
    ),
    KnownError(
        id="ray-start",
        section=SECTION,
        title="Ray could not start on a host",
        summary="Ray's processes on this host did not start, or do not reach each other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Failed to register worker to Raylet", r"Failed to register worker to Raylet"),
            Pattern("Unable to register worker with raylet", r"Unable to register worker with raylet"),
            literal("The current node timed out during startup"),
            literal("Some Ray subprocesses exited unexpectedly"),
            Pattern("Failed to start ", r"Failed to start (?:the|a) dashboard\b"),
        ),
        causes=(
            (
                "Too many workers start at once, so that threads, open files or memory run out: Ray counts all cores"
                " of the host."
            ),
            "Another Ray runs on this host, or one that was left behind, in another version.",
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
        sources=(_DEBUG,),
        said_by="Ray 2.9-2.60",
    ),
    KnownError(
        id="ray-node-lost",
        section=SECTION,
        title="Ray lost a node",
        summary="A host of the cluster ended or no longer answers, and every actor and result on it is lost.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "has been marked dead because the detector",
                r"The node with node id: \w{1,80} and (?:address|ip): (?P<address>[\d.]{7,15}) [^\n]{0,80}has been"
                r" marked dead because"
                r" the detector",
            ),
            Pattern("ray.exceptions.", r"ray\.exceptions\.(?P<error>NodeDiedError|LocalRayletDiedError)"),
            Pattern("because its node has died", r"The actor (?:is dead|died) because its (?P<what>node) has died"),
            literal("Owner's node has crashed"),
            literal("Node is dead because the health check failed"),
        ),
        causes=(
            "The host ran out of memory, so that the kernel ended Ray's daemon, the raylet.",
            "All cores are busy, as while data is loaded or kernels are compiled, so that heartbeats are late.",
            "The host was taken away or restarted (spot instances, a pod that was evicted), or its network stopped.",
        ),
        fixes=(
            Fix("On that host, look for the out-of-memory killer.", "sudo dmesg -T | grep -i -E 'out of memory|oom'"),
            Fix("Read the last lines of its raylet.", "cat /tmp/ray/session_latest/logs/raylet.out"),
            Fix("Leave cores for Ray: give it fewer than the host has.", "ray start --address HEAD:6379 --num-cpus 16"),
            Fix(
                "If the host is only slow, allow more missed heartbeats, on the head.",
                "ray start --head --system-config='{\"health_check_failure_threshold\": 20}'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DEBUG, "https://github.com/verl-project/verl/issues/1472"),
        said_by="Ray 2.9-2.60",
    ),
    KnownError(
        id="ray-actor-died",
        section=SECTION,
        title="Ray: a worker process ended",
        summary="The process of an actor or task ended; what ended it stands in its own log, not in this message.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("ray.exceptions.", r"ray\.exceptions\.(?P<error>WorkerCrashedError|ActorUnavailableError)"),
            literal("The actor died unexpectedly before finishing this task"),
            literal("The actor died because of an error raised in its creation task"),
            Pattern(
                "The actor is dead because",
                r"The actor is dead because (?P<reason>its (?:worker process|owner|creator) has died|it was killed"
                r"|all references to|it was never created|GCS could not load)",
            ),
            literal("The worker died unexpectedly while executing this task"),
            literal("The actor never ran - it was cancelled before it started running"),
            Pattern(
                "Could not create the actor because", r"Could not create the actor because (?P<reason>[^\n.]{1,80})"
            ),
            literal("A worker died or was killed while executing a task by an unexpected system error"),
        ),
        causes=(
            "The process raised an exception, which is printed above or in its log.",
            "Host memory ran out, and the kernel or Ray's memory monitor ended the process.",
            "Native code crashed, as in a CUDA or NCCL library.",
            "The process that started it, the driver, ended first.",
        ),
        fixes=(
            Fix(
                "Read the last error of that process, on its host; the message names its pid, which is the end of the"
                " name of the log.",
                "grep -n -E 'Error|Fatal|SIG' /tmp/ray/session_latest/logs/worker-*-PID.*",
            ),
            Fix(
                "Check whether the kernel ended it for lack of memory.",
                "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'",
                first_for=("full host", "lost connection"),
            ),
            Fix("If the owner, the driver, ended first, look at its log.", first_for=("owner",)),
            Fix(
                "Check whether the pod reached its memory limit; raise the limit, or start fewer workers.",
                "kubectl describe pod POD | grep -A 4 -E 'Last State|Limits'",
                first_for=("K8s pod memory limits", "pod limit"),
            ),
            Fix("For a crash, print the Python stack.", "PYTHONFAULTHANDLER=1 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DEBUG,),
        said_by="Ray 2.9-2.60",
        is_echo=True,
    ),
    KnownError(
        id="ray-objects",
        section=SECTION,
        title="Ray has no space for objects, or lost one",
        summary="Ray keeps results in shared memory and on disk; both are full, or the process with a result ended.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ray.exceptions.",
                r"ray\.exceptions\.(?P<error>ObjectStoreFullError|OutOfDiskError|ObjectLostError|OwnerDiedError"
                r"|ObjectReconstructionFailed\w{0,60}|ObjectFetchTimedOutError|ReferenceCountingAssertionError)",
            ),
            Pattern(
                "% full, available space: ",
                r"(?P<folder>/\S{1,160}) is over (?P<percent>\d{1,3})% full, available space: ",
            ),
            literal("Failed to put object in object store because it is full"),
            Pattern("Local disk is full", r"Local disk is full(?:$|[.:,])"),
        ),
        causes=(
            "The disk with /tmp/ray is nearly full: Ray writes objects there when its memory is full.",
            "Shared memory is small, so that few objects fit: a container has 64 MB of it by default.",
            "The process that created the object ended; its error comes earlier in the log.",
        ),
        fixes=(
            Fix("Check the free space of both.", "df -h /tmp /dev/shm"),
            Fix("Remove the logs and objects of earlier sessions.", "ray stop --force && rm -rf /tmp/ray/session_2*"),
            Fix("Put them on a larger disk.", "ray start --head --temp-dir=/scratch/ray"),
            Fix("Give a container more shared memory.", "docker run --gpus all --shm-size=64g IMAGE"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.ray.io/en/latest/ray-core/objects/object-spilling.html", _DEBUG),
        said_by="Ray 2.9-2.60",
    ),
    KnownError(
        id="ray-timeout",
        section=SECTION,
        title="Ray: a result did not arrive in time",
        summary="The call ray.get() waited for a task or an actor that did not finish within its timeout.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("GetTimeoutError", r"ray\.exceptions\.(?P<error>GetTimeoutError)"),
            Pattern("failed to get register_center_actor", r"failed to get register_center_actor: (?P<actor>\w{1,80})"),
        ),
        causes=(
            "The task waits for GPUs or cores that no node has free.",
            "The worker loads a model, compiles, or hangs in a collective.",
            "The worker ended, and its error is in its own log.",
        ),
        fixes=(
            Fix("Check which resources are requested and which are free.", "ray status"),
            Fix("Show where the worker waits.", "py-spy dump --pid PID"),
            Fix("Read the errors of the workers.", "grep -h -i error /tmp/ray/session_latest/logs/worker*"),
            Fix(
                "The first worker has not started: find its error in its own log; on a slow file system, wait longer.",
                "python -m verl.trainer.main_ppo +trainer.ray_wait_register_center_timeout=900",
                first_for=("register_center",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DEBUG,),
        said_by="Ray 2.9-2.52",
        is_echo=True,
    ),
)
