"""Errors of the driver and NVML, as nvidia-smi, monitors and the kernel log report them."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, NOT_ABOUT_MEMORY, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Driver and NVML"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nvml-mismatch",
        section=SECTION,
        title="Driver and library versions differ",
        summary="The driver's libraries have another version than the loaded kernel module.",
        context=ContextState.RESET,
        patterns=(
            literal("Driver/library version mismatch"),
            literal("nvml error: driver/library version mismatch"),
            literal("NVML/RM version mismatch"),
            Pattern(
                "NVRM: API mismatch",
                r"NVRM: API mismatch: the client(?: '[^'\n]{0,60}' \([^)\n]{0,40}\))?"
                r" has the version (?P<library>[\d.]{1,20})",
            ),
            Pattern(
                "does not match DSO version",
                r"kernel version (?P<kernel>[\d.]{3,16}) does not match DSO version (?P<library>[\d.]{3,16})",
            ),
            name("NVMLError_LibRmVersionMismatch"),
            name("NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
        ),
        causes=(
            "The driver packages were upgraded, often by unattended upgrades, and the host was not rebooted.",
            "A container contains libraries of another driver version.",
        ),
        fixes=(
            fixes.REBOOT,
            Fix(
                "If they differ after a reboot, two installations are mixed: remove one, so that the version of the"
                " module and that of the libraries are the same.",
                "cat /sys/module/nvidia/version; modinfo -F version nvidia; ldconfig -p | grep libnvidia-ml",
            ),
            Fix(
                "In a container, remove the driver's libraries from the image: the container toolkit brings those of"
                " the host.",
                "dpkg -l | grep -E 'libnvidia|nvidia-driver'",
            ),
            Fix(
                "Find the other libcuda, such as one of cuda-compat or Conda, and take it out of the search path.",
                "ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH; find / -name 'libcuda.so*' 2>/dev/null",
                first_for=("DSO version",),
            ),
            Fix(
                "Or end all processes that use the GPUs and reload the modules.",
                "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
            ),
            Fix(
                "Prevent automatic driver upgrades.",
                "sudo apt-mark hold 'nvidia-driver-*' 'libnvidia-*'",
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.NVML_ERRORS,),
        said_by="vLLM 0.10-0.19, Triton 3.6, SGLang 0.5",
    ),
    KnownError(
        id="nvml-unknown",
        section=SECTION,
        title="Container lost its GPUs",
        summary="NVML can no longer be initialized in a container in which it worked before.",
        context=ContextState.ALIVE,
        patterns=(literal("Failed to initialize NVML: Unknown Error"),),
        causes=(
            "The host reloaded systemd, which revoked the container's access to the GPU; open handles keep working.",
        ),
        fixes=(
            Fix("Restart the container.", "docker restart CONTAINER"),
            Fix(
                "To prevent a recurrence, name the device files, with one /dev/nvidiaN for each GPU.",
                "docker run --gpus all --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm IMAGE",
            ),
            Fix(
                "Or give the container its GPUs through CDI, which systemd does not revoke.",
                """\
sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
docker run --device nvidia.com/gpu=all IMAGE""",
            ),
            Fix(
                "Or create device links that systemd resolves, once after each boot.",
                "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CONTAINER_TROUBLESHOOTING, "https://github.com/NVIDIA/nvidia-docker/issues/1730"),
    ),
    KnownError(
        id="nvml-missing",
        section=SECTION,
        title="NVML or the driver is missing",
        summary="The driver's monitoring library was not found, or the driver is not loaded.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("NVML Shared Library Not Found"),
            Pattern("Driver Not Loaded", r"(?:^|: )Driver Not Loaded\b"),
            literal("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"),
            Pattern(
                "libnvidia-ml.so",
                r"(?<!load library failed: )\blibnvidia-ml\.so[\d.]{0,4}: cannot open shared object file",
            ),
            name("NVMLError_LibraryNotFound"),
            name("NVMLError_DriverNotLoaded"),
            name("NVML_ERROR_DRIVER_NOT_LOADED"),
            name("NVML_ERROR_LIBRARY_NOT_FOUND"),
            Pattern("Can't initialize NVML", r"Can't initialize NVML"),
            literal("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system"),
            Pattern("nvidia-persistenced failed to initialize", r"nvidia-persistenced failed to initialize"),
            Pattern(
                "ailed to initialize NVML: ERROR_",
                r"[Ff]ailed to initialize NVML: ERROR_(?:LIBRARY|DRIVER)_NOT_\w{4,8}",
            ),
        ),
        causes=(
            "The Linux kernel was upgraded, and the driver's module was not built for the new one.",
            "Secure Boot rejects the module, because its signature is not enrolled.",
            "No driver is installed.",
            "The container has no access: NVIDIA_DRIVER_CAPABILITIES lacks utility.",
        ),
        fixes=(
            Fix(
                "Check whether the module is built and loaded.", "lsmod | grep nvidia; dkms status; mokutil --sb-state"
            ),
            Fix("Load the module, and read why that fails.", "sudo modprobe nvidia; sudo dmesg | tail"),
            Fix(
                "Build the module for the running kernel.",
                'sudo apt-get install -y "linux-headers-$(uname -r)" && sudo dkms autoinstall',
            ),
            Fix(
                "Give the container the driver's utility capability.",
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE",
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.NVML_ERRORS, sources.CONTAINER_TROUBLESHOOTING),
        said_by="vLLM 0.10-0.19, Triton 3.6, SGLang 0.5",
    ),
    KnownError(
        id="cuda-stub",
        section=SECTION,
        title="CUDA driver is a stub",
        summary="The program loaded the stub of libcuda from the CUDA toolkit instead of the driver's library.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("CUDA driver is a stub library"),
            name("CUDA_ERROR_STUB_LIBRARY"),
            name("cudaErrorStubLibrary"),
        ),
        causes=(
            "LD_LIBRARY_PATH or the build's run path names a folder such as /usr/local/cuda/lib64/stubs.",
            "The container has no driver libraries, because it was started without --gpus all.",
        ),
        fixes=(
            Fix("Show which libraries are found.", "echo $LD_LIBRARY_PATH; ldconfig -p | grep libcuda.so"),
            Fix("Remove the folder of the stubs from the path.", "unset LD_LIBRARY_PATH"),
            Fix("Start the container with the GPUs.", "docker run --gpus all IMAGE"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_ERRORS,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, vLLM 0.4, Triton 2.0-3.6",
    ),
    KnownError(
        id="gpu-lost",
        section=SECTION,
        title="GPU is lost",
        summary="A GPU no longer responds on the PCIe bus.",
        context=ContextState.RESET,
        patterns=(
            Pattern("GPU is lost", r"(?:^|: |failed, )GPU is lost\b"),
            Pattern(
                "GPU has fallen off the bus",
                r"NVRM: GPU (?:at )?(?:PCI:)?(?P<bus>[\w:.]{4,20}): GPU has fallen off the bus",
            ),
            literal("has fallen off the bus and is not responding"),
            Pattern(
                "Unable to determine the device handle for",
                r"Unable to determine the device handle for (?:GPU|gpu) ?(?P<bus>[\w:.]{0,19}\w)?",
            ),
            name("NVMLError_GpuIsLost"),
            name("NVML_ERROR_GPU_IS_LOST"),
            Pattern(
                "NVRM: fallen off the bus",
                r"NVRM: fallen off the bus and is not responding",
            ),
        ),
        causes=(
            "Power: the supply, a cable or its connector.",
            "The seating of the card, a riser or the slot.",
            "Heat, or a power-saving state of the PCIe link.",
            "The card is failing.",
        ),
        fixes=(
            Fix(
                "Power the host off and on: a reset does not reach a GPU that is off the bus.",
                "sudo ipmitool chassis power cycle",
            ),
            fixes.KERNEL_LOG,
            fixes.LOWER_POWER,
            Fix("Reseat the card and its cables, or try another slot."),
            Fix("If the error returns, collect a report for the vendor.", "sudo nvidia-bug-report.sh"),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.XID_CATALOG, sources.NVML_ERRORS),
    ),
    KnownError(
        id="nvml-permission",
        section=SECTION,
        title="No permission",
        summary="The driver allows this only for root or for users who were granted the right.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Insufficient Permissions",
                r"^(?:[\w.]{0,80}NVMLError\w{0,40}: )?Insufficient Permissions$",
                is_case_sensitive=True,
            ),
            Pattern("Insufficient Permissions", r"initialize NVML: Insufficient Permissions"),
            Pattern(
                "Insufficient Permissions",
                r"(?:Failed|Unable) to (?:display|create|destroy|enable|disable|reset|configure)[^\n]{1,80}:"
                r" Insufficient Permissions",
            ),
            name("NVMLError_NoPermission"),
            name("ERR_NVGPUCTRPERM"),
        ),
        causes=(
            "Changing the power limit, clocks or compute mode, or a reset, requires root.",
            "Performance counters, which profilers read, require root by default.",
            "The user may not open the device files, or SELinux keeps a container from them.",
        ),
        fixes=(
            Fix("Run the command as root.", "sudo nvidia-smi -i 0 -pl 300"),
            Fix(
                "In a container under SELinux, as with Podman on Fedora, start it without labels.",
                "podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable ubuntu nvidia-smi -L",
                first_for=("initialize NVML: Insufficient",),
            ),
            Fix(
                "Allow all users to read performance counters; this takes effect after a reboot.",
                "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/counters.conf",
                first_for=("NVGPUCTRPERM",),
            ),
            Fix("Check who may open the device files.", "ls -l /dev/nvidia*; id"),
            Fix(
                "With MIG, ask for the values of the instance: a container may not read those of the entire GPU.",
                "handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)",
                first_for=("NVML query",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NVML_ERRORS, sources.PERFORMANCE_COUNTERS),
        said_by="vLLM 0.10-0.19, Triton 3.6, SGLang 0.5",
    ),
    KnownError(
        id="nvml-notsup",
        section=SECTION,
        title="Not supported by this GPU",
        summary="This GPU, its driver or its mode does not support the requested metric or function.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Not Supported", r"^(?:[\w.]{0,80}NVMLError\w{0,40}: )?Not Supported$", is_case_sensitive=True),
            name("NVMLError_NotSupported"),
            Pattern("Resetting GPU ", r"Resetting GPU (?P<bus>[\da-fA-F:.]{7,16}) is not supported"),
        ),
        causes=(
            "The GPU is not a data center GPU.",
            "The GPU is in MIG mode, virtual, or accessed through WSL.",
        ),
        fixes=(
            Fix(
                "In your own program, treat the metric as a missing value.",
                """\
try:
    speed = pynvml.nvmlDeviceGetFanSpeed(handle)
except pynvml.NVMLError_NotSupported:
    speed = None""",
            ),
            Fix("Show what this GPU reports.", "nvidia-smi -q"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NVML_ERRORS,),
    ),
    KnownError(
        id="nvml-reset",
        section=SECTION,
        title="GPU requires a reset",
        summary="The driver does not use the GPU again until the GPU is reset.",
        context=ContextState.RESET,
        patterns=(
            literal("NV_ERR_RESET_REQUIRED"),
            Pattern("GPU requires re", r"\bGPU requires (?:restart|reset)\b"),
            name("NVMLError_ResetRequired"),
        ),
        causes=(
            "An error in the GPU's memory affected every program on it: Xid 95 or 140.",
            "The firmware or a link failed.",
        ),
        fixes=(
            fixes.KERNEL_LOG,
            fixes.RESET_GPU,
            Fix("If the reset is refused, reboot the host.", "sudo reboot"),
        ),
        empty_cache=BELOW_PYTORCH,
        see_more=(
            Fix("Show the recovery action that the driver requires.", "nvidia-smi -q | grep -i 'recovery action'"),
        ),
        sources=(sources.NVML_ERRORS, sources.XID_CATALOG),
    ),
    KnownError(
        id="jetson-nvml",
        section=SECTION,
        title="Out of memory, masked by an NVML error",
        summary="Memory ran out, and PyTorch failed in NVML when it collected the memory use for its message.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "NVML_SUCCESS == ",
                r"NVML_SUCCESS == [^\n]{1,100}?INTERNAL ASSERT FAILED at \"?[^\n\"]{1,300}?CUDACachingAllocator\.cpp",
            ),
        ),
        causes=(
            "The NVML of a Jetson, of an old driver or in a container does not answer PyTorch's query.",
            "The cause of the error is an allocation that did not fit.",
        ),
        fixes=(
            Fix("Treat the error as out of memory: use a smaller batch.", "loader = DataLoader(dataset, batch_size=1)"),
            Fix("Show how much memory is free.", "python -c 'import torch; print(torch.cuda.mem_get_info())'"),
            Fix(
                "Check whether NVML works: if not, its library and the driver differ, or it misses this GPU; reboot.",
                "nvidia-smi",
                first_for=("nvmlInit", "nvmlDeviceGetHandle"),
            ),
        ),
        empty_cache="Frees nothing more here: memory ran out, and the allocator has already emptied its cache.",
        sources=("https://github.com/pytorch/pytorch/issues/185240",),
    ),
)
