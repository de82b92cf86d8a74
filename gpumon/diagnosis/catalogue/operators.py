"""Errors of operators: tensors that do not fit each other, or no kernel for what was asked."""

from typing import Final

from gpumon.diagnosis.catalogue.shared import (
    CUDA_NOTES,
    NO_MEMORY_MATTER,
    literal,
)
from gpumon.diagnosis.known import Context, Fix, KnownError, Pattern

_SECTION: Final = "Operators"
_AMP: Final = "https://docs.pytorch.org/docs/stable/amp.html"
_ATTENTION: Final = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"
)

_DEVICES: Final = KnownError(
    id="device-mismatch",
    section=_SECTION,
    title="Tensors on different devices",
    summary="An operator got tensors that are not all on the same device.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "Expected all tensors to be on the same device",
            r"Expected all tensors to be on the same device"
            r"(?:, but found at least two devices, (?P<device>\w{1,20}(?::\d{1,4})?)"
            r" and (?P<other_device>\w{1,20}(?::\d{1,4})?))?",
        ),
        Pattern(
            "type (torch.",
            r"Input type \(torch\.(?:cuda\.\w{1,40}\) and (?:weight|bias) type \(torch\.(?!cuda\.)"
            r"|(?!cuda\.)\w{1,40}\) and (?:weight|bias) type \(torch\.cuda\.)\w{1,40}\) should be the same",
        ),
        Pattern(
            "to be on GPU (while checking", r"but expected (?:it|them) to be on GPU \(while checking arguments for"
        ),
        literal("or on the same device as the indexed tensor"),
    ),
    causes=(
        "The model was moved to the GPU and a batch was not, or the other way round.",
        "A tensor is made inside forward without a device.",
        "A constant is a plain attribute of the module, which .to() does not move.",
        "The optimizer's state was loaded on the CPU.",
    ),
    fixes=(
        Fix("Move the batch to where the model is.", "batch = batch.to(next(model.parameters()).device)"),
        Fix("Make new tensors on the device of one at hand.", "steps = torch.arange(length, device=hidden.device)"),
        Fix("Register constants, so that they move with the module.", 'self.register_buffer("mask", mask)'),
        Fix(
            "Load a checkpoint to the device on which it is used.",
            "state = torch.load(path, map_location=device, weights_only=True)",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(CUDA_NOTES, "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/TensorIterator.cpp"),
)

_TYPES: Final = KnownError(
    id="dtype-mismatch",
    section=_SECTION,
    title="Tensors of different types",
    summary="An operator got tensors of different types, such as half and float.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "must have the same dtype, but got",
            r"mat1 and mat2 must have the same dtype, but got (?P<type>\w{1,20}) and (?P<other_type>\w{1,20})",
        ),
        Pattern(
            "to have the same dtype, but got",
            r"(?:expected m1 and m2|expected mat1 and mat2|Expected query, key, and value)"
            r" to have the same dtype, but got",
        ),
        Pattern(
            "should be the same",
            r"Input type \((?P<type>(?:c10::)?\w{1,20})\) and (?:bias|weight) type"
            r" \((?P<other_type>(?:c10::)?\w{1,20})\) should be the same",
        ),
        Pattern(
            "type (torch.",
            r"Input type \(torch\.(?:cuda\.\w{1,40}\) and (?:weight|bias) type \(torch\.cuda\."
            r"|(?!cuda\.)\w{1,40}\) and (?:weight|bias) type \(torch\.(?!cuda\.))\w{1,40}\) should be the same",
        ),
        Pattern(
            "expected scalar type",
            r"expected scalar type (?P<type>\w{1,20}) but found (?P<other_type>\w{1,20})",
        ),
    ),
    causes=(
        "The model was made half, and its inputs are float32.",
        "Part of a model, an adapter or a quantized layer has another type than the rest.",
        "A custom function runs under autocast and does not convert its inputs.",
    ),
    fixes=(
        Fix(
            "Keep the model in float32 and let autocast choose.",
            'with torch.autocast("cuda", dtype=torch.bfloat16):\n    output = model(batch)',
        ),
        Fix("Or give the inputs the model's type.", "batch = batch.to(next(model.parameters()).dtype)"),
        Fix(
            "In a custom function, say which type it wants.",
            """\
@staticmethod
@torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
def forward(ctx, value):
    return launch(value)""",
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_AMP,),
)

_SHAPES: Final = KnownError(
    id="shape",
    section=_SECTION,
    title="Shapes cannot be multiplied",
    summary="The second dimension of one matrix is not the first of the other.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "mat1 and mat2 shapes cannot be multiplied",
            r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d{1,19})x(?P<columns>\d{1,19})"
            r" and (?P<other_rows>\d{1,19})x(?P<other_columns>\d{1,19})\)",
        ),
    ),
    causes=(
        "A linear layer's in_features is not the last dimension of what comes in.",
        "The output of convolutions was not flattened, or images have another size than planned.",
    ),
    fixes=(
        Fix("Print the shape before the layer.", "print(hidden.shape, layer)"),
        Fix("Flatten all but the batch.", "hidden = hidden.flatten(1)"),
        Fix("Let the layer take its size from the first batch.", "layer = torch.nn.LazyLinear(out_features)"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html",),
)

_NUMPY: Final = KnownError(
    id="to-numpy",
    section=_SECTION,
    title="CUDA tensor to NumPy",
    summary="NumPy works on the host's memory and cannot read a tensor of the GPU.",
    context=Context.ALIVE,
    patterns=(
        Pattern(
            "device type tensor to numpy",
            r"can't convert (?P<device>[\w:]{1,20}) device type tensor to numpy",
        ),
    ),
    causes=("NumPy, matplotlib, scikit-learn or pandas was given a tensor that is on the GPU.",),
    fixes=(Fix("Copy it to the host first.", "values = tensor.detach().cpu().numpy()"),),
    empty_cache=NO_MEMORY_MATTER,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.numpy.html",),
)

_CHECKPOINT: Final = KnownError(
    id="load-map",
    section=_SECTION,
    title="Checkpoint of a GPU that is not here",
    summary="A checkpoint holds tensors of a GPU that this process does not have.",
    context=Context.NOT_APPLICABLE,
    patterns=(
        Pattern(
            "Attempting to deserialize object on",
            r"Attempting to deserialize object on (?:a CUDA device|CUDA device (?P<gpu>\d{1,4}))",
        ),
    ),
    causes=("It was saved on cuda:N and is loaded on a machine with fewer GPUs, or with none.",),
    fixes=(
        Fix(
            "Load it to the CPU, then move the model.",
            'state = torch.load(path, map_location="cpu", weights_only=True)',
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.load.html",),
)

_ATTENTION_KERNEL: Final = KnownError(
    id="sdpa",
    section=_SECTION,
    title="No kernel for this attention",
    summary="None of the attention kernels that are allowed can take these tensors on this GPU.",
    context=Context.ALIVE,
    patterns=(
        Pattern("No available kernel.", r"No available kernel\. {1,3}Aborting execution"),
        literal("FlashAttention only supports Ampere GPUs or newer"),
    ),
    causes=(
        "sdpa_kernel allows only kernels that do not fit the type, the size of the heads or the mask.",
        "FlashAttention wants float16 or bfloat16 and a GPU from Ampere on.",
    ),
    fixes=(
        Fix("Read the warnings just before: each kernel says there why it refused."),
        Fix(
            "Allow a kernel that takes everything.",
            """\
from torch.nn.attention import SDPBackend, sdpa_kernel

with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
    output = model(batch)""",
        ),
        Fix(
            "Compute attention in bfloat16.", "query, key, value = (x.to(torch.bfloat16) for x in (query, key, value))"
        ),
        Fix(
            "With transformers, use PyTorch's own attention.",
            'model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")',
        ),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_ATTENTION,),
)

_SYNCHRONIZATION: Final = KnownError(
    id="sync-debug",
    section=_SECTION,
    title="The host waits for the GPU",
    summary="An operation made the program wait for the GPU, and set_sync_debug_mode reports it.",
    context=Context.ALIVE,
    patterns=(literal("called a synchronizing CUDA operation"),),
    causes=(
        "A value was read on the CPU: .item(), .cpu(), float(tensor), print.",
        "A result's size depends on values: nonzero, a boolean mask, unique.",
    ),
    fixes=(
        Fix("Add up on the GPU, and read the sum now and then.", "total += loss.detach()"),
        Fix("Copy from pinned memory without waiting.", "batch = batch.to(device, non_blocking=True)"),
        Fix("Replace a mask by torch.where, which keeps the shape.", "values = torch.where(mask, values, 0.0)"),
    ),
    empty_cache="Waits for the GPU itself: do not call it within the training loop.",
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html",),
)

_SCALER: Final = KnownError(
    id="amp-disabled",
    section=_SECTION,
    title="Gradient scaling switched itself off",
    summary="A GradScaler for CUDA was made where there is no CUDA, so it does nothing.",
    context=Context.NOT_APPLICABLE,
    patterns=(literal("GradScaler is enabled, but CUDA is not available"),),
    causes=("The program runs on the CPU, on purpose or because no GPU could be used.",),
    fixes=(
        Fix("See whether PyTorch finds the GPU.", "python -c 'import torch; print(torch.cuda.is_available())'"),
        Fix("Name the device that is used.", "scaler = torch.amp.GradScaler(device.type)"),
    ),
    empty_cache=NO_MEMORY_MATTER,
    sources=(_AMP,),
)

ERRORS: Final = (_DEVICES, _TYPES, _SHAPES, _NUMPY, _CHECKPOINT, _ATTENTION_KERNEL, _SYNCHRONIZATION, _SCALER)
