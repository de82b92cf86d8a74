"""Errors of the start that lie below the process: no driver, the wrong one, or one that is not ready."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CUDA_COMPATIBILITY,
    CUDA_ERRORS,
    KERNEL_LOG,
    NO_CONTEXT_YET,
    PYTORCH_INSTALL,
    RELOAD_UVM,
    VERSIONS,
    cuda_error,
    literal,
    names,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Start-up"
_TOOLKIT_GUIDE: Final = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
_FABRIC_GUIDE: Final = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"

_NO_DRIVER: Final = KnownError(
    id="no-driver",
    section=_SECTION,
    title="No NVIDIA driver",
    summary="PyTorch did not find the driver's library, libcuda.so.1.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        literal("Found no NVIDIA driver on your system"),
        Pattern("libcuda.so.1: cannot open shared object file", r"\blibcuda\.so\.1: cannot open shared object file"),
    ),
    causes=(
        "The container was started without GPUs, or the host lacks the NVIDIA container toolkit.",
        "No driver is installed, or the machine has no NVIDIA GPU: a login node, for example.",
        "In WSL, the Windows driver is missing.",
    ),
    fixes=(
        Fix("See whether the host has a driver.", "nvidia-smi"),
        Fix("Start the container with GPUs.", "docker run --rm --gpus all IMAGE nvidia-smi"),
        Fix("Install the driver; in WSL only the one of Windows, never one inside.", "sudo ubuntu-drivers install"),
    ),
    empty_cache=NO_CONTEXT_YET,
    see_more=(VERSIONS,),
    sources=(PYTORCH_INSTALL, _TOOLKIT_GUIDE),
)

_OLD_DRIVER: Final = KnownError(
    id="driver-old",
    section=_SECTION,
    title="Driver too old for this PyTorch",
    summary="PyTorch was built for a newer CUDA than the driver supports.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        Pattern(
            "The NVIDIA driver on your system is too old",
            r"The NVIDIA driver on your system is too old(?: \(found version (?P<found>\d{1,8}))?",
        ),
        literal("CUDA driver version is insufficient for CUDA runtime version"),
        *names("cudaErrorInsufficientDriver"),
    ),
    causes=("A build for CUDA 13 needs a driver of branch 580 or later, one for CUDA 12 needs 525 or later.",),
    fixes=(
        Fix("See which CUDA the driver supports.", "nvidia-smi | grep 'CUDA Version'"),
        Fix(
            "Install a PyTorch built for that CUDA or an older one.",
            "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
        ),
        Fix("Or upgrade the driver and reboot.", "sudo ubuntu-drivers install && sudo reboot"),
        Fix("On a data-centre GPU, the package cuda-compat bridges the gap without a new driver."),
    ),
    empty_cache=NO_CONTEXT_YET,
    see_more=(VERSIONS,),
    sources=(f"{CUDA_COMPATIBILITY}minor-version-compatibility.html", PYTORCH_INSTALL),
)

_BAD_START: Final = KnownError(
    id="init-unknown",
    section=_SECTION,
    title="CUDA did not start, for an unknown reason",
    summary="The driver is installed, but it could not be started.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        literal("CUDA unknown error - this may be due to an incorrectly set up environment"),
        literal("CUDA driver initialization failed, you might not have a CUDA gpu"),
    ),
    causes=(
        "The machine was suspended and resumed, and nvidia_uvm is in a bad state.",
        "The module nvidia_uvm or its file /dev/nvidia-uvm is missing, as in a container started before the driver.",
        "The driver was upgraded, and the old module is still loaded.",
        "The program changed CUDA_VISIBLE_DEVICES after CUDA had started.",
    ),
    fixes=(
        Fix("Make the device files.", "sudo nvidia-modprobe -c 0 -u"),
        RELOAD_UVM,
        Fix("Start the container again, or reboot the machine."),
        Fix("Set CUDA_VISIBLE_DEVICES before the program starts.", "CUDA_VISIBLE_DEVICES=0 python train.py"),
    ),
    empty_cache=NO_CONTEXT_YET,
    see_more=(KERNEL_LOG, Fix("See whether NVML works.", "nvidia-smi; ls -l /dev/nvidia*")),
    sources=("https://github.com/pytorch/pytorch/issues/49081", CUDA_ERRORS),
)

_FABRIC: Final = KnownError(
    id="fabric-802",
    section=_SECTION,
    title="System not yet initialized",
    summary="The GPUs are joined by NVSwitch, and the fabric between them is not ready.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        cuda_error("system not yet initialized"),
        *names("cudaErrorSystemNotReady", "CUDA_ERROR_SYSTEM_NOT_READY"),
    ),
    causes=(
        "The service nvidia-fabricmanager is not running.",
        "Its version is not that of the driver, as after an upgrade of one of them.",
        "The machine has just started, and the GPUs are still joining the fabric.",
        "In a virtual machine the fabric is managed outside of it, or confidential computing has not released the GPU.",
    ),
    fixes=(
        Fix("Start the service.", "sudo systemctl enable --now nvidia-fabricmanager"),
        Fix(
            "Compare its version with the driver's.",
            "nv-fabricmanager --version; cat /sys/module/nvidia/version",
        ),
        Fix("See whether the fabric is ready: state Completed, status Success.", "nvidia-smi -q | grep -A 3 -i fabric"),
        Fix("See why the service fails.", "journalctl -u nvidia-fabricmanager --since today"),
    ),
    empty_cache=NO_CONTEXT_YET,
    see_more=(KERNEL_LOG,),
    sources=(_FABRIC_GUIDE, CUDA_ERRORS, "https://github.com/pytorch/pytorch/issues/35710"),
)

_COMBINATION: Final = KnownError(
    id="compat-803-804",
    section=_SECTION,
    title="Driver and CUDA library do not fit",
    summary="The libcuda that was loaded and the driver's kernel module do not work together.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        literal("system has unsupported display driver / cuda driver combination"),
        literal("forward compatibility was attempted on non supported HW"),
        *names("cudaErrorSystemDriverMismatch", "cudaErrorCompatNotSupportedOnDevice"),
    ),
    causes=(
        "803: the driver's packages were upgraded, and the old kernel module is still loaded.",
        "803: several libcuda lie in the container, and one not of this driver is found first.",
        "804: the library of cuda-compat was loaded on a GPU that is not of the data-centre line.",
    ),
    fixes=(
        Fix(
            "See which ones there are, and which version the module has.",
            "ldconfig -p | grep libcuda; cat /sys/module/nvidia/version",
        ),
        Fix("Take cuda-compat out of the search path.", "unset LD_LIBRARY_PATH"),
        Fix("Reboot after an upgrade of the driver.", "sudo reboot"),
    ),
    empty_cache=NO_CONTEXT_YET,
    see_more=(VERSIONS,),
    sources=(CUDA_COMPATIBILITY, CUDA_ERRORS),
)

ERRORS: Final = (_NO_DRIVER, _OLD_DRIVER, _BAD_START, _FABRIC, _COMBINATION)
