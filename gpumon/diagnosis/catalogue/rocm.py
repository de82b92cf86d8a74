"""Errors of AMD GPUs: HIP, MIOpen and the amdgpu driver. They get no advice for NVIDIA GPUs."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import CONTEXT_IS_DEAD, NOT_ABOUT_MEMORY, SIZE, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "AMD GPUs (ROCm)"

_HIP: Final = "https://rocm.docs.amd.com/projects/HIP/en/latest/reference/error_codes.html"
_INSTALL: Final = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html"

_ARCHITECTURES: Final = Fix(
    "Compare the architecture of the GPU with those that this build supports.",
    """\
rocminfo | grep -m 4 gfx
python -c 'import torch; print(torch.version.hip, torch.cuda.get_arch_list())'""",
)
_SERIALIZE: Final = Fix(
    "Run again with serialized kernels, so that the traceback points at the operation that failed.",
    "AMD_SERIALIZE_KERNEL=3 python train.py",
)
_KERNEL_LOG: Final = Fix("Check the kernel log of the driver.", "sudo dmesg -T | grep -i amdgpu")
_MEMORY: Final = Fix("Show what uses the memory of the GPU.", "rocm-smi --showmeminfo vram --showpids")

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="rocm-oom",
        section=SECTION,
        title="AMD GPU: out of memory",
        summary="The memory of the AMD GPU is full.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("HIP out of memory", rf"HIP out of memory(?:\. Tried to allocate (?P<size>{SIZE}))?"),
            Pattern("HIP error: out of memory", r"HIP error: out of memory"),
            name("hipErrorOutOfMemory"),
            Pattern(
                "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
                r"(?<!Call returned )\bHSA_STATUS_ERROR_OUT_OF_RESOURCES\b(?!: The runtime failed to allocate the"
                r" necessary resources\.$)",
            ),
            literal("Not enough memory for command submission"),
            Pattern("SVM mapping failed", r"amdgpu: SVM mapping failed, exceeds resident system memory limit"),
        ),
        causes=("The model, its activations and its optimizer need more memory than the GPU has.", "Other processes."),
        fixes=(
            Fix(
                "Use a smaller batch, or a shorter sequence or resolution.",
                "loader = DataLoader(dataset, batch_size=1)",
            ),
            _MEMORY,
            Fix(
                "Reduce fragmentation; versions before 2.9 know only this name of the variable.",
                "PYTORCH_HIP_ALLOC_CONF=garbage_collection_threshold:0.8,max_split_size_mb:128 python train.py",
            ),
            Fix(
                "On an APU, the kernel limits the host memory that the GPU gets: see the limit in pages of 4 KiB, and"
                " raise it"
                " with the kernel parameter ttm.pages_limit.",
                "cat /sys/module/ttm/parameters/pages_limit",
                first_for=("SVM mapping",),
            ),
        ),
        empty_cache="Frees nothing more here: the allocator has already emptied its cache.",
        sources=("https://docs.pytorch.org/docs/stable/notes/hip.html",),
    ),
    KnownError(
        id="rocm-no-binary",
        section=SECTION,
        title="AMD GPU: no kernel for this architecture",
        summary="PyTorch, or a library that it uses, has no kernels for the architecture of this AMD GPU.",
        context=ContextState.DEAD,
        patterns=(
            Pattern("nvalid device function", r"HIP error: [Ii]nvalid device function"),
            name("hipErrorNoBinaryForGpu"),
            name("hipErrorInvalidDeviceFunction"),
            Pattern(
                "rocBLAS error: Cannot read ",
                r"rocBLAS error: Cannot read \S{1,160}TensileLibrary\w{0,24}\.\w{2,8}"
                r"(?:: [^\n]{1,60}? for GPU arch : (?P<arch>gfx\w{2,8}))?",
            ),
            Pattern("HIP error: no kernel image", r"HIP error: no kernel image is available"),
            Pattern(
                "ggml was not compiled with support",
                r"ggml was not compiled with support for this arch(?:itecture)?",
            ),
            Pattern("error: invalid kernel file", r"(?:CUDA|HIP|ROCm) error: invalid kernel file"),
            Pattern("Freezing the executable failed", r"Error: Freezing the executable failed"),
            Pattern("for HSA_OVERRIDE_GFX_VERSION usage", r"troubleshooting\.md for HSA_OVERRIDE_GFX_VERSION usage"),
        ),
        causes=(
            "The GPU is not in the list of architectures of this build: many consumer GPUs and APUs are not.",
            "The build is for an older ROCm than the GPU needs.",
        ),
        fixes=(
            _ARCHITECTURES,
            Fix(
                "Install a build for a newer ROCm; AMD also offers builds for single architectures.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/rocm7.2",
            ),
            Fix(
                "If a close relative is supported, pretend to be it: 10.3.0 for RDNA 2, 11.0.0 for RDNA 3.",
                "HSA_OVERRIDE_GFX_VERSION=11.0.0 python train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_INSTALL, "https://github.com/pytorch/pytorch/issues/164346"),
        said_by="Triton 3.0-3.6",
    ),
    KnownError(
        id="rocm-no-gpu",
        section=SECTION,
        title="AMD GPU: none can be used",
        summary="ROCm found no AMD GPU that this process may use.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("No HIP GPUs are available", r"No HIP GPUs are available"),
            Pattern("no ROCm-capable device is detected", r"no ROCm-capable device is detected"),
            Pattern("Could not initialize Tensile host", r"Could not initialize Tensile host: No devices found"),
            name("hipErrorNoDevice"),
            Pattern("ROCk module is NOT loaded", r"ROCk module is NOT loaded"),
            Pattern("Call returned HSA_STATUS_ERROR_OUT", r"Call returned HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
            Pattern("Unable to open /dev/kfd", r"Unable to open /dev/kfd(?: read-write)?: (?P<reason>[^\n]{1,60})"),
        ),
        causes=(
            "The user is not in the groups render and video.",
            "The container was started without /dev/kfd and /dev/dri.",
            "The amdgpu driver is not loaded, or HIP_VISIBLE_DEVICES hides the GPU.",
        ),
        fixes=(
            Fix("Check whether ROCm sees the GPU.", "rocminfo; ls -l /dev/kfd /dev/dri"),
            Fix("Join the groups, then log in again.", 'sudo usermod -aG render,video "$USER"'),
            Fix(
                "Give the container the devices.",
                "docker run --device=/dev/kfd --device=/dev/dri --group-add video --group-add render IMAGE",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_INSTALL,),
    ),
    KnownError(
        id="rocm-miopen",
        section=SECTION,
        title="AMD GPU: MIOpen failed",
        summary="AMD's library for convolutions failed: it could not compile a kernel or found no fitting one.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("MIOpen Error:", r"MIOpen Error: (?P<reason>[^\n]{1,160})"),
            Pattern("MIOpen(HIP): Error", r"MIOpen\(HIP\): Error (?P<reason>[^\n]{1,160})"),
            Pattern("miopenStatus", r"\b(?P<status>miopenStatus[A-Z][A-Za-z]{3,20})\b"),
        ),
        causes=(
            "The kernel's compiler or its database for this architecture is missing.",
            "The cache in ~/.cache/miopen is damaged or cannot be written.",
            "The memory of the GPU is full.",
        ),
        fixes=(
            Fix("Remove the cache of compiled kernels.", "rm -r ~/.cache/miopen ~/.config/miopen"),
            Fix("Search less and faster.", "MIOPEN_FIND_MODE=FAST python train.py"),
            Fix("Show what MIOpen does.", "MIOPEN_ENABLE_LOGGING=1 MIOPEN_LOG_LEVEL=6 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://rocm.docs.amd.com/projects/MIOpen/en/latest/",),
    ),
    KnownError(
        id="rocm-fault",
        section=SECTION,
        title="AMD GPU: memory access fault or hang",
        summary="A kernel on the AMD GPU accessed invalid memory or hung, and the process was ended.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "Memory access fault by GPU node",
                r"Memory access fault by GPU node-(?P<node>\d{1,3}) \(Agent handle: \w{1,24}\) on address"
                r" (?P<address>0x[\da-f]{1,16}|\(nil\))"
                r"(?:\. Reason: (?P<reason>[^\n.]{1,80}))?",
            ),
            Pattern("HW Exception by GPU node", r"HW Exception by GPU node-(?P<node>\d{1,3}) [^\n]{1,60}? reason ?:"),
            Pattern("HSA_STATUS_ERROR_", r"\b(?P<status>HSA_STATUS_ERROR_(?!OUT_OF_RES)[A-Z_]{4,40})\b"),
            Pattern("page fault (src_id", r"amdgpu: \[\w{3,12}\] (?:no-retry |retry )?page fault \(src_id"),
            Pattern("failed to respond to msg", r"MES(?:\(\d\))? failed to respond to msg"),
            Pattern("failed to response msg=", r"MES failed to response msg=\d"),
            Pattern("MES might be in unrecoverable", r"MES might be in unrecoverable state"),
            Pattern("not done with your previous command", r"SMU: I'm not done with your previous command"),
            Pattern("VM_L2_PROTECTION_FAULT_STATUS", r"amdgpu: (?:GCVM|VM)_L2_PROTECTION_FAULT_STATUS"),
            Pattern("amdgpu: ring ", r"amdgpu: ring [\w.]{1,20} timeout"),
            Pattern("amdgpu_job_timedout", r"amdgpu_job_timedout \[amdgpu\]\] \*ERROR\* ring [\w.]{1,20} timeout"),
            Pattern("Memory Fault Error [host:", r"Memory Fault Error \[host: [^\]\n]{1,200}"),
            Pattern("amdgpu: GPU reset", r"amdgpu: GPU reset(?: begin|\(\d{1,4}\) (?:failed|succeeded))"),
            Pattern(
                "Memory critical error by agent node",
                r"Memory critical error by agent node-(?P<node>\d{1,3}) \([^)\n]{1,60}\) on address"
                r" \S{1,24} Reason: (?P<reason>[^\n.]{1,80})",
            ),
        ),
        causes=(
            "A bug in a kernel, or an index out of range.",
            "HSA_OVERRIDE_GFX_VERSION selects kernels that do not fit the GPU.",
            "The driver, or unstable clocks or power.",
        ),
        fixes=(
            Fix("Remove the override, if it is set.", "unset HSA_OVERRIDE_GFX_VERSION"),
            _SERIALIZE,
            _KERNEL_LOG,
            Fix(
                "Update the firmware and the kernel, then restart: the scheduler of the GPU (MES) is firmware.",
                "sudo apt-get install --only-upgrade linux-firmware linux-generic && sudo reboot",
                first_for=("MES",),
            ),
            Fix(
                "The name of the kernel shows AITER: upgrade it, or run without it.",
                "export VLLM_ROCM_USE_AITER=0 SGLANG_USE_AITER=0",
                first_for=("AITER",),
                hidden_otherwise=True,
            ),
            Fix("Update ROCm.", first_for=("OUT_OF_REGISTERS",)),
        ),
        empty_cache=CONTEXT_IS_DEAD,
        sources=(_HIP,),
    ),
    KnownError(
        id="rocm-hip",
        section=SECTION,
        title="AMD GPU: HIP error",
        summary="A call of HIP, AMD's counterpart of CUDA, failed; the text after the colon is the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "HIP error:",
                r"HIP error: {1,4}"
                r"(?P<reason>(?!out\b|[Ii]nvalid device\b|no\b)[^\s][^\n]{0,99})",
            ),
            Pattern("Triton Error [HIP]: ", r"Triton Error \[HIP\]: {1,2}(?P<reason>Code: \d{1,4}, [^\n]{1,100})"),
            Pattern("ROCm error:", r"ROCm error: (?P<reason>[^\n]{1,100})"),
            name("hipErrorLaunchFailure"),
            name("hipErrorIllegalAddress"),
            literal("HIP kernel errors might be asynchronously reported"),
            Pattern("HIPBLAS_STATUS_", r"\b(?P<status>HIPBLAS_STATUS_[A-Z_]{4,24})\b(?! when calling `hipblasLt)"),
        ),
        causes=("An earlier kernel failed: HIP reports errors later than they occur.", "The driver or the hardware."),
        fixes=(_SERIALIZE, _ARCHITECTURES, _KERNEL_LOG),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_HIP, "https://docs.pytorch.org/docs/stable/notes/hip.html"),
        said_by="Triton 3.0-3.6",
    ),
    KnownError(
        id="rocm-jax",
        section=SECTION,
        title="JAX does not use the AMD GPU",
        summary="JAX has no backend for ROCm, or its plugin for ROCm could not be started.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("initialize backend 'rocm'", r"Unable to initialize backend 'rocm': (?P<reason>[^\n]{1,160})"),
            Pattern("Unknown backend", r"Unknown backend:? '?rocm'?(?:\.| requested)"),
        ),
        causes=(
            "The packages jax-rocm7-plugin and jax-rocm7-pjrt are not installed, or have another version than jaxlib.",
            "They are installed, and do not find the libraries of ROCm, so that only the CPU is left.",
            "No AMD GPU can be used: the device files, the groups or the container.",
        ),
        fixes=(
            Fix(
                "Compare the versions of the packages; the first two numbers must be equal.",
                "pip list | grep -i -E 'jax|rocm'",
            ),
            Fix(
                "With a GPU from NVIDIA, name its platform: JAX_PLATFORMS=gpu also tries ROCm.",
                "JAX_PLATFORMS=cuda python train.py",
                first_for=("'rocm': module 'jaxlib",),
            ),
            Fix("Install JAX with its plugin for ROCm.", 'pip install --upgrade "jax[rocm7-local]"'),
            Fix("Check whether ROCm sees the GPU.", "rocminfo; ls -l /dev/kfd /dev/dri"),
            Fix(
                "Name the directory of ROCm's libraries, and print what JAX sees.",
                "LD_LIBRARY_PATH=/opt/rocm/lib python -c 'import jax; print(jax.devices())'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.jax.dev/en/latest/installation.html",
            "https://github.com/ROCm/TheRock/issues/3627",
        ),
        said_by="JAX 0.4-0.9",
    ),
    KnownError(
        id="rocm-windows-library",
        section=SECTION,
        title="AMD GPU: Windows does not find HIP",
        summary="The program found no amdhip64.dll, the library of HIP, or a library that this one needs.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Failed to load amdhip64", r"Failed to load (?P<library>amdhip64\w{0,6}\.dll)"),
            Pattern("Could not load amdhip64", r"Could not load (?P<library>amdhip64\w{0,6}\.dll)"),
        ),
        causes=(
            "The driver of AMD is not installed, or too old: the library comes with it.",
            "The program needs the library of another version: its name contains that of HIP, as amdhip64_7.dll.",
            "ROCm is installed with pip in an environment that is not active.",
        ),
        fixes=(
            Fix("Install AMD's current driver (Adrenalin), then restart Windows."),
            Fix("List the copies that exist.", "where amdhip64*.dll"),
            Fix("With ROCm from pip, find its directories, and put bin into PATH.", "rocm-sdk path --bin"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/ROCm/TheRock/issues/1552",),
        said_by="ROCm 6.2-7.12",
    ),
    KnownError(
        id="rocm-hipblaslt",
        section=SECTION,
        title="AMD GPU: hipBLASLt has no kernel",
        summary="PyTorch chose the library hipBLASLt for a matrix product, and it has no kernel for this GPU or call.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("use hipBLASLt on a", r"Attempting to use hipBLASLt on an? un?supported architecture"),
            Pattern("hipblaslt solution not found", r"hipblaslt solution not found"),
            Pattern(
                "when calling `hipblasLt",
                r"\b(?P<status>HIPBLAS_STATUS_[A-Z_]{4,24})\b when calling `(?P<call>hipblasLt\w{1,40})",
            ),
        ),
        causes=(
            "The build of hipBLASLt does not contain the architecture of the GPU.",
            "It has no kernel for this combination of types, shapes and bias, or an error in this version.",
        ),
        fixes=(
            Fix("Let PyTorch use hipBLAS instead.", "TORCH_BLAS_PREFER_HIPBLASLT=0 python train.py"),
            Fix("Or choose it in the program.", 'torch.backends.cuda.preferred_blas_library("cublas")'),
            _ARCHITECTURES,
            Fix(
                "Install a build for a newer ROCm.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/rocm7.2",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/pytorch/pytorch/issues/138067",
            "https://docs.pytorch.org/docs/stable/backends.html",
        ),
        said_by="torch 2.3-2.12",
    ),
    KnownError(
        id="rccl",
        section=SECTION,
        title="AMD GPU: RCCL failed",
        summary="RCCL, which has the interface and the messages of NCCL, could not set up the communication of"
        " AMD GPUs.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "/hipify/src/",
                r"/hipify/src/[\w/.-]{1,80}:\d{1,5} (?:NCCL WARN (?P<reason>[^\n]{1,160})|->"
                r" [1-9])",
            ),
        ),
        causes=(
            "Direct transfers between the GPUs do not work: the IOMMU or PCIe ACS redirects them.",
            "A GPU is not supported by this build, or the processes share one.",
        ),
        fixes=(
            Fix(
                "As a test, do without direct transfers; if that works, start the kernel with iommu=pt.",
                "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
            ),
            Fix("Check the GPUs and the links between them.", "rocm-smi --showtopo"),
            Fix(
                "Use PyTorch with a newer ROCm.",
                "pip install --upgrade torch --index-url https://download.pytorch.org/whl/rocm7.2",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/ROCm/rccl/issues/1454",),
        said_by="RCCL 2.18-2.27",
    ),
)
