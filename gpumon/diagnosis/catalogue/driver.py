"""Errors of the driver and of NVML, as nvidia-smi, monitors and the kernel log tell them."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    BELOW_PYTORCH,
    KERNEL_LOG,
    LOWER_POWER,
    NO_MEMORY_MATTER,
    REBOOT_MACHINE,
    RESET_GPU,
    XID_CATALOG,
    literal,
    names,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Driver and NVML"
_NVML: Final = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"
_CONTAINER_TROUBLES: Final = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
)
_COUNTERS: Final = "https://developer.nvidia.com/ERR_NVGPUCTRPERM"

_MISMATCH: Final = KnownError(
    id="nvml-mismatch",
    section=_SECTION,
    title="Driver and its libraries differ",
    summary="The driver's libraries are of another version than the kernel module that is loaded.",
    context=Context.RESET,
    patterns=(
        literal("Driver/library version mismatch"),
        literal("NVML/RM version mismatch"),
        Pattern(
            "NVRM: API mismatch",
            r"NVRM: API mismatch: the client(?: '[^'\n]{0,60}' \([^)\n]{0,40}\))?"
            r" has the version (?P<library>[\d.]{1,20})",
        ),
        *names("NVMLError_LibRmVersionMismatch"),
    ),
    causes=(
        "The packages of the driver were upgraded, often by unattended upgrades, and the machine was not rebooted.",
        "A container brings libraries of another driver.",
    ),
    fixes=(
        REBOOT_MACHINE,
        Fix(
            "Compare what is loaded with what is installed.",
            "cat /sys/module/nvidia/version; modinfo -F version nvidia",
        ),
        Fix(
            "Or end all that uses the GPUs and load the modules anew.",
            "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
        ),
        Fix("Keep upgrades of the driver for a time you choose.", "sudo apt-mark hold 'nvidia-driver-*' 'libnvidia-*'"),
    ),
    empty_cache=BELOW_PYTORCH,
    sources=(_NVML,),
)

_CONTAINER: Final = KnownError(
    id="nvml-unknown",
    section=_SECTION,
    title="Container lost its GPUs",
    summary="NVML cannot be started any more in a container where it worked before.",
    context=Context.ALIVE,
    patterns=(literal("Failed to initialize NVML: Unknown Error"),),
    causes=(
        "The host reloaded systemd, which took from the container the right to open the GPU; what has it open goes on.",
    ),
    fixes=(
        Fix("Start the container again.", "docker restart CONTAINER"),
        Fix(
            "So that it does not come back, name the device files.",
            "docker run --gpus all --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm IMAGE",
        ),
        Fix(
            "Or make links that systemd understands, once after each boot.",
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_CONTAINER_TROUBLES, "https://github.com/NVIDIA/nvidia-docker/issues/1730"),
)

_NO_NVML: Final = KnownError(
    id="nvml-missing",
    section=_SECTION,
    title="NVML or the driver is not there",
    summary="The driver's library for monitoring was not found, or the driver is not loaded.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        literal("NVML Shared Library Not Found"),
        Pattern("Driver Not Loaded", r"(?:^|: )Driver Not Loaded\b"),
        literal("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"),
        Pattern("libnvidia-ml.so", r"\blibnvidia-ml\.so[\d.]{0,4}: cannot open shared object file"),
        *names("NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded"),
    ),
    causes=(
        "The kernel was upgraded, and the driver's module was not built for the new one.",
        "Secure Boot refuses the module, as its signature is not known.",
        "No driver is installed.",
        "The container has no access: NVIDIA_DRIVER_CAPABILITIES lacks utility.",
    ),
    fixes=(
        Fix("See whether the module is built and loaded.", "lsmod | grep nvidia; dkms status; mokutil --sb-state"),
        Fix("Load it, and read why that fails.", "sudo modprobe nvidia; sudo dmesg | tail"),
        Fix(
            "Build it for the running kernel.",
            'sudo apt-get install -y "linux-headers-$(uname -r)" && sudo dkms autoinstall',
        ),
        Fix(
            "Give the container what monitoring needs.",
            "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE",
        ),
    ),
    empty_cache=BELOW_PYTORCH,
    sources=(_NVML, _CONTAINER_TROUBLES),
)

_LOST: Final = KnownError(
    id="gpu-lost",
    section=_SECTION,
    title="GPU is lost",
    summary="A GPU no longer answers on the PCI bus.",
    context=Context.RESET,
    patterns=(
        Pattern("GPU is lost", r"(?:^|: )GPU is lost\b"),
        Pattern(
            "GPU has fallen off the bus",
            r"NVRM: GPU (?:at )?(?:PCI:)?(?P<bus>[\w:.]{4,20}): GPU has fallen off the bus",
        ),
        Pattern(
            "Unable to determine the device handle for",
            r"Unable to determine the device handle for (?:GPU|gpu) ?(?P<bus>[\w:.]{1,20})?",
        ),
        *names("NVMLError_GpuIsLost"),
    ),
    causes=(
        "Power: the supply, a cable or its plug.",
        "The seat of the card, a riser or the slot.",
        "Heat, or a power-saving state of the bus.",
        "The card is failing.",
    ),
    fixes=(
        Fix(
            "Switch the machine off and on: a reset does not reach a GPU that is off the bus.",
            "sudo ipmitool chassis power cycle",
        ),
        KERNEL_LOG,
        LOWER_POWER,
        Fix("Seat the card and its cables anew, or try another slot."),
        Fix("If it comes back, collect a report for the vendor.", "sudo nvidia-bug-report.sh"),
    ),
    empty_cache=BELOW_PYTORCH,
    sources=(XID_CATALOG, _NVML),
)

_PERMISSION: Final = KnownError(
    id="nvml-permission",
    section=_SECTION,
    title="No permission",
    summary="The driver lets only root do this, or only those to whom it was granted.",
    context=Context.ALIVE,
    patterns=(
        Pattern("Insufficient Permissions", r"^(?:[\w.]{0,80}NVMLError\w{0,40}: )?Insufficient Permissions$"),
        Pattern("Insufficient Permissions", r"initialize NVML: Insufficient Permissions"),
        *names("NVMLError_NoPermission", "ERR_NVGPUCTRPERM"),
    ),
    causes=(
        "Power limit, clocks, compute mode and reset are for root.",
        "Performance counters, which profilers read, are for root unless the driver is told otherwise.",
        "The user may not open the device files.",
    ),
    fixes=(
        Fix("Do it as root.", "sudo nvidia-smi -i 0 -pl 300"),
        Fix(
            "Open performance counters to all users; it takes effect after a reboot.",
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/counters.conf",
        ),
        Fix("See who may open the device files.", "ls -l /dev/nvidia*; id"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_NVML, _COUNTERS),
)

_NOT_SUPPORTED: Final = KnownError(
    id="nvml-notsup",
    section=_SECTION,
    title="Not supported by this GPU",
    summary="This GPU, its driver or its mode does not have the figure or the function that was asked for.",
    context=Context.ALIVE,
    patterns=(
        Pattern("Not Supported", r"^(?:[\w.]{0,80}NVMLError\w{0,40}: )?Not Supported$"),
        *names("NVMLError_NotSupported"),
    ),
    causes=(
        "The GPU is not of the data-centre line.",
        "It is in MIG mode, virtual, or seen through WSL.",
    ),
    fixes=(
        Fix(
            "In a program of your own, take it as a missing value.",
            """\
try:
    speed = pynvml.nvmlDeviceGetFanSpeed(handle)
except pynvml.NVMLError_NotSupported:
    speed = None""",
        ),
        Fix("See what this GPU tells.", "nvidia-smi -q"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_NVML,),
)

_RESET: Final = KnownError(
    id="nvml-reset",
    section=_SECTION,
    title="GPU requires a reset",
    summary="The driver does not use the GPU any more until it has been reset.",
    context=Context.RESET,
    patterns=(
        Pattern("GPU requires re", r"\bGPU requires (?:restart|reset)\b"),
        *names("NVMLError_ResetRequired"),
    ),
    causes=(
        "An error of the GPU's memory reached every program on it: Xid 95 or 140.",
        "The firmware or a link failed.",
    ),
    fixes=(
        KERNEL_LOG,
        RESET_GPU,
        Fix("If the reset is refused, reboot the machine.", "sudo reboot"),
    ),
    empty_cache=BELOW_PYTORCH,
    see_more=(Fix("See what the driver itself asks for.", "nvidia-smi -q | grep -i 'recovery action'"),),
    sources=(_NVML, XID_CATALOG),
)

_JETSON: Final = KnownError(
    id="jetson-nvml",
    section=_SECTION,
    title="Out of memory, hidden behind NVML",
    summary="Memory ran out, and PyTorch stumbled over NVML when it wanted to say who holds it.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "NVML_SUCCESS == ",
            r"NVML_SUCCESS == [^\n]{1,100}?INTERNAL ASSERT FAILED at \"?[^\n\"]{1,300}?CUDACachingAllocator\.cpp",
        ),
    ),
    causes=(
        "A Jetson's NVML, an old driver or a container does not answer what PyTorch asks.",
        "The cause before that is an allocation that found no room.",
    ),
    fixes=(
        Fix("Take it as out of memory: fewer samples at a time.", "loader = DataLoader(dataset, batch_size=1)"),
        Fix("See how much is free.", "python -c 'import torch; print(torch.cuda.mem_get_info())'"),
        Fix("See whether NVML works.", "nvidia-smi"),
    ),
    empty_cache="Frees nothing more here: memory ran out, and the allocator has emptied its cache already.",
    sources=("https://github.com/pytorch/pytorch/issues/185240",),
)

ERRORS: Final = (
    _MISMATCH,
    _CONTAINER,
    _NO_NVML,
    _LOST,
    _PERMISSION,
    _NOT_SUPPORTED,
    _RESET,
    _JETSON,
)
