"""Errors of the driver and the fabric that CUDA's initialization meets."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.startup import SECTION
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, cuda_error, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="no-driver",
        section=SECTION,
        title="No NVIDIA driver",
        summary="PyTorch did not find the driver's library, libcuda.so.1.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Found no NVIDIA driver on your system"),
            Pattern(
                "libcuda.so.1: cannot open shared object file", r"\blibcuda\.so\.1: cannot open shared object file"
            ),
        ),
        causes=(
            "The container was started without GPUs, or the host lacks the NVIDIA Container Toolkit.",
            "No driver is installed, or the host has no NVIDIA GPU: a login node, for example.",
            "In WSL, the Windows driver is missing.",
        ),
        fixes=(
            Fix(
                "Apptainer found no driver on this host: start the container on a node that has one, and ask the"
                " scheduler for a GPU.",
                "srun --gpus=1 apptainer exec --nv IMAGE nvidia-smi",
                first_for=("no GPU for Apptainer",),
                hidden_otherwise=True,
            ),
            Fix("Check whether the host has a driver.", "nvidia-smi"),
            Fix(
                "With Docker, start the container with GPUs; in Colab or Kaggle, choose a GPU as accelerator, which"
                " restarts it.",
                "docker run --rm --gpus all IMAGE nvidia-smi",
            ),
            Fix(
                "Install the driver; in WSL, install only the Windows driver, never one inside WSL.",
                "sudo ubuntu-drivers install",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.PYTORCH_INSTALL, sources.CONTAINER_TOOLKIT),
        said_by="torch 1.13-2.13, Lightning 2.1-2.6",
    ),
    KnownError(
        id="driver-old",
        section=SECTION,
        title="Driver too old for this PyTorch",
        summary="PyTorch was built for a newer CUDA version than the driver supports.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "The NVIDIA driver on your system is too old",
                r"The NVIDIA driver on your system is too old(?: \(found version (?P<found>\d{1,8}))?",
            ),
            literal("CUDA driver version is insufficient for CUDA runtime version"),
            name("cudaErrorInsufficientDriver"),
        ),
        causes=("A build for CUDA 13 needs driver branch 580 or later, a build for CUDA 12 needs 525 or later.",),
        fixes=(
            fixes.DRIVER_CUDA_VERSION,
            Fix(
                "Install a PyTorch built for that CUDA version or an older one.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
            ),
            Fix("Or upgrade the driver and reboot.", "sudo ubuntu-drivers install && sudo reboot"),
            Fix("On a data center GPU, the cuda-compat package supports a newer CUDA version without a new driver."),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(f"{sources.CUDA_COMPATIBILITY}minor-version-compatibility.html", sources.PYTORCH_INSTALL),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 3.0-3.6",
    ),
    KnownError(
        id="init-unknown",
        section=SECTION,
        title="CUDA initialization failed for an unknown reason",
        summary="The driver is installed, but it could not be initialized.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("CUDA unknown error - this may be due to an incorrectly set up environment"),
            literal("CUDA driver initialization failed, you might not have a CUDA gpu"),
        ),
        causes=(
            "The host was suspended and resumed, and nvidia_uvm is in a bad state.",
            "The nvidia_uvm module or /dev/nvidia-uvm is missing, as in a container started before the driver.",
            "The driver was upgraded, and the old kernel module is still loaded.",
            "The program changed CUDA_VISIBLE_DEVICES after CUDA was initialized.",
        ),
        fixes=(
            Fix("Create the device files.", "sudo nvidia-modprobe -c 0 -u"),
            fixes.RELOAD_UVM,
            Fix("Restart the container, or reboot the host."),
            Fix("Set CUDA_VISIBLE_DEVICES before the program starts.", "CUDA_VISIBLE_DEVICES=0 python train.py"),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.KERNEL_LOG, Fix("Check whether NVML works.", "nvidia-smi; ls -l /dev/nvidia*")),
        sources=("https://github.com/pytorch/pytorch/issues/49081", sources.CUDA_ERRORS),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="fabric-802",
        section=SECTION,
        title="System not yet initialized",
        summary="NVSwitch connects the GPUs, and the fabric between them is not ready.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            cuda_error("system not yet initialized"),
            name("cudaErrorSystemNotReady"),
            name("CUDA_ERROR_SYSTEM_NOT_READY"),
        ),
        causes=(
            "The nvidia-fabricmanager service is not running.",
            "The service and the driver have different versions, as after an upgrade of one of them.",
            "The host has just booted, and the GPUs are still joining the fabric.",
            "In a virtual machine, the host manages the fabric, or confidential computing has not released the GPU.",
        ),
        fixes=(
            Fix("Start the service.", "sudo systemctl enable --now nvidia-fabricmanager"),
            Fix(
                "Compare its version with the driver's version.",
                "nv-fabricmanager --version; cat /sys/module/nvidia/version",
            ),
            Fix(
                "Check whether the fabric is ready: state Completed, status Success.",
                "nvidia-smi -q | grep -A 3 -i fabric",
            ),
            Fix("Check why the service fails.", "journalctl -u nvidia-fabricmanager --since today"),
            Fix("If the host is rented or managed by others, report the error to them, or take another host."),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.KERNEL_LOG,),
        sources=(sources.FABRIC_MANAGER, sources.CUDA_ERRORS, "https://github.com/pytorch/pytorch/issues/35710"),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="compat-803-804",
        section=SECTION,
        title="Driver and CUDA library do not match",
        summary="The loaded libcuda and the driver's kernel module do not work together.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("system has unsupported display driver / cuda driver combination"),
            literal("forward compatibility was attempted on non supported HW"),
            name("cudaErrorSystemDriverMismatch"),
            name("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
            name("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
            name("cudaErrorCompatNotSupportedOnDevice"),
        ),
        causes=(
            "803: the driver packages were upgraded, and the old kernel module is still loaded.",
            "803: the container has several copies of libcuda, and one of another driver version is found first.",
            "804: the cuda-compat library was loaded on a GPU that is not a data center GPU.",
        ),
        fixes=(
            Fix(
                "Error 804: this GPU cannot use cuda-compat. Upgrade the host's driver to the CUDA version of the"
                " container or program, or use an image with an older CUDA.",
                "nvidia-smi | grep -o -E 'CUDA (UMD )?Version: [0-9.]+'",
                first_for=("error 804", "Error 804", "non supported HW"),
            ),
            Fix(
                "List the copies of libcuda, and show the module's version.",
                "ldconfig -p | grep libcuda; cat /sys/module/nvidia/version",
            ),
            Fix("Remove cuda-compat from the library search path.", "unset LD_LIBRARY_PATH"),
            Fix("Reboot after a driver upgrade.", "sudo reboot"),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.CUDA_COMPATIBILITY, sources.CUDA_ERRORS),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 3.0-3.6",
    ),
    KnownError(
        id="gpu-not-found",
        section=SECTION,
        title="PyTorch finds no GPU",
        summary="torch.cuda.is_available() is False: this build of PyTorch, or this process, has no CUDA GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "torch.cuda.is_available",
                r"torch\.cuda\.is_available(?:\(\))?[`'\")]{0,3}(?: {0,3}(?:[=-]{1,3}>|always|still|only|just|returns?"
                r"|returned|returning|gives?|shows?|says|prints?|outputs?)){1,3} {0,3}[`'\"]?False\b",
            ),
            Pattern(
                "torch.cuda.is_available",
                r">>> (?:print\()?torch\.cuda\.is_available\(\)\)? {0,2}False\b",
            ),
        ),
        causes=(
            "The installed PyTorch is a CPU-only build, as from PyPI on Windows, or from a requirement of a package.",
            "The process has no GPU: CUDA_VISIBLE_DEVICES, the container, the scheduler, or no driver.",
            "The driver is older than the CUDA version of the build.",
        ),
        fixes=(
            Fix(
                "Check the build and the driver; None means a CPU build.",
                "python -c 'import torch; print(torch.__version__, torch.version.cuda)'; nvidia-smi",
            ),
            Fix(
                "For a CPU build, install one with CUDA; with a driver older than 580, write cu126 instead of cu130.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix("Give the container access to its GPUs.", "docker run --rm --gpus all IMAGE nvidia-smi -L"),
            Fix("Print the reason for which CUDA does not start.", "python -c 'import torch; torch.cuda.init()'"),
        ),
        empty_cache=NO_CONTEXT_YET,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(sources.PYTORCH_INSTALL, sources.CUDA_NOTES),
        said_by="torch 1.13-2.13",
        is_echo=True,
        is_warning=True,
    ),
)
