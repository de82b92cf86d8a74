"""Errors of containers that are started with GPUs: Docker, Podman, Kubernetes, WSL.

The wordings are from reports of Docker, Podman and the NVIDIA Container Toolkit from 2017 to 2026.
"""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Containers"

_TRY: Final = Fix("Test with a small image.", "docker run --rm --gpus all ubuntu nvidia-smi")
_REGISTER: Final = Fix(
    "Make the NVIDIA runtime known to Docker.",
    "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="docker-no-gpu-driver",
        section=SECTION,
        title="Docker cannot provide GPUs",
        summary="Docker was asked for GPUs and does not know the NVIDIA Container Toolkit.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "could not select device driver",
                r"could not select device driver (?:\\?\"(?P<driver>\w{0,20})\\?\" )?with capabilities:",
            ),
            Pattern("nknown or invalid runtime name: nvidia", r"[Uu]nknown or invalid runtime name: nvidia"),
            Pattern("nknown runtime specified nvidia", r"[Uu]nknown runtime specified nvidia"),
            Pattern(
                "nvidia-container-",
                r"exec: \\?\"(?:/usr/bin/)?nvidia-container-(?P<program>runtime|runtime-hook|toolkit|cli)\\?\":"
                r" (?:executable file not found|stat )",
            ),
            Pattern(
                "fork/exec /usr/bin/nvidia",
                r"fork/exec /usr/bin/nvidia-container-(?P<program>\w{2,12}(?:-hook)?): no such file",
            ),
        ),
        causes=(
            "The NVIDIA Container Toolkit is not installed on the host.",
            "It was installed, and Docker was not configured or not restarted.",
            "Docker was installed as a snap, or runs rootless or in Docker Desktop for Linux, without access to it.",
        ),
        fixes=(
            Fix(
                "Install the toolkit; its repository must be set up first, as its installation guide describes.",
                "sudo apt-get install -y nvidia-container-toolkit",
            ),
            replace(_REGISTER, first_for=("runtime name", "runtime specified")),
            _TRY,
            Fix("If Docker is a snap, replace it by Docker's own package.", "which docker; sudo snap remove docker"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CONTAINER_TOOLKIT, "https://github.com/NVIDIA/nvidia-docker/issues/1034"),
    ),
    KnownError(
        id="container-cuda-requirement",
        section=SECTION,
        title="Container image needs a newer driver",
        summary="The image needs a newer driver than that of the host: it is not started, or CUDA fails in it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "This container was built for NVIDIA Driver Release",
                r"This container was built for NVIDIA Driver Release (?P<required>[\d.]{3,10}) or later, but"
                r" ?version (?P<driver>[\d.]{3,14}) was detected",
            ),
            Pattern(
                "unsatisfied condition: ",
                r"unsatisfied condition: (?P<requirement>(?:cuda|driver|brand|arch) ?[<>=]{1,2} ?[\w.]{1,16})",
            ),
        ),
        causes=("The host's driver is older than the CUDA version of the image.",),
        fixes=(
            Fix("Upgrade the host's driver; in WSL, the Windows driver.", "sudo ubuntu-drivers install"),
            Fix(
                "On a rented host, choose one whose driver supports this CUDA version, with the filter of the service.",
                first_for=("rented host",),
            ),
            fixes.DRIVER_CUDA_VERSION,
            Fix(
                "Or use an image with an older CUDA version.",
                "docker run --rm --gpus all nvidia/cuda:12.6.3-base-ubuntu24.04 nvidia-smi",
            ),
            Fix(
                "If the driver supports it by minor version compatibility, skip the check.",
                "docker run --rm --gpus all -e NVIDIA_DISABLE_REQUIRE=1 IMAGE nvidia-smi",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            sources.CONTAINER_TROUBLESHOOTING,
            sources.CUDA_COMPATIBILITY,
            "https://github.com/NVIDIA/nvidia-container-toolkit/issues/152",
        ),
    ),
    KnownError(
        id="container-wsl",
        section=SECTION,
        title="WSL has no GPU",
        summary="The Windows host gives its WSL or Docker Desktop no GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("WSL environment detected but no adapters were found"),
            literal("GPU access blocked by the operating system"),
        ),
        causes=(
            "The Windows driver is missing, too old, or was updated while WSL was running.",
            "The distribution runs under WSL 1, or Docker Desktop does not use WSL 2.",
            "The computer has no NVIDIA GPU, or the session may not use it (remote desktop, a sandbox).",
        ),
        fixes=(
            Fix("Restart WSL, in PowerShell.", "wsl --shutdown"),
            Fix("Install the current NVIDIA driver in Windows, and none in WSL; check it in both.", "nvidia-smi"),
            Fix("Update WSL, and check that the distribution has version 2.", "wsl --update; wsl -l -v"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://docs.nvidia.com/cuda/wsl-user-guide/index.html", sources.CONTAINER_TROUBLESHOOTING),
        said_by="Triton 3.6",
    ),
    KnownError(
        id="container-cli",
        section=SECTION,
        title="NVIDIA container runtime failed",
        summary="The hook that puts the GPUs into the container failed; the text after its name is the reason.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                ": device error:",
                r"nvidia-container-cli(?:\.real)?: device error: (?P<device>[^\n:]{1,80}): unknown device",
            ),
            Pattern(
                ": device error:",
                r"nvidia-container-cli(?:\.real)?: device error: (?P<reason>unknown device[^\n]{0,80})",
            ),
            Pattern(
                "nvidia-container-cli",
                r"nvidia-container-cli(?:\.real)?: mount error: (?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                ": ldcache error:",
                r"nvidia-container-cli(?:\.real)?: ldcache error: (?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                ": container error:",
                r"nvidia-container-cli(?:\.real)?: container error: (?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                ": detection error:",
                r"nvidia-container-cli(?:\.real)?: detection error: (?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                ": initialization error:",
                r"nvidia-container-cli(?:\.real)?: initialization error: (?P<reason>driver (?:rpc )?error[^\n]{0,80}"
                r"|load library failed: libnvidia-ml\.so|nvml error: driver not loaded"
                r"|nvml error: insufficient permissions|cuda error[^\n]{0,80})",
            ),
            Pattern(
                ": initialization error: change root",
                r"nvidia-container-cli(?:\.real)?: initialization error: (?P<reason>change root failed[^\n]{0,80})",
            ),
        ),
        causes=(
            "Unknown device: NVIDIA_VISIBLE_DEVICES or --gpus names a GPU that the host does not have.",
            "Driver not loaded, libnvidia-ml.so: the host has no working driver, or Docker is a snap.",
            "Mount error with device rules: in LXC or rootless containers, the hook may not change control groups.",
            "Mount error, file exists: the image contains driver files, from a package or a container with GPUs.",
            "Ldcache error: the configured path of ldconfig does not exist on this distribution.",
            "Ldcache error with signal 9: ldconfig of a newer distribution did not survive in the hook, as since 2025.",
        ),
        fixes=(
            Fix(
                "Request the GPUs by an index or UUID that nvidia-smi -L lists.",
                "docker run --rm --gpus device=0 IMAGE nvidia-smi -L",
                first_for=("unknown device",),
            ),
            Fix(
                "In LXC or a rootless container, leave control groups alone.",
                "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
                first_for=("device rules",),
            ),
            Fix(
                "For signal 9, upgrade the toolkit, or let the runtime use CDI.",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo nvidia-ctk config --in-place --set"
                " nvidia-container-runtime.mode=cdi",
                first_for=("signal 9",),
            ),
            Fix(
                "For ldconfig.real, name the path of ldconfig on this distribution.",
                "sudo nvidia-ctk config --set nvidia-container-cli.ldconfig=@/sbin/ldconfig --in-place",
                first_for=("ldcache",),
            ),
            Fix(
                "If a file exists, delete the driver's files from the image, in its Dockerfile.",
                "echo 'RUN rm -f /usr/lib/x86_64-linux-gnu/libcuda.so* /usr/lib/x86_64-linux-gnu/libnvidia-*.so*'"
                " >> Dockerfile",
                first_for=("file exists",),
            ),
            Fix(
                "Start the daemon of the driver again: only its socket is left.",
                "sudo systemctl restart nvidia-persistenced",
                first_for=("nvidia-persistenced/socket: no such",),
            ),
            Fix(
                "Upgrade the toolkit: old versions misread the driver's files, or mount its socket where they may not.",
                "sudo apt-get install --only-upgrade nvidia-container-toolkit libnvidia-container1",
                first_for=("stat failed", "socket: operation not permitted"),
            ),
            Fix(
                "If a cgroup subsystem is not found, upgrade the toolkit: old versions do not support cgroup v2.",
                "sudo apt-get install --only-upgrade nvidia-container-toolkit libnvidia-container1",
                first_for=("cgroup subsystem",),
            ),
            Fix(
                "The hook of enroot starts nvidia-container-cli, which gives its reason with a log; in a pod,"
                " slurmd needs"
                " the rights to mount.",
                "sudo nvidia-container-cli -k -d /dev/stderr info",
                first_for=("enroot",),
                hidden_otherwise=True,
            ),
            Fix(
                "A GPU or the driver is in a failed state: find the GPU with ERR! or an Xid, end the work on it and"
                " reset it, or reboot.",
                "nvidia-smi; sudo dmesg -T | grep -i xid",
                first_for=("nvml error: unknown error",),
                hidden_otherwise=True,
            ),
            Fix(
                "Check that the driver works on the host, and which GPUs it has.",
                "nvidia-smi -L",
                first_for=("nvidia-container-cli", "load library failed", "driver not loaded"),
            ),
            Fix(
                "If nvidia-smi works there, Docker is Docker Desktop, whose virtual machine has no driver, or a snap:"
                " use Docker Engine on the host.",
                "docker context use default && docker run --rm --gpus all ubuntu nvidia-smi -L",
                first_for=("load library failed",),
            ),
            Fix(
                "If nvidia-smi fails there, install the driver, and reboot.",
                "sudo ubuntu-drivers install && sudo reboot",
                first_for=("load library failed", "driver not loaded"),
            ),
            Fix(
                "Or, if the driver works on the host, use CDI instead of the hook.",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && docker run --device"
                " nvidia.com/gpu=all IMAGE",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(Fix("Show each step of the hook.", "sudo nvidia-container-cli -k -d /dev/tty info"),),
        sources=(sources.CONTAINER_TROUBLESHOOTING,),
    ),
    KnownError(
        id="container-cdi",
        section=SECTION,
        title="CDI device or driver file not found",
        summary="The container asks for a GPU by its CDI name, or for a file of the driver, that the host lacks.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "stat nvidia.com/gpu", r"Error: stat (?P<device>nvidia\.com/gpu=\S{1,60}): no such file or directory"
            ),
            literal("invoking the NVIDIA Container Runtime Hook directly"),
            Pattern(
                "nvidia-ctk` (exit code: ",
                r"error executing hook `\S{0,120}nvidia-ctk` \(exit code: (?P<code>\d{1,3})\)",
            ),
            Pattern("nresolvable CDI devices", r"unresolvable CDI devices (?P<device>\S{1,120})"),
            Pattern("failed to discover GPU vendor from CDI", r"failed to discover GPU vendor from CDI"),
            Pattern(
                "failed to get libraries for driver version",
                r"failed to get libraries for driver version[^\n]{0,40}(?:failed to locate (?P<library>[\w.]{4,40}))?",
            ),
            Pattern(
                "fulfil mount request: open",
                r"fulfil mount request: open (?P<file>/(?!\S{0,40}fabricmanager)\S{0,120}nvidia\S{0,80}): no such file",
            ),
            Pattern("failed to stat CDI host device", r"failed to stat CDI host device (?P<device>\S{1,80})"),
        ),
        causes=(
            "The specification was not generated, or is older than a change of the driver or of the GPUs.",
            "It is in a folder that a rootless Docker or Podman does not read.",
            "In Kubernetes, the GPU operator's toolkit did not write it.",
        ),
        fixes=(
            Fix(
                "Start the persistence daemon, whose socket the container needs; if the host has none, generate the"
                " specification again.",
                "sudo systemctl start nvidia-persistenced\nsudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                first_for=("nvidia-persistenced/socket",),
                hidden_otherwise=True,
            ),
            Fix(
                "Generate the specification; on Jetson, the automatic mode fails, so that the mode must be named.",
                "sudo nvidia-ctk cdi generate --mode=csv --output=/etc/cdi/nvidia.yaml",
                first_for=("Jetson host",),
                hidden_otherwise=True,
            ),
            Fix(
                "Generate the specification; on Jetson, add --mode=csv.",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            ),
            Fix(
                "Create the container again: the old one names files of the driver before its update.",
                "docker compose up --detach --force-recreate",
                first_for=(".so.",),
                hidden_otherwise=True,
            ),
            Fix("Check which names exist.", "nvidia-ctk cdi list"),
            Fix("Use one of them.", "podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",
            "https://github.com/NVIDIA/nvidia-container-toolkit/issues/434",
        ),
    ),
    KnownError(
        id="container-no-driver",
        section=SECTION,
        title="Container runs without GPUs",
        summary="NVIDIA's image found no driver inside the container: it was started without GPUs.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("NVIDIA Driver was not detected."),),
        causes=(
            "The container was started without --gpus, or the toolkit is not installed.",
            "In Kubernetes, the pod requests no nvidia.com/gpu, or its runtime class is not nvidia.",
        ),
        fixes=(
            Fix("Start the container with GPUs.", "docker run --rm --gpus all IMAGE nvidia-smi"),
            _REGISTER,
            Fix("In Compose, reserve the GPUs for the service: `deploy.resources.reservations.devices`."),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CONTAINER_TOOLKIT,),
    ),
    KnownError(
        id="k8s-no-gpu",
        section=SECTION,
        title="No node has a free GPU",
        summary="Kubernetes cannot place the pod: no node has as many free GPUs as it requests.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("nsufficient nvidia.com/gpu", r"(?P<nodes>\d{1,5}) Insufficient nvidia\.com/gpu"),
            Pattern(
                "requested number of devices unavailable for nvidia.com",
                r"requested number of devices unavailable for nvidia\.com/(?P<resource>[\w.-]{1,40})",
            ),
        ),
        causes=(
            "Other pods hold the GPUs.",
            "The device plugin does not run on the node, or the driver there does not work: it then reports no GPU.",
            "The pod requests more GPUs than any one node has.",
        ),
        fixes=(
            Fix(
                "Compare what the nodes offer with what is in use.",
                "kubectl describe nodes | grep -A 10 -E 'Allocatable|Allocated'",
            ),
            Fix("Find the pods that use GPUs.", "kubectl get pods -A -o wide | grep -i gpu"),
            Fix("Check the device plugin.", "kubectl get pods -A | grep -i nvidia"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",),
    ),
    KnownError(
        id="k8s-plugin-nvml",
        section=SECTION,
        title="Device plugin cannot load NVML",
        summary="The pod of the device plugin runs without the NVIDIA runtime, so it reports no GPUs to Kubernetes.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("could not load NVML library", r"(?:start nvml|NVML)[^\n]{0,30}: {1,3}could not load NVML library"),
            Pattern("Incompatible ", r"Incompatible (?:platform|strategy) detected"),
        ),
        causes=(
            "The container runtime of the node does not use the NVIDIA runtime by default, and the pod names none.",
            "The node has no driver.",
        ),
        fixes=(
            Fix(
                "Make the NVIDIA runtime the default of containerd on the node.",
                "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl restart"
                " containerd",
            ),
            Fix("Or give the pods the runtime class nvidia.", "kubectl get runtimeclass"),
            Fix("Check that the driver works on the node.", "nvidia-smi -L"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/NVIDIA/k8s-device-plugin/issues/604",),
        said_by="k8s-device-plugin 0.9-0.17",
    ),
)
