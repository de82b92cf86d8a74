"""Errors of GPUs that are divided or shared, as nvidia-smi and the daemon of MPS report them: MIG, MPS, and use."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "MIG and MPS"

_MIG: Final = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
_MPS: Final = "https://docs.nvidia.com/deploy/mps/index.html"
_HOLDERS: Final = Fix("List the programs that hold the GPU, also monitors and daemons.", "sudo fuser -v /dev/nvidia*")

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="gpu-in-use",
        section=SECTION,
        title="GPU is in use, so its mode cannot be changed",
        summary="A reset, MIG mode or a GPU instance can be changed only while no program holds the GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "In use by another client",
                r"(?:Unable to|Failed to|GPU |pending )[^\n]{0,120}?: ?In use by another client",
            ),
            Pattern("MIG mode is in pending", r"MIG mode is in pending (?P<mode>enable|disable) state for"),
            Pattern(
                "is currently in use by another process",
                r"GPU (?P<bus>[\da-fA-F:.]{7,20}) is currently in use by another process",
            ),
            literal("The following GPUs could not be reset"),
        ),
        causes=(
            "A program, a container, a desktop or a monitor such as DCGM holds the GPU.",
            "NVSwitch connects the GPUs: all of them must be reset together.",
            "In a virtual machine the reset is not possible: reboot instead.",
        ),
        fixes=(
            _HOLDERS,
            Fix(
                "Stop the daemons, then repeat the command.",
                "sudo systemctl stop nvidia-persistenced nvidia-dcgm; sudo nvidia-smi --gpu-reset -i 0",
            ),
            Fix("Or reboot: a pending MIG mode is then active.", "sudo reboot"),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(_MIG,),
    ),
    KnownError(
        id="mig-resources",
        section=SECTION,
        title="GPU has no room for this MIG instance",
        summary="The other instances of the GPU take the slices or the place that this profile needs.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "nsufficient Resources",
                r"(?:Failed|Unable) to create (?:a )?(?P<kind>GPU|compute) instances?[^\n]{0,80}: Insufficient"
                r" Resources",
            ),
        ),
        causes=(
            "Instances exist already; each profile fits only at certain places of the GPU.",
            "The id of the profile is for another kind of GPU.",
        ),
        fixes=(
            Fix(
                "List the profiles, how many of each still fit, and what exists.",
                "nvidia-smi mig -lgip; nvidia-smi mig -lgi",
            ),
            Fix(
                "Remove the instances that are not used, then create the largest first.",
                "sudo nvidia-smi mig -dci -i 0; sudo nvidia-smi mig -dgi -i 0; sudo nvidia-smi mig -cgi 9,19 -C -i 0",
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(_MIG,),
    ),
    KnownError(
        id="mig-off",
        section=SECTION,
        title="No GPU is in MIG mode",
        summary="A MIG command or a MIG device was used, and no GPU is divided.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("No MIG-enabled devices found"),
            Pattern("No MIG devices found", r"\bNo MIG devices found\b"),
            Pattern("more than one MIG device type", r"more than one MIG device type present on node"),
            Pattern("be configured with the same migE", r"devices on the node must be configured with the same migE"),
        ),
        causes=(
            "MIG mode is off, or pending until the next reset; the instances are lost with each reboot on some GPUs.",
            "With the strategy `single` of the device plugin, all GPUs of a node must have the same instances.",
        ),
        fixes=(
            Fix("Turn MIG mode on.", "sudo nvidia-smi -i 0 -mig 1"),
            Fix("Create instances, with one compute instance each.", "sudo nvidia-smi mig -cgi 9,9 -C -i 0"),
            Fix("List the instances and their UUIDs.", "nvidia-smi -L"),
            Fix(
                "Divide all GPUs of the node equally, or use the strategy mixed.",
                "helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --reuse-values --set mig.strategy=mixed",
                first_for=("MIG configuration", "migEnabled"),
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(_MIG,),
        said_by="k8s-device-plugin 0.17",
    ),
    KnownError(
        id="mps-daemon",
        section=SECTION,
        title="MPS daemon does not run, or runs already",
        summary="The command could not reach the control daemon of the Multi-Process Service (MPS), or started a"
        " second.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("ind MPS control daemon process", r"[Cc]annot find MPS control daemon process"),
            Pattern("error waiting for MPS daemon", r"error waiting for MPS daemon: (?P<reason>[^\n]{1,120})"),
            Pattern("using MPS requires --mps-root", r"using MPS requires --mps-root to be specified"),
            Pattern(
                "n instance of this daemon is already running",
                r"(?:^|: )[Aa]n instance of this daemon"
                r" is already running",
            ),
        ),
        causes=(
            "The daemon was not started, or by another user, or with another CUDA_MPS_PIPE_DIRECTORY.",
            "In a container, the folder of its pipes is not mounted.",
        ),
        fixes=(
            Fix(
                "Start the daemon; programs must use the same folder.",
                "export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps; nvidia-cuda-mps-control -d",
            ),
            Fix(
                "On Kubernetes, install the device plugin with Helm, which also starts the MPS daemon on each node.",
                "helm upgrade -i nvdp nvdp/nvidia-device-plugin -n nvidia-device-plugin --create-namespace"
                " --set-file config.map.config=mps.yaml --set gfd.enabled=true",
                first_for=("waiting for MPS", "--mps-root"),
            ),
            Fix("Ask it which servers it runs.", "echo get_server_list | nvidia-cuda-mps-control"),
            Fix("End a daemon that is left behind.", "echo quit | nvidia-cuda-mps-control"),
            Fix("Or run without MPS.", "unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MPS,),
    ),
    KnownError(
        id="nvidia-smi-setting",
        section=SECTION,
        title="Setting is not supported by this GPU",
        summary="The GPU, or a virtual one, does not let nvidia-smi change this setting.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "is not supported for GPU",
                r"(?P<setting>Setting (?:locked (?:GPU|memory) clocks|applications? clocks|power management limit)"
                r"|Changing (?:power management limit|default compute mode)) is not supported for GPU",
            ),
            Pattern(
                "Unable to set ",
                r"Unable to set (?P<setting>persistence mode|compute mode|ECC mode|[\w ]{3,30}) for GPU"
                r" (?P<bus>[\da-fA-F:.]{7,20}): (?P<reason>Not Supported|Insufficient Permissions)",
            ),
            Pattern("Changing ECC mode is not supported", r"Changing ECC mode is not supported"),
        ),
        causes=(
            "Many settings exist only on data center GPUs, or not on laptops.",
            "Virtual machines with a vGPU, WSL and most cloud notebooks do not allow it.",
            "Settings need root.",
        ),
        fixes=(
            Fix(
                "Show which limits and clocks the GPU lets you set.",
                "nvidia-smi -q -d POWER,CLOCK,SUPPORTED_CLOCKS | head -60",
            ),
            Fix("Repeat the command as root.", "sudo nvidia-smi -i 0 -pl 300"),
            Fix("Otherwise work without the setting: training does not need it."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.KERNEL_LOG,),
        sources=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
    ),
    KnownError(
        id="gpu-passthrough",
        section=SECTION,
        title="GPU could not be passed to a virtual machine",
        summary="The hypervisor could not reset the GPU, wake it, or take it from the host.",
        context=ContextState.RESET,
        patterns=(
            Pattern(
                "; giving up",
                r"vfio-pci (?P<bus>[\da-f:.]{7,12}): not ready \d{1,6}ms after \w{1,8}(?: reset)?; giving up",
            ),
            Pattern("Unable to power on device, stuck in D3", r"Unable to power on device, stuck in D3"),
            Pattern("failed to reset PCI device '", r"failed to reset PCI device '(?P<bus>[\da-f:.]{7,12})'"),
            Pattern("is not viable", r"vfio (?P<bus>[\da-f:.]{7,12}): group (?P<group>\d{1,5}) is not viable"),
            Pattern(
                "failed to open /dev/vfio/",
                r"failed to open /dev/vfio/(?P<group>\d{1,5}):"
                r" (?P<reason>[^\n]{1,60})",
            ),
            Pattern("can't reserve [mem", r"vfio-pci (?P<bus>[\da-f:.]{7,12}): BAR \d: can't reserve \[mem"),
        ),
        causes=(
            (
                "The GPU did not come back from a reset: several AMD GPUs and some GeForce cards cannot be reset in"
                " this"
                " way."
            ),
            "A driver of the host, or its console, still holds the GPU.",
            "Not viable: other devices of the same IOMMU group belong to the host.",
        ),
        fixes=(
            Fix("Power the host off and on; a reboot does not reset every GPU.", "sudo ipmitool chassis power cycle"),
            Fix(
                "Keep the host's drivers away from the GPU, and rebuild the initial RAM disk.",
                "echo 'options"
                " vfio-pci ids=10de:2b85' | sudo tee /etc/modprobe.d/vfio.conf && sudo update-initramfs -u -k all",
            ),
            Fix(
                "Keep the idle GPU out of the deepest sleep.",
                "echo 'options vfio-pci disable_idle_d3=1' | sudo tee -a /etc/modprobe.d/vfio.conf",
            ),
            Fix(
                "Show which driver has the GPU, and its IOMMU group.",
                "lspci -nnk | grep -A 3 -i -E 'vga|3d'; ls -l /sys/kernel/iommu_groups/*/devices",
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://docs.kernel.org/driver-api/vfio.html", "https://pve.proxmox.com/wiki/PCI_Passthrough"),
        said_by="Linux 5.15-6.17, QEMU 6-9, Proxmox 7-8",
    ),
)
