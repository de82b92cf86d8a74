"""Errors of Ray while it starts, is found and is called: its cluster, its settings, and Ray Train."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Ray"

_DEBUG: Final = "https://docs.ray.io/en/latest/ray-observability/user-guides/debug-apps/debug-failures.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="ray-connect",
        section=SECTION,
        title="Ray: the cluster cannot be reached, or does not fit",
        summary="The program found no running Ray, or one with another version, or could not prepare its environment.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Could not find any running Ray instance"),
            literal("Version mismatch: The cluster was started with:"),
            Pattern("Ray version mismatch", r"Ray version mismatch: cluster has Ray version (?P<version>[\w.]{1,20})"),
            literal("No node info found matching attributes"),
            literal("when trying to resolve node to connect to"),
            literal("Timed out waiting for node info for node_id="),
            literal("seconds while waiting for node to startup. Did not find socket name"),
            Pattern("Head node ", r"Head node \w{4,7}[_ ]dir not found in NodeInfo"),
            Pattern(
                "Failed to connect to Ray cluster at",
                r"Failed to connect to Ray cluster at (?P<address>[\w.:/-]{1,80})",
            ),
            Pattern("GCS. Last ", r"Failed to \w{1,12}(?: to)? GCS\. Last (?:connection error|\d{1,4} lines)"),
            literal("ray client connection timeout"),
            literal("No available agent to submit job"),
            literal("Failed to reconnect within the reconnection grace period"),
            Pattern(
                "Initialization failure from server", r"ConnectionAbortedError: Initialization failure from server"
            ),
            Pattern(
                "Failed to look up actor with name '", r"Failed to look up actor with name '(?P<actor>[^'\n]{1,120})'"
            ),
            Pattern("RuntimeEnvSetupError", r"ray\.exceptions\.(?P<error>RuntimeEnvSetupError)"),
            Pattern(
                "GCS at address",
                r"(?:Failed to connect to|Unable to connect to) GCS at address[= ](?P<address>[\w.:-]{1,80})",
            ),
            Pattern("ray.exceptions.", r"ray\.exceptions\.(?P<error>RpcError|AuthenticationError)"),
        ),
        causes=(
            "No Ray was started on this host, or the program names another address than the head's.",
            "The hosts have different versions of Ray or Python.",
            "The worker that registers the actor ended, so that the others wait for it in vain; see its log.",
            "The working folder or the packages of the runtime environment could not be copied or installed.",
        ),
        fixes=(
            Fix("Show the cluster that this host knows.", "ray status"),
            Fix(
                "Install Ray with its dashboard, whose agents take jobs, on all hosts; then start Ray again.",
                "pip install 'ray[default]'",
                first_for=("No available agent",),
            ),
            Fix("Start the head, then the other hosts.", "ray start --head --port=6379; ray start --address=HOST:6379"),
            Fix(
                "Compare the versions on all hosts.",
                "python -c 'import ray, sys; print(ray.__version__, sys.version)'",
                first_for=("Version mismatch",),
            ),
            Fix(
                "Read the errors of the workers.",
                "grep -h -i error /tmp/ray/session_latest/logs/worker*",
                first_for=("look up actor",),
            ),
            Fix(
                "If the runtime environment failed, read its log: a package or the working folder is the cause.",
                "grep -h -i error /tmp/ray/session_latest/logs/runtime_env_setup-*.log",
                first_for=("RuntimeEnvSetupError",),
            ),
            Fix(
                "Behind ray://, read the log of the client's server on the head.",
                "cat /tmp/ray/session_latest/logs/ray_client_server.err",
                first_for=("ray client", "Initialization failure", "grace period"),
            ),
            Fix(
                "Name the address with which this host joined the cluster, not 127.0.0.1 or a name.",
                "ray start --address HEAD:6379 --node-ip-address $(hostname -I | cut -d' ' -f1)",
                first_for=("node info", "resolve node to connect to"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DEBUG,),
        said_by="Ray 2.9-2.60",
    ),
    KnownError(
        id="ray-running",
        section=SECTION,
        title="Another Ray is running",
        summary="Ray was started or initialized a second time, or parts of an earlier session are still there.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Maybe you called ray.init twice by accident"),
            Pattern(
                "Found multiple active Ray instances",
                r"Found multiple active Ray instances: (?P<instances>[^\n]{1,120})",
            ),
            Pattern("does not match persisted value", r"Session name \S{1,80} does not match persisted value"),
            Pattern(
                "Ray is trying to start at",
                r"Ray is trying to start at \S{1,60}, but is already running at (?P<address>\S{1,60})",
            ),
            Pattern(
                "because it's already occupied. You can",
                r"Failed to bind to (?P<address>[\w.:]{1,60}) because it's already occupied\. You can",
            ),
        ),
        causes=(
            "An earlier session did not end, as after a job that was killed, or belongs to another user.",
            "The program, or a library that it uses, calls ray.init although Ray is connected already.",
        ),
        fixes=(
            Fix("End what is left of an earlier Ray, and start again.", "ray stop --force"),
            Fix(
                "Initialize only where nothing else did.",
                "if not ray.is_initialized():\n    ray.init()",
                first_for=("called ray.init twice",),
            ),
            Fix("Name the cluster to use.", "export RAY_ADDRESS=10.0.0.7:6379", first_for=("multiple active",)),
            Fix(
                "On a host with other users, use its own port and folder.",
                "ray start --head --port 6380 --temp-dir=$HOME/ray",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.ray.io/en/latest/ray-core/api/doc/ray.init.html",),
        said_by="Ray 2.9-2.60",
    ),
    KnownError(
        id="ray-settings",
        section=SECTION,
        title="Ray does not accept these settings",
        summary="An argument of ray.init, ray start or a request for resources cannot be used in this place.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "When connecting to an existing cluster,", r"When connecting to an existing cluster, (?P<name>\w{1,40})"
            ),
            Pattern(
                "cannot be configured when connecting to an",
                r"(?P<name>\w{1,40}) cannot be configured when connecting to an existing",
            ),
            literal("System config parameters can only be set on the head node"),
            literal("Failed to merge the Job's runtime env"),
            Pattern(
                "is no longer supported. For interactive", r"`?local_mode`? is no longer supported\. For interactive"
            ),
            literal("Ray has not been started yet. You can start Ray with"),
            Pattern("cannot fit into any bundles for the", r"cannot fit into any bundles for the placement group"),
            Pattern("exceeds /dev/shm size", r"configured object store size \([\d. ]{1,20}GB\) exceeds /dev/shm size"),
            literal("The requested object store memory size is greater than the total available memory"),
            literal("Attempting to cap object store memory usage at"),
            literal("Multi-node Ray clusters are not supported on Windows and OSX"),
        ),
        causes=(
            "A Ray cluster is running on this host, so that ray.init connects to it instead of starting one.",
            "The size asked for is larger than what the host or the container has.",
            "The program was written for an older Ray.",
        ),
        fixes=(
            Fix(
                "Give the numbers to ray start, and only the address to ray.init.",
                'ray.init(address="auto")',
                first_for=("existing cluster", "connecting to an existing"),
            ),
            Fix("If no cluster is meant, end the one that runs.", "ray stop --force"),
            Fix(
                "Make shared memory larger, or the object store smaller.",
                "df -h /dev/shm; ray start --head --object-store-memory 8000000000",
                first_for=("object store",),
            ),
            Fix("Initialize Ray first.", "ray.init()", first_for=("not been started",)),
            Fix(
                "Make the bundle as large as what the actor asks for.",
                'ray.util.placement_group([{"GPU": 1, "CPU": 8}])',
                first_for=("bundles",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.ray.io/en/latest/ray-core/api/doc/ray.init.html",),
        said_by="Ray 2.9-2.60",
    ),
    KnownError(
        id="ray-train",
        section=SECTION,
        title="Ray Train: a function was used in the wrong place or way",
        summary="The workers of Ray Train do not do the same, or a function for them is called outside of them.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("can only be called for TrainSession", r"`(?P<name>\w{1,40})` can only be called for TrainSession"),
            literal("utility functions should be called inside a training function executed by"),
            literal("Some workers returned results while others didn't"),
            Pattern(
                "Passing objects contain", r"Passing objects contain(?:in)?g Torch tensors as metrics is not supported"
            ),
            literal("Returning objects containing Torch tensors from the training function"),
            Pattern(
                "Unable to set up cluster storage with", r"Unable to set up cluster storage with the following settings"
            ),
            literal("TrainContext has not been initialized"),
            literal("FSDP is only available with GPU-enabled training"),
            literal("No trial resources are available for launching"),
        ),
        causes=(
            "Only rank 0 calls ray.train.report; every worker must call it, equally often.",
            "A value of report is a tensor instead of a number.",
            "Several hosts have no common folder for the results.",
        ),
        fixes=(
            Fix("Call report on all workers, with numbers.", 'ray.train.report({"loss": loss.item()})'),
            Fix(
                "Name a folder that all hosts can write to.",
                'ray.train.RunConfig(storage_path="/mnt/shared/ray_results")',
                first_for=("cluster storage",),
            ),
            Fix(
                "Call the function inside the training function that the trainer gets.",
                first_for=("TrainSession", "TrainContext", "utility"),
            ),
            Fix(
                "Ask for GPUs.",
                "ray.train.ScalingConfig(num_workers=8, use_gpu=True)",
                first_for=("GPU-enabled", "trial resources"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.ray.io/en/latest/train/getting-started-pytorch.html",),
        said_by="Ray 2.9-2.60",
    ),
)
