"""Errors of PyTorch on Apple's GPUs, whose backend is named MPS: no advice for NVIDIA GPUs applies to them."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
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
            Pattern("not supported on MPS", r"(?P<operator>[\w .'-]{1,60}) (?:is|are) not supported on MPS\b"),
        ),
        causes=(
            "The operation is not implemented for MPS in this version.",
            "The type float64 does not exist on these GPUs; NumPy arrays are float64 unless converted.",
            "Placeholder storage: the model or the input is still on the CPU.",
        ),
        fixes=(
            Fix("Let missing operations run on the CPU.", "PYTORCH_ENABLE_MPS_FALLBACK=1 python train.py"),
            Fix("Use float32.", "values = values.float()"),
            Fix("Move the model and its inputs.", 'model = model.to("mps")\nbatch = batch.to("mps")'),
            Fix("Upgrade PyTorch.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MPS, _MPS_VARIABLES),
        said_by="torch 1.13-2.13",
    ),
)
