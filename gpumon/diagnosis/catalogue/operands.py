"""Errors of operators whose tensors are on different devices or of different types."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.operators import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="device-mismatch",
        section=SECTION,
        title="Tensors on different devices",
        summary="An operator received tensors that are not all on the same device.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Expected all tensors to be on the same device",
                r"Expected all tensors to be on the same device"
                r"(?:, but found at least two devices, (?P<device>\w{1,20}(?::\d{1,4})?)"
                r" and (?P<other_device>\w{1,20}(?::\d{1,4})?)(?:! \(when checking argument for argument"
                r" (?P<argument>\w{1,20}))?|, but got (?P<placed>\w{1,20}) is on"
                r" (?P<place>\w{1,20}(?::\d{1,4})?), different from other tensors on"
                r" (?P<other_place>\w{1,20}(?::\d{1,4})?))?",
            ),
            Pattern(
                ") should be the same",
                r"Input type \(torch\.(?:cuda\.\w{1,40}\) and (?:weight|bias) type \(torch\.(?!cuda\.)"
                r"|(?!cuda\.)\w{1,40}\) and (?:weight|bias) type \(torch\.cuda\.)\w{1,40}\) should be the same",
            ),
            Pattern(
                "to be on GPU (while checking", r"but expected (?:it|them) to be on GPU \(while checking arguments for"
            ),
            literal("or on the same device as the indexed tensor"),
            Pattern(
                " to be on same device, but ",
                r"expected [\w ]{3,40} to be on same device, but \w{1,20} is on (?P<device>[\w:]{1,12}) and"
                r" \w{1,20} is on"
                r" (?P<other_device>[\w:]{1,12})",
            ),
            Pattern(
                "to be on the same device, but ",
                r"(?:tensors|expected [\w ]{3,40}|and \w{1,20}) to be on the same device, but (?:found (?!at least)|"
                r"got (?!index)|\w{1,20} is on)[^\n]{3,80}",
            ),
            literal("Input, output and indices must be on the current device"),
            literal("Attention bias and Query/Key/Value should be on the same device"),
            Pattern(
                "to have the same device type, but got",
                r"Expected query, key, and value to have the same device type, but got query\.device:"
                r" (?P<device>[\w:]{1,12})",
            ),
            Pattern(
                "(): all tensors must be on the same device",
                r"\w{1,40}\(\): all tensors must be on the same"
                r" device",
            ),
            Pattern(
                "must be on the same device but got self on",
                r"\w{1,20} input and window must be on the same device but got self on (?P<device>[\w:]{1,12})"
                r" and window on"
                r" (?P<other_device>[\w:]{1,12})",
            ),
            Pattern(
                "must be on the same device",
                r"input\(device='(?P<device>\w{1,8})'\) and"
                r" weight\(device=(?P<other_device>\w{1,8}):\d'\) {1,2}must be on the same device",
            ),
            Pattern(
                "for generator but found",
                r"Expected an? '?(?P<device>\w{1,20})'? device type for generator but found"
                r" '?(?P<other_device>\w{1,20})",
            ),
            Pattern(
                "tensor from a generator of type",
                r"Cannot generate a (?P<device>\w{1,20}) tensor from a generator of type (?P<other_device>\w{1,20})",
            ),
            literal("cannot be accessed from Triton (cpu tensor?)"),
            Pattern(
                "tensors are not at the same device",
                r"Input and (?:hidden|parameter|bias) tensors are not at the same device",
            ),
            Pattern(
                "Type) should be the same",
                r"Input type \((?:CUDA\w{1,30}\) and (?:weight|bias) type \(CPU|CPU\w{1,30}\) and (?:weight|bias) type"
                r" \(CUDA)\w{1,30}Type\) should be the same",
            ),
            Pattern(
                "(device_ids[0]) but found one of them on device",
                r"its parameters and buffers on device (?P<device>\w{1,20}(?::\d{1,4})?) \(device_ids\[0\]\) but found"
                r" one of them on device: (?P<other_device>\w{1,20}(?::\d{1,4})?)",
            ),
            Pattern("to be on the same device", r"[Ee]xpected? [^\n]{0,120}? to be on the same device, but"),
            Pattern("same device type, but got", r"have (?:the )?same device type, but got"),
            Pattern(
                "Expected object of ",
                r"Expected object of (?:device type|backend) (?P<device>\w{1,10}) but got (?:device"
                r" type|backend) (?P<other_device>\w{1,10})",
            ),
            Pattern(
                "Tensor but found type torch.",
                r"Expected object of type torch\.(?:cuda\.\w{3,12}Tensor but found type torch\.|\w{3,12}Tensor but"
                r" found type torch\.cuda\.)\w{3,12}Tensor",
            ),
            Pattern(
                "generator device but found",
                r"Expected an? '?(?P<device>\w{1,20}(?::\d{1,3})?)'? generator device but found"
                r" '?(?P<other_device>\w{1,20}(?::\d{1,3})?)",
            ),
            Pattern("need to be on the same GPU, but found", r"tensors need to be on the same GPU, but found"),
            Pattern("iter.device(arg).is_cuda", r"iter\.device\(arg\)\.is_cuda\(\)"),
            Pattern(
                "of a tensor on device ",
                r"Attempted to set the storage of a tensor on device \"(?P<device>[\w:]{1,12})\" to a storage on"
                r" different device \"(?P<other_device>[\w:]{1,12})\"",
            ),
            Pattern("located on different GPUs", r"(?:arguments are|tensors are) located on different GPUs"),
        ),
        causes=(
            "The model was moved to the GPU and a batch was not, or the reverse.",
            "A tensor is created inside forward without a device.",
            "A constant is a plain attribute of the module, which .to() does not move.",
            "The optimizer's state was loaded on the CPU.",
            "A random generator was created for another device than the tensor.",
            "Two GPUs: `device_map` has divided the model over them, and its code mixes tensors of its parts.",
        ),
        fixes=(
            Fix("Move the batch to the model's device.", "batch = batch.to(next(model.parameters()).device)"),
            Fix(
                "Create new tensors on the device of an existing tensor.",
                "steps = torch.arange(length, device=hidden.device)",
            ),
            Fix(
                "Register constants as buffers, so that they move with the module.",
                'self.register_buffer("mask", mask)',
            ),
            Fix(
                "Load a checkpoint to the device on which it is used.",
                "state = torch.load(path, map_location=device, weights_only=True)",
            ),
            Fix(
                "Move the indices to the device of the tensor, or both to the CPU.",
                "selected = lengths[indices.to(lengths.device)]",
                first_for=("as the indexed tensor",),
            ),
            Fix(
                "Create random generators on the tensor's device.",
                "generator = torch.Generator(device=device).manual_seed(0)",
                first_for=("generator",),
            ),
            Fix(
                "If `device_map` has divided the model over GPUs that it does not need, load it on one.",
                'model = AutoModelForCausalLM.from_pretrained(name, device_map={"": 0})',
                first_for=("Attention bias and Query",),
            ),
            Fix(
                "Else move the tensor in the line of the traceback to the device of the other one.",
                "scores = torch.gather(hidden, 1, ends.to(hidden.device))",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CUDA_NOTES, "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/TensorIterator.cpp"),
        said_by="torch 1.13-2.13, vLLM 0.10-0.19, Triton 2.0-3.6, xFormers 0.0.22-0.0.33",
    ),
    KnownError(
        id="dtype-mismatch",
        section=SECTION,
        title="Tensors of different types",
        summary="An operator received tensors of different types, such as half and float.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Unexpected floating ScalarType in at::autocast::prioritize"),
            Pattern(
                "must have the same scalar type",
                r"\w{1,30}\(\): self (?:\((?P<type>\w{1,20})\) )?and (?:source|result)"
                r" (?:\((?P<other_type>\w{1,20})\) )?must"
                r" have the same scalar type",
            ),
            Pattern(
                "expected both vectors to have same dtype",
                r"dot : expected both vectors to have same dtype, but found (?P<type>\w{1,20}) and"
                r" (?P<other_type>\w{1,20})",
            ),
            Pattern(
                "expected condition to be a boolean tensor",
                r"where expected condition to be a boolean tensor, but got a tensor with dtype"
                r" (?P<other_type>\w{1,20})",
            ),
            Pattern(
                "to have same dtypes but got",
                r"expected self and source to have same dtypes but got (?P<type>\w{1,20}) and (?P<other_type>\w{1,20})",
            ),
            Pattern("invalid dtype for bias", r"invalid dtype for bias - should match query's dtype"),
            Pattern(
                "Expected attn_mask dtype to be",
                r"Expected attn_mask dtype to be (?:bool or (?:float or )?to match|bool)[^\n]{0,60}"
                r"attn_mask\.dtype: ?(?P<other_type>\w{1,20})",
            ),
            Pattern(
                "but got dtype ",
                r"expected dtype (?P<type>[\w:]{1,20}) for `?\w{1,30}`? but got dtype (?P<other_type>[\w:]{1,20})",
            ),
            Pattern(
                "mat2 must have the same dtype",
                r"(?:mat1|self) and mat2 must have the same dtype(?!, but got \w{1,20} and (?:Byte|Char)\b)"
                r"(?:, but got (?P<type>\w{1,20}) and (?P<other_type>\w{1,20}))?",
            ),
            Pattern(
                " but expected ",
                r"Found dtype (?P<other_type>\w{1,20}) but expected (?P<type>\w{1,20})",
            ),
            Pattern(
                "to have the same dtype, but got",
                r"(?:expected m1 and m2|expected mat1 and mat2|Expected query, key, and value)"
                r" to have the same dtype, but got(?:: (?P<type>(?:c10::)?\w{1,20}) !="
                r" (?P<other_type>(?:c10::)?\w{1,20}))?",
            ),
            Pattern(
                "should be the same",
                r"Input type \((?P<type>(?:c10::|long |unsigned |signed )?\w{1,20})\) and (?:bias|weight) type"
                r" \((?P<other_type>(?:c10::)?\w{1,20})\) should be the same",
            ),
            Pattern(
                ") should be the same",
                r"Input type \(torch\.(?:cuda\.\w{1,40}\) and (?:weight|bias) type \(torch\.cuda\."
                r"|(?!cuda\.)\w{1,40}\) and (?:weight|bias) type \(torch\.(?!cuda\.))\w{1,40}\) should be the same",
            ),
            Pattern(
                "expected scalar type",
                r"expected scalar type (?:c10::)?(?P<type>\w{1,20}) but found (?:c10::)?(?P<other_type>\w{1,20})",
            ),
            Pattern(
                "mixed dtype (CPU): expect",
                r"mixed dtype \(CPU\): expect (?:parameter|input) to have scalar type of (?P<type>\w{1,20})",
            ),
            Pattern(
                "source and destination dtypes match",
                r"Index put requires the source and destination dtypes match, got (?P<type>\w{1,20}) for the"
                r" destination and (?P<other_type>\w{1,20})",
            ),
            Pattern(
                "the same dtype",
                r"(?:expected|must|should|Expected) [^\n]{0,60}?(?:have|be of|all have) the same dtype(?!, but got"
                r" \w{1,20} and (?:Byte|Char)\b)",
            ),
            Pattern(
                "Expected attn_mask dtype to be ",
                r"Expected attn_mask dtype to be bool or (?:float or )?to match query dtype, but got"
                r" attn_mask\.dtype: (?P<other_type>[\w:]{1,20})(?: and (?: ?query\.dtype:)"
                r" (?P<type>[\w:]{1,20}))?",
            ),
            Pattern(
                "Expected tensor for argument #",
                r"Expected tensor for argument #\d{1,3} '\w{1,40}' to have (?:one of the following scalar types:"
                r" (?P<type>[\w, ]{1,60})|scalar type (?P<scalar>\w{1,20})); but got"
                r" (?:torch\.)?(?P<other_type>[\w.]{1,40})",
            ),
            Pattern(
                "Expected object of scalar type",
                r"Expected object of scalar type (?P<type>\w{1,20}) but got scalar type (?P<other_type>\w{1,20})",
            ),
            Pattern(
                "Tensor but found type torch.",
                r"Expected object of type torch\.(?:cuda\.\w{3,12}Tensor but found type torch\.cuda\.|\w{3,12}Tensor"
                r" but found type torch\.)(?P<other_type>\w{3,12})Tensor",
            ),
            Pattern(
                "Expected self.dtype to be equal to", r"Expected self\.dtype to be equal to (?:src|source|value)\.dtype"
            ),
            Pattern(
                "can't be cast to the desired o",
                r"result type (?P<other_type>\w{1,20}) can't be cast to the desired (?:output|out=) type"
                r" (?P<type>\w{1,20})",
            ),
            Pattern(
                "for target with class probabilities",
                r"Expected floating point type for target with class probabilities, got (?P<other_type>\w{1,20})",
            ),
            Pattern(
                "Expected out tensor to have dtype",
                r"Expected out tensor to have dtype (?P<type>[\w:]{1,20}), but got (?P<other_type>[\w:]{1,20})",
            ),
            Pattern(
                "to have the same type as tensor for argument",
                r"to have the same type as tensor for argument #\d{1,3} '\w{1,40}'; but type"
                r" (?P<other_type>[\w.]{1,40}) does not equal (?P<type>[\w.]{1,40})",
            ),
            Pattern(
                "Expected Tensor argument ",
                r"Expected Tensor argument \w{1,40} to have dtype (?P<type>[\w.]{1,20}), but got"
                r" (?P<other_type>[\w.]{1,20}) instead",
            ),
        ),
        causes=(
            "The model was converted to half, and its inputs are float32.",
            "Part of a model, an adapter or a quantized layer has another type than the rest.",
            "A custom function runs under autocast and does not convert its inputs.",
        ),
        fixes=(
            Fix(
                "Compute under autocast, which converts the types where they meet.",
                'with torch.autocast("cuda", dtype=torch.bfloat16):\n    output = model(batch)',
            ),
            Fix(
                "Convert the inputs to the model's type, and all of its parts to one type.",
                "batch = batch.to(next(model.parameters()).dtype)",
                first_for=("HalfTensor) and weight", "(c10::Half) and", "(c10::BFloat16) and"),
            ),
            Fix(
                "Load all parts of the model in the same 16-bit type.",
                "model = AutoModel.from_pretrained(name, torch_dtype=torch.bfloat16)",
                first_for=(
                    "Half and BFloat16",
                    "BFloat16 and Half",
                    "Half != c10::BFloat16",
                    "BFloat16 != c10::Half",
                    "BFloat16 but found Half",
                ),
            ),
            Fix(
                "The embeddings of images or sound have another type than those of the text: load the whole model in"
                " one type, and upgrade the library.",
                "model = AutoModelForImageTextToText.from_pretrained(name, dtype=torch.float16)",
                first_for=("self and source to have same dtypes",),
                hidden_otherwise=True,
            ),
            Fix(
                "In a custom function, declare the input type.",
                """\
@staticmethod
@torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
def forward(ctx, value):
    return launch(value)""",
            ),
            Fix(
                "In ComfyUI, let all parts use one type, and update the node of the traceback.",
                "python main.py --force-fp16",
                first_for=("processing !!!", "processing!!!", "Exception Message:"),
            ),
            Fix(
                "An operation in place keeps the type of its tensor: convert it first, or write to a new tensor.",
                "total = total.float() + value",
                first_for=("can't be cast to the desired output",),
                hidden_otherwise=True,
            ),
            Fix(
                "Convert the values to the type of the tensor that is written.",
                "values[index] = source.to(values.dtype)",
                first_for=("source and destination dtypes",),
            ),
            Fix(
                "Convert indices and labels to integers.",
                "indices = indices.long()",
                first_for=("'indices'", "scalar types: Long", "scalar type Long but", "type Int; but"),
            ),
            Fix(
                "The layer runs on the CPU, where its weights must be float32 like the input: move it to the"
                " GPU, or convert it.",
                'layer = layer.to("cuda")',
                first_for=("mixed dtype (CPU)",),
                hidden_otherwise=True,
            ),
            Fix(
                "A quantized weight was used outside of its layer: upgrade the packages that quantize, adapt and"
                " train together.",
                "pip install --upgrade transformers peft bitsandbytes",
                first_for=("signed char",),
                hidden_otherwise=True,
            ),
            Fix(
                "Convert float64, the type of NumPy's and pandas' numbers, to float32.",
                "batch = batch.float()",
                first_for=(
                    "Double",
                    "double",
                ),
            ),
            Fix(
                "Convert the images from whole numbers to float32.",
                "images = images.float() / 255",
                first_for=("ByteTensor",),
            ),
            Fix(
                "This loss takes labels of a floating type.",
                "labels = labels.float()",
                first_for=(
                    "dtype Long but expected Float",
                    "floating point type for target",
                ),
                hidden_otherwise=True,
            ),
            Fix(
                "In Unsloth, switch mixed precision on in the trainer, in the type in which the model was loaded:"
                " fp16=True for float16, bf16=True for bfloat16; then upgrade it.",
                "arguments = TrainingArguments(output_dir, fp16=True)",
                first_for=("Unsloth",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.AMP,),
        said_by="torch 1.13-2.13, vLLM 0.19, Triton 3.0, transformers 4.36-5.0",
    ),
)
