"""Errors of schedulers and of the services that give GPUs to jobs: Slurm, Kubernetes and the GPU operator."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, NO_CONTEXT_YET
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Slurm, Kubernetes and the GPU operator"

_OPERATOR: Final = "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/troubleshooting.html"
_SLURM: Final = "https://slurm.schedmd.com/sbatch.html"
_GRES: Final = "https://slurm.schedmd.com/gres.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="slurm-node-gpu",
        section=SECTION,
        title="Slurm's daemon finds no GPU on the node",
        summary="The configuration of Slurm names device files of GPUs that do not exist, so that slurmd does not"
        " start.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Waiting for gres.conf file", r"Waiting for gres\.conf file (?P<file>\S{1,60})"),
            Pattern(
                "can't stat gres.conf file", r"can't stat gres\.conf file (?P<file>\S{1,60}): (?P<reason>[^\n]{1,60})"
            ),
        ),
        causes=(
            "The driver was not loaded yet when slurmd started, or does not work since an upgrade.",
            "The device files are created only with the first use of the GPUs.",
            "The node has fewer GPUs than its line in gres.conf, because one is lost.",
        ),
        fixes=(
            Fix("Check that the driver works and the device files exist.", "nvidia-smi -L; ls -l /dev/nvidia*"),
            Fix(
                "Create the device files at the start, then start the daemon.",
                "sudo systemctl enable --now nvidia-persistenced && sudo systemctl restart slurmd",
            ),
            Fix("Make the node free for jobs again.", "sudo scontrol update nodename=NODE state=resume"),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(_GRES,),
        said_by="Slurm 20-26",
    ),
    KnownError(
        id="k8s-runtime-class",
        section=SECTION,
        title="Node does not know the NVIDIA runtime",
        summary="Kubernetes cannot create the pod, because the container runtime of the node has no runtime `nvidia`.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("no runtime for", r"no runtime for \\?\"(?P<runtime>nvidia[\w-]{0,12})\\?\" is configured"),
            Pattern("RuntimeHandler", r"RuntimeHandler \\?\"(?P<runtime>nvidia[\w-]{0,12})\\?\" not supported"),
            Pattern(
                "RuntimeClass ",
                r"RuntimeClass (?:\"nvidia[\w-]{0,12}\" not found|nvidia[\w-]{0,12}[^\n]{0,30}not found)",
            ),
            Pattern(
                "nvidia-container-runtime",
                r"(?:fork/exec |exec: \\?\"|stat"
                r" )(?!/usr/bin/)/[\w./-]{1,80}/nvidia-container-runtime(?:\.\w{1,12})?\\?\"?: (?:stat|no such"
                r" file|executable)",
            ),
        ),
        causes=(
            (
                "The container toolkit did not configure containerd or CRI-O on this node, or the runtime was not"
                " restarted."
            ),
            "On k3s, RKE2 and microk8s, the configuration of containerd is not where the toolkit expects it.",
            "The pod of the toolkit was removed, and its files with it.",
        ),
        fixes=(
            Fix(
                "Configure the runtime on the node.",
                "sudo nvidia-ctk runtime configure --runtime=containerd && sudo systemctl restart containerd",
            ),
            Fix(
                "With the GPU operator, read the log of its toolkit.",
                "kubectl logs -n gpu-operator -l app=nvidia-container-toolkit-daemonset",
            ),
            Fix(
                "For k3s or RKE2, give the operator the paths of their containerd: CONTAINERD_CONFIG and"
                " CONTAINERD_SOCKET.",
                "helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --reuse-values --set"
                " toolkit.env[0].name=CONTAINERD_SOCKET --set toolkit.env[0].value=/run/k3s/containerd/containerd.sock",
            ),
            Fix("Check which runtime classes exist.", "kubectl get runtimeclass"),
            Fix(
                "If no runtime class named nvidia exists, create it; the GPU operator does that by itself.",
                "printf 'apiVersion: node.k8s.io/v1\\nkind: RuntimeClass\\nmetadata:\\n  name: nvidia\\n"
                "handler: nvidia\\n' | kubectl apply -f -",
                first_for=('RuntimeClass "nvidia" not found',),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_OPERATOR, "https://docs.k3s.io/advanced#nvidia-container-runtime"),
        said_by="containerd 1.6-2.1, Kubernetes 1.26-1.34",
    ),
    KnownError(
        id="k8s-operator-driver",
        section=SECTION,
        title="GPU operator waits for the driver",
        summary="The operator's other pods wait until the driver works on the node, and it does not.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("failed to validate the driver", r"failed to validate the driver(?:, retrying)?"),
            Pattern(
                "error validating driver", r"error validating driver(?: installation)?: (?P<reason>[^\n\"]{1,120})"
            ),
            Pattern(
                "chroot with args [/run/nvidia/driver",
                r"chroot with args \[/run/nvidia/driver[^\]\n]{0,80}\]",
            ),
            Pattern(
                "waiting for nvidia container stack to be setup", r"waiting for nvidia container stack to be setup"
            ),
            Pattern("discovered by the node", r"GPU resources are not (?:yet )?discovered by the node"),
            Pattern("unable to find any allocatable GPU resource", r"unable to find any allocatable GPU resource"),
        ),
        causes=(
            (
                "The pod of the driver cannot build or load the modules: no headers, Secure Boot, nouveau, or a"
                " driver of"
                " the host."
            ),
            "The host has its own driver, and the operator does not know that.",
            "The GPU is not usable; the kernel log of the node has the reason.",
        ),
        fixes=(
            Fix(
                "Read the log of the driver's pod.",
                "kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset --tail=100",
            ),
            Fix(
                "Check the driver on the node itself.",
                "nvidia-smi -L; sudo dmesg -T | grep -i -E 'nvrm|nvidia' | tail -20",
            ),
            Fix(
                "If the host has its own driver, let the operator use it.",
                "helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --reuse-values --set"
                " driver.enabled=false",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.KERNEL_LOG,),
        sources=(_OPERATOR,),
        said_by="GPU operator 22-26",
    ),
    KnownError(
        id="k8s-admission",
        section=SECTION,
        title="Node refused the pod's GPUs",
        summary="The node accepted the pod, and then its device plugin could not give the GPUs.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Allocate failed due to",
                r"Allocate failed due to (?P<reason>(?!requested number|no healthy|[^\n]{0,80}unhealthy)[^\n]{1,160})",
            ),
            Pattern(
                "error getting device handle for index",
                r"error getting device handle for index '?(?P<gpu>\d{1,3})'?: (?P<reason>[^\n]{1,60})",
            ),
            Pattern(
                "endpoint not found in cache",
                r"endpoint not found in cache for a registered resource: nvidia\.com/(?P<resource>[\w.-]{1,40})",
            ),
            Pattern("maximum request size for shared resources", r"maximum request size for shared resources is 1"),
        ),
        causes=(
            "A GPU was lost or became unhealthy after the plugin had counted it.",
            "The plugin or the kubelet restarted, and its list of devices is not up to date.",
            "With time slicing, a pod may request only one share.",
        ),
        fixes=(
            Fix("Check the GPUs on the node.", "nvidia-smi -L; sudo dmesg -T | grep -i xid"),
            Fix(
                "Restart the plugin, then create the pod again.",
                "kubectl rollout restart daemonset -n gpu-operator nvidia-device-plugin-daemonset",
                first_for=("endpoint not found",),
            ),
            Fix("Read its log.", "kubectl logs -n gpu-operator -l app=nvidia-device-plugin-daemonset --tail=100"),
            Fix(
                "Request one share of a time-sliced GPU; more than one share gives no more of it.",
                first_for=("shared resources",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/NVIDIA/k8s-device-plugin",),
        said_by="k8s-device-plugin 0.14-0.17, Kubernetes 1.26-1.34",
        is_echo=True,
    ),
    KnownError(
        id="slurm-gres-conf",
        section=SECTION,
        title="Slurm does not use the GPUs of the node",
        summary="The lines of gres.conf and slurm.conf do not fit the GPUs that slurmd finds on this node.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "config-only GPU due to lack of File",
                r"Discarding the following config-only GPU due to lack of File specification",
            ),
            Pattern("autodetected GPUs are being ignored", r"The following autodetected GPUs are being ignored"),
            Pattern(
                "We were configured to autodetect",
                r"We were configured to autodetect (?P<library>\w{2,8}) functionality, but we weren't able to find that"
                r" lib",
            ),
            Pattern("gres.conf duplicate records", r"gres\.conf duplicate records for (?P<resource>[\w:]{1,20})"),
        ),
        causes=(
            "The type after `gpu:` in slurm.conf is not that of the GPUs, or a number stands where the type belongs.",
            "Slurm was built without NVML or RSMI, so AutoDetect finds nothing.",
            "The file gres.conf has both AutoDetect and lines that name the same GPUs.",
        ),
        fixes=(
            Fix("Print what slurmd finds, with the types that slurm.conf must use.", "sudo slurmd -G"),
            Fix(
                "Write the found type and count into Gres of the node's line, and only AutoDetect into gres.conf.",
                "grep -i -E 'gres|autodetect' /etc/slurm/slurm.conf /etc/slurm/gres.conf",
                first_for=("duplicate records",),
            ),
            Fix(
                "Without NVML, take a build that has it, or name the device files in gres.conf with File=.",
                "find / -name 'gpu_nvml.so' -path '*slurm*' -not -path '/proc/*'",
                first_for=("to autodetect",),
            ),
            Fix("Restart the daemons, then make the node free.", "sudo systemctl restart slurmctld slurmd"),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(_GRES, "https://github.com/SlinkyProject/slurm-operator/issues/57"),
        said_by="Slurm 20-25",
    ),
    KnownError(
        id="k8s-dra",
        section=SECTION,
        title="Kubernetes cannot prepare the claimed GPUs",
        summary="The pod claims GPUs or a compute domain (DRA), and the driver for that on the node does not give"
        " them.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("DRA driver ", r"DRA driver (?P<driver>[\w.-]{3,60}) is not registered"),
            Pattern(
                "error preparing devices",
                r"error preparing devices for claim (?P<claim>'?[\w<>/:-]{1,160}'?): (?P<reason>[^\n\"]{1,160})",
            ),
            Pattern("NodePrepareResources failed for", r"NodePrepareResources failed for (?:ResourceC|c)laim"),
            Pattern("Failed to prepare dynamic resources", r"Failed to prepare dynamic resources"),
        ),
        causes=(
            "The driver's pod does not run on the node, or that part of it (gpu or compute domain) is switched off.",
            "The driver writes the files for the container runtime, and has no right or no directory for that.",
            "The GPU is in use, is lost, or cannot be divided as the claim says.",
        ),
        fixes=(
            Fix(
                "Check that the driver's pods run, also on this node.",
                "kubectl get pods -A -o wide | grep -i dra-driver",
            ),
            Fix("List what they offer.", "kubectl get resourceslices,deviceclasses,resourceclaims -A"),
            Fix(
                "Read the log of the pod on this node.",
                "kubectl logs -n nvidia-dra-driver-gpu -l app.kubernetes.io/name=nvidia-dra-driver-gpu"
                " --all-containers --tail=100",
                first_for=("preparing devices",),
            ),
            Fix("Check the GPUs on the node, then create the pod and its claim again.", "nvidia-smi -L"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/dra-intro-install.html",
            "https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/814",
        ),
        said_by="Kubernetes 1.29-1.36",
    ),
    KnownError(
        id="dcgm-exporter",
        section=SECTION,
        title="DCGM cannot read the GPUs",
        summary="DCGM or its exporter cannot start, or cannot watch one of the values in its list.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Profiling module returned", r"The third-party Profiling module returned an unrecoverable error"),
            Pattern("serviced by a module of DCGM", r"This request is serviced by a module of DCGM that is not"),
            Pattern(
                "Error watching fields: ",
                r"Error watching fields: (?P<reason>Bad parameter|Profiling is not|Feature not)",
            ),
            Pattern("Error starting nv-hostengine", r"Error starting nv-hostengine: (?P<reason>[^\n\"]{1,100})"),
            Pattern("Cannot init NVML library; err", r"Cannot init NVML library; err: (?P<reason>\w{1,40})"),
            Pattern("Host engine connection", r"Unable to connect to host engine\. Host engine connection"),
        ),
        causes=(
            "Values of profiling (fields 1001 to 1012) need a GPU for data centers and the right SYS_ADMIN.",
            "Another profiler, or a second DCGM, already reads these values.",
            "The service does not run, or its container has no access to the driver or to all GPUs.",
        ),
        fixes=(
            Fix(
                "The container lost its GPUs, as after systemd was reloaded: if nvidia-smi works on the node,"
                " start the pod"
                " again; CDI prevents it.",
                "kubectl rollout restart daemonset -n gpu-operator nvidia-dcgm-exporter",
                first_for=("err: Unknown Error",),
                hidden_otherwise=True,
            ),
            Fix("Check whether DCGM sees the GPUs.", "dcgmi discovery -l; dcgmi modules -l"),
            Fix(
                "Give the container of the exporter the right to profile.",
                "docker run --gpus all --cap-add SYS_ADMIN -p 9400:9400 nvcr.io/nvidia/k8s/dcgm-exporter:TAG",
                first_for=("Profiling module", "module of DCGM"),
            ),
            Fix(
                "Or collect no profiling: use the list without DCP.",
                "dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv",
                first_for=("Profiling is not", "Bad parameter"),
            ),
            Fix(
                "The container has no library of the driver: start it with NVIDIA's runtime, in Kubernetes with"
                " `runtimeClassName: nvidia`.",
                "docker run --gpus all --cap-add SYS_ADMIN -p 9400:9400 nvcr.io/nvidia/k8s/dcgm-exporter:TAG",
                first_for=("LIBRARY_NOT_FOUND",),
                hidden_otherwise=True,
            ),
            Fix("Start the service.", "sudo systemctl restart nvidia-dcgm", first_for=("Host engine connection",)),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(
            "https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html",
            "https://github.com/NVIDIA/dcgm-exporter/issues/330",
        ),
        said_by="DCGM 2-4",
    ),
    KnownError(
        id="dcgm-nvml",
        section=SECTION,
        title="DCGM's host engine cannot initialize NVML",
        summary="NVML could not be initialized, and the message does not contain the reason.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("Failed to initialize NVML", r"(?<!\w)Error: Failed to initialize NVML(?! ?:)"),),
        causes=(
            "A GPU or the driver is in a failed state: nvidia-smi then fails on the host too, or shows ERR!.",
            "The container has no libraries of the driver, or not all devices.",
        ),
        fixes=(
            Fix(
                "On the host, check whether NVML works, and which GPU shows ERR! or has an Xid.",
                "nvidia-smi; sudo dmesg -T | grep -i xid",
            ),
            Fix(
                "If a GPU shows ERR!, or nvidia-smi fails on the host, end the work on the GPU, and reset it; if that"
                " fails, reboot.",
                "sudo nvidia-smi --gpu-reset -i 0",
            ),
            Fix(
                "If nvidia-smi works on the host only, start the container with NVIDIA's runtime and all GPUs.",
                "docker run --gpus all --cap-add SYS_ADMIN -p 9400:9400 nvcr.io/nvidia/k8s/dcgm-exporter:TAG",
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://github.com/NVIDIA/dcgm-exporter/issues/46",),
        said_by="DCGM 2-4",
    ),
    KnownError(
        id="k8s-evicted",
        section=SECTION,
        title="Kubernetes evicted the pod",
        summary="The pod used more of the node's disk than it may, or the disk of the node is nearly full.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ephemeral local storage usage exceeds",
                r"(?:Pod )?ephemeral local storage usage exceeds (?P<reason>[^\n]{1,100})",
            ),
            Pattern("low on resource: ephemeral-storage", r"The node was low on resource: ephemeral-storage"),
            Pattern(
                "Usage of EmptyDir volume", r"Usage of EmptyDir volume \"(?P<volume>[^\"\n]{1,60})\" exceeds the limit"
            ),
            Pattern("node had condition: [DiskPressure]", r"node had condition: \[DiskPressure\]"),
        ),
        causes=(
            "Checkpoints, data, the cache of models or logs are written into the container, not to a volume.",
            "Images and other pods fill the disk of the node.",
        ),
        fixes=(
            Fix(
                "Write checkpoints, data and caches to a volume.",
                "export HF_HOME=/mnt/volume/hf TORCH_HOME=/mnt/volume/torch",
            ),
            Fix(
                "Request and allow the disk space that the pod needs, with resources of ephemeral-storage.",
                "kubectl explain pod.spec.containers.resources",
            ),
            Fix(
                "Show the event, and what fills the disk.",
                "kubectl describe pod POD; kubectl exec POD -- du -xh -d 2 / | sort -h | tail",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/",),
        said_by="Kubernetes 1.20-1.34",
    ),
)
