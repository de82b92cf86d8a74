"""Errors of PyTorch on Intel's GPUs, whose backend is named XPU: no advice for NVIDIA GPUs applies to them."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, SIZE, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Intel GPUs"

_XPU: Final = "https://docs.pytorch.org/docs/stable/notes/get_start_xpu.html"
_DRIVER: Final = "https://dgpu-docs.intel.com/driver/client/overview.html"

_SEES: Final = Fix(
    "Print what PyTorch sees.",
    "python -c 'import torch; print(torch.__version__, torch.xpu.is_available(), torch.xpu.device_count())'",
)
_UPDATE: Final = Fix("Update the driver of the GPU and the packages of Level Zero, and install the newest PyTorch.")

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="intel-unavailable",
        section=SECTION,
        title="Intel GPU cannot be used",
        summary="The program asks for an Intel GPU, and this PyTorch is not built for it, or finds none.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Torch not compiled with XPU enabled"),
            literal("PyTorch was compiled without XPU support"),
            Pattern("No XPU devices are available", r"Error: No XPU devices are available"),
            Pattern(
                "/intel/oneapi/",
                r"/intel/oneapi/\S{1,80}/(?P<library>lib\w{2,30}\.so[.\d]{0,8}): version `(?P<required>[\w.]{3,40})'"
                r" not found",
            ),
        ),
        causes=(
            "The build is for CUDA or for the CPU: builds for Intel GPUs have +xpu in their version.",
            "The driver or Level Zero is missing, or a container was started without /dev/dri.",
            "The GPU is too old: Arc, Core Ultra and the data center GPUs are supported.",
            "The script setvars.sh of oneAPI was loaded, and its libraries have another version than those of PyTorch.",
        ),
        fixes=(
            Fix(
                "Install the build for Intel GPUs.",
                "pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/xpu",
            ),
            _SEES,
            Fix("Install the driver of the GPU, and join the group render.", 'sudo usermod -aG render "$USER"'),
            Fix("Give a container the devices.", "docker run --rm --device /dev/dri IMAGE"),
            Fix(
                "Do not load oneAPI before Python: PyTorch brings these libraries along.",
                "env -u LD_LIBRARY_PATH python -c 'import torch; print(torch.xpu.is_available())'",
                first_for=("/intel/oneapi/",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_XPU, _DRIVER),
        said_by="torch 2.3-2.13",
    ),
    KnownError(
        id="intel-oom",
        section=SECTION,
        title="Intel GPU: out of memory",
        summary="The memory of the Intel GPU, or what the driver gives to one allocation, is not sufficient.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("XPU out of memory", rf"XPU out of memory(?:\. Tried to allocate (?P<size>{SIZE}))?"),
            name("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
            name("UR_RESULT_ERROR_OUT_OF_RESOURCES"),
            name("UR_RESULT_ERROR_OUT_OF_HOST_MEMORY"),
            name("PI_ERROR_OUT_OF_RESOURCES"),
        ),
        causes=(
            "The model, the batch or the image does not fit into the memory of the GPU.",
            "One allocation is larger than 4 GiB, which some of these GPUs do not allow.",
        ),
        fixes=(
            Fix("Make the batch, the image or the context smaller, or use a smaller or quantized model."),
            Fix("Use bfloat16.", "model = model.to(torch.bfloat16)"),
            Fix("Compute attention and decoding in tiles or slices, if the program has an option for it."),
        ),
        empty_cache="Only torch.xpu.empty_cache() has an effect: it returns the unused cache to the driver.",
        sources=(_XPU, "https://github.com/intel/torch-xpu-ops/issues/3155"),
        said_by="torch 2.3-2.13",
    ),
    KnownError(
        id="intel-float64",
        section=SECTION,
        title="Intel GPU has no float64",
        summary="An operation uses float64, which the GPUs for consumers of Intel do not have.",
        context=ContextState.ALIVE,
        patterns=(literal("Required aspect fp64 is not supported on the device"),),
        causes=("NumPy arrays are float64 unless converted, and some layers compute positions in float64.",),
        fixes=(
            Fix("Convert to float32 before the tensor goes to the GPU.", 'values = values.float().to("xpu")'),
            Fix(
                "Let the driver emulate float64, which is slow.",
                "export OverrideDefaultFP64Settings=1 IGC_EnableDPEmulation=1",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/intel/intel-extension-for-pytorch/issues/699",),
        said_by="torch 2.4-2.9",
    ),
    KnownError(
        id="intel-operation",
        section=SECTION,
        title="Operation is not available on an Intel GPU",
        summary="An operation, or a collective of the process group, has no implementation for XPU, Intel's backend.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "not currently implemented for the XPU device",
                r"operator '(?P<operator>[\w:.]{1,80})' is not currently implemented for the XPU device",
            ),
            Pattern("implemented on backend [xpu]", r"(?P<operator>\w{1,40}) isn't implemented on backend \[xpu\]"),
            literal("No backend type associated with device type xpu"),
            Pattern("Cannot load xpu CCL", r"Cannot load xpu CCL\. CCL doesn't work for XPU device"),
        ),
        causes=(
            "The process group was created with Gloo, NCCL or MPI, which have no collectives for Intel GPUs.",
            "torch 2.8 and later contain the backend xccl; before, it comes from a package that has to fit torch.",
            "The operation is not written for Intel GPUs yet.",
        ),
        fixes=(
            Fix("Run the missing operations on the CPU.", "PYTORCH_ENABLE_XPU_FALLBACK=1 python train.py"),
            Fix(
                "Create the process group with the backend for Intel GPUs.",
                'torch.distributed.init_process_group("xccl")',
                first_for=("c10d::", "No backend type", "on backend [xpu]", "Cannot load xpu CCL"),
            ),
            Fix("Update torch: each version implements more operations for Intel GPUs."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/intel/torch-xpu-ops/issues/986",
            "https://github.com/intel/torch-xpu-ops/issues/1328",
        ),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="intel-runtime",
        section=SECTION,
        title="Intel GPU: a call of its driver failed",
        summary="A call of Level Zero, the driver of Intel's GPUs, failed; the name in parentheses is the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "backend failed with error: ",
                r"(?:level_zero|opencl) backend failed with error: \d{1,12} [([](?P<status>UR_RESULT_ERROR_(?!OUT_OF_)"
                r"\w{3,40})",
            ),
            Pattern(
                "Native API failed. Native API returns:",
                r"Native API failed\. Native API returns: -?\d{1,12}"
                r" \((?P<status>(?!UR_RESULT_ERROR_OUT_OF|PI_ERROR_OUT_OF)"
                r"\w{3,50})\)",
            ),
            Pattern(
                "torch-xpu-ops/src/ATen/native/xpu/sycl/",
                r"torch-xpu-ops/src/ATen/native/xpu/sycl/\w{1,60}\.cpp:\d{1,5}: [^\n]{1,160}? Assertion"
                r" `(?P<assertion>[^\n]{1,100}?)` failed",
            ),
            Pattern("Error: UR error", r"RuntimeError: UR error$"),
            Pattern("initialize Level Zero Sysman", r"Can't initialize Level Zero Sysman"),
        ),
        causes=(
            "DEVICE_LOST: the memory is full, or a kernel ran too long, and the driver reset the GPU.",
            "An index out of range, or a value such as NaN, where a kernel checks it.",
            "A bug of the driver: these errors are often repaired in a newer one.",
        ),
        fixes=(
            _UPDATE,
            Fix(
                "Make the batch or the image smaller: a full memory is also reported in this way.",
                first_for=("DEVICE_LOST",),
            ),
            Fix(
                "Run the same step on the CPU, which reports the value or the index that does not fit.",
                'model = model.to("cpu")',
                first_for=("Assertion `",),
            ),
            Fix("Check the kernel log of the driver.", "sudo dmesg -T | grep -i -E 'xe |i915'"),
            Fix(
                "Read the telemetry once before the first operation on the GPU.",
                "import torch; torch.xpu.temperature()",
                first_for=("Sysman",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_XPU, "https://github.com/pytorch/pytorch/issues/190972"),
        said_by="torch 2.3-2.13",
    ),
)
