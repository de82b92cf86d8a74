"""Errors of nodes and devices: unhealthy GPUs in Kubernetes, a missing nvidia-smi, Jetson, NVLink SHARP, DCGM."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Nodes and devices"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="k8s-unhealthy",
        section=SECTION,
        title="GPU is marked as unhealthy on its node",
        summary="The device plugin saw a critical Xid or lost a GPU, and offers it no more.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "annot allocate unhealthy devices nvidia",
                r"cannot allocate unhealthy devices nvidia\.com/(?P<resource>[\w.-]{1,40})",
            ),
            Pattern(
                "XidCriticalError: Xid", r"XidCriticalError: Xid=(?P<xid>\d{1,4}) on Device=(?P<gpu_uuid>[\w-]{8,60})"
            ),
            Pattern(
                "device marked unhealthy",
                r"'nvidia\.com/(?P<resource>[\w.-]{1,40})' device marked unhealthy: (?P<gpu_uuid>[\w-]{8,60})",
            ),
        ),
        causes=(
            "A program caused an Xid that the plugin takes as critical, or the GPU has a fault.",
            "The driver or the plugin restarted, and the list of devices is not up to date yet.",
        ),
        fixes=(
            Fix("Read the Xid in the kernel log of the node.", "sudo dmesg -T | grep -i xid"),
            Fix(
                "If the GPU works, restart the plugin, which offers it again.",
                "kubectl rollout restart daemonset -n gpu-operator nvidia-device-plugin-daemonset",
            ),
            Fix("If it does not, take the node out of service and reset the GPU.", "kubectl cordon NODE"),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(
            "https://github.com/NVIDIA/k8s-device-plugin/issues/189",
            "https://github.com/openshift/instaslice-operator/issues/140",
        ),
        said_by="k8s-device-plugin 0.6-0.17, Kubernetes 1.26-1.33",
    ),
    KnownError(
        id="nvidia-smi-missing",
        section=SECTION,
        title="nvidia-smi was not found",
        summary="The program nvidia-smi, which comes with the driver, is not on the search path of this host or"
        " container.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern('": executable file not found', r"exec: \\?\"nvidia-smi\\?\": executable file not found"),
            Pattern("nvidia-smi: not found", r"\bnvidia-smi: not found"),
            Pattern("or directory: 'nvidia-smi'", r"No such file or directory: 'nvidia-smi'"),
        ),
        causes=(
            "The container was started without GPUs, or without the capability `utility`.",
            "No driver is installed, or the host has no NVIDIA GPU.",
        ),
        fixes=(
            Fix("Start the container with its GPUs.", "docker run --rm --gpus all IMAGE nvidia-smi"),
            Fix(
                "With another runtime, request the capabilities.",
                "docker run --rm --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all -e"
                " NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi",
            ),
            Fix("On the host, install the driver.", "sudo ubuntu-drivers install"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.CONTAINER_TOOLKIT,),
        said_by="Docker 19-28, bash 5",
    ),
    KnownError(
        id="jetson-memory-manager",
        section=SECTION,
        title="Jetson: memory manager cannot be opened",
        summary="The libraries of the Tegra driver cannot open their device files, so that CUDA cannot work.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("NvRmMemInitNvmap failed", r"NvRmMemInitNvmap failed with (?P<reason>[^\n]{1,60})"),
            Pattern("NvRmMemInit failed", r"NvRmMemInit failed\b(?!\*)[^\n]{0,40}"),
            literal("NvRmGpuLibOpen failed"),
        ),
        causes=(
            "The container was started without the NVIDIA runtime, or the user is not in the group video.",
            "Libraries for a desktop GPU were installed on the Jetson, or the image is for another JetPack.",
        ),
        fixes=(
            Fix("Start the container with the runtime of the Jetson.", "docker run --rm --runtime nvidia IMAGE"),
            Fix("Give the user access, then log in again.", "sudo usermod -aG video,render $USER"),
            Fix("Use an image and wheels that are built for the JetPack of this device.", "cat /etc/nv_tegra_release"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/UsingNet/nvjpeg-python/issues/13",),
        said_by="JetPack 5-6",
    ),
    KnownError(
        id="jetson-memory",
        section=SECTION,
        title="Jetson: no memory left",
        summary="The memory manager of the Jetson could not allocate; CPU and GPU share this memory.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "NvMapMemAllocInternalTagged", r"NvMapMemAllocInternalTagged: (?P<code>\d{1,12}) error (?P<error>12)\b"
            ),
        ),
        causes=("Programs, the desktop and the file cache use the memory that the model needs.",),
        fixes=(
            Fix("Show what uses the memory.", "free -h; ps aux --sort -rss | head"),
            Fix("Stop the desktop until the next start.", "sudo systemctl isolate multi-user.target"),
            Fix("Use a smaller or quantized model, or a smaller batch."),
        ),
        empty_cache="Helps a little: the cache of PyTorch is part of the memory that CPU and GPU share.",
        sources=("https://forums.developer.nvidia.com/c/agx-autonomous-machines/jetson-embedded-systems/70",),
        said_by="JetPack 5-6",
    ),
    KnownError(
        id="nccl-nvls",
        section=SECTION,
        title="NCCL: NVLink SHARP does not work",
        summary="NCCL could not set up multicast over NVSwitch (NVLS); the fabric or its permissions are not in order.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("nvls.cc:", r"\bnvls\.cc:\d{1,5} NCCL WARN (?P<reason>[^\n]{1,80})"),
            Pattern("NVLink SHARP (NVLS)", r"Failed to \w{1,12} NVLink SHARP \(NVLS\) (?P<reason>[^\n]{1,80})"),
        ),
        causes=(
            "Fabric Manager is not healthy, or its version differs from the driver's.",
            "The virtual machine or container has only some of the GPUs of the fabric, or no IMEX channel.",
            "An NVSwitch or a link is in an error state since an earlier failure.",
        ),
        fixes=(
            Fix(
                "Continue without NVLink SHARP, at a lower speed of all-reduce.", "NCCL_NVLS_ENABLE=0 torchrun train.py"
            ),
            Fix(
                "Check whether the fabric is ready: state Completed, status Success.",
                "nvidia-smi -q | grep -A 3 -i fabric",
            ),
            Fix(
                "Restart Fabric Manager after all programs have ended; then reset all GPUs.",
                "sudo systemctl restart nvidia-fabricmanager",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.KERNEL_LOG, fixes.LINK_STATE),
        sources=(
            "https://github.com/NVIDIA/nccl/issues/1788",
            "https://github.com/NVIDIA/nccl/issues/1672",
            "https://github.com/pytorch/pytorch/pull/177472",
        ),
        said_by="NCCL 2.17-2.30",
    ),
    KnownError(
        id="nvidia-smi-no-cuda",
        section=SECTION,
        title="nvidia-smi finds no CUDA driver",
        summary="NVML answers, but the CUDA driver library does not: programs will find no GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("CUDA Version: ERR!", r"CUDA Version: ERR!"),
            Pattern("CUDA Version: N/A", r"CUDA Version: N/A"),
        ),
        causes=(
            "In WSL, the Windows driver was updated while WSL ran, or a Linux driver was installed inside WSL.",
            "The container was given the capability `utility`, but not `compute`.",
            "The library libcuda.so.1 is missing, or is of another version than the driver.",
        ),
        fixes=(
            Fix("Look for the library, and for several versions of it.", "ldconfig -p | grep libcuda"),
            Fix("In WSL, remove the Linux driver, then restart WSL in PowerShell.", "wsl --shutdown"),
            Fix(
                "Start the container with both capabilities.",
                "docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/microsoft/WSL/issues/11589", sources.CONTAINER_TOOLKIT),
        said_by="NVIDIA driver 440-580",
    ),
    KnownError(
        id="nvlink-inactive",
        section=SECTION,
        title="NVLinks are not active",
        summary="No NVLink of the GPU is active, so that GPUs exchange data over PCIe, or programs fail.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "as all links are inActive", r"Unable to retrieve N[Vv][Ll]ink information as all links are inActive"
            ),
        ),
        causes=(
            "Fabric Manager does not run, or the GPU has not joined the fabric.",
            "The links are down after an error; the kernel log then has an Xid of 144 to 150 or 74.",
            "The GPU has no bridge, or is in MIG mode.",
        ),
        fixes=(
            Fix(
                "Check whether the fabric is ready, and whether its service runs.",
                "nvidia-smi -q | grep -A 3 -i fabric; systemctl status nvidia-fabricmanager",
            ),
            fixes.KERNEL_LOG,
            fixes.RESET_GPU,
        ),
        empty_cache=BELOW_PYTORCH,
        see_more=(fixes.LINK_STATE,),
        sources=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1150", sources.FABRIC_MANAGER),
        said_by="NVIDIA driver 590",
    ),
    KnownError(
        id="dcgm-memory",
        section=SECTION,
        title="DCGM found memory errors of a GPU",
        summary="The health check of DCGM found a memory that was repaired, waits for a repair, or cannot be repaired.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "memory errors and row remapping",
                r"GPU (?P<gpu>\d{1,3}) ha[sd] (?:uncorrectable )?memory errors and row remapping(?:s are p| f)",
            ),
            Pattern(
                "has uncorrectable memory errors and row",
                r"GPU (?P<gpu>\d{1,3}) has uncorrectable memory errors and row\b(?! remapping)",
            ),
            Pattern(
                "rows were remapped",
                r"GPU (?P<gpu>\d{1,3}) had uncorrectable memory errors and (?P<rows>\d{1,5}) rows were remapped",
            ),
            Pattern(
                "Pending page retirements together with a DBE",
                r"Pending page retirements together with a DBE were detected on GPU (?P<gpu>\d{1,3})",
            ),
        ),
        causes=(
            "Cells of the memory are defective; the GPU replaces their row by a spare one at its next reset.",
            "If the remapping failed, no spare row is left for this bank.",
        ),
        fixes=(
            Fix(
                "If the remapping failed, take the GPU out of use, and have it replaced.",
                "nvidia-smi -q -d ROW_REMAPPER",
                first_for=("row remapping failed",),
            ),
            Fix(
                "If a repair is pending, end the work on the GPU, then reset it or reboot; until then its memory is not"
                " repaired.",
                "sudo nvidia-smi --gpu-reset -i 0",
            ),
            fixes.MEMORY_ERRORS,
            Fix("Check again after the reset.", "dcgmi diag -r 2"),
        ),
        empty_cache=BELOW_PYTORCH,
        see_more=(fixes.KERNEL_LOG,),
        sources=("https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",),
        said_by="DCGM 2-4",
    ),
)
