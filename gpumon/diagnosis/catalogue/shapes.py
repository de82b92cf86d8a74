"""Errors of operators whose tensors do not fit together in shape, or cannot become NumPy arrays."""

from typing import Final

from gpumon.diagnosis.catalogue.operators import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="shape",
        section=SECTION,
        title="Incompatible shapes",
        summary="An operator received tensors whose shapes do not fit together.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "shapes cannot be multiplied",
                r"linear\(\): input and weight\.T shapes cannot be multiplied"
                r" \((?P<left>\d{1,12}x\d{1,12}) and (?P<right>(?!1x\d{5}|\d{5,12}x1\))\d{1,12}x\d{1,12})\)",
            ),
            Pattern(
                "targets are expected to have the same shape",
                r"Predictions and targets are expected to have the same shape, but"
                r"(?: got torch\.Size\((?P<shape>\[[\d, ]{0,60}\])\) and"
                r" torch\.Size\((?P<expected>\[[\d, ]{0,60}\])\))?",
            ),
            Pattern(
                "`preds` and `target`",
                r"(?:Expected|The|Either|If) `preds` and `target` (?:[a-z]|to"
                r" )[^\n]{0,60}shape",
            ),
            literal("prob_dist must be 1 or 2 dim"),
            Pattern(
                "inhomogeneous shape after",
                r"The requested array has an inhomogeneous shape after (?P<dimension>\d{1,2}) dimension",
            ),
            Pattern(
                "mat1 and mat2 shapes cannot be multiplied",
                r"(?<!processing !!! )(?<!Message: )(?<!Message:\*\* )(?<!Message:\* )mat1 and mat2 shapes"
                r" cannot be multiplied \((?P<rows>\d{1,19})x(?P<columns>\d{1,19})"
                r" and (?!1x\d{6}|\d{6,19}x1\))(?P<other_rows>\d{1,19})x(?P<other_columns>\d{1,19})\)",
            ),
            Pattern(
                "is invalid for input of size",
                r"shape '(?P<shape>\[[\d, -]{1,120}\])' is invalid for input of size (?P<elements>\d{1,19})",
            ),
            Pattern(
                "to match target batch_size",
                r"Expected input batch_size \((?P<rows>\d{1,19})\) to match target batch_size"
                r" \((?P<other_rows>\d{1,19})\)",
            ),
            Pattern(
                "must match the size of tensor",
                r"The size of tensor \w \((?P<size>[su]?\d{1,19})\) must match the size of tensor \w"
                r" \((?P<other_size>[su]?\d{1,19})\)(?: at non-singleton dimension (?P<dimension>\d{1,3}))?",
            ),
            Pattern(
                " channels, but got ",
                r"Given groups=\d{1,6}, weight of size \[?[\d, ]{1,80}\]?, expected"
                r" input\[(?P<input_shape>[\d, ]{1,80})\]"
                r" to have (?P<expected_channels>\d{1,9}) channels, but got (?P<channels>\d{1,9}) channels",
            ),
            Pattern(
                "Sizes of tensors must match except in dimension",
                r"Sizes of tensors must match except in dimension (?P<joined_dimension>\d{1,3})\.? Expected size"
                r" (?P<size>\d{1,19}) but got size (?P<other_size>\d{1,19})",
            ),
            Pattern(
                "must match the existing size",
                r"The expanded size of the tensor \((?P<size>\d{1,19})\) must match the existing size"
                r" \((?P<other_size>\d{1,19})\)(?: at non-singleton dimension (?P<dimension>\d{1,3}))?",
            ),
            Pattern("batch1 must be a 3D tensor", r"batch1 must be a 3D tensor"),
            literal("view size is not compatible with input tensor's size and stride"),
            Pattern("Output size is too small", r"Calculated output size: [^\n]{1,60}?\. Output size is too small"),
            Pattern(
                "Kernel size can't be greater than actual input size",
                r"Kernel size: \([\d x]{1,40}\)\. Kernel size can't be greater than actual input size",
            ),
            Pattern(
                "input to conv",
                r"Expected \dD \(unbatched\) or \dD \(batched\) input to (?P<operation>conv\w{1,24}), but got input"
                r" of size: \[[\d, -]{0,80}\]",
            ),
            Pattern(
                "-dimensional input for ",
                r"Expected \d-dimensional input for \d-dimensional weight \[[\d, -]{0,80}\], but got"
                r" (?P<rank>\d)-dimensional input of size \[[\d, -]{0,80}\]",
            ),
            Pattern("mat1 dim 1 must match mat2 dim 0", r"mat1 dim 1 must match mat2 dim 0"),
            Pattern(
                "size mismatch, ",
                r"size mismatch, (?:m1: \[(?P<rows>\d{1,19}) x (?P<columns>\d{1,19})\]"
                r"(?:, m2: \[(?P<other_rows>\d{1,19}) x)?|get |got (?!input"
                r" [^\n]{1,60}, vec \(0\)))",
            ),
            Pattern(
                "should contain ",
                r"(?P<buffer>running_mean|running_var|weight|bias) should contain (?P<size>\d{1,19}) elements"
                r" not (?P<other_size>\d{1,19})",
            ),
            Pattern(
                "input.size(-1) must be equal to input_size",
                r"input\.size\(-1\) must be equal to input_size\. Expected (?P<size>\d{1,19}), got"
                r" (?P<other_size>\d{1,19})",
            ),
            Pattern("Expected hidden", r"Expected hidden(?:\[\d\])? size \([\d, ]{1,40}\), got \[[\d, -]{0,80}\]"),
            Pattern("Expected target size ", r"Expected target size \[[\d, -]{0,80}\], got \[[\d, -]{0,80}\]"),
            Pattern("multi-target not supported", r"1D target tensor expected, multi-target not supported"),
            Pattern(
                "normalized_shape=",
                r"Given normalized_shape=\[[\d, -]{0,80}\], expected input with shape [^\n]{1,40}, but got input"
                r" of size ?\[[\d, -]{0,80}\]",
            ),
            Pattern(
                "cannot be broadcast to indexing result of shape",
                r"shape mismatch: value tensor of shape \[[\d, -]{0,80}\] cannot be broadcast to indexing result"
                r" of shape \[[\d, -]{0,80}\]",
            ),
            Pattern(
                "indexing tensors could not be broadcast together",
                r"shape mismatch: indexing tensors could not be broadcast together with shapes",
            ),
            Pattern(
                "doesn't match the broadcast shape",
                r"output with shape \[[\d, -]{0,80}\] doesn't match the broadcast shape \[[\d, -]{0,80}\]",
            ),
            Pattern(
                "which does not broadcast with previously seen",
                r"which does not broadcast with previously seen (?:size (?P<size>\d{1,19})|ellipsis)",
            ),
            Pattern(
                "same number of dimensions: got",
                r"Tensors must have (?:the )?same number of dimensions: got (?P<size>\d{1,3}) and"
                r" (?P<other_size>\d{1,3})",
            ),
            Pattern(
                "Using a target size (",
                r"Using a target size \(torch\.Size\((?P<other_shape>\[[\d, -]{0,80}\])\)\) that is different to"
                r" the input size \(torch\.Size\((?P<shape>\[[\d, -]{0,80}\])\)\)(?: is deprecated|\. This will)",
            ),
            Pattern(
                "must match except in dimension",
                r"Sizes of tensors must match except in dimension (?P<joined_dimension>\d{1,3})\. Got"
                r" (?P<size>\d{1,19}) and (?P<other_size>\d{1,19})",
            ),
            Pattern(
                "must be greater or equal to the number of dimensions in the tensor",
                r"the number of sizes provided \(\d{1,3}\) must be greater or equal to the number of dimensions"
                r" in the tensor",
            ),
            Pattern(
                "ttention mask should be of size",
                r"Attention mask should be of size \([\d, ]{1,60}\), but is torch\.Size\(\[[\d, -]{0,80}\]\)",
            ),
            Pattern(
                "split_with_sizes expects split_sizes to sum exactly to",
                r"split_with_sizes expects split_sizes to sum exactly to (?P<size>\d{1,19})",
            ),
            Pattern(
                "to have batch size ",
                r"Expected [\w. ]{1,40}to have batch size (?P<size>\d{1,19}), but got (?P<other_size>\d{1,19})",
            ),
            Pattern(
                "Trying to create tensor with negative dimension",
                r"Trying to create tensor with negative dimension (?P<size>-\d{1,9})(?!\d)",
            ),
            Pattern(
                "D attn_mask is torch.Size(",
                r"The shape of the \dD attn_mask is torch\.Size\(\[[\d, -]{0,80}\]\), but should be",
            ),
            Pattern(
                "D input (got ", r"[Ee]xpected (?P<ranks>\dD(?:,? (?:or )?\dD){0,2}) input \(got (?P<rank>\dD) input\)"
            ),
            Pattern("padding_mask shape", r"expecting key_padding_mask shape of \([\d, ]{1,40}\), but got"),
            Pattern("Expected key_padded_mask.shape", r"Expected key_padded_mask\.shape\[\d\] to be \d{1,9}, but got"),
            Pattern(
                "(batch mode) tensor", r"Expected \dD or \dD \(batch mode\) tensor [^\n]{0,80}?for input,? but got: ?\["
            ),
            Pattern(
                "Expected size for first two dimensions of batch2",
                r"Expected size for first two dimensions of batch2 tensor to be: \[[\d, ]{1,40}\] but got",
            ),
            Pattern(
                "Mask shape should match input",
                r"Mask shape should match input\. mask: \[[\d, ]{0,60}\] input: \[[\d, ]{0,60}\]",
            ),
            Pattern(
                "number of dimensions in the tensor input does not match",
                r"\w{1,40}\(\w{1,20}\): number of dimensions in the tensor input does not match the length of"
                r" the desired ordering",
            ),
            Pattern(
                "tensor expected for input",
                r"non-empty (?P<ranks>\dD(?:,? (?:or )?\dD){0,2}) (?:\((?:batch mode|unbatched)\) )?tensor"
                r" expected for input",
            ),
            Pattern(
                "must be the same as input size (",
                r"Target size \(torch\.Size\((?P<other_shape>\[[\d, -]{0,80}\])\)\) must be the same as input size"
                r" \(torch\.Size\((?P<shape>\[[\d, -]{0,80}\])\)\)",
            ),
            Pattern(
                "batches of spatial targets supported",
                r"only batches of spatial targets supported \(3D tensors\) but got targets of"
                r" (?:dimension: (?P<rank>\d)|size: : (?P<other_shape>\[[\d, ]{0,60}\]))",
            ),
            Pattern(
                "nput and target batch or spatial sizes don't",
                r"[Ii]nput and target batch or spatial sizes don't match: target"
                r" (?P<other_shape>\[[\d, ]{0,60}\]), input"
                r" (?P<shape>\[[\d, ]{0,60}\])",
            ),
            Pattern(
                "weight tensor should be defined either",
                r"weight tensor should be defined either for all (?:(?P<size>\d{1,9}) )?classes or no classes",
            ),
            Pattern(
                "less than the corresponding input dimension",
                r"Padding size should be less than the corresponding input dimension, but got: padding"
                r" \((?P<padding>[\d, -]{1,30})\)",
            ),
            Pattern(
                "zero-dimensional tensor (at position",
                r"zero-dimensional tensor \(at position \d{1,6}\) cannot be concatenated",
            ),
            Pattern(
                "It is expected ",
                r"It is expected (?:output|input|kernel)_size equals to (?P<size>\d{1,3}), but got size"
                r" (?P<other_size>\d{1,3})",
            ),
            Pattern(
                "D input, but ",
                r"Got (?P<rank>\d)D input, but (?P<operation>\w{1,12}) mode needs (?P<ranks>\d)D input",
            ),
            Pattern(
                "Expected input to be 2D or 3D, got ",
                r"(?:LSTM|GRU|RNN): Expected input to be 2D or 3D, got (?P<rank>\d)D (?:tensor )?instead",
            ),
            Pattern(
                "query should be unbatched 2D",
                r"query should be unbatched 2D or batched 3D tensor but received (?P<rank>\d)-D",
            ),
            Pattern(
                "D tensors respectively",
                r"[Ff]or (?:un)?batched[^\n]{0,60}query`, expected `key` and `value` to be \d-D but found"
                r" [\w -]{1,20}D tensors respectively",
            ),
            Pattern("D input, hx should also be", r"For (?:un)?batched \d-D input, hx should also be \d-D but got"),
            Pattern(
                " number of src and tgt must be equal", r"the (?:batch|feature) number of src and tgt must be equal"
            ),
            Pattern(
                "was expecting embedding dimension of",
                r"was expecting embedding dimension of (?P<size>\d{1,9}), but got (?P<other_size>\d{1,9})",
            ),
            Pattern(
                "sizes do not match at",
                r"invalid argument \d{1,2}: sizes do not match at \S{1,160}",
            ),
        ),
        causes=(
            "A linear layer's in_features is not the last dimension of its input.",
            "The output of a convolution was not flattened, or the images have another size than expected.",
            "A view or reshape with a fixed size mixes the batch into other dimensions: the batch sizes then differ.",
            "The data has another number of channels than the first layer, such as gray images for an RGB model.",
            "A size of 0: ZeRO-3 or FSDP has sharded the parameter, which was used without being gathered.",
        ),
        fixes=(
            Fix("Print the shape before the layer.", "print(hidden.shape, layer)"),
            Fix(
                "Labels and outputs differ: give the model as many outputs as the labels have classes.",
                "print(output.shape, target.shape)",
                first_for=("`preds` and `target`", "targets are expected"),
            ),
            Fix(
                "The sound has two channels: mix them, or convert the files.",
                "sound = sound.mean(dim=-1)",
                first_for=(", 2]}, size=[",),
                hidden_otherwise=True,
            ),
            Fix("Flatten all dimensions except the batch.", "hidden = hidden.flatten(1)"),
            Fix("Infer the layer's size from the first batch.", "layer = torch.nn.LazyLinear(out_features)"),
            Fix(
                "After transpose or permute, use reshape in place of view.",
                "hidden = hidden.reshape(batch_size, -1)",
                first_for=("view size",),
            ),
            Fix(
                "In ComfyUI, compare the workflow with the template of its model: the files, width, height and frames;"
                " then update the nodes.",
                first_for=("processing !!!", "processing!!!", "Exception Message:"),
            ),
            Fix(
                "If ZeRO-3 or FSDP sharded the parameter (size 0), call the wrapped model, or gather it first.",
                "with deepspeed.zero.GatheredParameters(list(module.parameters())):\n    output = module(hidden)",
                first_for=("tensor a (0)", "tensor b (0)"),
            ),
            Fix(
                "The index selects another number of places than there are values; for a model with images, the"
                " prompt was cut: raise its maximum length (cutoff_len, max_length).",
                first_for=("be broadcast to indexing result",),
                hidden_otherwise=True,
            ),
            Fix(
                "The loss takes outputs of shape (N, C, ...) with the classes second, and labels of shape (N,"
                " ...): flatten both, or move the classes.",
                "loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())",
                first_for=("Expected target size",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="to-numpy",
        section=SECTION,
        title="NumPy conversion of a CUDA tensor",
        summary="NumPy works on host memory and cannot read a tensor on the GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "device type tensor to numpy",
                r"can't convert (?P<device>[\w:]{1,20}) device type tensor to numpy",
            ),
        ),
        causes=("NumPy, matplotlib, scikit-learn or pandas was given a tensor that is on the GPU.",),
        fixes=(Fix("Copy the tensor to the host first.", "values = tensor.detach().cpu().numpy()"),),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.numpy.html",),
        said_by="torch 1.13-2.13",
    ),
)
