"""Fixes for one wording of an error that has many wordings; they are shown only where the message has that wording."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpumon.diagnosis.known import Fix

_TO_FLOAT: Final = Fix(
    "Convert whole numbers, such as the bytes of an image, before a layer; keep token ids as they are.",
    "batch = batch.float()",
    first_for=(
        "(unsigned char)",
        "(long int)",
        "(long)",
        "ByteTensor) and",
        "LongTensor) and",
        "long int !=",
        "unsigned char !=",
        "got Long and",
        "Float but found Long",
        "Float but found Byte",
        "Float but found Int",
    ),
)
MOVE_MODEL: Final = Fix(
    "Move the model to the GPU before the optimizer is created; layers in a list or dict move only in a ModuleList.",
    "model = model.to(device)",
    first_for=(
        *(f"weight type (torch.{name}" for name in ("Float", "Half", "BFloat16", "Double")),
        "found type torch.FloatTensor for argument #1 'weight'",
        "found type torch.FloatTensor for argument #2 'weight'",
    ),
)
"""Against a layer that is on the CPU."""

FIXES: Final[Mapping[str, tuple[Fix, ...]]] = {
    "shape": (
        Fix(
            "Flatten without a fixed size, and create the next layer for what comes out: the images have another size"
            " than the code expects.",
            "hidden = hidden.flatten(1)\nprint(hidden.shape)",
            first_for=("is invalid for input of size",),
        ),
        Fix(
            "Where a network joins two branches, as a U-Net does, bring one to the size of the other; or use image"
            " sizes that can be halved as often as the network halves them.",
            "up = torch.nn.functional.interpolate(up, size=skip.shape[-2:])",
            first_for=("must match except in dimension",),
        ),
        Fix(
            "Print both shapes before the operation: the lengths, a missing dimension or a mask differ.",
            "print(first.shape, second.shape)",
            first_for=("must match the size of tensor", "must match the existing size", "same number of dimensions"),
        ),
        Fix(
            "Give the loss a mask of class numbers without a channel, with one number for each pixel.",
            "mask = mask.squeeze(1).long()",
            first_for=("spatial targets supported",),
        ),
        Fix(
            "Add the missing dimension, in most cases that of the batch, or remove the one that is too many.",
            "batch = sample.unsqueeze(0)",
            first_for=("D input (got ", "(batch mode) tensor", "3D tensor but received"),
        ),
        Fix(
            "Normalize with as many means and deviations as the image has channels.",
            "normalize = transforms.Normalize([0.5], [0.5])",
            first_for=("doesn't match the broadcast shape [3,",),
        ),
    ),
    "dtype-mismatch": (
        Fix(
            "The loss mixes types, which the backward pass cannot: give it both arguments in float32.",
            "loss = loss_function(output.float(), target.float())",
            first_for=("Found dtype BFloat16 but expected Float", "Found dtype Half but expected Float"),
            hidden_otherwise=True,
        ),
        Fix(
            "Convert float64, the type of NumPy and pandas, to float32; also the weights of classes.",
            "batch = batch.float()",
            first_for=("Double", "double", "float64"),
        ),
        Fix(
            "Convert the labels of classes to long.",
            "labels = labels.long()",
            first_for=(
                "type Long but",
                "scalar type Int;",
                "'target' to have",
                "type torch.LongTensor but",
                "type torch.cuda.LongTensor but",
            ),
        ),
        Fix(
            "Convert the labels to floats: this loss compares numbers, not classes.",
            "loss = loss_function(output, labels.float())",
            first_for=(
                "Found dtype Long",
                "Found dtype Int",
                "class probabilities, got",
                "LongTensor for argument #2 'target'",
            ),
        ),
        _TO_FLOAT,
        Fix(
            "Convert the indices to long.",
            "index = index.long()",
            first_for=("__int64", "desired output type Long"),
        ),
    ),
    "index-invalid": (
        Fix(
            "Keep the dimension of the batch: a single sample, squeeze() or an index removed it.",
            "logits = logits.unsqueeze(0) if logits.ndim == 1 else logits",
            first_for=("in range of [-1, 0], but got", "in range of [-2, 1], but got", "too many indices for tensor"),
        ),
    ),
    "tensor-missing": (
        Fix(
            "Take the tensor out of the output: unpacking an output of transformers gives the names of its fields.",
            "hidden = model(**batch).last_hidden_state",
            first_for=("not str", "not BaseModelOutput", "ModelOutput", "not CausalLM", "not SequenceClassifier"),
        ),
        Fix(
            "Take the tensor out of the tuple: a recurrent layer, or a model with auxiliary outputs, returns several.",
            "output, *others = model(batch)",
            first_for=("not tuple", "got (tuple"),
        ),
        Fix(
            "Give a list of tensors, one for each sample, not one tensor.",
            "batch = torch.nn.utils.rnn.pad_sequence(list(samples), batch_first=True)",
            first_for=("tuple of Tensors, not Tensor",),
        ),
        Fix(
            "Make a tensor of the list.",
            "labels = torch.as_tensor(labels, device=device)",
            first_for=("not list", "got (list", "not numpy.ndarray", "got (numpy.ndarray"),
        ),
        Fix(
            "Find what returned None: a forward without return, or a field that the batch or the output has not.",
            "print({name: type(value) for name, value in batch.items()})",
            first_for=("not NoneType", "got (NoneType"),
        ),
    ),
    "not-a-tensor": (
        Fix(
            "Take the tensor out of the output: unpacking an output of transformers gives the names of its fields.",
            "hidden = model(**batch).last_hidden_state",
            first_for=("'str' object has no attribute '",),
        ),
        Fix(
            "Take the tensor out of the tuple: a recurrent layer, or a model with auxiliary outputs, returns several.",
            "output, *others = model(batch)",
            first_for=("'tuple' object has no attribute '",),
        ),
        Fix(
            "Make one tensor of the list.",
            "batch = torch.stack(batch)",
            first_for=("'list' object has no attribute '",),
        ),
        Fix(
            "Take the value out of the dict by its name.",
            'logits = output["logits"]',
            first_for=("'dict' object has no attribute '",),
        ),
        Fix(
            "Find the function that returned None: a file that OpenCV cannot read, a forward without return, or a"
            " gradient before backward.",
            'assert image is not None, f"cannot read {path}"',
            first_for=("'NoneType' object has no attribute '",),
        ),
    ),
    "no-gradient": (
        Fix(
            "Register the layers: those in a list or dict are no parameters of the model; and unfreeze some.",
            "self.layers = torch.nn.ModuleList(layers)",
            first_for=("empty parameter list",),
        ),
        Fix(
            "Give the optimizer only what is trained.",
            "optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)",
            first_for=("a parameter that doesn't require gradients",),
        ),
    ),
    "inplace-modified": (
        Fix(
            "Compute all losses and backward passes before the first step: an optimizer changed a weight that a later"
            " backward pass needs, as in a GAN.",
            "first_loss.backward(retain_graph=True)\nsecond_loss.backward()\nfirst_optimizer.step()"
            "\nsecond_optimizer.step()",
            first_for=("output 0 of TBackward", "output 0 of AsStridedBackward"),
        ),
    ),
    "operator-arguments": (
        Fix(
            "Leave out empty samples: a text or sound has a length of 0.",
            "samples = [sample for sample in samples if len(sample)]",
            first_for=("Expected sequence length to be larger than 0",),
        ),
        Fix(
            "Make plain tensors of classes such as fastai's TensorImage, which do not mix with each other.",
            "output, labels = output.as_subclass(torch.Tensor), labels.as_subclass(torch.Tensor)",
            first_for=("__torch_function__",),
        ),
    ),
    "library-arguments": (
        Fix(
            "Remove verbose, which schedulers no longer take; print the rate yourself.",
            'scheduler = ReduceLROnPlateau(optimizer)\nprint(optimizer.param_groups[0]["lr"])',
            first_for=("'verbose'",),
        ),
    ),
    "internal-assert": (
        Fix(
            "Convert between real and complex numbers explicitly, before the operation.",
            "value = value.to(torch.complex64)",
            first_for=("input_is_complex",),
        ),
    ),
    "device-assert": (
        Fix(
            "A value of a mask is no class: print the values, and compare them with the number of classes, which is"
            " dimension 1 of the logits. Masks of 0 and 255 need 0 and 1; a value for ignored pixels is the"
            " ignore_index of the loss.",
            "print(masks.unique(), logits.shape[1])",
            first_for=("NLLLoss2d.cu", "nll_loss2d_forward"),
            hidden_otherwise=True,
        ),
    ),
    "device-mismatch": (
        MOVE_MODEL,
        Fix(
            "Load and copy with the same device: give map_location, and set no default device for the whole program.",
            'state = torch.load(path, map_location="cpu", weights_only=True)',
            first_for=("Attempted to set the storage",),
        ),
        Fix(
            "Create the hidden state on the device of the input.",
            "hidden = torch.zeros(layers, batch.size(0), hidden_size, device=batch.device)",
            first_for=("Input and hidden tensors",),
        ),
    ),
    "worker-crashed": (
        Fix(
            "Read the stack below the message: the first lines name the library whose native code crashed; install"
            " another version of it, or import it before the others.",
            first_for=("Fatal Python error: Seg", "Fatal Python error: Abort"),
        ),
        Fix(
            "A library was built for a newer CPU: install its build for this one, or an older version.",
            "grep -m 1 flags /proc/cpuinfo",
            first_for=("llegal instruction", "illegal hardware instruction", "SIGILL"),
            hidden_otherwise=True,
        ),
    ),
    "package-version": (
        Fix(
            "Upgrade the package whose file imports torch._six, which PyTorch 2 no longer has; in own code, write"
            " Python's types.",
            "string_classes, int_classes = str, int",
            first_for=("torch._six",),
        ),
    ),
    "image-transform": (
        Fix(
            "Find the file that cannot be read: cv2.imread returns None if the path is wrong or the file is damaged.",
            "print([path for path in paths if cv2.imread(str(path)) is None])",
            first_for=("NoneType",),
        ),
    ),
    "optimizer-settings": (
        Fix(
            "Choose a value in the range: rates and decay are not negative, and betas and momentum are below 1.",
            "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), weight_decay=0.01)",
            first_for=("rate: -", "value: -", "at index "),
        ),
    ),
    "samples-missing": (
        Fix(
            "Sort the images into one folder for each class, below the folder that ImageFolder gets.",
            "mkdir -p data/train/cat data/train/dog",
            first_for=("any class folder", "in subfolders of"),
        ),
    ),
    "batch-unequal": (
        Fix(
            "Leave out empty samples: a size is 0, where a crop or a slice reaches beyond the image or the sequence.",
            "dataset = [sample for sample in dataset if sample.numel()]",
            first_for=("[0]", "[0, ", ", 0, ", ", 0]"),
        ),
    ),
    "cuda-unavailable": (
        Fix(
            "Call functions of torch.cuda only with a GPU: the model or its part is on the CPU, or was offloaded to"
            " it.",
            "print({parameter.device for parameter in model.parameters()}, torch.cuda.is_available())",
            first_for=("Expected a cuda device, but got: cpu",),
        ),
    ),
    "nan-loss": (
        Fix(
            "Train in bfloat16, or load the weights in float32: the gradients are already NaN in the first steps, so"
            " that float16 overflows, not the learning rate.",
            "arguments = TrainingArguments(bf16=True, fp16=False)",
            first_for=("'learning_rate': 0.0,", "'learning_rate': 0.0}", "'loss': 0.0, 'grad_norm': nan"),
        ),
    ),
    "tensor-empty": (
        Fix(
            "Leave out empty samples: a text or sound has a length of 0.",
            "samples = [sample for sample in samples if len(sample)]",
            first_for=("Length of all samples",),
        ),
    ),
    "flash-attn-abi": (
        Fix(
            "The extension was built in a folder of the repository, such as models/ops: build it there again with the"
            " installed PyTorch.",
            "rm -rf build dist *.egg-info && pip install --no-build-isolation --force-reinstall --no-deps .",
            first_for=(".egg/",),
            hidden_otherwise=True,
        ),
    ),
    "batch-types": (
        Fix(
            "Convert images to tensors in the transform.",
            "transform = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])",
            first_for=("PIL.", "PngImageFile", "JpegImageFile"),
        ),
        Fix(
            "Number the classes, and remove other columns of text: texts cannot become tensors.",
            "numbers = {name: index for index, name in enumerate(sorted(set(names)))}",
            first_for=("dimensions 'str'",),
        ),
        Fix(
            "Return a sample in every case: a branch of __getitem__ returns None, as where a file cannot be read.",
            "print([index for index in range(len(dataset)) if dataset[index] is None])",
            first_for=("NoneType",),
        ),
        Fix(
            "Leave out missing samples before they are collected, and skip a batch of which none is left.",
            "samples = [sample for sample in samples if sample is not None]",
            first_for=("elem = batch[0]",),
        ),
        Fix(
            "Make the rows dense before they are collected.",
            "row = row.to_dense()",
            first_for=("sparse tensors",),
        ),
    ),
}
"""By error, the fixes for a wording; `first_for` holds the parts of a message that are this wording."""


def message_fixes(error_id: str, message: str) -> Iterator[Fix]:
    """The fixes for the wording of a message, best first.

    Args:
        error_id: The entry of the catalogue.
        message: The text of the message, with its values.
    """
    for fix in FIXES.get(error_id, ()):
        if any(part in message for part in fix.first_for):
            yield fix
