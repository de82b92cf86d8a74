"""Errors of PyTorch on Apple's GPUs, whose backend is named MPS: no advice for NVIDIA GPUs applies to them."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Apple GPUs"

_MPS: Final = "https://docs.pytorch.org/docs/stable/notes/mps.html"
_MPS_VARIABLES: Final = "https://docs.pytorch.org/docs/stable/mps_environment_variables.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="apple-oom",
        section=SECTION,
        title="Apple GPU: out of memory",
        summary="The GPU shares the memory of the Mac, and PyTorch reached its limit.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "MPS backend out of memory",
                r"MPS backend out of memory(?: \(MPS allocated: (?P<allocated>[\d.]{1,12} [KMGT]i?B))?",
            ),
            name("kIOGPUCommandBufferCallbackErrorOutOfMemory"),
            Pattern("Invalid buffer size", r"Error: Invalid buffer size: (?P<size>[\d.]{1,12} [KMGT]i?B)"),
        ),
        causes=("The model, the batch or the image does not fit into the memory that macOS gives to the GPU.",),
        fixes=(
            Fix("Make the batch, the image or the context smaller, or use a smaller or quantized model."),
            Fix("Use half precision.", "model = model.half()"),
            Fix(
                "Close other programs; only then raise the limit, since the Mac may freeze.",
                "export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",
            ),
        ),
        empty_cache="Only torch.mps.empty_cache() has an effect: it returns the unused cache to the system.",
        sources=(_MPS, _MPS_VARIABLES),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="apple-unsupported",
        section=SECTION,
        title="Apple GPU: operation or type is not supported",
        summary="PyTorch's MPS backend has no kernel for this operation or type.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "not currently implemented for the MPS device",
                r"operator '(?P<operator>[\w:.]{1,80})' is not currently implemented for the MPS device",
            ),
            Pattern("MPS framework doesn't support", r"the MPS framework doesn't support (?P<type>\w{1,20})"),
            literal("Placeholder storage has not been allocated on MPS device"),
            Pattern(
                "not supported at the MPS device", r"(?P<operator>[\w >.'-]{1,60}) not supported at the MPS device"
            ),
            Pattern("Adaptive pool MPS", r"Adaptive pool MPS: input sizes must be divisible by output sizes"),
            Pattern("not supported on MPS", r"(?P<operator>[\w.'-]{1,40}) (?:is|are) not supported on MPS\b"),
        ),
        causes=(
            "The operation is not implemented for MPS in this version.",
            "The type float64 does not exist on these GPUs; NumPy arrays are float64 unless converted.",
            "Placeholder storage: the model or the input is still on the CPU.",
        ),
        fixes=(
            Fix("Let missing operations run on the CPU.", "PYTORCH_ENABLE_MPS_FALLBACK=1 python train.py"),
            Fix("Use float32.", "values = values.float()", first_for=("doesn't support",)),
            Fix(
                "Move the model and its inputs.",
                'model = model.to("mps")\nbatch = batch.to("mps")',
                first_for=("Placeholder",),
            ),
            Fix("Upgrade PyTorch.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MPS, _MPS_VARIABLES),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="apple-unavailable",
        section=SECTION,
        title="Apple GPU cannot be used",
        summary="The program has support for Apple's GPUs, and this macOS, this build or this session cannot use one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "The MPS backend is supported on MacOS",
                r"The MPS backend is supported on MacOS (?P<required>[\d.]{1,6})\+",
            ),
            literal("PyTorch is not linked with support for mps devices"),
            Pattern("mlx::core::metal::Device::Device()", r"mlx::core::metal::Device::Device\(\)"),
        ),
        causes=(
            "This macOS is older than this version of PyTorch requires: 14 since PyTorch 2.9.",
            "Python runs as an Intel program, in emulation, or the Mac has an Intel CPU.",
            "The program runs in a virtual machine or a container on the Mac, which have no access to the GPU.",
        ),
        fixes=(
            Fix("Upgrade macOS; the message may name a version that is too low."),
            Fix("Or use an older PyTorch; 2.4 is the last one for macOS 12.", "pip install 'torch<2.9'"),
            Fix(
                "Check the version of macOS and the kind of Python: it must be arm64.",
                "sw_vers; python -c 'import platform; print(platform.machine())'",
            ),
            Fix("Meanwhile, run on the CPU.", 'device = "mps" if torch.backends.mps.is_available() else "cpu"'),
            Fix(
                "The program sees no GPU at all: run it on the Mac itself, not in a virtual machine, a container or"
                " a session without a user.",
                first_for=("for empty array",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            _MPS,
            "https://github.com/pytorch/pytorch/issues/164943",
            "https://github.com/pytorch/pytorch/issues/139425",
        ),
        said_by="torch 1.12-2.10",
    ),
    KnownError(
        id="apple-assertion",
        section=SECTION,
        title="Apple GPU: Metal stopped the program",
        summary="A check inside Apple's Metal libraries failed and ended the process; Python cannot catch it.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "failed assertion `",
                r"(?:MPS|MTL|mps|mtl|Metal|AGX|validateComputeFunction)[^\n]{0,160}?failed assertion"
                r" `(?P<reason>[^\n]{1,160})",
            ),
            Pattern("MTLCommandBufferStatusCommitted", r"failed assertion `?_status < MTLCommandBufferStatusCommitted"),
            Pattern("failed assertion `[MPS", r"failed assertion `\[MPS(?P<reason>[^\n]{1,160})"),
            Pattern("command buffer exited with error status", r"command buffer exited with error status"),
            literal("LLVM ERROR: Failed to infer result type"),
            Pattern("AppleInternal/Library/BuildRoots", r"\(mpsFileLoc\): /AppleInternal/Library/BuildRoots/"),
            Pattern("error: 'mps.", r"error: 'mps\.(?P<operation>\w{1,40})' op (?P<reason>[^\n]{1,120})"),
        ),
        causes=(
            "A tensor is larger than Metal allows: 4 GiB or 2^32 bytes for one array in older versions.",
            "Two threads use the GPU at once.",
            "A bug of PyTorch or of this macOS in one operation.",
        ),
        fixes=(
            Fix("Make the batch, the context or the image smaller."),
            Fix(
                "Use the GPU from one thread at a time: no preview or prefetching in another thread.",
                first_for=("already committed command buffer", "MTLCommandBufferStatusCommitted"),
            ),
            Fix(
                "Upgrade PyTorch and macOS: most of these are repaired in newer versions.",
                "pip install --upgrade torch",
                first_for=("command buffer", "Compute Function"),
            ),
            Fix(
                "Run the same step on the CPU, which reports the shapes that do not fit.",
                'model = model.to("cpu")',
                first_for=("broadcast-compatible", "(mpsFileLoc)"),
            ),
            Fix("Run the operation that fails on the CPU.", 'result = function(values.to("cpu")).to("mps")'),
        ),
        empty_cache="Only torch.mps.empty_cache() has an effect on these GPUs, and not on this error.",
        sources=(_MPS, "https://github.com/pytorch/pytorch/issues/77764"),
        said_by="torch 1.13-2.7, macOS 13-15",
    ),
    KnownError(
        id="apple-architecture",
        section=SECTION,
        title="Apple: library for the other kind of Mac",
        summary="Python runs as a program for one kind of processor, and the library is made for the other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "mach-o file, but is an incompatible architecture",
                r"mach-o file, but is an incompatible architecture \(have '(?P<have>\w{1,12})', need"
                r" '(?P<need>\w{1,12})'",
            ),
        ),
        causes=(
            "Python was installed for Intel (x86_64) and runs in emulation on an Apple processor (arm64).",
            "The environment was copied from another Mac, or its packages were installed by another Python.",
        ),
        fixes=(
            Fix(
                "Check for which processor Python is made: on an Apple processor, it must be arm64.",
                "python -c 'import platform; print(platform.machine())'",
            ),
            Fix("Create a new environment with a Python for this processor.", "uv venv --python 3.12"),
            Fix(
                "Install the package again in it, without the files in the cache.",
                "pip install --force-reinstall --no-cache-dir PACKAGE",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/get-started/locally/",),
        said_by="macOS 11-15",
    ),
    KnownError(
        id="apple-internal",
        section=SECTION,
        title="Apple GPU: check inside PyTorch failed",
        summary="An operation of PyTorch on the Apple GPU got a tensor that its code for Metal does not handle.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "INTERNAL ASSERT FAILED at ",
                r"Error: (?P<reason>[^\n]{1,100}?) ?INTERNAL ASSERT FAILED at \"[^\"\n]{0,160}/mps/\w{1,40}\.mm",
            ),
        ),
        causes=(
            "Placeholder tensor is empty: a tensor with a dimension of 0, or a view of one, reached the operation.",
            "A bug of PyTorch in this operation; the CPU accepts the same tensors.",
        ),
        fixes=(
            Fix("Upgrade PyTorch: many of these are repaired in newer versions.", "pip install --upgrade torch"),
            Fix(
                "Print the shapes before the operation, and skip tensors without elements.",
                "if values.numel() > 0: result = function(values.contiguous())",
            ),
            Fix("Run the operation that fails on the CPU.", 'result = function(values.to("cpu")).to("mps")'),
        ),
        empty_cache="Only torch.mps.empty_cache() has an effect on these GPUs, and not on this error.",
        sources=(_MPS, "https://github.com/pytorch/pytorch/issues/148589"),
        said_by="torch 2.0-2.9, macOS 13-26",
    ),
)
