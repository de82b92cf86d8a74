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
            Pattern("not supported on MPS", r"(?P<operator>[\w .'-]{1,60}) (?:is|are) not supported on MPS\b"),
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
        summary="PyTorch was built with support for Apple's GPUs, and this macOS or this build cannot use it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "The MPS backend is supported on MacOS",
                r"The MPS backend is supported on MacOS (?P<required>[\d.]{1,6})\+",
            ),
            literal("PyTorch is not linked with support for mps devices"),
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
                r"(?:MPS|MTL|mps|mtl|Metal|AGX)[^\n]{0,160}?failed assertion `(?P<reason>[^\n]{1,160})",
            ),
            Pattern("failed assertion `[MPS", r"failed assertion `\[MPS(?P<reason>[^\n]{1,160})"),
            Pattern("command buffer exited with error status", r"command buffer exited with error status"),
            literal("LLVM ERROR: Failed to infer result type"),
        ),
        causes=(
            "A tensor is larger than Metal allows: 4 GiB or 2^32 bytes for one array in older versions.",
            "Two threads use the GPU at once.",
            "A bug of PyTorch or of this macOS in one operation.",
        ),
        fixes=(
            Fix("Make the batch, the context or the image smaller."),
            Fix(
                "Upgrade PyTorch and macOS: most of these are repaired in newer versions.",
                "pip install --upgrade torch",
            ),
            Fix("Run the operation that fails on the CPU.", 'result = function(values.to("cpu")).to("mps")'),
        ),
        empty_cache="Only torch.mps.empty_cache() has an effect on these GPUs, and not on this error.",
        sources=(_MPS, "https://github.com/pytorch/pytorch/issues/77764"),
        said_by="torch 1.13-2.7, macOS 13-15",
    ),
)
